"""Serves definitions to agents: the workflow, the current activity, skills and resources. Reading never moves a session."""

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
    no_activity,
    refuse_while_waiting,
)

if TYPE_CHECKING:
    from fidelio.definitions.models.components import Resource, Skill


class WorkflowText(msgspec.Struct, frozen=True):
    """A workflow to read: the text of its primary skill (empty without one), and the definition."""

    workflow: Workflow
    primary_skill: str
    source: str


class ActivityText(msgspec.Struct, frozen=True):
    """An activity to read, and the workflow it is a part of."""

    workflow: Workflow
    activity: Activity
    source: str


class SkillFound(msgspec.Struct, frozen=True):
    """A skill to read, under the name that asked for it; `loaded` is None when no file has it or its file is broken.

    `list_warnings` says so of a broken file; what is missing altogether is for lint to report.
    """

    id: str
    loaded: LoadedDefinition[Skill] | None
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.loaded.source.toon if self.loaded is not None else ""


class ResourceNamed(msgspec.Struct, frozen=True):
    """A resource that a skill points to: what get_resource takes, and what it would return."""

    index: str
    id: str | None
    version: str | None


class ResourceText(msgspec.Struct, frozen=True):
    """A resource to read, without its front matter."""

    reference: str
    id: str | None
    version: str | None
    content: str


class ContentService:
    """Everything that serves definitions to a session."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def workflow(self, token: str, *, gate: Gate = refuse_while_waiting) -> CallResult[WorkflowText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[WorkflowText]:
            gate(call.record, "read the workflow")
            version = load_definition(self._unit, call)
            workflow, primary = version.workflow, version.workflow.skills.primary
            skill = self._found(primary, workflow.id) if primary else SkillFound("", None)
            source = self._unit.library.toon("workflow", workflow=workflow.id)
            said = (*_drift(version, call.record), *skill.warnings, *missing_activity_warnings(workflow))
            return WorkflowDecision(WorkflowText(workflow, skill.text, source), warnings=said)

        return await self._unit.perform("get_workflow", token, decide)

    async def activity(self, token: str) -> CallResult[ActivityText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[ActivityText]:
            refuse_while_waiting(call.record, "read the activity")
            version = load_definition(self._unit, call)
            activity = self._current(version.workflow, call.record)
            text = version.source(activity.id).toon
            return WorkflowDecision(ActivityText(version.workflow, activity, text), warnings=_drift(version, call.record))

        return await self._unit.perform("get_activity", token, decide)

    async def workflow_skills(
        self, token: str, *, supporting: bool, gate: Gate = refuse_while_waiting
    ) -> CallResult[tuple[SkillFound, ...]]:
        """The skills of the workflow as a whole: the primary one, if there is one, and the supporting ones if wanted."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[tuple[SkillFound, ...]]:
            gate(call.record, "read the skills")
            version = load_definition(self._unit, call)
            skills = version.workflow.skills
            names = dict.fromkeys([skills.primary, *(skills.supporting if supporting else ())])
            found = tuple(self._found(name, version.workflow.id) for name in names if name)
            broken = (warning for skill in found for warning in skill.warnings)
            return WorkflowDecision(found, warnings=(*_drift(version, call.record), *broken))

        return await self._unit.perform("get_skills", token, decide)

    async def skill(self, token: str, step_id: str | None, *, gate: Gate = refuse_while_waiting) -> CallResult[SkillFound]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[SkillFound]:
            gate(call.record, "read a skill")
            version = load_definition(self._unit, call)
            reference, owner = self._wanted_skill(version.workflow, call.record, step_id)
            skill = self._unit.library.skill(reference, workflow=version.workflow.id, owner=owner)
            body = {"skill": reference, "owner": skill.owner}
            event = NewEvent(type=SKILL_LOADED, body=body, actor=call.agent)
            return WorkflowDecision(SkillFound(reference, skill), events=(event,), warnings=_drift(version, call.record))

        return await self._unit.perform("get_skill", token, decide)

    async def resource(self, token: str, reference: str, *, gate: Gate = refuse_while_waiting) -> CallResult[ResourceText]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[ResourceText]:
            gate(call.record, "read a resource")
            version = load_definition(self._unit, call)
            resource, owner = self._resource(reference, call.record)
            text = ResourceText(reference, resource.id, resource.version, resource.content.strip())
            # Only the skill that was loaded last has led to another workflow's resource, where the reference names none.
            through_skill = "/" not in reference and call.record.workflow != owner == call.record.skill_owner
            said = check_skill(version.workflow, call.record) if through_skill else []
            return WorkflowDecision(text, warnings=(*_drift(version, call.record), *list_warnings(said)))

        return await self._unit.perform("get_resource", token, decide)

    def resources_of(self, skill: LoadedDefinition[Skill], workflow: str) -> list[ResourceNamed]:
        """What the skill points to, as far as it is there. A number is spelt out where it alone would mean another file."""
        named = list[ResourceNamed]()
        for reference in skill.definition.resources:
            try:
                found = self._unit.library.resource(reference, workflow=workflow, last_skill_owner=skill.owner)
            except DefinitionError:
                continue
            elsewhere = "/" not in reference and found.owner not in (workflow, META)
            index = f"{found.owner}/{reference}" if elsewhere else reference
            named.append(ResourceNamed(index, found.definition.id, found.definition.version))
        return named

    def _current(self, workflow: Workflow, record: Record) -> Activity:
        if not record.activity:
            raise no_activity()
        return workflow.activity(record.activity) or self._unit.library.activity(workflow.id, record.activity)

    def _resource(self, reference: str, record: Record) -> tuple[Resource, str]:
        """A resource and whose it is; `templates/03` and `workflow/templates/03` name a template, served in the same way."""
        owner, library = record.skill_owner or None, self._unit.library
        parts = reference.split("/")
        if "templates" not in parts[:-1]:
            resource = library.resource(reference, workflow=record.workflow, last_skill_owner=owner)
            return resource.definition, resource.owner
        template = library.template(reference, workflow=record.workflow, owner=owner)
        return template.definition, template.owner

    def _found(self, reference: str, workflow: str) -> SkillFound:
        """A skill of the workflow that is missing or broken does not keep the rest of the answer back."""
        try:
            return SkillFound(reference, self._unit.library.skill(reference, workflow=workflow))
        except ComponentNotFound:
            return SkillFound(reference, None)
        except UnreadableDefinition as problem:
            return SkillFound(reference, None, (unreadable_skill_warning(reference, problem),))

    def _wanted_skill(self, workflow: Workflow, record: Record, step_id: str | None) -> tuple[str, str | None]:
        if not record.activity:
            if step_id:
                raise no_activity("A step's skill needs an activity: call next_activity first.")
            return _needed(workflow.skills.primary, f"Workflow '{workflow.id}' has no primary skill."), None
        activity = self._current(workflow, record)
        if step_id is None:
            return _needed(activity.skills.primary, f"Activity '{activity.id}' has no primary skill."), activity.owner
        step = _step(activity, step_id)
        return _needed(step.skill, f"Step '{step_id}' of activity '{activity.id}' has no skill."), activity.owner


