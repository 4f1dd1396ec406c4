"""Sessions whose definition is gone: deleted, or no longer to be read.

Nothing says any more what such a session may do, so nothing is done in it until the files are back. But others may wait for
its end. So it can be ended, and the record says that nobody has checked what came of it. Where moves are enforced only a person
can do that: else an agent would get rid of the rules together with the file that they stand in. The same holds for the end of a
session that stands in an activity which is gone from a definition that is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.definitions.library import Version
from fidelio.definitions.models import Workflow
from fidelio.engine import phrases
from fidelio.engine.record import COMPLETED, Draft, Record
from fidelio.engine.transitions import TERMINAL, is_lost
from fidelio.errors import DefinitionError, DefinitionGone, UnreachableDefinition
from fidelio.inbox import assurance_of
from fidelio.ledger.model import CloseRequest, Request
from fidelio.workflows.desk import Desk, Opened
from fidelio.workflows.gaps import left_out, why_gone
from fidelio.workflows.gate import only_by_answer
from fidelio.workflows.reach import is_hidden, not_given, refuse_uncertain

# What a parent is told of a child that ended so.
OUTCOME = "without-definition"
# How the call of a person who ends such a session stands in the trace.
ENDED_BY_PERSON = "end_session"
_UNCHECKED = "The session was ended without it: nobody has checked whether everything was done that it asks for."


class Ender(msgspec.Struct, frozen=True):
    """Who ends a session unchecked, and over which channel."""

    by: str
    channel: str = "relayed"

    @property
    def on_record(self) -> dict[str, Any]:
        return {"by": self.by, "channel": self.channel, "assurance": assurance_of(self.channel)}


def definition_of(desk: Desk, opened: Opened) -> Version:
    """The definition that a session goes by, as it is now."""
    try:
        version = desk.library.version(opened.record.workflow)
    except UnreachableDefinition as fault:
        raise not_given(why_gone(fault)) from fault
    except DefinitionError as problem:
        refuse_uncertain(desk, opened, why_gone(problem))
        sentence = f"The definition of this session is gone: {why_gone(problem)}"
        raise DefinitionGone(sentence, remedy=f"Put its files back{_way_out(desk, opened)}") from problem
    if is_hidden(version, opened.record):
        raise not_given(" ".join(left_out(version.workflow)))
    return version


def lost_place(desk: Desk, opened: Opened, workflow: Workflow) -> DefinitionGone | None:
    """Why nobody can check the end of this session, although its definition is there; None where that can be checked."""
    record = opened.record
    if not is_lost(workflow, record):
        return None
    sentence = phrases.activity_gone(record.activity, unreadable=record.activity in workflow.broken)
    refuse_uncertain(desk, opened, sentence)
    return DefinitionGone(sentence, remedy=f"Put its files back{_way_out(desk, opened)}")


def _way_out(desk: Desk, opened: Opened) -> str:
    """What whoever calls can do without the files."""
    record, session = opened.record, opened.session.id
    if record.status == "completed" or not desk.rules.moves:
        return "."
    if desk.fidelity(record) == "enforce":
        return f". {only_by_person(session)}"
    return f". {only_by_answer(record.waiting, session)}" if record.waiting else f", or end the session with `{TERMINAL}`."


def only_by_person(session: str) -> str:
    how = f"fidelio sessions --end {session}"
    return f"Where moves are enforced a session does not end unchecked, unless a person ends it: {how}."


def nameplate(record: Record) -> Workflow:
    """What the record itself knows of a workflow whose definition is gone. Nothing is left of it but its end."""
    name, version = record.workflow, record.version
    return Workflow.model_construct(id=name, version=version, title=name, initial_activity=TERMINAL)


def is_nameplate(workflow: Workflow) -> bool:
    return workflow.initial_activity == TERMINAL and not workflow.activities


def unchecked(record: Record, gone: DefinitionGone, variables: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of an end without a definition."""
    yield f"{gone.sentence} {_UNCHECKED}"
    for waiting in record.pending:
        yield f"Checkpoint '{waiting.checkpoint}' was not answered: the end of the session has withdrawn it."
    if variables:
        yield f"Variables {phrases.names(variables)} were not taken: nothing says whether they fit."


def unchecked_end(
    record: Record,
    who: Ender,
    *,
    condition: str | None,
    manifest: Sequence[dict[str, str]] | None,
    warnings: Sequence[str],
) -> Draft:
    """The end as it goes on record. What the agent reports is kept, and held against nothing."""
    body: dict[str, Any] = {"activity": TERMINAL, "from": record.activity, "condition": condition or ""}
    body |= {"manifest": list(manifest)} if manifest is not None else {}
    return Draft(COMPLETED, {**body, "without_definition": who.on_record, "warnings": list(warnings)})


def withdrawn(record: Record, who: Ender) -> tuple[CloseRequest, ...]:
    """Nobody is to answer for a session that has ended."""
    return tuple(CloseRequest(id=waiting.request, state="dismissed", **who.on_record) for waiting in record.pending)


def is_withdrawn(request: Request) -> bool:
    """Whether it was closed so. Whoever dismisses a question because it does not apply gives that as the answer."""
    return request.state == "dismissed" and not request.answer
