"""Tools of a server or an agent: their table, their typed parameters, the context of a call and its outcome.

Below everything that offers tools, so that the MCP servers and an agent of our own share one table. It knows neither a
transport nor the inbox: what a call needs of them is in its `CallContext`, bound by whoever serves the table.
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
    "ToolTable",
    "input_schema",
    "read_arguments",
]
