"""Lint rules for references to activities, skills, resources, workflows and locations."""

from __future__ import annotations

from collections.abc import Iterator

from fidelio.definitions.flow import is_end, list_flow_edges, list_steps, list_triggers
from fidelio.definitions.lint.rules import LintProblem, rule, suggest_name
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject
from fidelio.definitions.models.base import Path

_Reference = tuple[str, Path]


@rule("unresolved-activity", "error", by_workflow=True)
def unresolved_activity(subject: LintSubject) -> Iterator[LintProblem]:
    """A transition, a branch, an answer, a loop, a mode or `initialActivity` names an activity that the workflow does not have.
    A run that takes this way stops there. `__terminal__`, `workflow-end` and `end-workflow` mean the end of the workflow
    where no activity is called so.
    """
    initial = subject.workflow.initial_activity
    if initial is not None and initial not in subject.activity_ids:
        sentence = f"The workflow begins with {initial!r}, but has no such activity."
        yield LintProblem(subject.manifest, ("initialActivity",), sentence, _suggest_activity(initial, subject))
    for index, mode in enumerate(subject.workflow.modes):
        for at, name in enumerate(mode.skip_activities):
            if name not in subject.activity_ids:
                sentence = f"Mode {mode.id!r} skips the activity {name!r}, which does not exist."
                yield LintProblem(
                    subject.manifest, ("modes", index, "skipActivities", at), sentence, _suggest_activity(name, subject)
                )
    for part in subject.activities:
        yield from _find_dangling(part, subject)


def _find_dangling(part: ActivitySubject, subject: LintSubject) -> Iterator[LintProblem]:
    for edge in list_flow_edges(part.activity):
        if edge.target not in subject.activity_ids and not is_end(edge.target, subject.activity_ids):
            who = f"A loop of {part.activity.id}" if edge.reason == "loop" else part.activity.id
            sentence = f"{who} leads to {edge.target!r}, but the workflow has no such activity."
            yield LintProblem(part.source, edge.path, sentence, _remedy(edge.target, part, subject))
    for at, checkpoint in enumerate(part.activity.checkpoints):
        for index, option in enumerate(checkpoint.options):
            for number, name in enumerate(option.effect.skip_activities if option.effect else ()):
                if name not in subject.activity_ids:
                    path: Path = ("checkpoints", at, "options", index, "effect", "skipActivities", number)
                    sentence = f"Option {option.id!r} skips the activity {name!r}, which does not exist."
                    yield LintProblem(part.source, path, sentence, _suggest_activity(name, subject))


def _remedy(target: str, part: ActivitySubject, subject: LintSubject) -> str:
    if any(step.id == target for step, _ in list_steps(part.activity)):
        return "That is a step of the activity, and only activities can be named here."
    return _suggest_activity(target, subject)


def _suggest_activity(name: str, subject: LintSubject) -> str:
    return suggest_name(name, sorted(subject.activity_ids)) or "Name an activity of the workflow, or add the missing one."


@rule("unresolved-skill", "error", by_workflow=True)
def unresolved_skill(subject: LintSubject) -> Iterator[LintProblem]:
    """A step, an activity or the workflow needs a skill that is neither in the workflow, nor in the one that owns the activity,
    nor in `meta`. An agent that asks for it gets an error instead of instructions.
    """
    skills = subject.workflow.skills
    for name, path in _skill_names(skills.primary, skills.supporting):
        if not subject.has_skill(name, None):
            yield LintProblem(subject.manifest, path, f"The workflow needs the skill {name!r}, which cannot be found.", _SKILL)
    for part in subject.activities:
        for name, path in _list_skill_references(part):
            if not subject.has_skill(name, part):
                sentence = f"{part.activity.id} needs the skill {name!r}, which cannot be found."
                yield LintProblem(part.source, path, sentence, suggest_name(name, subject.skill_names()) or _SKILL)


_SKILL = "Add the skill to this workflow or to `meta`, or write `workflow/skill` if another workflow has it."


def _skill_names(primary: str | None, supporting: tuple[str, ...]) -> Iterator[_Reference]:
    if primary:
        yield primary, ("skills", "primary")
    yield from ((name, ("skills", "supporting", index)) for index, name in enumerate(supporting))


def _list_skill_references(part: ActivitySubject) -> Iterator[_Reference]:
    yield from _skill_names(part.activity.skills.primary, part.activity.skills.supporting)
    for step, path in list_steps(part.activity):
        if step.skill:
            yield step.skill, (*path, "skill")


@rule("unresolved-resource", "error")
def unresolved_resource(subject: LintSubject) -> Iterator[LintProblem]:
    """A skill or a mode points at a resource that is neither in its workflow nor in `meta`, or names another workflow that does
    not have it.
    """
    remedy = "Add the resource, correct its number, or write `workflow/number` if another workflow has it."
    for skill in subject.skills:
        for index, reference in enumerate(skill.resources):
            if not subject.has_resource(reference):
                sentence = f"Skill {skill.id} points at the resource {reference!r}, which cannot be found."
                yield LintProblem(skill.source, ("resources", index), sentence, remedy)
    for index, mode in enumerate(subject.workflow.modes):
        if mode.resource and not subject.has_resource(mode.resource):
            sentence = f"Mode {mode.id!r} points at the resource {mode.resource!r}, which cannot be found."
            yield LintProblem(subject.manifest, ("modes", index, "resource"), sentence, remedy)


@rule("unresolved-workflow", "error")
def unresolved_workflow(subject: LintSubject) -> Iterator[LintProblem]:
    """A trigger starts a workflow that no root of the library has."""
    for part in subject.activities:
        for trigger, path in list_triggers(part.activity):
            if trigger.workflow not in subject.workflow_ids:
                sentence = f"{part.activity.id} starts the workflow {trigger.workflow!r}, which is not in the library."
                hint = suggest_name(trigger.workflow, sorted(subject.workflow_ids))
                remedy = hint or "Add the workflow, or the root that has it."
                yield LintProblem(part.source, (*path, "workflow"), sentence, remedy)


@rule("unresolved-location", "warning", by_workflow=True)
def unresolved_location(subject: LintSubject) -> Iterator[LintProblem]:
    """An artifact is to be put in a location that `artifactLocations` does not name, so nobody knows which directory it is."""
    known = subject.workflow.artifact_locations
    for part in subject.activities:
        for index, artifact in enumerate(part.activity.artifacts):
            if artifact.location and artifact.location not in known:
                sentence = (
                    f"Artifact {artifact.id!r} belongs in {artifact.location!r}, which is not among the artifactLocations."
                )
                remedy = suggest_name(artifact.location, known) or "Declare the location in the workflow."
                yield LintProblem(part.source, ("artifacts", index, "location"), sentence, remedy)
