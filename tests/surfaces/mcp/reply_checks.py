"""Checks a reply as a strict client would: against the schema its tool publishes, and within what we promise about size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

from fidelio.toolkit import Done, ToolTable

# What is longer goes as text alone.
MOST_STRUCTURED = 2048


class Strict:
    """A client that holds a table to what it publishes."""

    def __init__(self, table: ToolTable) -> None:
        self._schemas = {tool["name"]: tool["outputSchema"] for tool in table.describe() if "outputSchema" in tool}
        self._validators = {name: jsonschema.Draft202012Validator(schema) for name, schema in self._schemas.items()}

    def check(self, tool: str, structured: Mapping[str, Any] | None, *, is_error: bool) -> None:
        """Structured content and a schema go together, and the schema names everything that comes."""
        validator = self._validators.get(tool)
        if validator is None:
            assert structured is None, f"{tool} sends structured content without saying what is in it"
        elif not is_error:
            validator.validate(structured)
            assert list(_unnamed(self._schemas[tool], structured)) == [], f"{tool} sends what its schema does not name"


def check_result(table: ToolTable, tool: str, result: dict[str, Any]) -> None:
    structured = result.get("structuredContent")
    Strict(table).check(tool, structured, is_error=result["isError"])
    check_size(tool, structured)


def check_plain(done: Done) -> None:
    """Both fronts write a reply that is made of nothing but JSON in the same way."""
    result = done.as_result()
    assert json.loads(json.dumps(result, ensure_ascii=False).encode()) == result
    assert None not in done.meta.values()


def check_size(tool: str, structured: Mapping[str, Any] | None) -> None:
    size = len(json.dumps(structured)) if structured is not None else 0
    assert size <= MOST_STRUCTURED, f"{tool} sends {size} characters of structured content"


def _unnamed(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (name for item in value for name in _unnamed(schema.get("items", {}), item))
    if not isinstance(value, dict) or "properties" not in schema:
        return
    if not schema.get("additionalProperties"):
        yield from value.keys() - schema["properties"].keys()
    for key, inner in value.items():
        yield from _unnamed(schema["properties"].get(key, {}), inner)
