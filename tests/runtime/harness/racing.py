"""Races on purpose: something happens between the decision of a wake and its commit, or in the middle of it.

A `RacingLedger` passes every call on to the real ledger. Just before the first commit that has a given event it runs an action,
which commits something of its own: the wake then finds that its session has changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CommitResult
from fidelio.runtime.wakes.model_calls import Timing
from fidelio.runtime.wakes.wake import WakeRunner
from fidelio.sandbox.port import Sandboxes
from tests.runtime.wakes.support import ModelBehaviour, Runtime, open_runtime

RaceAction = Callable[[], Awaitable[object]]


class Race(msgspec.Struct):
    """An action that runs once, before the first commit with an event of this type."""

    type: str
    action: RaceAction
    has_run: bool = False


class RacingLedger:
    """A ledger whose commits can be raced."""

    def __init__(self, inner: Ledger) -> None:
        self.inner = inner
        self.races: list[Race] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def commit(self, *changes: Change) -> tuple[CommitResult, ...]:
        types = {event.type for change in changes for event in change.events}
        for race in self.races:
            if race.type in types and not race.has_run:
                race.has_run = True
                await race.action()
        return await self.inner.commit(*changes)


class RacingRuntime:
    """A runtime whose worker loses races: `before` says which."""

    def __init__(self, runtime: Runtime, ledger: RacingLedger) -> None:
        self.runtime, self._ledger = runtime, ledger

    @property
    def plain(self) -> Ledger:
        """The ledger without races."""
        return self._ledger.inner

    def before(self, type_: str, action: RaceAction) -> Race:
        """Run an action before the worker's next commit with an event of this type."""
        race = Race(type_, action)
        self._ledger.races.append(race)
        return race


@asynccontextmanager
async def open_race(
    path: Path, script: ModelBehaviour | None = None, *, sandboxes: Sandboxes | None = None
) -> AsyncIterator[RacingRuntime]:
    """A runtime whose worker uses a racing ledger, while what the test sends does not."""
    async with open_runtime(path, script, sandboxes=sandboxes) as runtime:
        ledger = RacingLedger(runtime.ledger)
        runtime.context = replace(runtime.context, ledger=cast("Ledger", ledger))

        async def sleep(seconds: float) -> None:
            runtime.clock.now += int(seconds * 1000)

        runtime.runner = WakeRunner(runtime.context, timing=Timing(sleep, lambda: 0.5))
        yield RacingRuntime(runtime, ledger)
