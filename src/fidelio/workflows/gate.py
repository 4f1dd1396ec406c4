"""The gate: while a question waits, every token of the session is held where the contract says so.

Which calls are held, and what helps, depends on how an agent works with the session; so whoever carries out a call passes the
gate it has to go through. Where questions come one by one the gate names the one that waits; where they all come at the door it
names all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from fidelio.engine import phrases
from fidelio.engine.problems import Refusal
from fidelio.engine.record import OpenCheckpoint, Record
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
    also = f"A person can also answer it: fidelio answer {waiting.request} OPTION."
    raise WorkflowRefusal(
        f"Cannot {action}: Active checkpoint '{waiting.checkpoint}' in activity '{waiting.activity}' waits for an answer.",
        remedy=f"{person_remedy(waiting.request)} Then call resume_checkpoint." if waiting.person else f"{handle}{how} {also}",
        reason=UNRESOLVED,
    )


def person_remedy(request: str) -> str:
    """What helps where an answer of the model is not taken, whatever it calls."""
    return (
        "Only a person may answer it. When respond_checkpoint is called, a client that can do so asks its user; else a person "
        f"answers with: fidelio answer {request} OPTION."
    )


def refuse_while_pending(record: Record, action: str) -> None:
    waiting = record.waiting
    if waiting is None:
        return
    person = next((one for one in record.pending if one.person), None)
    also = f"A person can also answer: fidelio answer {waiting.request} OPTION."
    who = f"'{person.checkpoint}': {person_remedy(person.request)}" if person is not None else also
    call = f'respond_checkpoint with {{"checkpoint_id": "{waiting.checkpoint}", "option_id": THE USER\'S CHOICE}}'
    raise WorkflowRefusal(
        phrases.unresolved_checkpoints(action, waiting.activity, (one.checkpoint for one in record.pending)),
        remedy=(
            f"Answer each of them: {call}; get_checkpoint shows the options. A conditional one that does not apply is "
            f"dismissed with condition_not_met. {who}"
        ),
        reason=UNRESOLVED,
    )


def refuse_unanswered_end(record: Record, session: str) -> None:
    """A question does not go away with its definition: else the way past a closed gate would be to delete a file."""
    waiting = record.waiting
    if waiting is None:
        return
    raise WorkflowRefusal(
        phrases.unresolved_checkpoints("end the session", waiting.activity, (one.checkpoint for one in record.pending)),
        remedy=answer_remedy(waiting, session),
        reason=UNRESOLVED,
    )


def answer_remedy(waiting: OpenCheckpoint, session: str) -> str:
    """How such a session comes to its end."""
    answer, end = f"fidelio answer {waiting.request} OPTION", f"fidelio sessions --end {session}"
    return f"A person can answer what waits as it was asked: {answer}. A person can also end the session as it is: {end}."


def allow_always(_record: Record, _action: str) -> None:
    """For what may be read whatever waits."""


def no_activity(remedy: str = "Call next_activity first.") -> WorkflowRefusal:
    return WorkflowRefusal(phrases.NO_CURRENT_ACTIVITY, remedy=remedy, reason="activity.none")


def refusal_error(no: Refusal) -> WorkflowRefusal:
    """A refusal of the rules as the error that surfaces show."""
    return WorkflowRefusal(no.sentence, remedy=no.remedy, reason=no.code)
