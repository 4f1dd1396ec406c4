"""Service that reads definitions for agents: workflow, current activity, skills, resources. It never moves a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from fidelio.definitions import META
from fidelio.definitions.library.loading import LoadedDefinition
from fidelio.definitions.models import Activity, Step, Workflow
from fidelio.engine.record import CONTENT_LOADED, SKILL_LOADED, Record
from fidelio.engine.state import list_warnings
from fidelio.engine.transition_events import check_skill
from fidelio.errors import ComponentNotFound, DefinitionError, Text, UnreadableDefinition
from fidelio.ledger.model import NewEvent
from fidelio.workflows.loaded_content import ContentReference, Kind, LoadedContent, load_content
from fidelio.workflows.refusals import Gate, no_activity_error, refuse_while_waiting
from fidelio.workflows.session_definition import (
    SessionDefinition,
    describe_problem,
    left_out_warning,
    load_definition,
    missing_activity_warnings,
)
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit

if TYPE_CHECKING:
    from fidelio.definitions.models.components import Skill

T = TypeVar("T")


class SkillText(msgspec.Struct, frozen=True):
    """A skill under the reference by which it was requested; `loaded` is None if the skill is missing or unreadable."""

    id: str
    loaded: LoadedDefinition[Skill] | None

    @property
    def text(self) -> str:
        return self.loaded.source.toon if self.loaded is not None else ""


class WorkflowText(msgspec.Struct, frozen=True):
    """The text of a workflow, and its primary skill; None without a primary skill."""

    workflow: Workflow
    primary_skill: SkillText | None
    source: str


class ActivityText(msgspec.Struct, frozen=True):
    """The text of an activity, and its workflow."""

    workflow: Workflow
    activity: Activity
    source: str


class ResourceReference(msgspec.Struct, frozen=True):
    """A resource that a skill refers to; `index` is the argument for `get_resource`."""

    index: str
    id: str | None
    version: str | None


class ResourceText(msgspec.Struct, frozen=True):
    """The text of a resource, without its front matter. `problem`: why the front matter is in the text."""

    reference: str
    id: str | None
    version: str | None
    content: str
    problem: str = ""


class ContentService:
    """Carries out the calls that read definitions."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def workflow(self, token: str, *, gate: Gate = refuse_while_waiting) -> CallResult[WorkflowText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[WorkflowText]:
            gate(call.record, "read the workflow")
            definition = await load_definition(self._unit, call.session.id, call.record)
            workflow, primary = definition.workflow, definition.workflow.skills.primary
            skills = await self._load_skills(call, definition, [primary] if primary else [])
            from_files = definition.files is not None
            text = self._unit.library.toon("workflow", workflow=workflow.id) if from_files else definition.snapshot_text()
            return WorkflowDecision(
                WorkflowText(workflow, skills.result[0] if primary else None, text),
                events=skills.events,
                blobs=skills.blobs,
                warnings=(*skills.warnings, *missing_activity_warnings(workflow)),
                definition=definition,
            )

        return await self._unit.perform("get_workflow", token, decide, reading="")

    async def activity(self, token: str) -> CallResult[ActivityText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[ActivityText]:
            refuse_while_waiting(call.record, "read the activity")
            definition = await load_definition(self._unit, call.session.id, call.record)
            activity = _current_activity(definition.workflow, call.record)
            text = ActivityText(definition.workflow, activity, definition.activity_text(activity))
            return WorkflowDecision(text, warnings=definition.warnings, definition=definition)

        return await self._unit.perform("get_activity", token, decide, reading="")

    async def workflow_skills(
        self, token: str, *, supporting: bool, gate: Gate = refuse_while_waiting
    ) -> CallResult[tuple[SkillText, ...]]:
        """Read the primary skill of the workflow and, if `supporting` is set, its supporting skills."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[tuple[SkillText, ...]]:
            gate(call.record, "read the skills")
            definition = await load_definition(self._unit, call.session.id, call.record)
            skills = definition.workflow.skills
            names = dict.fromkeys([skills.primary, *(skills.supporting if supporting else ())])
            return await self._load_skills(call, definition, [name for name in names if name])

        return await self._unit.perform("get_skills", token, decide, reading="")

    async def skill(self, token: str, step_id: str | None, *, gate: Gate = refuse_while_waiting) -> CallResult[SkillText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[SkillText]:
            gate(call.record, "read a skill")
            definition = await load_definition(self._unit, call.session.id, call.record)
            name, owner = _resolve_skill(definition.workflow, call.record, step_id)
            found = await load_content(self._unit, call.record, definition, ContentReference("skill", name, owner))
            event = _loading_event(call, [found], SKILL_LOADED, {"skill": name, "owner": found.loaded.owner})
            is_known = (call.record.skill, call.record.skill_owner) == (name, found.loaded.owner) and not found.blob
            return WorkflowDecision(
                SkillText(name, found.loaded),
                # A skill that is read again right away changes nothing.
                events=() if is_known else (event,),
                blobs=_list_blobs([found]),
                warnings=(*definition.warnings, *found.warnings),
                definition=definition,
            )

        return await self._unit.perform("get_skill", token, decide, reading=step_id or "")

    async def resource(self, token: str, reference: str, *, gate: Gate = refuse_while_waiting) -> CallResult[ResourceText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[ResourceText]:
            gate(call.record, "read a resource")
            definition = await load_definition(self._unit, call.session.id, call.record)
            kind: Kind = "template" if "templates" in reference.split("/")[:-1] else "resource"
            wanted = ContentReference(kind, reference, call.record.skill_owner or None)
            found = await load_content(self._unit, call.record, definition, wanted)
            resource, owner = found.loaded.definition, found.loaded.owner
            problem = " ".join(finding.sentence for finding in found.loaded.source.document.warnings)
            text = ResourceText(reference, resource.id, resource.version, resource.content.strip(), problem)
            # A reference without a workflow that resolves to another workflow was resolved through the skill loaded last.
            is_through_skill = "/" not in reference and call.record.workflow != owner == call.record.skill_owner
            problems = check_skill(definition.workflow, call.record) if is_through_skill else []
            return replace(
                decide_loading(call, definition, [found], text),
                warnings=(
                    *definition.warnings,
                    *found.warnings,
                    *(f"{finding.sentence} {finding.remedy}" for finding in found.loaded.source.document.warnings),
                    *list_warnings(problems),
                ),
            )

        return await self._unit.perform("get_resource", token, decide, reading=reference)

    def list_resources(self, skill: LoadedDefinition[Skill], workflow: str) -> list[ResourceReference]:
        """List the resources of a skill that exist, with the workflow in `index` where the number alone would be ambiguous."""
        references = list[ResourceReference]()
        for reference in skill.definition.resources:
            try:
                found = self._unit.library.resource(reference, workflow=workflow, last_skill_owner=skill.owner)
            except DefinitionError:
                continue
            is_foreign = "/" not in reference and found.owner not in (workflow, META)
            index = f"{found.owner}/{reference}" if is_foreign else reference
            references.append(ResourceReference(index, found.definition.id, found.definition.version))
        return references

    async def _load_skills(
        self, call: WorkflowCall, definition: SessionDefinition, names: Sequence[str]
    ) -> WorkflowDecision[tuple[SkillText, ...]]:
        """Load skills; a missing or unreadable skill does not fail the whole call.

        The warnings name an unreadable file; a missing one is reported by lint.
        """
        skills, loaded, broken = list[SkillText](), list[LoadedContent](), list[Text]()
        for name in names:
            try:
                found = await load_content(self._unit, call.record, definition, ContentReference("skill", name))
            except DefinitionError as problem:
                if isinstance(problem, UnreadableDefinition) or definition.drift:
                    broken.append(left_out_warning(f"Skill '{name}'", describe_problem(problem)))
                skills.append(SkillText(name, None))
            else:
                loaded.append(found)
                skills.append(SkillText(name, found.loaded))
        decision = decide_loading(call, definition, loaded, tuple(skills))
        return replace(decision, warnings=(*decision.warnings, *broken))


def decide_loading(
    call: WorkflowCall, definition: SessionDefinition, loaded: Sequence[LoadedContent], result: T
) -> WorkflowDecision[T]:
    """Decide a call that has loaded texts: those that are new to the session are stored."""
    return WorkflowDecision(
        result,
        events=(_loading_event(call, loaded, CONTENT_LOADED, {}),) if any(found.blob for found in loaded) else (),
        blobs=_list_blobs(loaded),
        warnings=(*definition.warnings, *(warning for found in loaded for warning in found.warnings)),
        definition=definition,
    )


def _list_blobs(loaded: Sequence[LoadedContent]) -> tuple[bytes, ...]:
    return tuple(found.blob for found in loaded if found.blob)


def _loading_event(call: WorkflowCall, loaded: Sequence[LoadedContent], kind: str, body: dict[str, Any]) -> NewEvent:
    digests = {key: digest for found in loaded for key, digest in found.digests.items()}
    body |= {"loaded": digests} if digests else {}
    return NewEvent(type=kind, body=body, actor=call.agent, blobs=tuple(dict.fromkeys(digests.values())))


def _current_activity(workflow: Workflow, record: Record) -> Activity:
    activity = workflow.activity(record.activity)
    if activity is None:
        raise no_activity_error(record)
    return activity


def _resolve_skill(workflow: Workflow, record: Record, step_id: str | None) -> tuple[str, str | None]:
    if not record.activity:
        if step_id:
            raise no_activity_error(record, "A step's skill needs an activity: call next_activity first.")
        return _require_skill(workflow.skills.primary, f"Workflow '{workflow.id}' has no primary skill."), None
    activity = _current_activity(workflow, record)
    if step_id is None:
        return _require_skill(activity.skills.primary, f"Activity '{activity.id}' has no primary skill."), activity.owner
    step = _find_step(activity, step_id)
    return _require_skill(step.skill, f"Step '{step_id}' of activity '{activity.id}' has no skill."), activity.owner


def _require_skill(reference: str | None, sentence: str) -> str:
    if not reference:
        raise ComponentNotFound(sentence, remedy="Call get_skill only for what names a skill.")
    return reference


def _find_step(activity: Activity, step_id: str) -> Step:
    steps = [*activity.steps, *(step for loop in activity.loops for step in loop.steps)]
    for step in steps:
        if step.id == step_id:
            return step
    known = ", ".join(dict.fromkeys(step.id for step in steps)) or "none"
    raise ComponentNotFound(f"Step '{step_id}' not found in activity '{activity.id}'.", remedy=f"Its steps are: {known}.")


def summarize_workflow(workflow: Workflow, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the workflow without the bodies of its activities, and with a short description of each variable.

    `keys` maps the fields, in their order, to keys of the result; a field that the workflow does not have is null.
    """
    fields = workflow.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(keys))
    fields["variables"] = [_shorten_variable(variable) for variable in fields.get("variables", ())]
    return {
        **{key: fields.get(key) for key in keys.values()},
        "activities": [
            {"id": activity.id, "name": activity.name, "required": activity.required} for activity in workflow.activities
        ],
    }


MAX_VARIABLE_DESCRIPTION = 72


def _shorten_variable(variable: dict[str, Any]) -> dict[str, Any]:
    """The variable as a summary has it: most of the text of a workflow file describes variables."""
    short = {key: value for key, value in variable.items() if not (key == "required" and value is False)}
    description = " ".join(str(variable.get("description", "")).split())
    if len(description) > MAX_VARIABLE_DESCRIPTION:
        short["description"] = description[:MAX_VARIABLE_DESCRIPTION].rsplit(" ", 1)[0] + "…"
    return short


_HEAD = {name: name for name in ("id", "version", "title", "description", "rules", "variables")}
SUMMARY = {**_HEAD, "modes": "modes", "initial_activity": "initialActivity"}
SUMMARY_WITH_ROLES = {**_HEAD, "execution_model": "executionModel", "initial_activity": "initialActivity"}
