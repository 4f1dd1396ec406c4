"""The live sandboxes of a host: a bounded number, of which the least recently used idle sandbox is closed first.

A sandbox at work is never closed. The host does not read what it forwards: whether a sandbox is at work it learns from the
replies that are due and from the shell, which the process inside describes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import SandboxError, SandboxesBusy, SandboxUnavailable
from fidelio.ids import new_id
from fidelio.locks import KeyedLock
from fidelio.retry import cancel_tasks
from fidelio.sandbox.host.frames import OnReply, settle
from fidelio.sandbox.model import ActionResult, Ending, EndReason, Level, SandboxSpec, SandboxState

# How long the process inside may take to describe its shell. It does nothing else meanwhile.
_INSPECT_SECONDS = 5.0
_EVICTION_ATTEMPTS = 3
_MAX_ENDINGS = 1_024
_INSPECT_SHELL = msgspec.json.encode({"action": "inspect_persistent_shell", "arguments": {}})
_RESULT = msgspec.json.Decoder(ActionResult)


class SandboxProcessPort(Protocol):
    """What the pool needs of the process of a sandbox."""

    def request(self, payload: bytes | bytearray, on_reply: OnReply) -> None:
        """Send a request. `on_reply` gets the reply, or `SandboxLost` if the process ends before it."""

    async def close(self) -> None:
        """End the process and everything inside. Returns when nothing of it is left."""

    async def wait_closed(self) -> None:
        """Return when the process has ended."""


class LaunchedProcess(NamedTuple):
    """A process of a sandbox that answers. `pid` is its id on the host."""

    process: SandboxProcessPort
    level: Level
    pid: int


# What belongs to the sandbox besides its process is put on the stack, and is closed after the process.
StartProcess = Callable[[SandboxSpec, AsyncExitStack], Awaitable[LaunchedProcess]]


class PoolLimits(NamedTuple):
    """How many sandboxes may be live at once, and how long a sandbox may be idle."""

    live: int = 32
    idle_ms: int = 30 * 60_000


class ShellUse(msgspec.Struct, frozen=True):
    """The part of the description of a shell that decides whether its sandbox may be closed."""

    alive: bool = False
    busy: bool = False


class LiveSandbox:
    """A sandbox that was started and has not ended yet."""

    def __init__(self, spec: SandboxSpec, launched: LaunchedProcess, resources: AsyncExitStack, clock: Clock) -> None:
        self.spec, self.launched, self.resources = spec, launched, resources
        self.incarnation = new_id("sbx_")
        self.used_at = clock()
        # Requests of callers without a reply, and their bytes.
        self.pending = 0
        self.pending_bytes = 0
        self.listeners: set[Callable[[Ending], None]] = set()
        self.ending: Ending | None = None
        self.closing: asyncio.Task[None] | None = None
        self._clock = clock

    def request(self, payload: bytes | bytearray, on_reply: OnReply) -> None:
        """Send a request of a caller. The sandbox is in use until the reply, whether the caller waits for it or not."""
        self.used_at = self._clock()
        self.pending += 1
        self.pending_bytes += len(payload)

        def end(reply: bytes | SandboxError) -> None:
            self.pending -= 1
            self.pending_bytes -= len(payload)
            self.used_at = self._clock()
            on_reply(reply)

        self.launched.process.request(payload, end)

    async def inspect_shell(self) -> ShellUse | None:
        """The state of the shell; None if the process inside does not say. A level without shells has none that is alive."""
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.launched.process.request(_INSPECT_SHELL, partial(settle, reply))
        try:
            async with asyncio.timeout(_INSPECT_SECONDS):
                result = _RESULT.decode(await reply)
            return msgspec.convert(result.output, ShellUse) if result.ok else ShellUse()
        except (TimeoutError, SandboxError, msgspec.MsgspecError, RecursionError):
            return None

    def describe(self, closed_because: Ending | None = None, *, is_new: bool = False) -> SandboxState:
        return SandboxState(
            session=self.spec.session,
            incarnation=self.incarnation,
            level=self.launched.level,
            pid=self.launched.pid,
            is_new=is_new,
            closed_because=closed_because,
        )


class SandboxPool:
    """The live sandboxes by session. `on_change` is called after a sandbox was started or has ended."""

    def __init__(
        self,
        start: StartProcess,
        *,
        limits: PoolLimits = PoolLimits(),  # noqa: B008  # immutable
        clock: Clock = now_ms,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._start_process, self._limits, self._clock, self._on_change = start, limits, clock, on_change
        self._live: dict[str, LiveSandbox] = {}
        self._starting = 0
        self._sessions, self._admission = KeyedLock(), asyncio.Lock()
        self._endings: dict[str, Ending] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def live(self) -> tuple[LiveSandbox, ...]:
        return tuple(self._live.values())

    @property
    def is_empty(self) -> bool:
        """Whether no sandbox is live or being started."""
        return not self._live and not self._starting

    def find(self, session: str) -> LiveSandbox | None:
        """The sandbox of a session, if it accepts requests."""
        live = self._live.get(session)
        return None if live is None or live.ending is not None else live

    def find_same(self, spec: SandboxSpec) -> LiveSandbox | None:
        """The sandbox of a session, if it accepts requests and has this configuration."""
        live = self.find(spec.session)
        return live if live is not None and (live.spec is spec or live.spec == spec) else None

    async def attach(self, spec: SandboxSpec) -> tuple[LiveSandbox, SandboxState]:
        """The live sandbox of the session, started if there is none, or if it has another configuration."""
        await self._sessions.acquire(spec.session)
        try:
            live = await self._find_same(spec)
            is_new = live is None
            live = live or await self._start(spec)
        finally:
            self._sessions.release(spec.session)
        return live, live.describe(self._endings.get(spec.session), is_new=is_new)

    async def stop(self, session: str, reason: EndReason, message: str) -> bool:
        live = self.find(session)
        if live is not None:
            await self.end(live, reason, message)
        return live is not None

    async def end(self, live: LiveSandbox, reason: EndReason, message: str) -> None:
        """End a sandbox. The first reason counts. Its callers learn it at once, and this returns when nothing is left."""
        if live.closing is None:
            live.ending = Ending(live.spec.session, live.incarnation, reason, message, self._clock())
            self._remember_ending(live.ending)
            live.closing = asyncio.create_task(self._close(live))
            for listener in tuple(live.listeners):
                listener(live.ending)
        # A caller that is cancelled must not stop the closing.
        await asyncio.shield(live.closing)

    async def close_idle(self) -> None:
        """Close the sandboxes that were idle for too long. To be called now and then."""
        latest = self._clock() - self._limits.idle_ms
        idle = [live for live in self.live if live.used_at <= latest and not live.pending and live.ending is None]
        await asyncio.gather(*(self._close_unless_busy(live) for live in idle))

    async def close(self) -> None:
        """End all sandboxes, and start no more."""
        self._is_closed = True
        message = "The host of the sandboxes has ended."
        await asyncio.gather(*(self.end(live, "host_ended", message) for live in self.live))
        await cancel_tasks(*self._watchers)

    async def _find_same(self, spec: SandboxSpec) -> LiveSandbox | None:
        live = self._live.get(spec.session)
        if live is None:
            return None
        if live.ending is None and live.spec == spec:
            return live
        if live.ending is None and await self._is_busy(live):
            raise SandboxesBusy(
                "The sandbox of this session is at work, and the call needs one with another configuration.",
                remedy="Wait until its command has ended, or close the shell.",
            )
        # The next one uses the same directory, so it starts when nothing of this one is left.
        await self.end(live, "spec_changed", "The session got another configuration.")
        return None

    async def _start(self, spec: SandboxSpec) -> LiveSandbox:
        await self._admit()
        resources = AsyncExitStack()
        try:
            launched = await self._start_process(spec, resources)
        except BaseException:
            await resources.aclose()
            raise
        finally:
            self._starting -= 1
        live = LiveSandbox(spec, launched, resources, self._clock)
        self._live[spec.session] = live
        self._watch(live)
        if self._is_closed:
            await self.end(live, "host_ended", "The host of the sandboxes has ended.")
        self._report_change()
        return live

    async def _admit(self) -> None:
        """Reserve room for another sandbox. Raises `SandboxesBusy`."""
        async with self._admission:
            if self._is_closed:
                raise SandboxUnavailable("The host of the sandboxes is ending.", remedy="Call again.")
            for _ in range(_EVICTION_ATTEMPTS):
                if len(self._live) + self._starting < self._limits.live:
                    self._starting += 1
                    return
                await self._evict()
            raise self._make_busy_error()

    async def _evict(self) -> None:
        """Close the least recently used idle sandbox, those without a shell first."""
        candidates = [live for live in self.live if not live.pending and live.ending is None]
        used = [live.used_at for live in candidates]
        uses = await asyncio.gather(*(live.inspect_shell() for live in candidates))
        idle = [
            (use.alive, live.used_at, live)
            for live, use, before in zip(candidates, uses, used, strict=True)
            # One that was used meanwhile may be at work now.
            if use is not None and not use.busy and live.ending is None and not live.pending and live.used_at == before
        ]
        if not idle:
            raise self._make_busy_error()
        has_shell, _, live = min(idle, key=lambda entry: entry[:2])
        what = "its shell was the least recently used idle one" if has_shell else "it was the least recently used"
        await self.end(live, "pool_full", f"{self._limits.live} sandboxes were live, and {what}.")

    def _make_busy_error(self) -> SandboxesBusy:
        return SandboxesBusy(
            f"{self._limits.live} sandboxes are live, which is the limit, and all of them are at work.",
            remedy="Wait until a command has ended, or close the shell of another session.",
        )

    async def _is_busy(self, live: LiveSandbox) -> bool:
        use = None if live.pending else await live.inspect_shell()
        return use is None or use.busy or live.pending > 0

    async def _close_unless_busy(self, live: LiveSandbox) -> None:
        used_at, use = live.used_at, await live.inspect_shell()
        if live.pending or live.used_at != used_at or live.ending is not None:
            return
        if use is not None and use.busy:
            live.used_at = self._clock()
            return
        minutes = self._limits.idle_ms // 60_000
        subject = "Its shell" if use is not None and use.alive else "It"
        await self.end(live, "idle_timeout", f"{subject} was idle for {minutes} minutes.")

    def _watch(self, live: LiveSandbox) -> None:
        async def wait() -> None:
            await live.launched.process.wait_closed()
            await self.end(live, "process_ended", "Its process ended unexpectedly.")

        task = asyncio.create_task(wait())
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _close(self, live: LiveSandbox) -> None:
        try:
            await live.launched.process.close()
        finally:
            await live.resources.aclose()
            del self._live[live.spec.session]
            self._report_change()

    def _remember_ending(self, ending: Ending) -> None:
        self._endings.pop(ending.session, None)
        self._endings[ending.session] = ending
        if len(self._endings) > _MAX_ENDINGS:
            del self._endings[next(iter(self._endings))]

    def _report_change(self) -> None:
        if self._on_change is not None:
            self._on_change()
