"""Missing definitions: decides whether one was deleted or is unavailable, and what an agent or a person can still do.

A session is led by its definition. Where files of it cannot be read, the agent is warned of what is missing; where all of it
was deleted, the session can only be ended, and the record says that nobody has checked it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.definitions.library import Library, WorkflowVersion
from fidelio.definitions.library.search_path import covers_root, is_same_root
from fidelio.definitions.models import Workflow
from fidelio.engine import phrases
from fidelio.engine.record import COMPLETED, EventDraft, Record
from fidelio.engine.transitions import TERMINAL, is_activity_missing
from fidelio.errors import (
    DefinitionDeleted,
    DefinitionError,
    DefinitionUnavailable,
    InaccessibleDefinition,
    UnreadableDefinition,
    WorkflowNotFound,
)
from fidelio.errors.workflows import Located
from fidelio.inbox import RequestChange, assurance_of, dismiss_all
from fidelio.ledger.model import Request
from fidelio.workflows.unit_of_work import WorkflowCall, WorkflowUnit, answer_remedy


def missing_activity_warnings(workflow: Workflow) -> tuple[str, ...]:
    """A warning for each activity that is written somewhere and missing all the same."""
    return tuple(f"Activity '{name}' is left out: {_why(findings)}" for name, findings in workflow.broken.items())


def unreadable_skill_warning(name: str, problem: UnreadableDefinition) -> str:
    return f"Skill '{name}' is left out: {_why(problem.findings)}"


def describe_missing(problem: DefinitionError) -> str:
    """Why the definition of a session cannot be had, without where its files lie or lay."""
    return _why(problem.findings) if isinstance(problem, UnreadableDefinition) else problem.sentence


def _why(findings: Sequence[Located]) -> str:
    """The worst that is wrong, by the name of its file: where the library lies is no client's business."""
    worst = findings[0]
    file = os.path.basename(worst.file)  # noqa: PTH119  # a name, not a path
    place = f"{file}, line {worst.line}" if worst.line else file
    return f"{place}: {worst.sentence} `fidelio lint` says how to mend it."


def refuse_if_uncertain(unit: WorkflowUnit, call: WorkflowCall, why: str) -> None:
    """Raises where nobody can tell whether the definition is gone; `why` says what was found in its stead."""
    record, session = call.record, call.session.id
    if unit.policy.chosen_place or _looked_at(unit.library, record):
        return
    if not record.found_in:
        sentence = "The record does not say where the definition of this session came from: nobody can tell whether it is gone."
        remedy = f"Put its files back, or let a person end the session: fidelio sessions --end {session}."
    else:
        sentence = "This server does not look in the place that the definition of this session came from."
        remedy = f"Call a server that does (`--workflows PLACE`); the place is in `fidelio report {session}`."
    raise DefinitionUnavailable(f"{why} {sentence}", remedy=remedy)


def unavailable_error(why: str) -> DefinitionUnavailable:
    """The system does not let anybody look."""
    return DefinitionUnavailable(
        f"The definition of this session cannot be looked at: {why}",
        remedy="Nothing was changed by this call: make it again once that is mended.",
    )


def is_unavailable(version: WorkflowVersion, record: Record) -> bool:
    """Whether the system keeps back the activity that the session stands in or begins with."""
    if not version.inaccessible:
        return False
    workflow = version.workflow
    here = record.activity or workflow.initial_activity
    return workflow.activity(here) is None if here else not workflow.activities


def _looked_at(library: Library, record: Record) -> bool:
    """Whether what was found, or not, is what the place of the session has."""
    try:
        root = library.root(record.workflow)
    except WorkflowNotFound:
        return covers_root(library, record.found_in)
    return is_same_root(root, record.found_in)


# What a parent is told of a child that ended so.
ENDED_WITHOUT_DEFINITION = "without-definition"
# How the call of a person who ends such a session stands in the trace.
ENDED_BY_PERSON = "end_session"
_UNCHECKED = "The session was ended without it: nobody has checked whether everything was done that it asks for."


