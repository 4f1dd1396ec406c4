"""The gate: while a question waits, every token of the session is held where the contract says so."""

from __future__ import annotations

from fidelio.engine.record import Record
from fidelio.engine.verdicts import Refusal
from fidelio.errors import WorkflowRefusal


def refuse_while_waiting(record: Record, action: str, *, remedy: str = "") -> None:
    waiting = record.waiting
    if waiting is None:
        return
    how = remedy or "Resolve it with respond_checkpoint; then call resume_checkpoint."
    raise WorkflowRefusal(
        f"Cannot {action}: Active checkpoint '{waiting.checkpoint}' in activity '{waiting.activity}' waits for an answer.",
        remedy=f"{how} A person can also answer it: fidelio answer {waiting.request} OPTION.",
    )


def refused(no: Refusal) -> WorkflowRefusal:
    """A refusal of the rules as the error that surfaces show."""
    error = WorkflowRefusal(no.sentence, remedy=no.remedy)
    error.reason = no.code
    return error
