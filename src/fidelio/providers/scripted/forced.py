"""Replies of a scripted model to a request that forces a tool: the simplest input that fits the schema of the tool.

A verdict about a criterion (`verdict`, `citations`, `reason`) is `met` with the first citation that the schema lists, and
`not_met` if it lists none, so that demos can be graded without a real model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.providers.model import ModelProblem, ModelReply, ModelRequest, ToolUseBlock
from fidelio.providers.scripted.conversation import make_call_id

_DEPTH = 16
_SIMPLE: Mapping[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "null": None,
}


def answer_forced(request: ModelRequest) -> ModelReply:
    tool = next((tool for tool in request.tools if tool.name == request.force_tool), None)
    if tool is None:
        raise ModelProblem(
            f"The forced tool {request.force_tool!r} is not declared.", remedy="Declare it in the request that forces it."
        )
    value = _Filler(tool.input_schema).fill(tool.input_schema)
    block = ToolUseBlock(make_call_id(request, 0), tool.name, value if isinstance(value, dict) else {})
    return ModelReply(content=(block,), stop_reason="tool_use")


class _Filler:
    """Builds a value for a schema. References are resolved within the schema of the tool."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def fill(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if depth < _DEPTH and (kind == "object" or "properties" in schema):
            return self._fill_object(schema, depth + 1)
        if depth < _DEPTH and kind == "array" and schema.get("minItems"):
            return [self.fill(schema.get("items") or {}, depth + 1)]
        return _SIMPLE.get(str(kind), "")

    def _fill_object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        if "verdict" in properties and "citations" in properties:
            return self._make_verdict(properties)
        names = schema.get("required", list(properties))
        return {name: self.fill(properties.get(name) or {}, depth) for name in names}

    def _make_verdict(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        citations = self._resolve(properties["citations"])
        citable = self._resolve(citations.get("items") or {}).get("enum") or []
        if not citable:
            return {"verdict": "not_met", "citations": [], "reason": "Nothing can be cited."}
        return {"verdict": "met", "citations": citable[:1], "reason": "The scripted model accepts whatever can be cited."}

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follow a reference such as `#/$defs/citation`; at most a few, because two could point at each other."""
        for _ in range(_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                break
            found: Any = self._root
            for name in reference.removeprefix("#/").split("/"):
                found = found.get(name, {})
            schema = found
        return schema
