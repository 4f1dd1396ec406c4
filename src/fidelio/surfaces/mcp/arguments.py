"""Arguments of tools: one msgspec struct gives the published schema and checks what arrives, so the two cannot differ.

A refusal begins with the field and what it takes, because a model reads it and tries again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from fidelio.errors import UsageProblem

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
