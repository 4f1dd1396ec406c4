"""What a tool publishes about itself, and what it says when it is called wrongly."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.toolkit import CallContext, Done, Tool, ToolTable, read_arguments
from tests.support import proves
from tests.surfaces.mcp.example import ExampleTools, SingleHandler
from tests.surfaces.mcp.reply_checks import check_result

ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none() | st.text(), max_size=2)


class Inner(msgspec.Struct):
    """Something nested."""

    size: int


class Wanted(msgspec.Struct):
    """What the tool takes."""

    name: str
    many: list[Inner] = []  # msgspec copies an empty list
    note: str = ""


async def accept(asked: Wanted, _: CallContext) -> Done:
    return Done(f"{asked.name} {len(asked.many)}")


@pytest.fixture
def table() -> ToolTable:
    return ToolTable([Tool("take", "Take", "Takes it.", Wanted)], lambda: SingleHandler("take", accept))


async def reply(table: ToolTable, arguments: dict[str, Any]) -> Done:
    outcome = await table.call("take", arguments, CallContext())
    assert isinstance(outcome, Done)
    return outcome


@proves("mcp.arguments")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "Invalid arguments for tool take: Object missing required field `name`."),
        ({"name": 1}, "Invalid arguments for tool take: `name`: Expected `str`, got `int`."),
        ({"name": "n", "note": None}, "Invalid arguments for tool take: `note`: Expected `str`, got `null`."),
        ({"name": "n", "many": [{"size": "x"}]}, "Invalid arguments for tool take: `many[0].size`: Expected `int`, got `str`."),
    ],
)
async def test_a_refusal_begins_with_the_field_and_what_it_takes(
    table: ToolTable, arguments: dict[str, Any], sentence: str
) -> None:
    refused = await reply(table, arguments)

    assert refused.is_error
    assert refused.text == f"{sentence} It takes: name, many, note."


@proves("mcp.arguments")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "n", "unknown": {"deep": [1]}}, "`unknown`."),
        ({"name": "n", "notes": ""}, "`notes` (did you mean `note`?)."),
        ({"name": "n", "many": [{"size": 1}, {"size": 1, "sise": 2}]}, "`many[1].sise` (did you mean `size`?)."),
        ({"name": "n", "x" * 300: 1}, f"`{'x' * 100}…`."),
    ],
)
async def test_an_argument_that_the_tool_does_not_have_is_refused_with_the_nearest(
    table: ToolTable, arguments: dict[str, Any], words: str
) -> None:
    refused = await reply(table, arguments)

    assert refused.is_error
    assert refused.text == f"Tool take has no argument {words} It takes: name, many, note."


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """What a tool takes that has no other parameters for sure."""

    name: str


@proves("mcp.arguments")
def test_an_argument_that_a_strict_tool_does_not_have_is_named_once() -> None:
    with pytest.raises(UsageProblem) as refused:
        read_arguments("take", Strict, {"name": "n", "nams": 1})

    assert str(refused.value) == "Tool take has no argument `nams` (did you mean `name`?). It takes: name."


@proves("mcp.arguments")
async def test_a_missing_argument_that_is_misspelt_is_named(table: ToolTable) -> None:
    refused = await reply(table, {"nmae": "n"})

    assert "missing required field `name`. Tool take has no argument `nmae` (did you mean `name`?)." in refused.text


@proves("mcp.arguments", "mcp.errors")
@given(arguments=st.dictionaries(st.sampled_from(["name", "many", "note", "else"]), ANYTHING))
def test_whatever_is_given_it_is_taken_or_refused_in_a_sentence(arguments: dict[str, Any]) -> None:
    refused = ""
    try:
        assert read_arguments("take", Wanted, arguments).name == arguments["name"]
    except UsageProblem as error:
        refused = str(error)

    assert refused == "" or refused.startswith("Invalid arguments for tool take: ")


@proves("mcp.errors")
async def test_an_unknown_tool_is_answered_with_the_tools_there_are(table: ToolTable) -> None:
    outcome = await table.call("x" * 5000, {}, CallContext())

    assert isinstance(outcome, Done)
    assert outcome.is_error
    assert outcome.text.endswith("not found. The tools are: take.")
    assert len(outcome.text) < 200


@proves("mcp.hints")
async def test_a_tool_says_how_careful_one_has_to_be_with_it() -> None:
    described = {tool["name"]: tool for tool in ExampleTools().tools().table.describe()}

    assert described["echo"]["title"] == "Echo"
    assert described["echo"]["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert described["crash"]["annotations"]["destructiveHint"] is True
    assert described["echo"]["outputSchema"]["required"] == ["length"]
    assert "outputSchema" not in described["crash"]


@proves("mcp.hints")
async def test_structured_content_is_what_the_schema_says() -> None:
    table = ExampleTools().tools().table
    outcome = await table.call("echo", {"text": "abc"}, CallContext())

    assert isinstance(outcome, Done)
    check_result(table, "echo", outcome.as_result())
    assert outcome.as_result()["structuredContent"] == {"length": 3}


@proves("mcp.hints")
async def test_nested_parameters_are_published_whole(table: ToolTable) -> None:
    (described,) = table.describe()

    assert described["inputSchema"]["required"] == ["name"]
    assert described["inputSchema"]["properties"]["many"]["items"] == {"$ref": "#/$defs/Inner"}
    assert described["inputSchema"]["$defs"]["Inner"]["properties"] == {"size": {"type": "integer"}}
