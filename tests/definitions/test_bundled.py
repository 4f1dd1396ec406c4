"""The workflows that come with the product are sound."""

from __future__ import annotations

from pathlib import Path

import pytest

import fidelio
from fidelio.definitions.conditions import list_variables
from fidelio.definitions.library import Library
from fidelio.definitions.models import Workflow, list_unknown_keys
from tests.definitions.libraries import library
from tests.support import proves

_BUNDLED = Path(fidelio.__file__).parent / "bundled"


@pytest.fixture(scope="module")
def shelf() -> Library:
    return library(_BUNDLED)


def workflows(shelf: Library) -> list[Workflow]:
    return [shelf.workflow(entry.id) for entry in shelf.list()]


@proves("definitions.bundled")
def test_the_bundled_workflows_have_no_findings_and_no_unknown_keys(shelf: Library) -> None:
    assert {"hello", "meta"} <= {entry.id for entry in shelf.list()}
    assert shelf.findings() == ()
    assert [key for workflow in workflows(shelf) for key in list_unknown_keys(workflow)] == []


@proves("definitions.bundled")
def test_every_reference_in_a_bundled_workflow_leads_somewhere(shelf: Library) -> None:
    for workflow in workflows(shelf):
        references = [workflow.skills.primary, *workflow.skills.supporting]
        for activity in workflow.activities:
            references += [activity.skills.primary, *activity.skills.supporting, *(step.skill for step in activity.steps)]
        for reference in filter(None, references):
            skill = shelf.skill(reference, workflow=workflow.id)
            for resource in skill.definition.resources:
                found = shelf.resource(resource, workflow=workflow.id, last_skill_owner=skill.owner)
                assert found.definition.content


@proves("definitions.bundled")
def test_every_condition_in_a_bundled_workflow_is_about_a_declared_variable(shelf: Library) -> None:
    for workflow in workflows(shelf):
        declared = {variable.name for variable in workflow.variables}
        for activity in workflow.activities:
            conditions = [step.condition for step in activity.steps] + [way.condition for way in activity.transitions]
            assert {name for condition in conditions if condition for name in list_variables(condition)} <= declared


@proves("definitions.bundled")
def test_hello_shows_every_idea_once(shelf: Library) -> None:
    hello = shelf.workflow("hello")

    assert [activity.id for activity in hello.activities] == ["greet", "compose", "farewell"]
    assert [checkpoint.id for activity in hello.activities for checkpoint in activity.checkpoints] == ["choose-tone"]
    assert [template.id for template in shelf.templates("hello")] == ["note"]
    assert [activity.id for activity in shelf.workflow("meta").activities] == [
        "start-workflow",
        "resume-workflow",
        "end-workflow",
    ]
    assert "start_session" in shelf.resource("0", workflow="meta").definition.content
