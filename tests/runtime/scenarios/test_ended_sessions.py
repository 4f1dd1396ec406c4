"""Sessions that are ended or deleted while a wake works: the wake ends with them, and the worker goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import SessionNotFound
from fidelio.providers.model import ModelReply, ModelRequest, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.runtime.wakes.rounds import Rounds
from fidelio.runtime.wakes.worker import keep_working
from tests.runtime.wakes.support import Runtime, open_runtime, say, use
from tests.support import proves


async def remove(runtime: Runtime, session: str, how: str) -> None:
    if how == "end":
        await runtime.service.end_session(session, by="person:test")
    else:
        await runtime.service.delete_session(session, by="person:test", reason="a test")


@proves("runtime.ended-wake")
@pytest.mark.parametrize("how", ["end", "delete"])
@pytest.mark.parametrize("moment", ["model", "tools"])
async def test_a_session_that_is_removed_during_a_wake_ends_it_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str, moment: str
) -> None:
    async with open_runtime(tmp_path) as runtime:
        session, gone = await runtime.begin(), asyncio.Event()

        async def remove_now() -> None:
            await remove(runtime, session, how)
            gone.set()

        async def reply(_: ModelRequest) -> ModelReply:
            if moment == "model":
                # The end of the session stops this reply, but not the person who ends it.
                await asyncio.shield(asyncio.create_task(remove_now()))
            return use(("permissions_describe", {}))

        carry_out = Rounds.carry_out

        async def remove_first(self: Rounds, loaded: LoadedRuntime, uses: Mapping[str, ToolUseBlock], **more: Any) -> bool:
            await remove_now()
            return await carry_out(self, loaded, uses, **more)

        monkeypatch.setattr(Rounds, "carry_out", remove_first)
        runtime.script(reply)
        await runtime.tell(session, "Work.")
        with caplog.at_level(logging.WARNING):
            async with keep_working(runtime.runner) as worker, asyncio.timeout(20):
                await gone.wait()
            assert not worker.is_busy

        assert [record for record in caplog.records if record.exc_info] == []
        assert len(runtime.requests) == 1
        if how == "end":
            assert (await runtime.record(session)).status == "terminated"
            assert await runtime.events(session, e.TOOL_RESULT) == ()


@proves("runtime.ended-wake")
async def test_a_session_that_is_missing_elsewhere_is_an_error_of_the_wake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise SessionNotFound("Another session is missing.")

    async with open_runtime(tmp_path, lambda _: say("Hello.")) as runtime:
        session = await runtime.begin()
        monkeypatch.setattr(type(runtime.runner), "_carry_out", fail)
        await runtime.tell(session, "Work.")
        with pytest.raises(SessionNotFound, match="Another session"):
            await runtime.work()