class EndedBy(msgspec.Struct, frozen=True):
    """Who ends a session unchecked, and over which channel."""

    by: str
    channel: str = "relayed"

    @property
    def on_record(self) -> dict[str, Any]:
        return {"by": self.by, "channel": self.channel, "assurance": assurance_of(self.channel)}


def load_definition(unit: WorkflowUnit, call: WorkflowCall) -> WorkflowVersion:
    """The definition that a session goes by, as it is now."""
    try:
        version = unit.library.version(call.record.workflow)
    except InaccessibleDefinition as fault:
        raise unavailable_error(describe_missing(fault)) from fault
    except DefinitionError as problem:
        refuse_if_uncertain(unit, call, describe_missing(problem))
        sentence = f"The definition of this session is gone: {describe_missing(problem)}"
        raise DefinitionDeleted(sentence, remedy=f"Put its files back{_way_out(unit, call)}") from problem
    if is_unavailable(version, call.record):
        raise unavailable_error(" ".join(missing_activity_warnings(version.workflow)))
    return version


def deleted_activity_error(unit: WorkflowUnit, call: WorkflowCall, workflow: Workflow) -> DefinitionDeleted | None:
    """Why nobody can check the end of this session, although its definition is there; None where that can be checked."""
    record = call.record
    if not is_activity_missing(workflow, record):
        return None
    sentence = phrases.activity_missing(record.activity, unreadable=record.activity in workflow.broken)
    refuse_if_uncertain(unit, call, sentence)
    return DefinitionDeleted(sentence, remedy=f"Put its files back{_way_out(unit, call)}")


def _way_out(unit: WorkflowUnit, call: WorkflowCall) -> str:
    """What whoever calls can do without the files."""
    record, session = call.record, call.session.id
    if record.status == "completed" or not unit.policy.moves:
        return "."
    if unit.fidelity(record) == "enforce":
        return f". {end_by_person_remedy(session)}"
    return f". {answer_remedy(record.waiting, session)}" if record.waiting else f", or end the session with `{TERMINAL}`."


def end_by_person_remedy(session: str) -> str:
    how = f"fidelio sessions --end {session}"
    return f"Where moves are enforced a session does not end unchecked, unless a person ends it: {how}."


def placeholder_workflow(record: Record) -> Workflow:
    """What the record itself knows of a workflow whose definition is gone. Nothing is left of it but its end."""
    name, version = record.workflow, record.version
    return Workflow.model_construct(id=name, version=version, title=name, initial_activity=TERMINAL)


def is_placeholder(workflow: Workflow) -> bool:
    return workflow.initial_activity == TERMINAL and not workflow.activities


def unchecked_warnings(record: Record, gone: DefinitionDeleted, variables: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of an end without a definition."""
    yield f"{gone.sentence} {_UNCHECKED}"
    for waiting in record.pending:
        yield f"Checkpoint '{waiting.checkpoint}' was not answered: the end of the session has withdrawn it."
    if variables:
        yield f"Variables {phrases.list_names(variables)} were not taken: nothing says whether they fit."


def unchecked_end_event(
    record: Record,
    who: EndedBy,
    *,
    condition: str | None,
    manifest: Sequence[dict[str, str]] | None,
    warnings: Sequence[str],
) -> EventDraft:
    """The end as it goes on record. What the agent reports is kept, and held against nothing."""
    body: dict[str, Any] = {"activity": TERMINAL, "from": record.activity, "condition": condition or ""}
    body |= {"manifest": list(manifest)} if manifest is not None else {}
    return EventDraft(COMPLETED, {**body, "without_definition": who.on_record, "warnings": list(warnings)})


def dismiss_pending(record: Record, who: EndedBy) -> tuple[RequestChange, ...]:
    """Nobody is to answer for a session that has ended."""
    return dismiss_all((waiting.request for waiting in record.pending), by=who.by, channel=who.channel)


def is_withdrawn(request: Request) -> bool:
    """Whether it was closed so. Whoever dismisses a question because it does not apply gives that as the answer."""
    return request.state == "dismissed" and not request.answer
