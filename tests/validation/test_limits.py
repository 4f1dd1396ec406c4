"""Schemas and regular expressions of others cost no more than a moment, whatever they say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import BadAgentInput, UncheckedAgentInput
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.schemas import MAX_SCHEMA_LENGTH, check_input, check_output
from fidelio.validation import checks, pool
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_folder
from tests.support import proves

EVIL, VICTIM = r"^(a+)+$", "a" * 60 + "!"


def asking(schema: Any) -> Blueprint:
    return Blueprint(name="asker", description="Asks.", input_schema=schema, output_schema=schema, source="there")


def doubling(levels: int) -> dict[str, Any]:
    """Each level asks the one below twice, so the lowest is asked two to the power of `levels` times."""
    below = {f"n{level}": {"allOf": [{"$ref": f"#/$defs/n{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/n0", "$defs": {**below, f"n{levels}": {"type": "integer"}}}


@proves("blueprints.bounded-schemas")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": EVIL}, VICTIM),
        ({"patternProperties": {EVIL: {"type": "integer"}}}, {VICTIM: 1}),
        (doubling(40), 1),
        ({"uniqueItems": True}, [number if number % 2 else str(number) for number in range(40_000)]),
    ],
)
async def test_a_schema_that_would_take_for_ever_is_ended(schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SECONDS", 0.5)
    monkeypatch.setattr(checks, "_CACHE", {})  # another test may have asked the same with another limit
    async with asyncio.timeout(60):
        with pytest.raises(
            UncheckedAgentInput, match=r"could not be checked .* takes more than 0.5 seconds to check"
        ) as refused:
            await check_output(asking(schema), value)

    assert "smaller" in str(refused.value)


@proves("blueprints.bounded-schemas")
async def test_a_long_check_does_not_block_the_event_loop() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            # Counts turns of the event loop while the check runs; nothing is waited for.
            await asyncio.sleep(0.01)
            turns += 1

    beside = asyncio.create_task(others())
    async with asyncio.timeout(60):
        with pytest.raises(UncheckedAgentInput):
            await check_input(asking({"pattern": EVIL}), f"{VICTIM}!")
    beside.cancel()

    assert turns > 10


@proves("blueprints.bounded-schemas")
@pytest.mark.parametrize(
    ("schema", "fits", "words"),
    [
        ({"pattern": "^a+$"}, "aaa", "'b' does not match '^a+$'"),
        ({"type": "string", "description": "x" * MAX_SCHEMA_LENGTH}, "b", "is not of type 'string'"),
        (doubling(3), 1, "is not of type 'integer'"),
    ],
)
async def test_a_process_of_its_own_says_the_same(schema: Any, fits: Any, words: str) -> None:
    await check_output(asking(schema), fits)

    with pytest.raises(BadAgentInput) as refused:
        await check_output(asking(schema), {} if words.startswith("is not") else "b")
    assert words in refused.value.sentence


@proves("blueprints.bounded-schemas")
async def test_without_a_heavy_keyword_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PROGRAM", ("/nowhere",))
    monkeypatch.setattr(checks, "_POOL", pool.ChildPool(1))

    await check_output(asking({"properties": {"a": {"type": "integer"}}}), {"a": 1})
    with pytest.raises(UncheckedAgentInput, match="It could not be checked"):
        # No other test asks this: an answer from the cache would need no process.
        await check_output(asking({"pattern": "only-asked-here"}), "only-asked-here")


@proves("blueprints.bounded-schemas", "blueprints.broken")
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"pattern": "(?i)" + "[\u0100-\uffff]" * 2_000}, "takes more than 2 seconds"),
        ({"pattern": "(" * 5_000}, "is not a valid JSON Schema"),
        ({"pattern": "a{2,1}"}, "'a{2,1}' is not a 'regex'"),
    ],
)
def test_a_pattern_that_cannot_be_used_makes_the_blueprint_broken(tmp_path: Path, schema: Any, words: str) -> None:
    write_folder(tmp_path / AGENTS, "helper", {"input_schema": schema})
    write_folder(tmp_path / AGENTS, "other", {"input_schema": {"pattern": "^a$"}})

    listing = open_catalogue().list(tmp_path)

    assert words in listing.broken[0].sentence
    assert "other" in [one.name for one in listing.agents]


@proves("blueprints.bounded-schemas")
@pytest.mark.parametrize("value", ["[" * 100_000, '{"a":' * 100_000, 10**400])
async def test_extreme_values_are_refused_without_a_crash(value: Any) -> None:
    with pytest.raises(BadAgentInput, match="The result does not fit"):
        await check_output(asking({"type": ["integer", "object"], "multipleOf": 0.5}), value)
    if isinstance(value, str):
        assert await check_input(asking({"type": "string"}), value) == value


@proves("blueprints.bounded-schemas")
@pytest.mark.parametrize("value", [object(), "\ud800"])
async def test_a_result_that_is_no_json_fits_no_schema(value: Any) -> None:
    with pytest.raises(BadAgentInput, match="It is not JSON"):
        await check_output(asking({"type": "string"}), value)
