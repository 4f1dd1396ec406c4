"""The definition that leads a session: the files on disk, or the snapshot that the ledger stored at its start.

Files with the content that the session began with are always used. If they differ, the snapshot decides where moves are
enforced, so that no edit has an effect on the session; elsewhere the files decide as long as they can be read and have what the
call needs. Whoever is served from the snapshot, or from changed files, is told so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Literal

import msgspec

from fidelio.definitions.library import WorkflowVersion
from fidelio.definitions.library.identifiers import check_id, suggest_names
from fidelio.definitions.models import Activity, Workflow
from fidelio.definitions.models.workflow import parse_snapshot
from fidelio.definitions.toon_writer import encode_toon
from fidelio.engine import phrases
from fidelio.engine.record import RESTORED, STARTED, Record
from fidelio.engine.state import Problem, list_warnings
from fidelio.engine.transition_events import check_drift
from fidelio.engine.transitions import ends_workflow
from fidelio.errors import Command, ComponentNotFound, DefinitionError, DefinitionUnavailable, Hint, UnreadableDefinition
from fidelio.errors.workflows import Located
from fidelio.ledger.redaction import read_body
from fidelio.workflows.unit_of_work import WorkflowUnit

# More than the definitions that the sessions of one server use at a time after their files have changed.
MAX_SNAPSHOTS = 8
_NOT_FOR_AGENTS = frozenset({"owner", "broken", "schema_hint"})


class SessionDefinition(msgspec.Struct, frozen=True):
    """The definition of a session. `drift` says how the files differ from those that the session began with.

    `files` is the version on disk, None if the snapshot is used.
    """

    workflow: Workflow
    files: WorkflowVersion | None = None
    drift: tuple[Problem, ...] = ()

    @property
    def source(self) -> Literal["files", "snapshot"]:
        return "snapshot" if self.files is None else "files"

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(list_warnings(self.drift)) if self.drift else ()

    def activity_text(self, activity: Activity) -> str:
        """The activity as TOON: its file, or its definition in the snapshot, which has no file."""
        return self.files.source(activity.id).toon if self.files is not None else encode_toon(_dump(activity))

    def snapshot_text(self) -> str:
        """The workflow as TOON, with the names of its activities."""
        head = _dump(self.workflow, exclude={"activities"})
        return encode_toon({**head, "activities": [activity.id for activity in self.workflow.activities]})


def _dump(definition: Workflow | Activity, exclude: set[str] | None = None) -> dict[str, object]:
    left_out = {*_NOT_FOR_AGENTS, *(exclude or ())}
    return definition.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude=left_out)


async def load_definition(unit: WorkflowUnit, session: str, record: Record, *, target: str = "") -> SessionDefinition:
    """Load the definition of a session. `target` is the activity that the call enters, if any.

    Raises `DefinitionUnavailable` if neither the files nor the snapshot can lead the session.
    """
    version, reason = _read_files(unit, record)
    if version is not None and version.hash == record.definition:
        return SessionDefinition(version.workflow, version)
    drift = () if version is None else tuple(check_drift(record, version.workflow.version, version.hash))
    options = list[SessionDefinition]()
    if version is not None and unit.effective_fidelity(record) != "enforce":
        options.append(SessionDefinition(version.workflow, version, drift))
        reason = _find_gap(version.workflow, record, target)
        if not reason:
            return options[0]
    if (snapshot := await _load_snapshot(unit, session)) is not None:
        options.append(SessionDefinition(snapshot, None, (*drift, _explain_snapshot(reason))))
    # If none has the target, the first that has the current activity says so.
    for needed, option in product((target, ""), options):
        if not _find_gap(option.workflow, record, needed):
            return option
    raise _unavailable(session, record, reason)


def find_activity(unit: WorkflowUnit, definition: SessionDefinition, name: str) -> Activity:
    """Find an activity by its id, or a variant of it that the library accepts."""
    found = definition.workflow.activity(name)
    if found is not None:
        return found
    if definition.files is not None:
        # The library raises the error: it knows similar names, and why an activity cannot be read.
        return unit.library.activity(definition.workflow.id, name)
    wanted, known = check_id(name, "an activity"), [activity.id for activity in definition.workflow.activities]
    if (found := definition.workflow.activity(wanted)) is not None:
        return found
    remedy = suggest_names(wanted, known) or f"Its activities are {', '.join(known)}."
    raise ComponentNotFound(f"Activity not found: {wanted} in workflow {definition.workflow.id}.", remedy=remedy)


def _read_files(unit: WorkflowUnit, record: Record) -> tuple[WorkflowVersion | None, str]:
    """Read the files of a definition; if that is not possible, return why."""
    try:
        return unit.library.version(record.workflow), ""
    except DefinitionError as problem:
        return None, describe_problem(problem)


def _find_gap(workflow: Workflow, record: Record, target: str) -> str:
    """Say which activity that the call needs is missing in a definition; empty if none is."""
    current = "" if record.ended else record.activity or workflow.initial_activity or ""
    for name in filter(None, (current, "" if ends_workflow(workflow, target) else target)):
        if workflow.activity(name) is None:
            # A directory that cannot be listed is named instead of the activities in it.
            findings = workflow.broken.get(name) or next(iter(workflow.broken.values()), None)
            return _describe_finding(findings) if findings else f"Activity '{name}' is not in the files any more."
    return ""


async def _load_snapshot(unit: WorkflowUnit, session: str) -> Workflow | None:
    """Load the definition that a session began with from the ledger; None if it was not stored, is erased or unreadable.

    Parsed snapshots are cached, because parsing that of the bundled `work-package` (47 KB) takes 1.0 to 7.6 ms, and a whole
    call about 1 ms.
    """
    first = await unit.ledger.events(session, types=(STARTED, RESTORED), limit=1)
    digest = (await read_body(unit.ledger, first[0])).get("snapshot", "") if first else ""
    cached = unit.snapshots.get(digest)
    if cached is not None or not digest:
        return cached
    blob = await unit.ledger.blob(digest)
    if blob is None:
        return None
    parsed = parse_snapshot(blob)
    if parsed is not None:
        if len(unit.snapshots) >= MAX_SNAPSHOTS:
            unit.snapshots.pop(next(iter(unit.snapshots)))
        unit.snapshots[digest] = parsed
    return parsed


def _explain_snapshot(reason: str) -> Problem:
    why = f"The files cannot be used: {reason} " if reason else ""
    return Problem("snapshot", f"{why}{phrases.SNAPSHOT_LEADS}", advisory=True)


def _unavailable(session: str, record: Record, reason: str) -> DefinitionUnavailable:
    why = reason or "Its files have changed since."
    return DefinitionUnavailable(
        f"The definition of workflow '{record.workflow}' that this session began with cannot be read, and the ledger has no "
        f"copy of it. {why}",
        remedy=Hint(
            "Put its files back as they were, or let a person end the session: ", Command("sessions", "--end", session), "."
        ),
    )


def missing_activity_warnings(workflow: Workflow) -> tuple[Hint, ...]:
    """Warn of each activity whose file exists and cannot be read."""
    return tuple(
        left_out_warning(f"Activity '{name}'", _describe_finding(findings)) for name, findings in workflow.broken.items()
    )


def left_out_warning(what: str, reason: str) -> Hint:
    """Warn of a part of a definition that cannot be read."""
    return Hint(f"{what} is left out: {reason} ", Command("lint"), " shows how to fix it.")


def describe_problem(problem: DefinitionError) -> str:
    """Say why a definition cannot be loaded, without the path of its files, which clients must not learn."""
    return _describe_finding(problem.findings) if isinstance(problem, UnreadableDefinition) else problem.sentence


def explain_unavailable(unit: WorkflowUnit, workflow: str) -> str:
    """Say why this server cannot start a workflow; empty if it can."""
    try:
        unit.library.workflow(workflow)
    except DefinitionError as problem:
        return describe_problem(problem)
    return ""


def _describe_finding(findings: Sequence[Located]) -> str:
    worst = findings[0]
    file = os.path.basename(worst.file)  # noqa: PTH119  # a name, not a path
    location = f"{file}, line {worst.line}" if worst.line else file
    return f"{location}: {worst.sentence}"
