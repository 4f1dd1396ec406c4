"""What agents read: the workflow, the current activity, skills and resources. Reading never moves a session."""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.definitions.library import Version
from fidelio.definitions.models import Activity, Resource, Step, Workflow
from fidelio.engine import phrases
from fidelio.engine.claims import check_drift
from fidelio.engine.record import SKILL_LOADED, Record
from fidelio.engine.verdicts import warnings
from fidelio.errors import PartNotFound, WorkflowRefusal
from fidelio.ledger.model import NewEvent
from fidelio.workflows.desk import Decision, Desk, Opened, Outcome
from fidelio.workflows.gate import refuse_while_waiting


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


class SkillText(msgspec.Struct, frozen=True):
    """A skill to read."""

    id: str
    text: str


class ResourceText(msgspec.Struct, frozen=True):
    """A resource to read, without its front matter."""

    reference: str
    id: str | None
    version: str | None
    content: str


class Reading:
    """Everything that serves definitions to a session."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def workflow(self, token: str) -> Outcome[WorkflowText]:
        async def decide(opened: Opened) -> Decision[WorkflowText]:
            version = self._readable(opened.record, "read the workflow")
            workflow, primary = version.workflow, version.workflow.skills.primary
            text = self._skill_or_nothing(primary, workflow.id) if primary else ""
            source = self._desk.library.toon("workflow", workflow=workflow.id)
            return Decision(WorkflowText(workflow, text, source), warnings=_drift(version, opened.record))

        return await self._desk.perform("get_workflow", token, decide)

    async def activity(self, token: str) -> Outcome[ActivityText]:
        async def decide(opened: Opened) -> Decision[ActivityText]:
            version = self._readable(opened.record, "read the activity")
            activity = self._current(version.workflow, opened.record)
            text = version.source(activity.id).toon
            return Decision(ActivityText(version.workflow, activity, text), warnings=_drift(version, opened.record))

        return await self._desk.perform("get_activity", token, decide)

    async def workflow_skill(self, token: str) -> Outcome[SkillText | None]:
        """The workflow's primary skill, None when it has none."""

        async def decide(opened: Opened) -> Decision[SkillText | None]:
            version = self._readable(opened.record, "read the skills")
            primary = version.workflow.skills.primary
            found = SkillText(primary, self._skill_or_nothing(primary, version.workflow.id)) if primary else None
            return Decision(found, warnings=_drift(version, opened.record))

        return await self._desk.perform("get_skills", token, decide)

    async def skill(self, token: str, step_id: str | None) -> Outcome[SkillText]:
        async def decide(opened: Opened) -> Decision[SkillText]:
            version = self._readable(opened.record, "read a skill")
            reference, owner = self._wanted_skill(version.workflow, opened.record, step_id)
            skill = self._desk.library.skill(reference, workflow=version.workflow.id, owner=owner)
            body = {"skill": reference, "owner": skill.owner}
            event = NewEvent(type=SKILL_LOADED, body=body, actor=opened.agent)
            text = SkillText(reference, skill.source.toon)
            return Decision(text, events=(event,), warnings=_drift(version, opened.record))

        return await self._desk.perform("get_skill", token, decide)

    async def resource(self, token: str, reference: str) -> Outcome[ResourceText]:
        async def decide(opened: Opened) -> Decision[ResourceText]:
            version = self._readable(opened.record, "read a resource")
            found = self._resource(reference, opened.record)
            text = ResourceText(reference, found.id, found.version, found.content.strip())
            return Decision(text, warnings=_drift(version, opened.record))

        return await self._desk.perform("get_resource", token, decide)

    def _readable(self, record: Record, action: str) -> Version:
        refuse_while_waiting(record, action)
        return self._desk.library.version(record.workflow)

    def _current(self, workflow: Workflow, record: Record) -> Activity:
        if not record.activity:
            raise WorkflowRefusal(phrases.NO_CURRENT_ACTIVITY, remedy="Call next_activity first.")
        return workflow.activity(record.activity) or self._desk.library.activity(workflow.id, record.activity)

    def _resource(self, reference: str, record: Record) -> Resource:
        """A resource; `templates/03` and `workflow/templates/03` name a template, which is served in the same way."""
        owner, library = record.skill_owner or None, self._desk.library
        parts = reference.split("/")
        if "templates" not in parts[:-1]:
            return library.resource(reference, workflow=record.workflow, last_skill_owner=owner).definition
        return library.template(reference, workflow=record.workflow, owner=owner).definition

    def _skill_or_nothing(self, reference: str, workflow: str) -> str:
        """A primary skill that is missing does not keep the rest of the answer back; lint reports it."""
        try:
            return self._desk.library.skill(reference, workflow=workflow).source.toon
        except PartNotFound:
            return ""

    def _wanted_skill(self, workflow: Workflow, record: Record, step_id: str | None) -> tuple[str, str | None]:
        if not record.activity:
            if step_id:
                raise WorkflowRefusal(
                    phrases.NO_CURRENT_ACTIVITY, remedy="A step's skill needs an activity: call next_activity first."
                )
            return _needed(workflow.skills.primary, f"Workflow '{workflow.id}' has no primary skill."), None
        activity = self._current(workflow, record)
        if step_id is None:
            return _needed(activity.skills.primary, f"Activity '{activity.id}' has no primary skill."), activity.owner
        step = _step(activity, step_id)
        return _needed(step.skill, f"Step '{step_id}' of activity '{activity.id}' has no skill."), activity.owner


def _drift(version: Version, record: Record) -> tuple[str, ...]:
    return tuple(warnings(check_drift(record, version.workflow.version, version.hash)))


def _needed(reference: str | None, sentence: str) -> str:
    if not reference:
        raise PartNotFound(sentence, remedy="Call get_skill only for what names a skill.")
    return reference


def _step(activity: Activity, step_id: str) -> Step:
    steps = [*activity.steps, *(step for loop in activity.loops for step in loop.steps)]
    for step in steps:
        if step.id == step_id:
            return step
    known = ", ".join(dict.fromkeys(step.id for step in steps)) or "none"
    raise PartNotFound(f"Step '{step_id}' not found in activity '{activity.id}'.", remedy=f"Its steps are: {known}.")


def summary_of(workflow: Workflow) -> dict[str, Any]:
    """The workflow without the bodies of its activities: what an orchestrator needs to find its way."""
    whole = workflow.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(_SUMMARY))
    return {
        **{_SUMMARY[name]: whole.get(_SUMMARY[name]) for name in _SUMMARY},
        "activities": [{"id": one.id, "name": one.name, "required": one.required} for one in workflow.activities],
    }


# What a summary shows, in this order, and the key it stands under; what a workflow does not have is null.
_SUMMARY = {
    "id": "id",
    "version": "version",
    "title": "title",
    "description": "description",
    "rules": "rules",
    "variables": "variables",
    "modes": "modes",
    "initial_activity": "initialActivity",
}
