"""What the bundled workflows consist of: the promised parts, all references sound, nothing superfluous."""

from __future__ import annotations

import re

import pytest
import toon_format

from fidelio.definitions.flow import list_triggers
from fidelio.definitions.lint import format_findings, lint
from tests.bundled.reading import ALL, BUNDLED, TAUGHT, library, passed_on, skills, steps, texts, workflow
from tests.support import proves

BOOTSTRAP_TOOLS = (
    *("discover", "list_workflows", "start_session", "get_skills", "get_workflow", "next_activity", "get_activity"),
    *("get_skill", "get_resource", "yield_checkpoint", "present_checkpoint", "respond_checkpoint", "resume_checkpoint"),
    *("get_workflow_status", "get_trace"),
)
UNIVERSAL_SKILLS = {
    *("activity-resolution", "workflow-execution", "session-protocol"),
    *("execute-activity", "orchestrator-management", "worker-management"),
}


@proves("bundled.lint-clean")
def test_lint_has_nothing_to_say_about_the_bundled_workflows() -> None:
    assert format_findings(lint(library()), root=BUNDLED) == "No findings."


@proves("bundled.names")
def test_the_library_holds_exactly_the_promised_workflows() -> None:
    assert {entry.id for entry in library().list()} == set(ALL)
    assert [activity.id for activity in workflow("meta").activities] == ["start-workflow", "resume-workflow", "end-workflow"]
    assert workflow("meta").initial_activity == "start-workflow"
    assert skills("meta").keys() == UNIVERSAL_SKILLS
    assert len(workflow("work-package").activities) == 11
    assert len(workflow("work-packages").activities) == 7


@proves("bundled.execution-model")
@pytest.mark.parametrize("name", ALL)
def test_every_workflow_declares_who_carries_it_out(name: str) -> None:
    model = workflow(name).execution_model

    assert model is not None
    assert all(role.description for role in model.roles)


@proves("bundled.references")
@pytest.mark.parametrize("name", ALL)
def test_every_skill_that_is_named_is_there_and_every_skill_is_named(name: str) -> None:
    named = {skill for skill in (workflow(name).skills.primary, *workflow(name).skills.supporting) if skill}
    for activity in workflow(name).activities:
        named |= {skill for skill in (activity.skills.primary, *activity.skills.supporting) if skill}
        named |= {step.skill for step in steps(activity) if step.skill}

    for skill in named:
        assert library().skill(skill, workflow=name).definition.capability
    # A worker in a session of another workflow reads its skill as a resource, which the brief for workers names.
    assert skills(name).keys() - named <= ({"worker-management"} if name == "meta" else set())


@proves("bundled.references")
@pytest.mark.parametrize("name", ALL)
def test_every_resource_that_is_named_is_there_and_every_resource_is_named(name: str) -> None:
    named = {reference for skill in skills(name).values() for reference in skill.resources}
    named |= {mode.resource for mode in workflow(name).modes if mode.resource}
    named |= {index for text in texts(name, "activities").values() for index in re.findall(r"\bresource (\d+)", text)}

    found = {library().resource(reference, workflow=name).definition.index for reference in named}
    assert found == {part.index for part in library().components("resources", name)}


@proves("bundled.references")
@pytest.mark.parametrize("name", ALL)
def test_every_template_that_is_named_is_there_and_every_template_is_named(name: str) -> None:
    text = " ".join(texts(name, "activities").values())
    named = set(re.findall(r"`templates/([\w.-]+)`", text))

    found = {library().template(reference, workflow=name).definition.name for reference in named}
    assert found == {part.id for part in library().templates(name)}


@proves("bundled.front-matter")
@pytest.mark.parametrize("name", ALL)
def test_every_page_says_in_its_front_matter_what_it_is(name: str) -> None:
    for part in library().components("resources", name):
        page = library().resource(part.file, workflow=name).definition
        assert page.id == part.id
        assert page.front_matter.keys() == {"id", "version", "title"}
        assert page.content.lstrip().startswith("# ")
    for part in library().templates(name):
        form = library().template(part.file, workflow=name).definition
        assert form.id == part.id
        assert form.front_matter.keys() == {"id", "version", "title"}


@proves("bundled.bootstrap")
def test_the_first_page_an_agent_reads_names_the_tools_and_is_no_data() -> None:
    text = library().resource("00", workflow="meta").definition.content

    assert [tool for tool in BOOTSTRAP_TOOLS if f"`{tool}`" not in text] == []
    with pytest.raises(toon_format.ToonDecodeError):
        toon_format.decode(text)


@proves("bundled.hand-over")
def test_each_package_runs_as_a_work_package_with_variables_that_both_declare_alike() -> None:
    parent, child = workflow("work-packages"), workflow("work-package")
    started = {trigger.workflow for activity in parent.activities for trigger, _ in list_triggers(activity)}
    types = [{variable.name: variable.type for variable in side.variables} for side in (parent, child)]

    assert started == {"work-package"}
    assert passed_on(parent) >= {"issue", "outcome", "change_url"}
    assert [types[0][name] for name in passed_on(parent)] == [types[1].get(name) for name in passed_on(parent)]


@proves("bundled.readable")
@pytest.mark.parametrize("name", TAUGHT)
def test_the_readme_lists_the_activities_in_order(name: str) -> None:
    readme = (BUNDLED / name / "README.md").read_text("utf-8")

    assert re.findall(r"^\| \d+ \| ([\w-]+)", readme, re.MULTILINE) == [a.id for a in workflow(name).activities]


@proves("bundled.readable")
@pytest.mark.parametrize("name", ALL)
def test_no_file_is_too_long_to_copy(name: str) -> None:
    files = texts(name, ".", "activities", "skills", "resources", "templates")

    assert [path for path, text in files.items() if text.count("\n") > 150] == []
