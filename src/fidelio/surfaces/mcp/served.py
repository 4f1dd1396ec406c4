"""What one MCP endpoint serves: a table of tools with instructions and resources, and the context of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from fidelio.errors import UsageProblem
from fidelio.surfaces.commands import PROGRAM, as_typed
from fidelio.toolkit import Ask, CallContext, Render, Reporter, ToolTable

ROOT = "workflow-server://schemas"
JSON = "application/json"


class Resource(msgspec.Struct, frozen=True):
    """A resource of the protocol. Its text is made when a client reads it."""

    uri: str
    name: str
    description: str
    text: Callable[[], str]

    def describe(self) -> dict[str, Any]:
        return {"uri": self.uri, "name": self.name, "description": self.description, "mimeType": JSON}

    def contents(self) -> dict[str, Any]:
        return {"contents": [{"uri": self.uri, "mimeType": JSON, "text": self.text()}]}


def find_resource(resources: Iterable[Resource], uri: object) -> Resource:
    known = {resource.uri: resource for resource in resources}
    found = known.get(uri) if isinstance(uri, str) else None
    if found is None:
        raise UsageProblem(f"Resource {str(uri)[:200]} not found.", remedy=f"The resources are: {', '.join(known) or 'none'}.")
    return found


class ServedTools:
    """The tools of one endpoint. `instructions` tell a client what they are for.

    `program` is how a person begins a command that replies name. `ask` is the port to the inbox.
    """

    __slots__ = ("_ask", "_render", "instructions", "resources", "table")

    def __init__(
        self,
        table: ToolTable,
        *,
        instructions: str = "",
        resources: tuple[Resource, ...] = (),
        program: str = PROGRAM,
        ask: Ask | None = None,
    ) -> None:
        self.table = table
        self.instructions = instructions
        self.resources = resources
        self._ask = ask
        self._render = _renderer(program)

    def context(self, reporter: Reporter | None = None, caller: str = "") -> CallContext:
        """The context of one call, shared by every time that its handler is called."""
        return CallContext(self._render, caller, reporter, self._ask)


def _renderer(program: str) -> Render:
    """Renders commands for the home that the server works in; whoever words a reply names the command alone."""
    return str if program == PROGRAM else lambda text: as_typed(str(text), program)


def schema_resources() -> tuple[Resource, ...]:
    """The JSON Schemas of workflow files and of a session's state, made from the models that read the files."""
    about = {
        "workflow": "What a workflow file holds.",
        "activity": "What an activity file holds.",
        "condition": "How a condition is written.",
        "skill": "What a skill file holds.",
        "state": "What the record of a session holds.",
    }
    each = (Resource(f"{ROOT}/{name}", f"{name}-schema", text, partial(_text, name)) for name, text in about.items())
    return (Resource(ROOT, "schemas", "All five schemas in one object.", partial(_text, *about)), *each)


def _text(*names: str) -> str:
    schema = _schema(names[0]) if len(names) == 1 else {name: _schema(name) for name in names}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()


def _schema(name: str) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415  # only when somebody asks for a schema

    from fidelio.definitions import models  # noqa: PLC0415  # the same
    from fidelio.definitions.models.skill import Skill  # noqa: PLC0415  # the same
    from fidelio.engine.state import Record  # noqa: PLC0415  # the same

    if name == "state":
        return msgspec.json.schema(Record)
    model: Any = {
        "workflow": models.Workflow,
        "activity": models.Activity,
        "condition": models.Condition,
        "skill": Skill,
    }[name]
    return TypeAdapter(model).json_schema(by_alias=True)
