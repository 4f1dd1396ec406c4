"""Handlers of the `navigator` dialect without a session: workflows, activities, skills, resources and templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from fidelio.definitions import META
from fidelio.definitions.library import Library
from fidelio.definitions.library.listing import WorkflowSummary
from fidelio.definitions.models import Activity
from fidelio.engine.checkpoints import find_checkpoint
from fidelio.engine.phrases import checkpoint_not_found
from fidelio.engine.transitions import explain_missing_transition
from fidelio.errors import ComponentNotFound, DefinitionError
from fidelio.surfaces.mcp.dialects.common import Dialect, as_json, describe_list
from fidelio.surfaces.mcp.dialects.navigator.parameters import (
    GetActivity,
    GetCheckpoint,
    GetSkill,
    GetWorkflowActivity,
    IndexReference,
    ListSkills,
    ValidateTransition,
    WorkflowReference,
)
from fidelio.surfaces.mcp.dialects.sessions.parameters import NoParameters
from fidelio.toolkit import CallContext, Done

Json = dict[str, Any]
# Kinds of component that are addressed by number or name in a folder of a workflow.
Part = Literal["resource", "template"]
_FOLDERS: dict[Part, Literal["resources", "templates"]] = {"resource": "resources", "template": "templates"}


class NavigatorLibrary(Dialect):
    """Handlers of the tools that read definitions."""

    async def list_workflows(self, _: NoParameters, context: CallContext) -> Done:
        return self.render_list(await self.app.library(), context, _encode_list)

    def list_workflow_entries(self, library: Library) -> Sequence[WorkflowSummary]:
        return _list_readable(library)

    async def health_check(self, _: NoParameters, __: CallContext) -> Done:
        # In this dialect `meta` can be started, so it is counted.
        body = {**await self.describe_health(), "workflows_available": len(_list_readable(await self.app.library()))}
        return Done(as_json(body), structured=body)

    async def get_workflow(self, arguments: WorkflowReference, _: CallContext) -> Done:
        return Done(as_json(_dump((await self.app.library()).workflow(arguments.workflow_id))))

    async def get_workflow_activity(self, arguments: GetWorkflowActivity, _: CallContext) -> Done:
        return Done(as_json(_dump((await self.app.library()).activity(arguments.workflow_id, arguments.activity_id))))

    async def get_checkpoint(self, arguments: GetCheckpoint, _: CallContext) -> Done:
        activity = (await self.app.library()).activity(arguments.workflow_id, arguments.activity_id)
        checkpoint = find_checkpoint(activity, arguments.checkpoint_id)
        if checkpoint is None:
            known = ", ".join(checkpoint.id for checkpoint in activity.checkpoints) or "none"
            sentence = checkpoint_not_found(arguments.checkpoint_id, activity.id)
            raise ComponentNotFound(sentence, remedy=f"Its checkpoints are: {known}.")
        return Done(as_json({**_dump(checkpoint), "required": checkpoint.required, "blocking": checkpoint.blocking}))

    async def validate_transition(self, arguments: ValidateTransition, _: CallContext) -> Done:
        workflow = (await self.app.library()).workflow(arguments.workflow_id)
        reason = explain_missing_transition(workflow, arguments.from_activity, arguments.to_activity)
        body: Json = {"valid": False, "reason": reason} if reason else {"valid": True}
        return Done(as_json(body), structured=body)

    async def get_activities(self, _: NoParameters, __: CallContext) -> Done:
        found, entries, phrases = list(_iterate_activities(await self.app.library())), list[Json](), dict[str, str]()
        occurrences = Counter(activity.id for _, activity in found)
        for workflow, activity in found:
            full_id = f"{workflow}/{activity.id}"
            next_action = {"tool": "get_activity", "parameters": {"activity_id": full_id}}
            details = {"problem": activity.problem, "primary_skill": activity.skills.primary}
            entries.append({"id": activity.id, "workflowId": workflow, **details, "next_action": next_action})
            for phrase in activity.recognition:
                phrases.setdefault(phrase.lower(), activity.id if occurrences[activity.id] == 1 else full_id)
        first_action = entries[0]["next_action"] if entries else {"tool": "list_workflows", "parameters": {}}
        return Done(
            as_json(
                {
                    "description": "Match the user's goal to an activity, by quick_match or by problem.",
                    "usage": "Call get_activity with its id for what to do, or nav_start with its workflowId.",
                    "next_action": first_action,
                    "activities": entries,
                    "quick_match": phrases,
                }
            )
        )

    async def get_activity(self, arguments: GetActivity, _: CallContext) -> Done:
        library = await self.app.library()
        for workflow, activity in _iterate_activities(library):
            if arguments.activity_id in (activity.id, f"{workflow}/{activity.id}"):
                return Done(
                    as_json({**_dump(activity), "workflowId": workflow, "next_action": _suggest_reading(workflow, activity)})
                )
        raise ComponentNotFound(f"Activity not found: {arguments.activity_id}.", remedy="get_activities lists them.")

    async def get_skills(self, _: NoParameters, __: CallContext) -> Done:
        library = await self.app.library()
        found = {entry.id: list(_describe_skills(library, entry.id)) for entry in _list_readable(library)}
        body = {
            "description": "What there is guidance for.",
            "usage": "Call get_skill with the id and, for a skill of one workflow, workflow_id.",
            "universal": found.pop(META, []),
            "workflow_specific": {workflow: skills for workflow, skills in found.items() if skills},
        }
        return Done(as_json(body))

    async def list_skills(self, arguments: ListSkills, _: CallContext) -> Done:
        library = await self.app.library()
        universal = list(_describe_skills(library, META)) if _has_meta(library) else []
        if not arguments.workflow_id:
            return Done(as_json(universal))
        return Done(as_json({"universal": universal, "workflow": list(_describe_skills(library, arguments.workflow_id))}))

    async def get_skill(self, arguments: GetSkill, _: CallContext) -> Done:
        found = (await self.app.library()).skill(arguments.skill_id, workflow=arguments.workflow_id or META)
        return Done(as_json(found.source.document.data))

    async def list_workflow_resources(self, arguments: WorkflowReference, _: CallContext) -> Done:
        return Done(as_json(list(_list_texts(await self.app.library(), "resource", arguments.workflow_id))))

    async def get_resource(self, arguments: IndexReference, _: CallContext) -> Done:
        return Done(_read_text(await self.app.library(), "resource", arguments))

    async def list_templates(self, arguments: WorkflowReference, _: CallContext) -> Done:
        return Done(as_json(list(_list_texts(await self.app.library(), "template", arguments.workflow_id))))

    async def get_template(self, arguments: IndexReference, _: CallContext) -> Done:
        return Done(_read_text(await self.app.library(), "template", arguments))

    async def discover_resources(self, _: NoParameters, __: CallContext) -> Done:
        library = await self.app.library()
        entries = _list_readable(library)
        body = {
            "workflows": {"tool": "list_workflows", "items": [{"id": entry.id, "title": entry.title} for entry in entries]},
            "activities": {"tool": "get_activities", "count": sum(1 for _ in _iterate_activities(library))},
            "skills": {"tool": "get_skills", "items": _count_components(library, "skills", entries)},
            "resources": {"tool": "list_workflow_resources", "items": _count_components(library, "resources", entries)},
            "templates": {"tool": "list_templates", "items": _count_components(library, "templates", entries)},
        }
        return Done(as_json(body))


def _encode_list(entries: Sequence[WorkflowSummary]) -> str:
    return as_json(describe_list(entries))


def _list_readable(library: Library) -> list[WorkflowSummary]:
    """List every workflow that can be loaded, `meta` first."""
    return sorted((entry for entry in library.checked_list() if not entry.broken), key=lambda entry: entry.id != META)


def _has_meta(library: Library) -> bool:
    return any(entry.id == META for entry in _list_readable(library))


def _iterate_activities(library: Library) -> Iterator[tuple[str, Activity]]:
    for entry in _list_readable(library):
        try:
            workflow = library.workflow(entry.id)
        except DefinitionError:
            # A workflow that cannot be read must not hide the others; lint reports it.
            continue
        yield from ((entry.id, activity) for activity in workflow.activities)


def _describe_skills(library: Library, workflow: str) -> Iterator[Json]:
    for skill in library.components("skills", workflow):
        reference = {"skill_id": skill.id, "workflow_id": workflow}
        next_action = {"tool": "get_skill", "parameters": reference}
        try:
            capability = library.skill(f"{workflow}/{skill.id}", workflow=workflow).definition.capability
        except DefinitionError as problem:
            yield {"id": skill.id, "problem": problem.sentence}
            continue
        yield {"id": skill.id, "index": skill.index, "capability": capability, "next_action": next_action}


def _list_texts(library: Library, kind: Part, workflow: str) -> Iterator[Json]:
    find = library.resource if kind == "resource" else library.template
    for name in library.components(_FOLDERS[kind], workflow):
        entry: Json = {"index": name.index or name.id, "name": name.id, "title": name.id, "format": name.format}
        try:
            entry["title"] = find(f"{workflow}/{name.file}", workflow=workflow).definition.title or name.id
        except DefinitionError as problem:
            entry["problem"] = problem.sentence
        yield entry


def _read_text(library: Library, kind: Part, arguments: IndexReference) -> str:
    """Return the file unchanged, with its front matter, and only from the named workflow."""
    return library.source(kind, f"{arguments.workflow_id}/{arguments.index}", workflow=arguments.workflow_id).content.decode()


def _count_components(
    library: Library, folder: Literal["skills", "resources", "templates"], entries: list[WorkflowSummary]
) -> Json:
    counts = {entry.id: len(library.components(folder, entry.id)) for entry in entries}
    return {workflow: count for workflow, count in counts.items() if count}


def _suggest_reading(workflow: str, activity: Activity) -> Json:
    if activity.skills.primary:
        parameters = {"skill_id": activity.skills.primary, "workflow_id": workflow}
        return {"tool": "get_skill", "parameters": parameters}
    return {"tool": "nav_start", "parameters": {"workflow_id": workflow}}


def _dump(definition: BaseModel) -> Json:
    """Dump a definition without the fields that have their default value."""
    return definition.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"broken"})
