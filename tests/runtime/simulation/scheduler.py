"""Deterministic interleaving: everything that reaches outside of a process waits at a gate until the simulation lets it pass.

An actor is a worker or a person: a task with its own view of the ledger, the model and the sandboxes. Between two gates it runs
undisturbed. The simulation waits until every actor stands at a gate and then opens one of them, so the order in which commits,
effects and replies happen is a function of the seed alone. An actor that is killed passes no gate any more, whatever its code
does to clean up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, TypeVar, cast

import msgspec

from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CommitResult, Event, Lease, Settlement

T = TypeVar("T")
# How an actor passes a gate: it goes on, or it dies when what is behind the gate has happened.
Fate = Literal["pass", "die"]
# Turns of the event loop after which a task that can go on stands at its next gate, or waits for a thread.
_TURNS = 12
_PAUSE_SECONDS = 0.001
_LONGEST_SECONDS = 30.0


class Killed(BaseException):
    """The process of the actor is gone. No code of it runs any more, so nothing may catch it."""


class Gate(msgspec.Struct, frozen=True):
    """A place at which a task of an actor waits."""

    actor: Actor
    what: str
    opened: asyncio.Future[Fate]


class Actor:
    """A worker or a person. `is_dead`: its process was killed."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.is_dead = False
        self.lease: Lease | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.create_task(work, name=self.name)
        self.scheduler.actors.append(self)

    @property
    def is_done(self) -> bool:
        return self.task is not None and self.task.done()

    def kill(self) -> None:
        self.is_dead = True
        self.stop()

    def stop(self) -> None:
        """Cancel what the actor does; it may still clean up."""
        assert self.task is not None
        self.task.cancel()

    async def pass_gate(self, what: str) -> Fate:
        if self.is_dead:
            raise Killed
        gate = Gate(self, what, asyncio.get_running_loop().create_future())
        self.scheduler.gates.append(gate)
        try:
            return await gate.opened
        finally:
            self.scheduler.gates.remove(gate)

    async def perform(self, what: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Do something that others can see, when its gate is opened. A killed actor never learns how it ended."""
        fate = await self.pass_gate(what)
        # A thread that has begun to write cannot be called back: the task is cancelled, the operation is not.
        running = asyncio.ensure_future(operation())
        self.scheduler.running.add(running)
        running.add_done_callback(self.scheduler.running.discard)
        result = await asyncio.shield(running)
        if fate == "die":
            self.kill()
            # Nothing comes back: whoever waits for this is cancelled with the actor.
            await asyncio.get_running_loop().create_future()
        return result


class Scheduler:
    """The actors and their gates."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.gates: list[Gate] = []
        self.running: set[asyncio.Future[Any]] = set()
        self._committed = asyncio.Event()

    @property
    def live(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.is_done]

    async def settle(self) -> None:
        """Wait until every actor stands at a gate or has ended."""
        async with asyncio.timeout(_LONGEST_SECONDS):
            while True:
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                waiting = {gate.actor for gate in self.gates}
                if not self.running and all(actor in waiting for actor in self.live):
                    break
                # A thread works for an actor: it writes files, for example. It gives no event.
                await asyncio.sleep(_PAUSE_SECONDS)

    def open(self, gate: Gate, fate: Fate = "pass") -> None:
        if not gate.opened.done():
            gate.opened.set_result(fate)

    def announce(self) -> None:
        """Tell everybody who follows events that there may be new ones."""
        self._committed.set()
        self._committed = asyncio.Event()

    async def wait_for_commit(self) -> None:
        await self._committed.wait()

    async def close(self) -> None:
        """End what is left, for a simulation that has failed."""
        for actor in self.live:
            actor.kill()
        await asyncio.gather(*(actor.task for actor in self.actors if actor.task is not None), return_exceptions=True)


class GatedLedger:
    """The ledger as an actor sees it: writes wait at gates, reads do not."""

    def __init__(self, inner: Ledger, actor: Actor) -> None:
        self._inner, self._actor = inner, actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, *changes: Change) -> tuple[CommitResult, ...]:
        types = ",".join(event.type for change in changes for event in change.events)
        result = await self._actor.perform(f"commit {types}", lambda: self._inner.commit(*changes))
        self._actor.scheduler.announce()
        return result

    async def claim(self, owner: str, kinds: Sequence[str], *, lease_ms: int, session: str | None = None) -> Lease | None:
        claim = self._inner.claim
        return await self._actor.perform("claim", lambda: claim(owner, kinds, lease_ms=lease_ms, session=session))

    async def settle(self, lease: Lease, settlement: Settlement) -> None:
        await self._actor.perform("settle", lambda: self._inner.settle(lease, settlement))

    async def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        scheduler = self._actor.scheduler
        while True:
            events = await self._inner.events(session, after=after, types=types)
            if not events:
                await scheduler.wait_for_commit()
            for event in events:
                yield event
                after = event.seq


def gate_ledger(inner: Ledger, actor: Actor) -> Ledger:
    return cast("Ledger", GatedLedger(inner, actor))
