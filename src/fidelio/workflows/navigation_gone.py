"""What is possible in a session that is led move by move when its definition is gone: nothing but its end."""

from __future__ import annotations

from fidelio.definitions.library import Source, Version
from fidelio.engine.moves import Move, Position, Situation
from fidelio.engine.record import Record
from fidelio.engine.transitions import TERMINAL
from fidelio.errors import PartNotFound, WorkflowRefusal
from fidelio.workflows.desk import Desk
from fidelio.workflows.gate import refuse_while_person_asked
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
        refuse_while_person_asked(record, everything=desk.rules.asks_person)
    except WorkflowRefusal as no:
        return _blocked(position, str(no), no.reason)
    return Situation(position, (Move("transition", TERMINAL),))


def _blocked(position: Position, reason: str, code: str) -> Situation:
    return Situation(position, blocked=(Move("transition", TERMINAL, reason=reason, code=code),))


def _no_source(activity: str) -> Source:
    raise PartNotFound(f"Activity not found: {activity}.", remedy="Its definition is gone.")
