"""Handlers of the `navigator` dialect without a session: workflows, activities, skills, resources and templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from fidelio.definitions import META
from fidelio.errors import ComponentNotFound, DefinitionError
from fidelio.surfaces.mcp.dialects.common import Dialect, as_json
from fidelio.surfaces.mcp.dialects.navigator.parameters import (
    ActivityReference,
    CheckpointReference,
    GetActivity,
    IndexReference,
    ListSkills,
    SkillReference,
    TransitionReference,
    WorkflowReference,
)
from fidelio.surfaces.mcp.dialects.sessions.parameters import NoParameters
from fidelio.toolkit import CallContext, Done

if TYPE_CHECKING:
    from pydantic import BaseModel

    from fidelio.definitions.library import Library
    from fidelio.definitions.library.listing import WorkflowSummary
    from fidelio.definitions.models import Activity

Json = dict[str, Any]
# What is found by its number or name in a folder of a workflow, and the tool that serves it.
Part = Literal["resource", "template"]
_FOLDERS: dict[Part, Literal["resources", "templates"]] = {"resource": "resources", "template": "templates"}


class NavigatorLibrary(Dialect):
    """The tools that read definitions."""

    async def library(self) -> Library:
        return await self.house.library()

    async def list_workflows(self, _: NoParameters, __: CallContext) -> Done:
        listed = [
            {"id": one.id, "title": one.title, "version": one.version, "description": one.description}
            for one in _readable(await self.library())
        ]
        return Done(as_json(listed))

    async def health_check(self, _: NoParameters, __: CallContext) -> Done:
        # `meta` can be started here, so it counts as one of them.
        body = {**await self.health(), "workflows_available": len(_readable(await self.library()))}
        return Done(as_json(body), structured=body)

    async def get_workflow(self, arguments: WorkflowReference, _: CallContext) -> Done:
        return Done(_render((await self.library()).workflow(arguments.workflow_id)))

    async def get_workflow_activity(self, arguments: ActivityReference, _: CallContext) -> Done:
        return Done(_render((await self.library()).activity(arguments.workflow_id, arguments.activity_id)))

    async def get_checkpoint(self, arguments: CheckpointReference, _: CallContext) -> Done:
        from fidelio.engine.checkpoints import find_checkpoint  # noqa: PLC0415  # waits for the first call
        from fidelio.engine.phrases import checkpoint_not_found  # noqa: PLC0415  # waits for the first call

        activity = (await self.library()).activity(arguments.workflow_id, arguments.activity_id)
        checkpoint = find_checkpoint(activity, arguments.checkpoint_id)
        if checkpoint is None:
            known = ", ".join(one.id for one in activity.checkpoints) or "none"
            sentence = checkpoint_not_found(arguments.checkpoint_id, activity.id)
            raise ComponentNotFound(sentence, remedy=f"Its checkpoints are: {known}.")
        return Done(as_json({**_data(checkpoint), "required": checkpoint.required, "blocking": checkpoint.blocking}))

    async def validate_transition(self, arguments: TransitionReference, _: CallContext) -> Done:
        from fidelio.engine.transitions import explain_missing_transition  # noqa: PLC0415  # waits for the first call

        workflow = (await self.library()).workflow(arguments.workflow_id)
        reason = explain_missing_transition(workflow, arguments.from_activity, arguments.to_activity)
        body: Json = {"valid": False, "reason": reason} if reason else {"valid": True}
        return Done(as_json(body), structured=body)

    async def get_activities(self, _: NoParameters, __: CallContext) -> Done:
        found, listed, phrases = list(_activities(await self.library())), list[Json](), dict[str, str]()
        times = Counter(activity.id for _, activity in found)
        for workflow, activity in found:
            whole = f"{workflow}/{activity.id}"
            then = {"tool": "get_activity", "parameters": {"activity_id": whole}}
            about = {"problem": activity.problem, "primary_skill": activity.skills.primary}
            listed.append({"id": activity.id, "workflowId": workflow, **about, "next_action": then})
            for phrase in activity.recognition:
                phrases.setdefault(phrase.lower(), activity.id if times[activity.id] == 1 else whole)
        first = listed[0]["next_action"] if listed else {"tool": "list_workflows", "parameters": {}}
        return Done(
            as_json(
                {
                    "description": "Match the user's goal to an activity, by quick_match or by problem.",
                    "usage": "Call get_activity with its id for what to do, or nav_start with its workflowId to be led.",
                    "next_action": first,
                    "activities": listed,
                    "quick_match": phrases,
                }
            )
        )

    async def get_activity(self, arguments: GetActivity, _: CallContext) -> Done:
        library = await self.library()
        for workflow, activity in _activities(library):
            if arguments.activity_id in (activity.id, f"{workflow}/{activity.id}"):
                return Done(as_json({**_data(activity), "workflowId": workflow, "next_action": _reading(workflow, activity)}))
        raise ComponentNotFound(f"Activity not found: {arguments.activity_id}.", remedy="get_activities lists them.")

    async def get_skills(self, _: NoParameters, __: CallContext) -> Done:
        library = await self.library()
        found = {entry.id: list(_skills(library, entry.id)) for entry in _readable(library)}
        body = {
            "description": "What there is guidance for.",
            "usage": "Call get_skill with the id and, for a skill of one workflow, workflow_id.",
            "universal": found.pop(META, []),
            "workflow_specific": {workflow: skills for workflow, skills in found.items() if skills},
        }
        return Done(as_json(body))

    async def list_skills(self, arguments: ListSkills, _: CallContext) -> Done:
        library = await self.library()
        universal = list(_skills(library, META)) if _has_meta(library) else []
        if not arguments.workflow_id:
            return Done(as_json(universal))
        return Done(as_json({"universal": universal, "workflow": list(_skills(library, arguments.workflow_id))}))

    async def get_skill(self, arguments: SkillReference, _: CallContext) -> Done:
        found = (await self.library()).skill(arguments.skill_id, workflow=arguments.workflow_id or META)
        return Done(as_json(found.source.document.data))

    async def list_workflow_resources(self, arguments: WorkflowReference, _: CallContext) -> Done:
        return Done(as_json(list(_parts(await self.library(), "resource", arguments.workflow_id))))

    async def get_resource(self, arguments: IndexReference, _: CallContext) -> Done:
        return Done(_text(await self.library(), "resource", arguments))

    async def list_templates(self, arguments: WorkflowReference, _: CallContext) -> Done:
        return Done(as_json(list(_parts(await self.library(), "template", arguments.workflow_id))))

    async def get_template(self, arguments: IndexReference, _: CallContext) -> Done:
        return Done(_text(await self.library(), "template", arguments))

    async def discover_resources(self, _: NoParameters, __: CallContext) -> Done:
        library = await self.library()
        entries = _readable(library)
        body = {
            "workflows": {"tool": "list_workflows", "items": [{"id": one.id, "title": one.title} for one in entries]},
            "activities": {"tool": "get_activities", "count": sum(1 for _ in _activities(library))},
            "skills": {"tool": "get_skills", "items": _counted(library, "skills", entries)},
            "resources": {"tool": "list_workflow_resources", "items": _counted(library, "resources", entries)},
            "templates": {"tool": "list_templates", "items": _counted(library, "templates", entries)},
        }
        return Done(as_json(body))


def _readable(library: Library) -> list[WorkflowSummary]:
    """Every workflow that can be loaded; `meta` is one of them here, and the first."""
    return sorted((entry for entry in library.list() if not entry.broken), key=lambda entry: entry.id != META)


def _has_meta(library: Library) -> bool:
    return any(entry.id == META for entry in _readable(library))


def _activities(library: Library) -> Iterator[tuple[str, Activity]]:
    for entry in _readable(library):
        try:
            workflow = library.workflow(entry.id)
        except DefinitionError:
            # One workflow that cannot be read must not keep the others back; lint reports it.
            continue
        yield from ((entry.id, activity) for activity in workflow.activities)


def _skills(library: Library, workflow: str) -> Iterator[Json]:
    for part in library.components("skills", workflow):
        reference = {"skill_id": part.id, "workflow_id": workflow}
        then = {"tool": "get_skill", "parameters": reference}
        try:
            capability = library.skill(f"{workflow}/{part.id}", workflow=workflow).definition.capability
        except DefinitionError as problem:
            yield {"id": part.id, "problem": problem.sentence}
            continue
        yield {"id": part.id, "index": part.index, "capability": capability, "next_action": then}


def _parts(library: Library, part: Part, workflow: str) -> Iterator[Json]:
    find = library.resource if part == "resource" else library.template
    for name in library.components(_FOLDERS[part], workflow):
        about: Json = {"index": name.index or name.id, "name": name.id, "title": name.id, "format": name.format}
        try:
            about["title"] = find(f"{workflow}/{name.file}", workflow=workflow).definition.title or name.id
        except DefinitionError as problem:
            about["problem"] = problem.sentence
        yield about


def _text(library: Library, part: Part, arguments: IndexReference) -> str:
    """The file as it is, front matter and all; only of the workflow that is named."""
    return library.source(part, f"{arguments.workflow_id}/{arguments.index}", workflow=arguments.workflow_id).content.decode()


def _counted(library: Library, folder: Literal["skills", "resources", "templates"], entries: list[WorkflowSummary]) -> Json:
    counted = {entry.id: len(library.components(folder, entry.id)) for entry in entries}
    return {workflow: count for workflow, count in counted.items() if count}


def _reading(workflow: str, activity: Activity) -> Json:
    if activity.skills.primary:
        parameters = {"skill_id": activity.skills.primary, "workflow_id": workflow}
        return {"tool": "get_skill", "parameters": parameters}
    return {"tool": "nav_start", "parameters": {"workflow_id": workflow}}


def _render(definition: BaseModel) -> str:
    return as_json(_data(definition))


def _data(definition: BaseModel) -> Json:
    """As it would be written by hand: what has its default value is left out."""
    return definition.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"broken"})
