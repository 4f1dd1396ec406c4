"""Arguments of tools: one msgspec struct gives the published schema and checks what arrives, so the two cannot differ.

A refusal begins with the field and what it takes, because a model reads it and tries again.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from fidelio.errors import FidelioError, UsageProblem
from fidelio.surfaces.commands import PROGRAM
from fidelio.surfaces.mcp.hints import speak_of, typed_here
from fidelio.surfaces.mcp.resources import Resource

P = TypeVar("P", bound=msgspec.Struct)
# msgspec's sentence, and the place in the arguments it speaks of.
_COMPLAINT = re.compile(r"(?P<sentence>.*?)(?: - at `(?P<key>key in )?\$(?P<place>.*)`)?", re.DOTALL)


def input_schema(parameters: type[msgspec.Struct]) -> dict[str, Any]:
    (schema,), definitions = msgspec.json.schema_components([parameters], ref_template="#/$defs/{name}")
    inlined = dict(definitions.pop(parameters.__name__)) if "$ref" in schema else dict(schema)
    inlined.pop("title", None)
    inlined.pop("description", None)
    return {**inlined, "$defs": definitions} if definitions else inlined


def read_arguments(tool: str, parameters: type[P], arguments: Mapping[str, Any]) -> P:
    """Unknown extra arguments are ignored: clients of other generations send some."""
    try:
        return msgspec.convert(arguments, parameters)
    except msgspec.ValidationError as error:
        fields = ", ".join(parameters.__struct_encode_fields__) or "nothing"
        raise UsageProblem(
            f"Invalid arguments for tool {tool}: {_explained(str(error))}.", remedy=f"It takes: {fields}."
        ) from error


def _explained(complaint: str) -> str:
    found = _COMPLAINT.fullmatch(complaint)
    if found is None or not found["place"]:
        return complaint
    return f"`{found['place'].lstrip('.')}`: {found['sentence']}"


class Done(msgspec.Struct, frozen=True):
    """A finished call: text for the model, and metadata and small structured content for the client.

    A large document goes into `text` alone; `structured` then holds only what describes it. `remarks` are further texts beside
    the first, which clients may parse.
    """

    text: str
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)
    is_error: bool = False
    structured: Mapping[str, Any] | None = None
    remarks: tuple[str, ...] = ()

    def as_result(self) -> dict[str, Any]:
        texts = (self.text, *self.remarks)
        result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts], "isError": self.is_error}
        if self.structured is not None:
            result["structuredContent"] = dict(self.structured)
        if self.meta:
            result["_meta"] = dict(self.meta)
        return result


class Option(msgspec.Struct, frozen=True):
    """One of the answers a person can give."""

    id: str
    label: str
    description: str = ""


class AskPerson(msgspec.Struct, frozen=True):
    """A question that only a person may answer.

    `answered(option id, who)` records the answer. `waiting` is the reply when nobody could be asked now or nobody answered in
    time, and `unanswered()` records that. `elsewhere()` returns once the question was answered by other means, so that a client
    need not go on asking.
    """

    request_id: str
    message: str
    options: tuple[Option, ...]
    answered: Callable[[str, str], Awaitable[None]]
    waiting: Done | None = None
    elsewhere: Callable[[], Awaitable[None]] | None = None
    unanswered: Callable[[], Awaitable[None]] | None = None


Outcome = Done | AskPerson
Misused = Callable[[str, Mapping[str, Any], FidelioError], Awaitable[None]]


class Tool(msgspec.Struct, Generic[P], frozen=True):
    """One row of the table. The hints tell a client how careful it has to be with the tool."""

    name: str
    title: str
    description: str
    parameters: type[P]
    handler: Callable[[P], Awaitable[Outcome]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    output_schema: Mapping[str, Any] | None = None

    def describe(self) -> dict[str, Any]:
        described = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": input_schema(self.parameters),
            "annotations": {
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.idempotent,
                "openWorldHint": self.open_world,
            },
        }
        return {**described, "outputSchema": dict(self.output_schema)} if self.output_schema is not None else described


class ToolTable:
    """The tools of one dialect. Every failure is a result with a sentence that says what to do, never a protocol error."""

    def __init__(
        self,
        tools: Iterable[Tool[Any]],
        *,
        instructions: str = "",
        resources: tuple[Resource, ...] = (),
        misused: Misused | None = None,
        worded: Callable[[FidelioError], str] = str,
        program: str = PROGRAM,
    ) -> None:
        """`instructions` tell a client what the tools are for.

        `misused` is told of calls whose arguments were refused before any handler saw them. `worded` is how a client reads
        an error. `program` is how a person begins a command that replies name.
        """
        self._tools = {tool.name: tool for tool in tools}
        self.instructions = instructions
        self.resources = resources
        self._misused = misused
        self._worded = worded
        self._program = program
        self._described: list[dict[str, Any]] = []

    def describe(self) -> list[dict[str, Any]]:
        """What `tools/list` shows. Made once, because building the schemas costs more than a call."""
        if not self._described:
            self._described = [tool.describe() for tool in self._tools.values()]
        return self._described

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Outcome:
        speak_of(self._program)
        try:
            tool = self._find(name)
            return await tool.handler(await self._read(tool, arguments))
        except FidelioError as error:
            return Done(typed_here(self._worded(error)), is_error=True)

    async def _read(self, tool: Tool[P], arguments: Mapping[str, Any]) -> P:
        try:
            return read_arguments(tool.name, tool.parameters, arguments)
        except FidelioError as error:
            if self._misused is not None:
                await self._misused(tool.name, arguments, error)
            raise

    def _find(self, name: str) -> Tool[Any]:
        tool = self._tools.get(name)
        if tool is None:
            shown = name if len(name) <= 100 else f"{name[:100]}…"
            raise UsageProblem(f"Tool {shown} not found.", remedy=f"The tools are: {', '.join(self._tools)}.")
        return tool
