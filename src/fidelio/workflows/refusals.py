"""Refusals of calls on workflow sessions: the gates that hold while a request is open, and the errors of refused calls."""

from __future__ import annotations

from collections.abc import Callable

from fidelio.engine import phrases
from fidelio.engine.record import Record
from fidelio.engine.state import OpenCheckpoint, Refusal
from fidelio.errors import Hint, WorkflowRefusal

# Called with the record and a phrase for the action of the caller; raises if the action has to wait.
Gate = Callable[[Record, str], None]
# The reason code of a call that was refused because a request is open.
UNRESOLVED = "checkpoint.unresolved"


def refuse_while_waiting(record: Record, action: str, *, remedy: str = "") -> None:
    """Refuse a call while a checkpoint that was yielded or armed waits for an answer."""
    waiting = record.waiting
    if waiting is None:
        return
    handle = "" if record.open is not None else "yield_checkpoint gives its handle. "
    how = remedy or "Resolve it with respond_checkpoint; then call resume_checkpoint."
    person = Hint(person_remedy(waiting), " Then call resume_checkpoint.")
    also = Hint(f"{handle}{how} A person can also answer it: ", waiting.answer_command, ".")
    raise WorkflowRefusal(
        f"Cannot {action}: Active checkpoint '{waiting.checkpoint}' in activity '{waiting.activity}' waits for an answer.",
        remedy=person if waiting.person else also,
        reason=UNRESOLVED,
    )


def person_remedy(waiting: OpenCheckpoint) -> Hint:
    """The remedy where an answer of the model is not accepted."""
    if waiting.proven:
        how = waiting.answer_command
        return Hint("Only a person may answer it, signed with a passkey, on the web page: ", how, " prints a link.")
    return Hint(
        "Only a person may answer it. When respond_checkpoint is called, a client that can do so asks its user; else a person "
        "answers with: ",
        waiting.answer_command,
        ".",
    )


def refuse_while_pending(record: Record, action: str) -> None:
    """Refuse a call while any checkpoint of the activity waits for an answer, and list all of them."""
    waiting = record.waiting
    if waiting is None:
        return
    person = next((request for request in record.pending if request.person), None)
    also = Hint("A person can also answer: ", waiting.answer_command, ".")
    who = Hint(f"'{person.checkpoint}': ", person_remedy(person)) if person is not None else also
    call = f'respond_checkpoint with {{"checkpoint_id": "{waiting.checkpoint}", "option_id": THE USER\'S CHOICE}}'
    raise WorkflowRefusal(
        phrases.unresolved_checkpoints(action, waiting.activity, (request.checkpoint for request in record.pending)),
        remedy=Hint(
            f"Answer each of them: {call}; get_checkpoint shows the options. A conditional one that does not apply is "
            "dismissed with condition_not_met. ",
            who,
        ),
        reason=UNRESOLVED,
    )


def refuse_ended(record: Record) -> None:
    """Refuse a change of a session that has ended."""
    if record.status == "completed":
        raise WorkflowRefusal(
            "This session is completed.", remedy="Start a new one with start_session.", reason="session.completed"
        )
    if record.ended:
        raise cancelled_error()


def cancelled_error() -> WorkflowRefusal:
    return WorkflowRefusal(
        "A person has ended this session.", remedy="Stop here, and ask what to do next.", reason="session.cancelled"
    )


def allow_always(_record: Record, _action: str) -> None:
    """A gate for reads that are allowed while requests are open."""


def no_activity_error(record: Record, remedy: str = "Call next_activity first.") -> WorkflowRefusal:
    # A worker may not call next_activity, and here nobody can.
    if record.status == "cancelled":
        return cancelled_error()
    return WorkflowRefusal(phrases.NO_CURRENT_ACTIVITY, remedy=remedy, reason="activity.none")


def refusal_error(refusal: Refusal) -> WorkflowRefusal:
    """Turn a refusal of the engine into an error."""
    return WorkflowRefusal(refusal.sentence, remedy=refusal.remedy, reason=refusal.code)
