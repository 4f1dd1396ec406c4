"""How the bundled workflows are written: what steps, questions, skills and variables owe to whoever follows or copies them."""

from __future__ import annotations

import pytest

from fidelio.definitions.models import Checkpoint
from tests.bundled.reading import (
    ALL,
    TAUGHT,
    actions,
    asked_for,
    passed_on,
    placeholders,
    skills,
    steps,
    texts,
    workflow,
)
from tests.support import proves

# Chosen by whoever starts the session, if not as declared.
SETTINGS = {"base_branch"}
ONLY_A_PERSON = {
    "choose-tone",
    *("confirm-requirements", "approve-design", "unblock-task", "release-review", "consent-to-merge"),
    *("confirm-scope", "approve-roadmap", "choose-next"),
}


def checkpoints(name: str) -> list[Checkpoint]:
    return [checkpoint for activity in workflow(name).activities for checkpoint in activity.checkpoints]


def set_by_somebody(name: str) -> set[str]:
    """By an answer, an action, a skill that yields it, or whoever starts the session."""
    here = workflow(name)
    effects = [o.effect for c in checkpoints(name) for o in c.options if o.effect]
    answers = {variable for effect in effects for variable in effect.set_variable}
    acts = {act.target for activity in here.activities for act in actions(activity) if act.action == "set" and act.target}
    yields = {output.id for skill in skills(name).values() for output in skill.output}
    return answers | acts | yields | {v.name for v in here.variables if v.required} | SETTINGS


def used_somewhere(name: str) -> set[str]:
    here = workflow(name)
    asked = {variable for activity in here.activities for variable in asked_for(activity)}
    written = {variable for text in texts(name, ".", "activities", "templates").values() for variable in placeholders(text)}
    return asked | written | passed_on(here) | {mode.activation_variable for mode in here.modes}


@proves("bundled.variables")
@pytest.mark.parametrize("name", ALL)
def test_every_variable_is_described_set_and_used(name: str) -> None:
    declared = {variable.name for variable in workflow(name).variables}
    returned = set_by_somebody("work-package") & passed_on(workflow(name))

    assert [variable.name for variable in workflow(name).variables if not variable.description] == []
    assert declared - set_by_somebody(name) - returned == set()
    assert declared - used_somewhere(name) == set()


@proves("bundled.variables")
@pytest.mark.parametrize("name", ALL)
def test_everything_that_looks_like_a_variable_is_one(name: str) -> None:
    declared = {variable.name for variable in workflow(name).variables}
    for activity in workflow(name).activities:
        items = {loop.variable for loop in activity.loops}
        written = {variable for step in steps(activity) for variable in placeholders(step.description or "")}
        preserved = set(activity.context_to_preserve)
        assert (asked_for(activity) | written | preserved) - items - declared == set(), activity.id


@proves("bundled.questions")
@pytest.mark.parametrize("name", ALL)
def test_every_checkpoint_asks_one_question_with_a_few_distinct_answers(name: str) -> None:
    for checkpoint in checkpoints(name):
        effects = [option.effect for option in checkpoint.options]
        assert checkpoint.message.endswith("?"), checkpoint.id
        assert checkpoint.message.count("?") == 1, checkpoint.id
        assert 2 <= len(checkpoint.options) <= 4, checkpoint.id
        assert len({option.label for option in checkpoint.options}) == len(checkpoint.options), checkpoint.id
        assert all(effect and effect.set_variable for effect in effects), checkpoint.id
        assert all(effects.count(effect) == 1 for effect in effects), checkpoint.id


@proves("bundled.questions")
@pytest.mark.parametrize("name", ALL)
def test_a_checkpoint_waits_or_says_what_happens_without_an_answer(name: str) -> None:
    for checkpoint in checkpoints(name):
        timed = checkpoint.default_option is not None and checkpoint.auto_advance_ms is not None
        assert checkpoint.blocking is not timed, checkpoint.id
        assert not (timed and checkpoint.answered_by), checkpoint.id


@proves("bundled.consent")
def test_what_binds_people_is_answered_by_people() -> None:
    demanding = {checkpoint.id for name in ALL for checkpoint in checkpoints(name) if checkpoint.answered_by == "person"}

    assert demanding == ONLY_A_PERSON


@proves("bundled.person-decides")
@pytest.mark.parametrize("name", ALL)
def test_what_has_no_safe_default_waits_for_a_person(name: str) -> None:
    for checkpoint in checkpoints(name):
        assert (checkpoint.answered_by == "person") is checkpoint.blocking, checkpoint.id


@proves("bundled.consent")
def test_nothing_is_merged_or_published_before_the_answer() -> None:
    for activity, asking, acting in (
        ("merge", "settle-merge", "merge-change"),
        ("submit-change", "settle-review", "publish-review"),
    ):
        order = [step.id for step in steps(next(a for a in workflow("work-package").activities if a.id == activity))]
        assert order.index(asking) < order.index(acting)


@proves("bundled.steps")
@pytest.mark.parametrize("name", TAUGHT)
def test_every_step_says_what_to_do_and_what_comes_of_it(name: str) -> None:
    for activity in workflow(name).activities:
        for step in steps(activity):
            task, found, output = (step.description or "").partition(" Output: ")
            assert found, f"{activity.id}/{step.id}"
            assert task, f"{activity.id}/{step.id}"
            assert output, f"{activity.id}/{step.id}"


@proves("bundled.skills")
@pytest.mark.parametrize("name", ALL)
def test_every_skill_says_what_how_within_which_limits_and_what_if_not(name: str) -> None:
    for skill in skills(name).values():
        assert skill.protocol, skill.id
        assert all(skill.protocol.values()), skill.id
        assert skill.rules, skill.id
        assert skill.errors, skill.id
        assert all(guide.recovery for guide in skill.errors.values()), skill.id


@proves("bundled.skills")
def test_workflow_execution_is_the_whole_map() -> None:
    skill = skills("meta")["workflow-execution"]
    further = skill.model_extra or {}

    assert further["execution_pattern"].keys() == {"sessions", "gates", "navigator"}
    assert all((skill.tools, further["state"], further["interpretation"], skill.errors))
