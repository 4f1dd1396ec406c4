"""Missing definitions: decides whether a definition was deleted or is unavailable, and which actions remain.

If some files of a definition cannot be read, the agent is warned. If all of it was deleted, the session can only be ended, and
its last event records that the end was not checked.
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
    """Warn of each activity whose file exists and cannot be read."""
    return tuple(f"Activity '{name}' is left out: {_describe_finding(findings)}" for name, findings in workflow.broken.items())


def unreadable_skill_warning(name: str, problem: UnreadableDefinition) -> str:
    return f"Skill '{name}' is left out: {_describe_finding(problem.findings)}"


def describe_missing(problem: DefinitionError) -> str:
    """Say why the definition of a session cannot be loaded, without the path of its files."""
    return _describe_finding(problem.findings) if isinstance(problem, UnreadableDefinition) else problem.sentence


def _describe_finding(findings: Sequence[Located]) -> str:
    """Describe the first finding with the name of its file. Clients must not learn the path of the library."""
    worst = findings[0]
    file = os.path.basename(worst.file)  # noqa: PTH119  # a name, not a path
    location = f"{file}, line {worst.line}" if worst.line else file
    return f"{location}: {worst.sentence} `fidelio lint` shows how to fix it."


def refuse_if_uncertain(unit: WorkflowUnit, call: WorkflowCall, why: str) -> None:
    """Raise if it is unknown whether the definition was deleted; `why` says what is missing."""
    record, session = call.record, call.session.id
    if unit.policy.has_exact_search_path or _covers_origin(unit.library, record):
        return
    if not record.found_in:
        sentence = "The record does not say where the definition came from, so it is unknown whether it was deleted."
        remedy = f"Put its files back, or let a person end the session: fidelio sessions --end {session}."
    else:
        sentence = "This server does not search the directory that the definition of this session came from."
        remedy = f"Call a server that does (`--workflows DIR`); the directory is in `fidelio report {session}`."
    raise DefinitionUnavailable(f"{why} {sentence}", remedy=remedy)


def unavailable_error(why: str) -> DefinitionUnavailable:
    """The error for files that exist and that the operating system does not let this process read."""
    return DefinitionUnavailable(
        f"The definition of this session cannot be read: {why}",
        remedy="Nothing was changed. Call again when it is readable.",
    )


def is_unavailable(version: WorkflowVersion, record: Record) -> bool:
    """Whether the file of the current or initial activity is inaccessible to this process."""
    if not version.inaccessible:
        return False
    workflow = version.workflow
    current = record.activity or workflow.initial_activity
    return workflow.activity(current) is None if current else not workflow.activities


def _covers_origin(library: Library, record: Record) -> bool:
    """Whether the library looks in the root from which the definition of the session was loaded."""
    try:
        root = library.root(record.workflow)
    except WorkflowNotFound:
        return covers_root(library, record.found_in)
    return is_same_root(root, record.found_in)


# The outcome of such a child in the record of its parent.
ENDED_WITHOUT_DEFINITION = "without-definition"
# The name in the trace of the call by which a person ends such a session.
ENDED_BY_PERSON = "end_session"
_UNCHECKED = "The session was ended without it: its completion was not checked."


class EndedBy(msgspec.Struct, frozen=True):
    """The actor that ends a session without its definition, and the channel."""

    by: str
    channel: str = "relayed"

    @property
    def event_body(self) -> dict[str, Any]:
        return {"by": self.by, "channel": self.channel, "assurance": assurance_of(self.channel)}


def load_definition(unit: WorkflowUnit, call: WorkflowCall) -> WorkflowVersion:
    """Load the current definition of a session; raise if it was deleted or is unavailable."""
    try:
        version = unit.library.version(call.record.workflow)
    except InaccessibleDefinition as error:
        raise unavailable_error(describe_missing(error)) from error
    except DefinitionError as problem:
        refuse_if_uncertain(unit, call, describe_missing(problem))
        sentence = f"The definition of this session was deleted: {describe_missing(problem)}"
        raise DefinitionDeleted(sentence, remedy=f"Put its files back{_end_remedy(unit, call)}") from problem
    if is_unavailable(version, call.record):
        raise unavailable_error(" ".join(missing_activity_warnings(version.workflow)))
    return version


def deleted_activity_error(unit: WorkflowUnit, call: WorkflowCall, workflow: Workflow) -> DefinitionDeleted | None:
    """The error if only the current activity of a session was deleted, so that its end cannot be checked; else None."""
    record = call.record
    if not is_activity_missing(workflow, record):
        return None
    sentence = phrases.activity_missing(record.activity, unreadable=record.activity in workflow.broken)
    refuse_if_uncertain(unit, call, sentence)
    return DefinitionDeleted(sentence, remedy=f"Put its files back{_end_remedy(unit, call)}")


def _end_remedy(unit: WorkflowUnit, call: WorkflowCall) -> str:
    """How the caller can end the session without the files: the rest of a remedy."""
    record, session = call.record, call.session.id
    if record.status == "completed" or not unit.policy.allows_moves:
        return "."
    if unit.effective_fidelity(record) == "enforce":
        return f". {end_by_person_remedy(session)}"
    return f". {answer_remedy(record.waiting, session)}" if record.waiting else f", or end the session with `{TERMINAL}`."


def end_by_person_remedy(session: str) -> str:
    how = f"fidelio sessions --end {session}"
    return f"Where moves are enforced a session does not end unchecked, unless a person ends it: {how}."


def placeholder_workflow(record: Record) -> Workflow:
    """Build a workflow from the record of a session whose definition was deleted. It has no activities."""
    name, version = record.workflow, record.version
    return Workflow.model_construct(id=name, version=version, title=name, initial_activity=TERMINAL)


def is_placeholder(workflow: Workflow) -> bool:
    return workflow.initial_activity == TERMINAL and not workflow.activities


def unchecked_warnings(record: Record, deleted: DefinitionDeleted, variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the warnings of an end without a definition."""
    yield f"{deleted.sentence} {_UNCHECKED}"
    for waiting in record.pending:
        yield f"Checkpoint '{waiting.checkpoint}' was not answered: the end of the session has withdrawn it."
    if variables:
        yield f"Variables {phrases.list_names(variables)} were not taken: nothing says whether they fit."


def unchecked_end_event(
    record: Record,
    ended_by: EndedBy,
    *,
    condition: str | None,
    manifest: Sequence[dict[str, str]] | None,
    warnings: Sequence[str],
) -> EventDraft:
    """Build the last event of such a session. The manifest of the agent is recorded without a check."""
    body: dict[str, Any] = {"activity": TERMINAL, "from": record.activity, "condition": condition or ""}
    body |= {"manifest": list(manifest)} if manifest is not None else {}
    return EventDraft(COMPLETED, {**body, "without_definition": ended_by.event_body, "warnings": list(warnings)})


def dismiss_pending(record: Record, ended_by: EndedBy) -> tuple[RequestChange, ...]:
    """Dismiss the open requests of a session that ends."""
    return dismiss_all((waiting.request for waiting in record.pending), by=ended_by.by, channel=ended_by.channel)


def is_withdrawn(request: Request) -> bool:
    """Whether the end of the session dismissed the request. A dismissal because of a condition has an answer."""
    return request.state == "dismissed" and not request.answer
