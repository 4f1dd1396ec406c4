"""What a tool is, whichever front serves it: a name, typed parameters, a plain async function and a result.

The parameters are a msgspec struct. It gives the published input schema and checks the arguments, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from fidelio.errors import FidelioError, UsageProblem

P = TypeVar("P", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished call: text for the model, and metadata for the client."""

    text: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False

    def as_result(self) -> dict[str, Any]:
        result: dict[str, Any] = {"content": [{"type": "text", "text": self.text}], "isError": self.is_error}
        return {**result, "_meta": dict(self.meta)} if self.meta else result


@dataclass(frozen=True, slots=True)
class Tool(Generic[P]):
    """One row of the table."""

    name: str
    title: str
    description: str
    parameters: type[P]
    handler: Callable[[P], Awaitable[Done]]
    read_only: bool = False

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": input_schema(self.parameters),
            "annotations": {"readOnlyHint": self.read_only, "openWorldHint": False},
        }


class ToolTable:
    """The tools of one dialect. Every failure is a result with a sentence that says what to do, never a protocol error."""

    def __init__(self, tools: Iterable[Tool[Any]]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def describe(self) -> list[dict[str, Any]]:
        return [tool.describe() for tool in self._tools.values()]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Done:
        try:
            tool = self._find(name)
            return await tool.handler(_read_arguments(tool, arguments))
        except FidelioError as error:
            return Done(str(error), is_error=True)

    def _find(self, name: str) -> Tool[Any]:
        tool = self._tools.get(name)
        if tool is None:
            raise UsageProblem(f"Tool {name} not found.", remedy=f"The tools are: {', '.join(self._tools)}.")
        return tool


def input_schema(parameters: type[msgspec.Struct]) -> dict[str, Any]:
    (schema,), definitions = msgspec.json.schema_components([parameters], ref_template="#/$defs/{name}")
    inlined = dict(definitions.pop(parameters.__name__)) if "$ref" in schema else dict(schema)
    inlined.pop("title", None)
    return {**inlined, "$defs": definitions} if definitions else inlined


def _read_arguments(tool: Tool[P], arguments: Mapping[str, Any]) -> P:
    try:
        return msgspec.convert(arguments, tool.parameters)
    except msgspec.ValidationError as error:
        raise UsageProblem(
            f"Invalid arguments for tool {tool.name}: {error}.", remedy="tools/list shows what it takes."
        ) from error
