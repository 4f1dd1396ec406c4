"""Interrupts while tools run: commands are stopped in the sandbox, tools that must not be cut off finish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from fidelio.errors import LedgerBusy, SandboxLost
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Event
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.service import RuntimeService
from fidelio.runtime.wakes.wake import WakeRunner
from fidelio.sandbox.model import ActionResult, SandboxSpec
from tests.runtime.support import FakeSandboxes
from tests.runtime.wakes.support import Runtime, open_runtime, replies, results_of, say, use
from tests.support import proves

SECONDS = 10
INTERRUPT = {"type": "user.interrupt"}
RUN = ("shell_run", {"command": "sleep 600"})


class SlowSandboxes(FakeSandboxes):
    """Sandboxes in which an action does not end by itself: only `finish` or stopping the sandbox ends it."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow = slow
        self.reached, self.finish, self._stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.stops: list[str] = []

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        await self.start(spec)
        self.calls.append((action, dict(arguments)))
        if action != self._slow:
            return ActionResult(True, {"interrupted": False})
        self.reached.set()
        ends = [asyncio.ensure_future(end.wait()) for end in (self.finish, self._stopped)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED, timeout=timeout)
        finally:
            for end in ends:
                end.cancel()
        if self._stopped.is_set():
            raise SandboxLost("The sandbox was stopped.")
        return ActionResult(True, {"path": "a.txt", "bytes": 1})

    async def stop(self, session: str) -> bool:
        self.stops.append(session)
        self._stopped.set()
        return await super().stop(session)


async def wait_until_followed(runtime: Runtime, session: str) -> None:
    """Wait until those who follow a session have seen its interrupt."""
    async for _ in runtime.ledger.follow(session, types=(e.USER_INTERRUPT,)):
        break
    for _ in range(100):
        await asyncio.sleep(0)


@proves("runtime.wake-interrupt")
@pytest.mark.parametrize("is_first", [True, False])
async def test_an_interrupt_stops_a_command_in_its_sandbox_also_the_first_one(tmp_path: Path, *, is_first: bool) -> None:
    sandboxes = SlowSandboxes("run_shell")
    sandboxes.replies["write_text"] = lambda given: {"path": given["path"], "bytes": 1}
    before = [] if is_first else [use(("write", {"path": "a.txt", "content": "A"}))]
    async with open_runtime(tmp_path, replies(*before, use(RUN), say("Stopped.")), sandboxes=sandboxes) as runtime:
        session = await runtime.begin(tools={"policies": {"shell_run": "always_allow"}})
        await runtime.tell(session, "Build.")
        working = asyncio.create_task(runtime.work())
        async with asyncio.timeout(SECONDS):
            await sandboxes.reached.wait()
            await runtime.send(session, INTERRUPT)
            await working

        assert sandboxes.stops == [session]
        assert (await runtime.record(session)).status == "idle"
        assert len(await runtime.events(session, e.TOOL_RESULT)) == len(before) + 1
        await runtime.tell(session, "Go on.")
        await runtime.work()
        assert results_of(runtime.requests[-1])[-1].is_error


@proves("runtime.wake-interrupt")
async def test_a_tool_that_must_not_be_cut_off_finishes_and_its_result_is_kept(tmp_path: Path) -> None:
    sandboxes = SlowSandboxes("write_text")
    script = replies(
        use(("write", {"path": "a.txt", "content": "A"}), ("write", {"path": "b.txt", "content": "B"})), say("Fine.")
    )
    async with open_runtime(tmp_path, script, sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Write both.")
        working = asyncio.create_task(runtime.work())
        async with asyncio.timeout(SECONDS):
            await sandboxes.reached.wait()
            await runtime.send(session, INTERRUPT, {"type": "user.message", "content": "Go on."})
            await wait_until_followed(runtime, session)
            sandboxes.finish.set()
            await working

        first, second = results_of(runtime.requests[-1])
        assert (first.is_error, second.is_error) == (False, True)
        assert "interrupted" in str(second.content)
        assert [action for action in sandboxes.actions if action == "write_text"] == ["write_text"]
        assert sandboxes.stops == []


async def interrupt_while_thinking(runtime: Runtime, send: Callable[[str], Awaitable[object]]) -> None:
    """Begin a wake whose model thinks for ever, interrupt it, and wait until it is idle."""
    thinking = asyncio.Event()

    async def think(_: ModelRequest) -> ModelReply:
        thinking.set()
        await asyncio.Event().wait()
        raise AssertionError("it thinks for ever")

    runtime.script(think)
    session = await runtime.begin()
    await runtime.tell(session, "Think.")
    working = asyncio.create_task(runtime.work())
    async with asyncio.timeout(SECONDS):
        await thinking.wait()
        await send(session)
        await working
    assert (await runtime.record(session)).wakes.stop_reason == "end_turn"


@proves("runtime.wake-interrupt")
async def test_an_interrupt_that_another_process_sends_stops_the_model(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    async with open_runtime(tmp_path, ledger=str(path)) as runtime, await open_ledger(path, clock=runtime.clock) as other:
        service = RuntimeService(replace(runtime.context, ledger=other))
        await interrupt_while_thinking(
            runtime, lambda session: service.send(session, [INTERRUPT], by="person:test", channel="cli")
        )


class BusyLedger:
    """A ledger that cannot be followed at first."""

    def __init__(self, inner: Ledger) -> None:
        self._inner = inner
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        self.failures += 1
        if self.failures == 1:
            raise LedgerBusy("The ledger is busy.")
        async for event in self._inner.follow(session, after=after, types=types):
            yield event


@proves("runtime.wake-interrupt")
async def test_an_interrupt_is_seen_although_the_ledger_was_busy(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        ledger = BusyLedger(runtime.ledger)
        runtime.runner = WakeRunner(replace(runtime.context, ledger=cast("Ledger", ledger)))
        await interrupt_while_thinking(runtime, lambda session: runtime.send(session, INTERRUPT))

        assert ledger.failures == 2
