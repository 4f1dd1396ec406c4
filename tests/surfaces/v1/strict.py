"""Strict validation of what the API sends against the types of the official SDK.

The SDK itself builds its objects without validation and keeps unknown fields. Here a missing field, a wrong type, an unknown
field at any depth and every warning is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, TypeVar

from anthropic import BaseModel
from pydantic import BaseModel as PydanticModel
from pydantic import TypeAdapter

Model = TypeVar("Model", bound=BaseModel)


def check_json(type_: Any, value: Any) -> Any:
    """Validate JSON against a type of the SDK, which may be a union; returns the object."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = TypeAdapter(type_).validate_python(value)
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


def _list_unknown(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, PydanticModel):
        yield from (f"{where}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from _list_unknown(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _list_unknown(item, f"{where}[{number}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _list_unknown(item, f"{where}.{name}")
