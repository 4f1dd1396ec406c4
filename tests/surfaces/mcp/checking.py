"""Checks a reply as a strict client would: against the schema its tool publishes, and within what we promise about size."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # comes with the official client, without types

from fidelio.surfaces.mcp.tools import ToolTable

# Large documents go as text; what describes them stays small.
MOST_STRUCTURED = 2048


def check_result(table: ToolTable, tool: str, result: dict[str, Any]) -> None:
    described = next(entry for entry in table.describe() if entry["name"] == tool)
    structured = result.get("structuredContent")
    if structured is not None:
        assert len(json.dumps(structured)) <= MOST_STRUCTURED, f"{tool} sends too much structured content"
    if "outputSchema" in described and not result["isError"]:
        jsonschema.validate(structured, described["outputSchema"], cls=jsonschema.Draft202012Validator)
