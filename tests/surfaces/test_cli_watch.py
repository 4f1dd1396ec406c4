"""Watching from another process: questions, answers and events as they happen."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fidelio.home import Home
from tests.support import proves
from tests.surfaces.conftest import Connect, Fidelio
from tests.surfaces.test_end_to_end import yield_checkpoint


@asynccontextmanager
async def running(environ: dict[str, str], *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
    """A command that goes on until it is interrupted; its output line by line."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "fidelio", *arguments, env=environ, stdout=pipe)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield process.stdout
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def next_json(lines: asyncio.StreamReader) -> dict[str, Any]:
    return dict(json.loads(await lines.readline()))


@proves("inbox.watch")
async def test_a_question_asked_and_answered_elsewhere_is_seen_as_it_happens(
    environ: dict[str, str], connect: Connect, fidelio: Fidelio, home: Path
) -> None:
    Home(home).ensure()
    async with running(environ, "inbox", "--watch", "--json") as lines, connect() as client:
        yielded = await yield_checkpoint(client)
        asked = await next_json(lines)
        fidelio("answer", yielded["request_id"], "brief")
        answered = await next_json(lines)

    assert (asked["id"], asked["state"]) == (yielded["request_id"], "open")
    assert (answered["id"], answered["state"], answered["answer"]) == (asked["id"], "answered", {"option": "brief"})


@proves("cli.record")
async def test_events_of_another_process_are_followed(environ: dict[str, str], connect: Connect, fidelio: Fidelio) -> None:
    async with connect() as client:
        yielded = await yield_checkpoint(client)
        session = json.loads(fidelio("sessions", "--json").stdout)["items"][0]["id"]
        async with running(environ, "events", session, "--follow", "--type", "request.answered", "--json") as lines:
            fidelio("answer", yielded["request_id"], "warm")
            answered = await next_json(lines)

    assert answered["body"]["option"] == "warm"
