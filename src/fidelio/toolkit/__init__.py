"""Tools of a server or an agent: their table, typed parameters, the context of a call and its outcome.

The MCP servers and the agent runtime share this package. It imports neither a transport nor the inbox: a call gets what it
needs of them in its `CallContext`, which the server of the table builds.
"""

from fidelio.toolkit.tools import (
    AnswerOption,
    Ask,
    AskPerson,
    CallContext,
    Done,
    Outcome,
    Render,
    Reporter,
    Tool,
    ToolHandlers,
    ToolTable,
    input_schema,
    read_arguments,
)

__all__ = [
    "AnswerOption",
    "Ask",
    "AskPerson",
    "CallContext",
    "Done",
    "Outcome",
    "Render",
    "Reporter",
    "Tool",
    "ToolHandlers",
    "ToolTable",
    "input_schema",
    "read_arguments",
]
