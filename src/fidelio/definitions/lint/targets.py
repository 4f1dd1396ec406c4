"""Lint rules for references to activities, skills, resources, workflows and locations."""

from __future__ import annotations

from collections.abc import Iterator

from fidelio.definitions.flow import is_end, list_flow_edges, list_steps, list_triggers
from fidelio.definitions.lint.rules import LintProblem, rule, suggest_name
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject
from fidelio.definitions.models.base import Path

_Reference = tuple[str, Path]


@rule("unresolved-activity", "error", by_workflow=True)
def check_unresolved_activity(subject: LintSubject) -> Iterator[LintProblem]:
    """A transition, a branch, an answer, a loop, a mode or `initialActivity` names an activity that the workflow does not have.
    A session stops there. `__terminal__`, `workflow-end` and `end-workflow` mean the end of the workflow, unless an activity
    has that name.
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
    for entry in subject.activities:
        yield from _find_dangling(entry, subject)


def _find_dangling(entry: ActivitySubject, subject: LintSubject) -> Iterator[LintProblem]:
    for edge in list_flow_edges(entry.activity):
        if edge.target not in subject.activity_ids and not is_end(edge.target, subject.activity_ids):
            who = f"A loop of {entry.activity.id}" if edge.reason == "loop" else entry.activity.id
            sentence = f"{who} leads to {edge.target!r}, but the workflow has no such activity."
            yield LintProblem(entry.source, edge.path, sentence, _suggest_remedy(edge.target, entry, subject))
    for at, checkpoint in enumerate(entry.activity.checkpoints):
        for index, option in enumerate(checkpoint.options):
            for number, name in enumerate(option.effect.skip_activities if option.effect else ()):
                if name not in subject.activity_ids:
                    path: Path = ("checkpoints", at, "options", index, "effect", "skipActivities", number)
                    sentence = f"Option {option.id!r} skips the activity {name!r}, which does not exist."
                    yield LintProblem(entry.source, path, sentence, _suggest_activity(name, subject))


def _suggest_remedy(target: str, entry: ActivitySubject, subject: LintSubject) -> str:
    if any(step.id == target for step, _ in list_steps(entry.activity)):
        return "That is a step of the activity, and only activities can be named here."
    return _suggest_activity(target, subject)


def _suggest_activity(name: str, subject: LintSubject) -> str:
    return suggest_name(name, sorted(subject.activity_ids)) or "Name an activity of the workflow, or add the missing one."


@rule("unresolved-skill", "error", by_workflow=True)
def check_unresolved_skill(subject: LintSubject) -> Iterator[LintProblem]:
    """A step, an activity or the workflow needs a skill that is neither in the workflow, nor in the workflow that owns the
    activity, nor in `meta`. An agent that requests it gets an error instead of instructions.
    """
    skills = subject.workflow.skills
    for name, path in _list_skill_names(skills.primary, skills.supporting):
        if not subject.has_skill(name, None):
            yield LintProblem(subject.manifest, path, f"The workflow needs the skill {name!r}, which cannot be found.", _SKILL)
    for entry in subject.activities:
        for name, path in _list_skill_references(entry):
            if not subject.has_skill(name, entry):
                sentence = f"{entry.activity.id} needs the skill {name!r}, which cannot be found."
                yield LintProblem(entry.source, path, sentence, suggest_name(name, subject.skill_names()) or _SKILL)


_SKILL = "Add the skill to this workflow or to `meta`, or write `workflow/skill` if another workflow has it."


def _list_skill_names(primary: str | None, supporting: tuple[str, ...]) -> Iterator[_Reference]:
    if primary:
        yield primary, ("skills", "primary")
    yield from ((name, ("skills", "supporting", index)) for index, name in enumerate(supporting))


def _list_skill_references(entry: ActivitySubject) -> Iterator[_Reference]:
    yield from _list_skill_names(entry.activity.skills.primary, entry.activity.skills.supporting)
    for step, path in list_steps(entry.activity):
        if step.skill:
            yield step.skill, (*path, "skill")


@rule("unresolved-resource", "error")
def check_unresolved_resource(subject: LintSubject) -> Iterator[LintProblem]:
    """A skill or a mode refers to a resource that is neither in its workflow nor in `meta`, or to a resource that another
    workflow does not have.
    """
    remedy = "Add the resource, correct its number, or write `workflow/number` if another workflow has it."
    for entry in subject.skills:
        for index, reference in enumerate(entry.skill.resources):
            if not subject.has_resource(reference):
                sentence = f"Skill {entry.skill.id} points at the resource {reference!r}, which cannot be found."
                yield LintProblem(entry.source, ("resources", index), sentence, remedy)
    for index, mode in enumerate(subject.workflow.modes):
        if mode.resource and not subject.has_resource(mode.resource):
            sentence = f"Mode {mode.id!r} points at the resource {mode.resource!r}, which cannot be found."
            yield LintProblem(subject.manifest, ("modes", index, "resource"), sentence, remedy)


@rule("unresolved-workflow", "error")
def check_unresolved_workflow(subject: LintSubject) -> Iterator[LintProblem]:
    """A trigger starts a workflow that no root of the library has."""
    for entry in subject.activities:
        for trigger, path in list_triggers(entry.activity):
            if trigger.workflow not in subject.workflow_ids:
                sentence = f"{entry.activity.id} starts the workflow {trigger.workflow!r}, which is not in the library."
                hint = suggest_name(trigger.workflow, sorted(subject.workflow_ids))
                remedy = hint or "Add the workflow, or the root that has it."
                yield LintProblem(entry.source, (*path, "workflow"), sentence, remedy)


@rule("unresolved-location", "warning", by_workflow=True)
def check_unresolved_location(subject: LintSubject) -> Iterator[LintProblem]:
    """The location of an artifact is not declared in `artifactLocations`, so its directory is unknown."""
    known = subject.workflow.artifact_locations
    for entry in subject.activities:
        for index, artifact in enumerate(entry.activity.artifacts):
            if artifact.location and artifact.location not in known:
                sentence = (
                    f"Artifact {artifact.id!r} belongs in {artifact.location!r}, which is not among the artifactLocations."
                )
                remedy = suggest_name(artifact.location, known) or "Declare the location in the workflow."
                yield LintProblem(entry.source, ("artifacts", index, "location"), sentence, remedy)
