"""What goes into an agent and what comes out of it, against the schemas of its blueprint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import BadAgentInput, BrokenBlueprint
from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint
from fidelio.orchestrator.blueprints.schemas import check_input, check_output
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_folder
from tests.support import proves

QUESTION = {
    "type": "object",
    "properties": {"question": {"type": "string", "minLength": 3}, "depth": {"$ref": "#/$defs/depth"}},
    "required": ["question"],
    "additionalProperties": False,
    "$defs": {"depth": {"type": "integer", "maximum": 5}},
}


def asking(schema: Any = QUESTION) -> Blueprint:
    return Blueprint(name="asker", description="Asks.", input_schema=schema, output_schema=schema)


@proves("blueprints.input")
async def test_without_a_schema_any_text_is_taken_as_it_is() -> None:
    assert await check_input(DEFAULT_BLUEPRINT, '{"a": 1') == '{"a": 1'
    with pytest.raises(BadAgentInput, match="takes a text"):
        await check_input(DEFAULT_BLUEPRINT, {"a": 1})


@proves("blueprints.input")
async def test_an_object_that_fits_becomes_the_text_of_the_agent() -> None:
    text = await check_input(asking(), {"question": "Why?", "depth": 2})

    assert json.loads(text) == {"question": "Why?", "depth": 2}


@proves("blueprints.input")
async def test_the_same_object_as_text_is_taken_as_it_was_written() -> None:
    written = '{ "question": "Why?" }'

    assert await check_input(asking(), written) == written


@proves("blueprints.input")
async def test_a_schema_for_texts_takes_texts() -> None:
    blueprint = asking({"type": "string", "maxLength": 5})

    assert await check_input(blueprint, "hello") == "hello"
    with pytest.raises(BadAgentInput, match="too long"):
        await check_input(blueprint, "hello you")


@proves("blueprints.input")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"depth": 2}, "'question' is a required property"),
        ({"question": "W"}, "`question`: 'W' is too short"),
        ({"question": "Why?", "depth": 9}, "`depth`: 9 is greater than the maximum of 5"),
        ({"question": "Why?", "deep": 1}, "'deep' was unexpected"),
        ("Why?", "'Why?' is not of type 'object'"),
        ('{"question": 1}', "`question`: 1 is not of type 'string'"),
    ],
)
async def test_input_that_does_not_fit_is_refused_with_its_problem_and_the_schema(given: Any, words: str) -> None:
    with pytest.raises(BadAgentInput) as refused:
        await check_input(asking(), given)

    assert words in refused.value.sentence
    assert refused.value.schema == QUESTION
    assert json.dumps(QUESTION, separators=(",", ":")) in str(refused.value)


@proves("blueprints.input")
async def test_a_refusal_stays_readable_however_much_is_wrong() -> None:
    blueprint = asking({"type": "array", "items": {"type": "integer"}, "description": "x" * 10_000})

    with pytest.raises(BadAgentInput) as refused:
        await check_input(blueprint, json.dumps(["y" * 1_000_000] * 40))

    assert len(str(refused.value)) < 2_000
    assert "(35 more.)" in refused.value.sentence


@proves("blueprints.output")
async def test_a_result_is_held_to_its_schema() -> None:
    await check_output(DEFAULT_BLUEPRINT, object())
    await check_output(asking(), {"question": "Why?"})
    with pytest.raises(BadAgentInput, match="The result does not fit") as refused:
        await check_output(asking(), None)
    assert refused.value.schema == QUESTION


@proves("blueprints.schemas", "blueprints.broken")
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "'objekt'"),
        ({"properties": {"a": {"minLength": "3"}}}, "is not a valid JSON Schema"),
        ({"$ref": "https://schemas.example/x.json"}, "nothing outside of it is read"),
        ({"properties": {"a": {"$ref": "other.json#/a"}}}, "nothing outside of it is read"),
    ],
)
@pytest.mark.parametrize("key", ["input_schema", "output_schema"])
def test_a_schema_that_cannot_be_used_makes_the_blueprint_broken(tmp_path: Path, key: str, schema: Any, words: str) -> None:
    write_folder(tmp_path / AGENTS, "helper", {key: schema})

    (broken,) = open_catalogue().list(tmp_path).broken

    assert (broken.line, f"`{key}`" in broken.sentence, words in broken.sentence) == (4, True, True)


@proves("blueprints.schemas")
@pytest.mark.parametrize("reference", ["#/$defs/nowhere", "#", "https://schemas.example/x.json"])
async def test_an_unresolvable_reference_is_a_problem_of_the_blueprint(reference: str) -> None:
    with pytest.raises(BrokenBlueprint, match="refers to what is not there, or to itself"):
        await check_input(asking({"$ref": reference}), {"a": 1})
