"""The port of the sandboxes over the socket of their host, and in the process of the host itself.

An action that may have been sent is never sent again: if the connection ends before the reply, the call raises `SandboxLost`.
It is sent again only if the host has said that it did not forward it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fidelio.errors import Command, Hint, SandboxLost, SandboxUnavailable
from fidelio.home import Home
from fidelio.locks import KeyedLock
from fidelio.sandbox.host.frames import FrameProtocol, settle
from fidelio.sandbox.host.operations import (
    NOTICE,
    Attach,
    EndNotice,
    Operation,
    OperationReply,
    ReadConnections,
    ReadLevel,
    ReadState,
    Stop,
    rebuild_error,
)
from fidelio.sandbox.host.pool import SandboxPool
from fidelio.sandbox.model import ActionResult, ConnectionPage, LevelReport, SandboxSpec, SandboxState
from fidelio.sandbox.port import Sandboxes

T = TypeVar("T")
EnsureHost = Callable[[], Awaitable[None]]

SOCKET_NAME = "sandboxes.sock"
# Starting a sandbox may have to wait until another one is closed.
_OPERATION_SECONDS = 60.0
_ATTEMPTS = 3
_NO_HOST = (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError)

_REQUEST = msgspec.json.Encoder()
_RESULT = msgspec.json.Decoder(ActionResult)
_REPLY = msgspec.json.Decoder(OperationReply)
_NOTICE = msgspec.json.Decoder(EndNotice)


class _NotForwarded(Exception):
    """The request has not left the host, or not even this process."""


class _HostMissing(Exception):
    """No process listens, or it ended before it answered an operation."""


class HostLink(FrameProtocol):
    """A connection to the host. After `attach`, requests on it are actions of its sandbox."""

    def __init__(self) -> None:
        super().__init__()
        self._replies: dict[int, asyncio.Future[bytes | bytearray]] = {}
        self._sent = 0
        self._attached_after = 0
        self._notice: EndNotice | None = None
        self.spec: SandboxSpec | None = None
        self.state: SandboxState | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_usable(self) -> bool:
        return self.transport is not None and not self.transport.is_closing() and self._notice is None

    def send(self, payload: bytes) -> asyncio.Future[bytes | bytearray]:
        """Send a request; the reply fails if the connection ends before it. Raises `_NotForwarded`."""
        if not self.is_usable:
            raise _NotForwarded
        self._sent += 1
        reply: asyncio.Future[bytes | bytearray] = asyncio.get_running_loop().create_future()
        self._replies[self._sent] = reply
        self.send_frame(self._sent, payload)
        return reply

    def attached(self, spec: SandboxSpec, state: SandboxState) -> None:
        self.spec, self.state, self._attached_after = spec, state, self._sent

    def frame_received(self, number: int, payload: bytes | bytearray) -> None:
        if number == NOTICE:
            self._end_by_notice(payload)
            return
        reply = self._replies.pop(number, None)
        if reply is not None and not reply.done():
            reply.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the signature is asyncio's
        replies, self._replies = self._replies, {}
        for number, reply in replies.items():
            if not reply.done():
                reply.set_exception(self._explain_loss(number))
                # The caller may have stopped waiting.
                reply.exception()
        if not self.closed.done():
            self.closed.set_result(None)

    async def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            await self.closed

    def _end_by_notice(self, payload: bytes | bytearray) -> None:
        with suppress(msgspec.MsgspecError):
            self._notice = _NOTICE.decode(payload)
        if self.transport is not None:
            self.transport.abort()

    def _explain_loss(self, number: int) -> Exception:
        if self._notice is None:
            return SandboxLost(
                "The host of the sandboxes ended before it replied.",
                remedy="Whether the action took place is unknown: look before you repeat it.",
            )
        if number - self._attached_after > self._notice.received:
            return _NotForwarded()
        return SandboxLost(
            f"The sandbox ended before it replied. {self._notice.ending.message}",
            remedy="Whether the action took place is unknown: look before you repeat it.",
        )


class SandboxClient(Sandboxes):
    """The sandboxes of a home, for a process that does not host them.

    `ensure_host` starts a host where none listens, and returns when it does. Without it, calls that need one are refused.
    """

    def __init__(self, home: Home, ensure_host: EnsureHost | None = None) -> None:
        self._home, self._ensure_host = home, ensure_host
        self._links: dict[str, HostLink] = {}
        self._sessions = KeyedLock()

    async def level(self) -> LevelReport:
        return await self._operate(ReadLevel(), LevelReport)

    async def start(self, spec: SandboxSpec) -> SandboxState:
        """The live sandbox of the session, started if there is none. `is_new` and the last ending are reported once."""
        link = await self._attach(spec)
        assert link.state is not None
        state, link.state = link.state, replace(link.state, is_new=False, closed_because=None)
        return state

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        payload = _REQUEST.encode({"action": action, "arguments": arguments})
        for _ in range(_ATTEMPTS):
            link = await self._attach(spec)
            with suppress(_NotForwarded):
                return _decode_result(await _wait_for_reply(link.send(payload), timeout))
        raise SandboxUnavailable(
            "The sandbox was closed each time before the action was sent to it.", remedy="Call again when fewer are in use."
        )

    async def state(self, session: str) -> SandboxState | None:
        states = await self._operate_if_hosted(ReadState(session), list[SandboxState])
        return states[0] if states else None

    async def stop(self, session: str) -> bool:
        return await self._operate_if_hosted(Stop(session), bool) or False

    async def connections(self, session: str, after: int = 0, log: str = "") -> ConnectionPage:
        """The connections of a session through the proxy that ended after the entry `after` of `log`."""
        return await self._operate_if_hosted(ReadConnections(session, after, log), ConnectionPage) or ConnectionPage("")

    async def close(self) -> None:
        links, self._links = list(self._links.values()), {}
        for link in links:
            await link.close()

    async def _attach(self, spec: SandboxSpec) -> HostLink:
        link = self._links.get(spec.session)
        if link is not None and link.is_usable and (link.spec is spec or link.spec == spec):
            return link
        await self._sessions.acquire(spec.session)
        try:
            return await self._find_or_open_link(spec)
        finally:
            self._sessions.release(spec.session)

    async def _find_or_open_link(self, spec: SandboxSpec) -> HostLink:
        link = self._links.get(spec.session)
        if link is not None and link.is_usable and link.spec == spec:
            return link
        if link is not None:
            await link.close()
        link, state = await self._perform(Attach(spec), SandboxState)
        link.attached(spec, state)
        self._links[spec.session] = link
        return link

    async def _operate(self, operation: Operation, kind: type[T], *, starts_host: bool = True) -> T:
        link, result = await self._perform(operation, kind, starts_host=starts_host)
        await link.close()
        return result

    async def _operate_if_hosted(self, operation: Operation, kind: type[T]) -> T | None:
        try:
            return await self._operate(operation, kind, starts_host=False)
        except _HostMissing:
            return None

    async def _perform(self, operation: Operation, kind: type[T], *, starts_host: bool = True) -> tuple[HostLink, T]:
        """Carry out an operation. A second time has no further effect, so it is sent again if the host ended meanwhile."""
        for _ in range(_ATTEMPTS):
            link = await self._connect(starts_host=starts_host)
            try:
                return link, await _request(link, operation, kind)
            except _HostMissing:
                await link.close()
            except BaseException:
                await link.close()
                raise
        raise SandboxUnavailable(
            "The host of the sandboxes ended each time before it answered.",
            remedy=f"Why it ended is possibly in {self._home.worker_log}.",
        )

    async def _connect(self, *, starts_host: bool = True) -> HostLink:
        with suppress(*_NO_HOST):
            return await open_link(self._home)
        if not starts_host:
            raise _HostMissing
        if self._ensure_host is not None:
            await self._ensure_host()
            with suppress(*_NO_HOST):
                return await open_link(self._home)
        raise SandboxUnavailable(
            "No process of this home hosts the sandboxes.",
            remedy=Hint("Start ", Command("up"), f". Why no process does is possibly in {self._home.worker_log}."),
        )


class LocalSandboxes(Sandboxes):
    """The sandboxes of a pool in this process."""

    def __init__(
        self,
        pool: SandboxPool,
        read_level: Callable[[], Awaitable[LevelReport]],
        read_connections: Callable[[str, int, str], ConnectionPage] = lambda _session, _after, _log: ConnectionPage(""),
    ) -> None:
        self._pool, self._read_level, self._read_connections = pool, read_level, read_connections

    async def level(self) -> LevelReport:
        return await self._read_level()

    async def start(self, spec: SandboxSpec) -> SandboxState:
        _, state = await self._pool.attach(spec)
        return state

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        payload = _REQUEST.encode({"action": action, "arguments": arguments})
        live = self._pool.find_same(spec) or (await self._pool.attach(spec))[0]
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        live.request(payload, partial(settle, reply))
        answer = await _wait_for_reply(reply, timeout)
        return _decode_result(answer)

    async def state(self, session: str) -> SandboxState | None:
        live = self._pool.find(session)
        return None if live is None else live.describe()

    async def connections(self, session: str, after: int = 0, log: str = "") -> ConnectionPage:
        return self._read_connections(session, after, log)

    async def stop(self, session: str) -> bool:
        return await self._pool.stop(session, "stop_requested", "It was stopped on request.")

    async def close(self) -> None:
        """Nothing is released: the host closes the pool."""


async def open_link(home: Home) -> HostLink:
    """Connect to the host of a home. Raises `OSError` if no process listens."""
    # Through a descriptor: the path of a home may be longer than the address of a socket.
    directory = os.open(home.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        loop, path = asyncio.get_running_loop(), f"/proc/self/fd/{directory}/{SOCKET_NAME}"
        _, link = await loop.create_unix_connection(HostLink, path)
    finally:
        os.close(directory)
    assert link.transport is not None
    if read_peer_user(link.transport) != os.geteuid():
        await link.close()
        raise SandboxUnavailable(
            f"Another user listens on {home.path / SOCKET_NAME}.", remedy="Correct the owner and the mode of the home."
        )
    return link


def read_peer_user(transport: asyncio.BaseTransport) -> int:
    """The user id of the process at the other end of a unix socket."""
    peer = transport.get_extra_info("socket")
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(user)


async def _request(link: HostLink, operation: Operation, kind: type[T]) -> T:
    try:
        async with asyncio.timeout(_OPERATION_SECONDS):
            reply = _REPLY.decode(await link.send(msgspec.json.encode(operation)))
    except (_NotForwarded, SandboxLost) as error:
        raise _HostMissing from error
    except (TimeoutError, msgspec.MsgspecError) as error:
        raise SandboxUnavailable(
            "The host of the sandboxes did not answer.", remedy="Call again. If it happens again, restart Fidelio."
        ) from error
    if reply.error is not None:
        raise rebuild_error(reply.error)
    return msgspec.json.decode(reply.result, type=kind)


async def _wait_for_reply(reply: asyncio.Future[T], timeout: float) -> T:
    # Cheaper than `asyncio.timeout`, which cancels the task; this path is taken by every file action.
    deadline = asyncio.get_running_loop().call_later(timeout, _expire, reply, timeout)
    try:
        return await reply
    finally:
        deadline.cancel()


def _expire(reply: asyncio.Future[T], timeout: float) -> None:
    if not reply.done():
        reply.set_exception(
            SandboxLost(
                f"The sandbox did not reply within {timeout:g} seconds.",
                remedy="Whether the action took place is unknown: look before you repeat it.",
            )
        )


def _decode_result(payload: bytes | bytearray) -> ActionResult:
    try:
        return _RESULT.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SandboxLost(
            f"The sandbox sent a reply that is not valid: {error}.",
            remedy="Whether the action took place is unknown: look before you repeat it.",
        ) from error
