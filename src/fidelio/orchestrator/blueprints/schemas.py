"""Validation of the input and output of an agent against the JSON Schemas of its blueprint.

The caller of an agent is often a model itself, so an error includes the schema: the caller can repair its input. Without a
schema nothing is validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.errors import BadAgentInput, BrokenBlueprint, UncheckedAgentInput
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.validation import CheckUndecided, LimitExceeded, Schema, find_violations

MAX_SCHEMA_LENGTH = 4_000


async def check_input(blueprint: Blueprint, prompt: str | Mapping[str, Any]) -> str:
    """The prompt as text. Raises `BadAgentInput` with the schema if the input does not fit it."""
    if blueprint.input_schema is None:
        if isinstance(prompt, str):
            return prompt
        raise BadAgentInput(
            f"The blueprint {blueprint.name} takes a text, and this is an object.", remedy="Pass the prompt as text."
        )
    value = _parse_value(prompt) if isinstance(prompt, str) else prompt
    await _check(blueprint, blueprint.input_schema, value, "The input")
    return prompt if isinstance(prompt, str) else msgspec.json.format(msgspec.json.encode(prompt), indent=2).decode()


async def check_output(blueprint: Blueprint, data: Any) -> None:
    """Raise `BadAgentInput` if the blueprint has an output schema and the data does not fit it."""
    if blueprint.output_schema is not None:
        await _check(blueprint, blueprint.output_schema, data, "The result")


def _parse_value(prompt: str) -> Any:
    """The value to validate: a text that is JSON is parsed, any other text is validated as a string."""
    try:
        return msgspec.json.decode(prompt)
    except (msgspec.DecodeError, RecursionError):
        return prompt


async def _check(blueprint: Blueprint, schema: Schema, value: Any, what: str) -> None:
    try:
        unusable, violated = await find_violations(schema, value)
    except CheckUndecided as problem:
        # When a check takes too long, either the schema or the value may be the cause.
        smaller = f"Make it smaller and plainer, or the schema in {blueprint.source} simpler."
        raise UncheckedAgentInput(
            f"{what} could not be checked against the schema of the blueprint {blueprint.name}: {problem}",
            remedy=smaller if isinstance(problem, LimitExceeded) else "The machine may be overloaded; try again later.",
        ) from problem
    if unusable:
        raise BrokenBlueprint(
            f"A schema of the blueprint {blueprint.name} cannot be used: {unusable}",
            remedy=f"Correct it in {blueprint.source}.",
        )
    if violated:
        sentence = f"{what} does not fit the schema of the blueprint {blueprint.name}: {violated}"
        raise BadAgentInput(sentence, remedy=_remedy(schema), schema=schema)


def _remedy(schema: Schema) -> str:
    text = msgspec.json.encode(schema).decode()
    return f"It has to fit {text}" if len(text) <= MAX_SCHEMA_LENGTH else "Look at the schema of the blueprint."
