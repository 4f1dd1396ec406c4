"""Texts and names that speak of variables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fidelio.engine.scope import ExpectedArtifact, fill_template, find_expected_artifacts
from tests.engine.builders import activity, at, started, told, workflow
from tests.support import proves


@proves("engine.filling")
def test_what_has_a_value_is_put_in_and_the_rest_stays_as_it_is_written() -> None:
    values = {"task": {"id": 7}, "name": "Ada", "list": ["a"], "empty": None, "text": "{name}"}

    assert fill_template("{task.id}: {name}, {list}", values) == '7: Ada, ["a"]'
    assert fill_template("{unknown} {empty} {} { name }", values) == "{unknown} {empty} {} { name }"
    assert fill_template("{text}", values) == "{name}"


@proves("engine.filling")
@given(st.text())
def test_any_text_without_values_stays_as_it_is(text: str) -> None:
    assert fill_template(text, {}) == text


@proves("engine.filling")
def test_artifacts_are_named_and_placed_by_the_variables() -> None:
    definition = workflow(
        activity(
            "one",
            artifactPrefix="03",
            artifacts=[
                {"id": "plan", "name": "{task}-plan.md", "location": "planning"},
                {"id": "readme", "name": "docs/README.md", "action": "update"},
            ],
        ),
        artifactLocations={"planning": "plans/{date}"},
    )

    assert find_expected_artifacts(definition, at("one", told(task="ferry", date="1912-04-14"))) == [
        ExpectedArtifact("plan", "03-ferry-plan.md", "plans/1912-04-14", "create"),
        ExpectedArtifact("readme", "docs/README.md", "", "update"),
    ]
    assert find_expected_artifacts(definition, started()) == []
