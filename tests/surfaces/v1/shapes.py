"""Comparison of what the server sends with the types of the official SDK: nothing missing, nothing unknown, nothing coerced."""

from __future__ import annotations

from typing import Any

import httpx2
from pydantic import BaseModel, TypeAdapter

from tests.surfaces.v1.conftest import KEY


def check_shape(type_: type[BaseModel], value: dict[str, Any]) -> None:
    """Fail unless a JSON object is exactly an object of the SDK."""
    parsed = TypeAdapter(type_).validate_python(value)
    assert list(find_unknown(parsed)) == []


def find_unknown(value: Any, where: str = "") -> list[str]:
    """The fields that a type of the SDK does not know. Those of a JSON Schema are free."""
    if isinstance(value, BaseModel):
        is_free = type(value).__name__.endswith("InputSchema")
        own = [] if is_free else [f"{where}.{name}" for name in value.model_extra or {}]
        return own + [
            found for name in type(value).model_fields for found in find_unknown(getattr(value, name), f"{where}.{name}")
        ]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in find_unknown(item, f"{where}.{key}")]


async def send(
    method: str, url: str, body: Any = None, *, key: dict[str, str] = KEY, raw: bytes | None = None
) -> httpx2.Response:
    """A request without the SDK: what no honest client sends."""
    async with httpx2.AsyncClient() as client:
        return await client.request(method, url, headers=key, json=body if raw is None else None, content=raw)