def _drift(version: WorkflowVersion, record: Record) -> tuple[str, ...]:
    return tuple(list_warnings(check_drift(record, version.workflow.version, version.hash)))


def _needed(reference: str | None, sentence: str) -> str:
    if not reference:
        raise ComponentNotFound(sentence, remedy="Call get_skill only for what names a skill.")
    return reference


def _step(activity: Activity, step_id: str) -> Step:
    steps = [*activity.steps, *(step for loop in activity.loops for step in loop.steps)]
    for step in steps:
        if step.id == step_id:
            return step
    known = ", ".join(dict.fromkeys(step.id for step in steps)) or "none"
    raise ComponentNotFound(f"Step '{step_id}' not found in activity '{activity.id}'.", remedy=f"Its steps are: {known}.")


def summary_of(workflow: Workflow, shown: Mapping[str, str]) -> dict[str, Any]:
    """The workflow without the bodies of its activities: what an orchestrator needs to find its way.

    `shown` are the fields in their order and the keys they stand under; what a workflow does not have is null.
    """
    whole = workflow.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(shown))
    return {
        **{key: whole.get(key) for key in shown.values()},
        "activities": [{"id": one.id, "name": one.name, "required": one.required} for one in workflow.activities],
    }


_HEAD = {name: name for name in ("id", "version", "title", "description", "rules", "variables")}
SUMMARY = {**_HEAD, "modes": "modes", "initial_activity": "initialActivity"}
SUMMARY_WITH_ROLES = {**_HEAD, "execution_model": "executionModel", "initial_activity": "initialActivity"}
