"""What a blueprint takes and gives back, checked against its JSON Schemas.

Whoever calls an agent is often a model itself. It is told what is wrong and what would be right, so it can repair its call.
Without a schema nothing is imported and nothing is asked.
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
    """The text for the agent, or `BadAgentInput` with the schema that the input has to fit."""
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
    """Raises `BadAgentInput` with what is wrong, where the blueprint promises a shape and this is not it."""
    if blueprint.output_schema is not None:
        await _check(blueprint, blueprint.output_schema, data, "The result")


def _parse_value(prompt: str) -> Any:
    """A text that is JSON is meant as what it stands for; any other text as itself."""
    try:
        return msgspec.json.decode(prompt)
    except (msgspec.DecodeError, RecursionError):
        return prompt


async def _check(blueprint: Blueprint, schema: Schema, value: Any, what: str) -> None:
    try:
        unusable, violated = await find_violations(schema, value)
    except CheckUndecided as problem:
        # Of a schema and a value that take too long together, nobody can say which of the two is to blame.
        smaller = f"Make it smaller and plainer, or the schema in {blueprint.source} simpler."
        raise UncheckedAgentInput(
            f"{what} could not be checked against the schema of the blueprint {blueprint.name}: {problem}",
            remedy=smaller if isinstance(problem, LimitExceeded) else "The machine may be overloaded; try again later.",
        ) from problem
    if unusable:
        raise BrokenBlueprint(
            f"A schema of the blueprint {blueprint.name} cannot be used: {unusable}", remedy=f"Mend it in {blueprint.source}."
        )
    if violated:
        sentence = f"{what} does not fit the schema of the blueprint {blueprint.name}: {violated}"
        raise BadAgentInput(sentence, remedy=_remedy(schema), schema=schema)


def _remedy(schema: Schema) -> str:
    text = msgspec.json.encode(schema).decode()
    return f"It has to fit {text}" if len(text) <= MAX_SCHEMA_LENGTH else "Look at the schema of the blueprint."
