"""Requests without the SDK, for what no honest client sends."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.surfaces.v1.conftest import KEY


async def send(
    method: str, url: str, body: Any = None, *, key: dict[str, str] = KEY, raw: bytes | None = None
) -> httpx2.Response:
    """A request without the SDK: what no honest client sends."""
    async with httpx2.AsyncClient() as client:
        return await client.request(method, url, headers=key, json=body if raw is None else None, content=raw)
