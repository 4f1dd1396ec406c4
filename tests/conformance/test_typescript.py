"""The official client in TypeScript, which most agents are built on, in both eras, over standard streams and over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.node import environment, node
from tests.support import proves
from tests.surfaces.mcp.serving import served
from tests.surfaces.mcp.wire import COMMAND, SECONDS

SCRIPT = Path(__file__).with_name("client.mjs")
MODES = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}


async def run_client(javascript: Path, mode: str, *target: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        str(node()), str(SCRIPT), str(javascript), mode, *target, env=environment(), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    assert process.returncode == 0
    return dict(json.loads(output))


def check(seen: dict[str, Any], mode: str) -> None:
    assert seen["revision"] == MODES[mode]
    assert {"echo", "choose"} <= set(seen["tools"])
    assert (seen["echoed"], seen["structured"]) == ("hello", {"length": 5})
    assert seen["chosen"] == '["cool", "user of typescript"]'


@proves("mcp.clients", "mcp.elicitation", "mcp.input-required")
@pytest.mark.parametrize("mode", MODES)
async def test_over_standard_streams(javascript: Path, mode: str) -> None:
    check(await run_client(javascript, mode, *COMMAND), mode)


@proves("mcp.clients", "mcp.elicitation", "mcp.input-required")
@pytest.mark.parametrize("mode", MODES)
async def test_over_http(javascript: Path, mode: str) -> None:
    async with served() as server:
        check(await run_client(javascript, mode, server.url), mode)
