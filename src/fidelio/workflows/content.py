"""Service that reads definitions for agents: workflow, current activity, skills, resources. It never moves a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.definitions import META
from fidelio.definitions.library import WorkflowVersion
from fidelio.definitions.library.loading import LoadedDefinition
from fidelio.definitions.models import Activity, Step, Workflow
from fidelio.engine.record import SKILL_LOADED, Record
from fidelio.engine.state import list_warnings
from fidelio.engine.transition_events import check_drift, check_skill
from fidelio.errors import ComponentNotFound, DefinitionError, UnreadableDefinition
from fidelio.ledger.model import NewEvent
from fidelio.workflows.missing import load_definition, missing_activity_warnings, unreadable_skill_warning
from fidelio.workflows.unit_of_work import (
    CallResult,
    Gate,
    WorkflowCall,
    WorkflowDecision,
    WorkflowUnit,
    no_activity_error,
    refuse_while_waiting,
)

if TYPE_CHECKING:
    from fidelio.definitions.models.components import Resource, Skill


class WorkflowText(msgspec.Struct, frozen=True):
    """The text of a workflow and of its primary skill, which is empty if there is none."""

    workflow: Workflow
    primary_skill: str
    source: str


class ActivityText(msgspec.Struct, frozen=True):
    """The text of an activity, and its workflow."""

    workflow: Workflow
    activity: Activity
    source: str


class SkillText(msgspec.Struct, frozen=True):
    """A skill under the reference by which it was requested; `loaded` is None if the skill is missing or unreadable.

    An unreadable file is reported in `warnings`; a missing one is not, because lint reports it.
    """

    id: str
    loaded: LoadedDefinition[Skill] | None
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.loaded.source.toon if self.loaded is not None else ""


class ResourceReference(msgspec.Struct, frozen=True):
    """A resource that a skill refers to; `index` is the argument for `get_resource`."""

    index: str
    id: str | None
    version: str | None


class ResourceText(msgspec.Struct, frozen=True):
    """The text of a resource, without its front matter."""

    reference: str
    id: str | None
    version: str | None
    content: str


class ContentService:
    """Carries out the calls that read definitions."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def workflow(self, token: str, *, gate: Gate = refuse_while_waiting) -> CallResult[WorkflowText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[WorkflowText]:
            gate(call.record, "read the workflow")
            version = load_definition(self._unit, call)
            workflow, primary = version.workflow, version.workflow.skills.primary
            skill = self._find_skill(primary, workflow.id) if primary else SkillText("", None)
            source = self._unit.library.toon("workflow", workflow=workflow.id)
            warnings = (*_drift_warnings(version, call.record), *skill.warnings, *missing_activity_warnings(workflow))
            return WorkflowDecision(WorkflowText(workflow, skill.text, source), warnings=warnings)

        return await self._unit.perform("get_workflow", token, decide)

    async def activity(self, token: str) -> CallResult[ActivityText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[ActivityText]:
            refuse_while_waiting(call.record, "read the activity")
            version = load_definition(self._unit, call)
            activity = self._current_activity(version.workflow, call.record)
            text = version.source(activity.id).toon
            return WorkflowDecision(
                ActivityText(version.workflow, activity, text), warnings=_drift_warnings(version, call.record)
            )

        return await self._unit.perform("get_activity", token, decide)

    async def workflow_skills(
        self, token: str, *, supporting: bool, gate: Gate = refuse_while_waiting
    ) -> CallResult[tuple[SkillText, ...]]:
        """Read the primary skill of the workflow and, if `supporting` is set, its supporting skills."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[tuple[SkillText, ...]]:
            gate(call.record, "read the skills")
            version = load_definition(self._unit, call)
            skills = version.workflow.skills
            names = dict.fromkeys([skills.primary, *(skills.supporting if supporting else ())])
            found = tuple(self._find_skill(name, version.workflow.id) for name in names if name)
            broken = (warning for skill in found for warning in skill.warnings)
            return WorkflowDecision(found, warnings=(*_drift_warnings(version, call.record), *broken))

        return await self._unit.perform("get_skills", token, decide)

    async def skill(self, token: str, step_id: str | None, *, gate: Gate = refuse_while_waiting) -> CallResult[SkillText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[SkillText]:
            gate(call.record, "read a skill")
            version = load_definition(self._unit, call)
            reference, owner = self._resolve_skill(version.workflow, call.record, step_id)
            skill = self._unit.library.skill(reference, workflow=version.workflow.id, owner=owner)
            body = {"skill": reference, "owner": skill.owner}
            event = NewEvent(type=SKILL_LOADED, body=body, actor=call.agent)
            return WorkflowDecision(
                SkillText(reference, skill), events=(event,), warnings=_drift_warnings(version, call.record)
            )

        return await self._unit.perform("get_skill", token, decide)

    async def resource(self, token: str, reference: str, *, gate: Gate = refuse_while_waiting) -> CallResult[ResourceText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[ResourceText]:
            gate(call.record, "read a resource")
            version = load_definition(self._unit, call)
            resource, owner = self._load_resource(reference, call.record)
            text = ResourceText(reference, resource.id, resource.version, resource.content.strip())
            # A reference without a workflow that resolves to another workflow was resolved through the skill loaded last.
            is_through_skill = "/" not in reference and call.record.workflow != owner == call.record.skill_owner
            problems = check_skill(version.workflow, call.record) if is_through_skill else []
            return WorkflowDecision(text, warnings=(*_drift_warnings(version, call.record), *list_warnings(problems)))

        return await self._unit.perform("get_resource", token, decide)

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

    def _current_activity(self, workflow: Workflow, record: Record) -> Activity:
        if not record.activity:
            raise no_activity_error()
        return workflow.activity(record.activity) or self._unit.library.activity(workflow.id, record.activity)

    def _load_resource(self, reference: str, record: Record) -> tuple[Resource, str]:
        """Load a resource with its owner; `templates/03` and `workflow/templates/03` refer to a template."""
        owner, library = record.skill_owner or None, self._unit.library
        if "templates" not in reference.split("/")[:-1]:
            resource = library.resource(reference, workflow=record.workflow, last_skill_owner=owner)
            return resource.definition, resource.owner
        template = library.template(reference, workflow=record.workflow, owner=owner)
        return template.definition, template.owner

    def _find_skill(self, reference: str, workflow: str) -> SkillText:
        """Find a skill; a missing or unreadable skill does not fail the whole call."""
        try:
            return SkillText(reference, self._unit.library.skill(reference, workflow=workflow))
        except ComponentNotFound:
            return SkillText(reference, None)
        except UnreadableDefinition as problem:
            return SkillText(reference, None, (unreadable_skill_warning(reference, problem),))

    def _resolve_skill(self, workflow: Workflow, record: Record, step_id: str | None) -> tuple[str, str | None]:
        if not record.activity:
            if step_id:
                raise no_activity_error("A step's skill needs an activity: call next_activity first.")
            return _require_skill(workflow.skills.primary, f"Workflow '{workflow.id}' has no primary skill."), None
        activity = self._current_activity(workflow, record)
        if step_id is None:
            return _require_skill(activity.skills.primary, f"Activity '{activity.id}' has no primary skill."), activity.owner
        step = _find_step(activity, step_id)
        return _require_skill(step.skill, f"Step '{step_id}' of activity '{activity.id}' has no skill."), activity.owner


def _drift_warnings(version: WorkflowVersion, record: Record) -> tuple[str, ...]:
    return tuple(list_warnings(check_drift(record, version.workflow.version, version.hash)))


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
    """Return the workflow without the bodies of its activities.

    `keys` maps the fields, in their order, to keys of the result; a field that the workflow does not have is null.
    """
    fields = workflow.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(keys))
    return {
        **{key: fields.get(key) for key in keys.values()},
        "activities": [
            {"id": activity.id, "name": activity.name, "required": activity.required} for activity in workflow.activities
        ],
    }


_HEAD = {name: name for name in ("id", "version", "title", "description", "rules", "variables")}
SUMMARY = {**_HEAD, "modes": "modes", "initial_activity": "initialActivity"}
SUMMARY_WITH_ROLES = {**_HEAD, "execution_model": "executionModel", "initial_activity": "initialActivity"}
