"""The gate: while a question waits, every token of the session is held where the contract says so.

Which calls are held, and what helps, depends on how an agent works with the session; so whoever carries out a call passes the
gate it has to go through. Where questions come one by one the gate names the one that waits; where they all come at the door it
names all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from fidelio.engine import phrases
from fidelio.engine.record import Record
from fidelio.engine.verdicts import Refusal
from fidelio.errors import WorkflowRefusal

# Takes the record and what the caller wants to do, and raises when that has to wait.
Gate = Callable[[Record, str], None]
# What the trace says of a call that ran against a question.
UNRESOLVED = "checkpoint.unresolved"


def refuse_while_waiting(record: Record, action: str, *, remedy: str = "") -> None:
    waiting = record.waiting
    if waiting is None:
        return
    handle = "" if record.open is not None else "yield_checkpoint gives its handle. "
    how = remedy or "Resolve it with respond_checkpoint; then call resume_checkpoint."
    raise WorkflowRefusal(
        f"Cannot {action}: Active checkpoint '{waiting.checkpoint}' in activity '{waiting.activity}' waits for an answer.",
        remedy=f"{handle}{how} A person can also answer it: fidelio answer {waiting.request} OPTION.",
        reason=UNRESOLVED,
    )


def refuse_while_pending(record: Record, action: str) -> None:
    waiting = record.waiting
    if waiting is None:
        return
    call = f'respond_checkpoint with {{"checkpoint_id": "{waiting.checkpoint}", "option_id": THE USER\'S CHOICE}}'
    raise WorkflowRefusal(
        phrases.unresolved(action, waiting.activity, (one.checkpoint for one in record.pending)),
        remedy=(
            f"Answer each of them: {call}; get_checkpoint shows the options. A conditional one that does not apply is "
            f"dismissed with condition_not_met. A person can also answer: fidelio answer {waiting.request} OPTION."
        ),
        reason=UNRESOLVED,
    )


def refuse_while_person_asked(record: Record, *, everything: bool) -> None:
    """A question that only a person may answer does not go away with its definition; `everything` is such a question here."""
    waiting = next((one for one in record.pending if one.person or everything), None)
    if waiting is not None:
        raise WorkflowRefusal(
            phrases.needs_person(waiting.checkpoint),
            remedy=f"Let a person answer it: fidelio answer {waiting.request} OPTION. Then the session can be ended.",
            reason=UNRESOLVED,
        )


def let_through(_record: Record, _action: str) -> None:
    """For what may be read whatever waits."""


def no_activity(remedy: str = "Call next_activity first.") -> WorkflowRefusal:
    return WorkflowRefusal(phrases.NO_CURRENT_ACTIVITY, remedy=remedy, reason="activity.none")


def refused(no: Refusal) -> WorkflowRefusal:
    """A refusal of the rules as the error that surfaces show."""
    return WorkflowRefusal(no.sentence, remedy=no.remedy, reason=no.code)
