"""Definitions of the tools for outcomes."""

from __future__ import annotations

from fidelio.runtime.outcomes import parameters as p
from fidelio.runtime.tools.model import ToolDefinition as Tool
from fidelio.runtime.tools.parameters import SessionParameters

_READS = ("session_read", "memory_read")

READ = Tool(
    name="outcome_read",
    title="Read the outcomes",
    description="What must become true in a session: the newest outcome, and all of them with their authors.",
    parameters=SessionParameters,
    group="outcome",
    effects=("session_read",),
    output=("sessionId", "activeOutcome", "outcomes"),
    read_only=True,
)
GRADE = Tool(
    name="outcome_grade",
    title="Grade the session",
    description="Where a session stands with its outcomes, from recorded verdicts. Runs no check and no model.",
    parameters=SessionParameters,
    group="outcome",
    effects=_READS,
    output=("sessionId", "activeOutcome", "grade"),
    read_only=True,
)
EVALUATE = Tool(
    name="outcome_evaluate",
    title="Evaluate the outcomes",
    description=(
        "Run the checks of this session's outcomes, have the rest graded, and record the verdict. "
        "Of another session: its recorded verdict."
    ),
    parameters=SessionParameters,
    group="outcome",
    effects=_READS,
    output=("sessionId", "activeOutcome", "grade", "evaluation", "evaluations", "evaluationHistory"),
    read_only=True,
)
HISTORY = Tool(
    name="outcome_history",
    title="List the evaluations",
    description="The evaluations of a session's outcomes, oldest first, one per wake.",
    parameters=p.OutcomeHistory,
    group="outcome",
    effects=_READS,
    output=("sessionId", "activeOutcome", "count", "latestIteration", "evaluations"),
    read_only=True,
)
DEFINE = Tool(
    name="outcome_define",
    title="Define an outcome",
    description=(
        "Define what must become true in this session. A criterion is a text, or {text, check} with a check that the runtime "
        "runs itself. The same title replaces your own outcome, another adds one."
    ),
    parameters=p.OutcomeDefine,
    group="outcome",
    effects=("session_write",),
    output=("sessionId", "activeOutcome", "eventId", "replaced"),
)
DEFINITIONS: tuple[Tool, ...] = (READ, GRADE, EVALUATE, HISTORY, DEFINE)
