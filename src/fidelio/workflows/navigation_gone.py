"""What is possible in a session that is led move by move when its definition is gone: nothing but its end.

Where only the activity is gone in which it stands, its end comes to what the definition still has to offer.
"""

from __future__ import annotations

from dataclasses import replace

from fidelio.definitions.library import Source, Version
from fidelio.definitions.models import Workflow
from fidelio.engine.moves import Move, Position, Situation
from fidelio.engine.record import Record
from fidelio.engine.transitions import TERMINAL, is_lost
from fidelio.errors import PartNotFound, WorkflowRefusal
from fidelio.workflows.desk import Desk
from fidelio.workflows.gate import refuse_unanswered_end
from fidelio.workflows.gone import nameplate, only_by_person


def remains(record: Record) -> Version:
    """What stands in for the definition. It is the one that the session began with as far as anybody can tell."""
    return Version(nameplate(record), record.definition, _no_source)


def only_the_end(desk: Desk, session: str, record: Record) -> Situation:
    position = Position(record.workflow, record.activity)
    if record.status == "completed":
        return Situation(position)
    if desk.fidelity(record) == "enforce":
        return _blocked(position, only_by_person(session), "DEFINITION_GONE")
    try:
        refuse_unanswered_end(record, session)
    except WorkflowRefusal as no:
        return _blocked(position, str(no), no.reason)
    return Situation(position, (Move("transition", TERMINAL),))


def with_unchecked_end(desk: Desk, session: str, workflow: Workflow, record: Record, found: Situation) -> Situation:
    """What is possible, and the end with it where nobody can check that. While a question waits, only that is shown."""
    shown = any(move.target == TERMINAL for move in (*found.required, *found.blocked))
    if shown or record.waiting is not None or not is_lost(workflow, record):
        return found
    end = only_the_end(desk, session, record)
    return replace(found, required=(*found.required, *end.required), blocked=(*found.blocked, *end.blocked))


def _blocked(position: Position, reason: str, code: str) -> Situation:
    return Situation(position, blocked=(Move("transition", TERMINAL, reason=reason, code=code),))


def _no_source(activity: str) -> Source:
    raise PartNotFound(f"Activity not found: {activity}.", remedy="Its definition is gone.")
