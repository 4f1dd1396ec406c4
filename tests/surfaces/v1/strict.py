"""Strict validation of what the API sends against the types of the official SDK.

The SDK itself builds its objects without validation and keeps unknown fields. Here a missing field, a wrong type, an unknown
field at any depth, a value that would have to be converted, and every warning is an error.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from anthropic import BaseModel
from pydantic import BaseModel as PydanticModel
from pydantic import TypeAdapter

Model = TypeVar("Model", bound=BaseModel)


def check_json(type_: Any, value: Any) -> Any:
    """Validate JSON against a type of the SDK, which may be a union; returns the object."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Strict, so that a text is no number and a number no text.
        found = _make_adapter(type_).validate_json(json.dumps(value), strict=True)
    unknown = list(_list_unknown(found, "$"))
    assert not unknown, f"The SDK does not know {', '.join(unknown)} in {value}"
    return found


def check_object(found: Model) -> Model:
    """Validate an object that the SDK has built from a response; returns it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dumped = found.to_dict(mode="json", use_api_names=True, exclude_unset=True)
    check_json(type(found), dumped)
    return found


@cache
def _make_adapter(type_: Any) -> TypeAdapter[Any]:
    """The validator of a type. Making that of all events takes a second."""
    return TypeAdapter(type_)


def _list_unknown(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, PydanticModel):
        # A JSON Schema has whatever its author writes.
        is_schema = type(value).__name__.endswith("InputSchema")
        yield from () if is_schema else (f"{where}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from _list_unknown(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _list_unknown(item, f"{where}[{number}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _list_unknown(item, f"{where}.{name}")
