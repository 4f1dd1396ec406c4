"""What a server offers to read beside its tools: the JSON Schemas of workflow files and of a session's state.

They are made from the very models that read the files, so they cannot say anything else than what is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from fidelio.errors import UsageProblem

ROOT = "workflow-server://schemas"
JSON = "application/json"


class Resource(msgspec.Struct, frozen=True):
    """One thing to read. Its text is made when somebody asks for it."""

    uri: str
    name: str
    description: str
    text: Callable[[], str]

    def describe(self) -> dict[str, Any]:
        return {"uri": self.uri, "name": self.name, "description": self.description, "mimeType": JSON}

    def contents(self) -> dict[str, Any]:
        return {"contents": [{"uri": self.uri, "mimeType": JSON, "text": self.text()}]}


def find(resources: Iterable[Resource], uri: object) -> Resource:
    known = {resource.uri: resource for resource in resources}
    found = known.get(uri) if isinstance(uri, str) else None
    if found is None:
        raise UsageProblem(f"Resource {str(uri)[:200]} not found.", remedy=f"The resources are: {', '.join(known) or 'none'}.")
    return found


def schema_resources() -> tuple[Resource, ...]:
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
