"""What a blueprint takes and gives back, checked against its JSON Schemas.

Whoever calls an agent is often a model itself. It is told what is wrong and what would be right, so it can repair its call.
The validator is imported with the first schema: most blueprints have none, and it costs a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fidelio.errors import BadAgentInput, BrokenBlueprint
from fidelio.orchestrator.blueprints.model import Blueprint

MOST_FAULTS = 5
LONGEST_VALUE = 120
LONGEST_SCHEMA = 4_000

Schema = Mapping[str, Any]


def check_input(blueprint: Blueprint, prompt: str | Mapping[str, Any]) -> str:
    """The text for the agent, or `BadAgentInput` with the schema that the input has to fit."""
    if blueprint.input_schema is None:
        if isinstance(prompt, str):
            return prompt
        raise BadAgentInput(
            f"The blueprint {blueprint.name} takes a text, and this is an object.", remedy="Pass the prompt as text."
        )
    value = _value(prompt) if isinstance(prompt, str) else prompt
    _check(blueprint, blueprint.input_schema, value, "The input does not fit")
    return prompt if isinstance(prompt, str) else msgspec.json.format(msgspec.json.encode(prompt), indent=2).decode()


def check_output(blueprint: Blueprint, data: Any) -> None:
    """Raises `BadAgentInput` with what is wrong, where the blueprint promises a shape and this is not it."""
    if blueprint.output_schema is not None:
        _check(blueprint, blueprint.output_schema, data, "The result does not fit")


def schema_fault(schema: Schema) -> str:
    """What is wrong with the schema itself; an empty text when it can be used."""
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # noqa: PLC0415  # untyped; see above

    if outside := next(_references_outside(schema), None):
        return f"It refers to {outside!r:.80}, and nothing outside of it is read."
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as problem:
        return _fault(problem)
    except RecursionError:
        return "It is nested too deeply."
    return ""


def _value(prompt: str) -> Any:
    """A text that is JSON is meant as what it stands for; any other text as itself."""
    try:
        return msgspec.json.decode(prompt)
    except msgspec.DecodeError:
        return prompt


def _check(blueprint: Blueprint, schema: Schema, value: Any, what: str) -> None:
    faults = _faults(blueprint, schema, value)
    if not faults:
        return
    more = f" ({len(faults) - MOST_FAULTS} more.)" if len(faults) > MOST_FAULTS else ""
    said = " ".join(faults[:MOST_FAULTS])
    raise BadAgentInput(
        f"{what} the schema of the blueprint {blueprint.name}: {said}{more}", remedy=_remedy(schema), schema=schema
    )


def _faults(blueprint: Blueprint, schema: Schema, value: Any) -> list[str]:
    from jsonschema import Draft202012Validator  # noqa: PLC0415  # see above
    from referencing import Registry  # noqa: PLC0415  # see above
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  # see above

    # The registry is empty on purpose: left out, references to addresses would be fetched.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        found = sorted(validator.iter_errors(value), key=lambda problem: [str(step) for step in problem.absolute_path])
    except (Unresolvable, RecursionError) as problem:
        raise BrokenBlueprint(
            f"A schema of the blueprint {blueprint.name} refers to what is not there, or to itself: {problem!s:.200}.",
            remedy=f"Mend it in {blueprint.source}.",
        ) from problem
    return [_fault(problem) for problem in found]


def _fault(problem: Any) -> str:
    """One sentence. The validator repeats the whole value, which may be a megabyte."""
    where = ".".join(str(step) for step in problem.absolute_path)
    said = problem.message if len(problem.message) <= LONGEST_VALUE else f"{problem.message[:LONGEST_VALUE]}…"
    return f"`{where}`: {said}." if where else f"{said}."


def _remedy(schema: Schema) -> str:
    text = msgspec.json.encode(schema).decode()
    return f"It has to fit {text}" if len(text) <= LONGEST_SCHEMA else "Look at the schema of the blueprint."


def _references_outside(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key in ("$ref", "$dynamicRef"):
            if isinstance(part.get(key), str) and not part[key].startswith("#"):
                yield part[key]
    values = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    for value in values:
        yield from _references_outside(value)
