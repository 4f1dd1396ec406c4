"""The process of a sandbox, seen from the host: start it, send requests to its pid 1, end it.

Whatever pid 1 sends may come from a command that has taken it over. So a reply that is too large, is no reply or belongs to no
request ends the sandbox, and no reply is ever more than data. A sandbox dies with the thread that started it: start it from one
that lives as long as the host. Which action is allowed, and which sandbox belongs to which session, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Self

import msgspec

from fidelio.errors import Command, Hint, SandboxLost, SandboxUnavailable
from fidelio.sandbox.host.frames import FrameProtocol, OnReply, settle
from fidelio.sandbox.launch import LaunchCommand, build_launch, python_inside
from fidelio.sandbox.launch.library import LIBRARY
from fidelio.sandbox.model import ActionError, ActionResult, LevelReport, SandboxSpec

# A cold start of Python on a busy machine.
_START_SECONDS = 30.0
# How long the process may take to end by itself after its connection was closed, and then after it was killed.
_END_SECONDS = 1.0
_KILL_SECONDS = 1.0
_STDERR_BYTES = 4096
_REMEDY = Hint("Run ", Command("doctor"), "; it says what this machine lacks.")
_LOST_REMEDY = "Look at what the action has done before it is repeated. The next call starts a new sandbox."
_RUN_SERVER = f"import sys; sys.path.insert(0, {LIBRARY!r}); from fidelio.sandbox.inside.server import main; main()"


class _Reply(msgspec.Struct):
    """The form that every reply must have. What the output contains is checked by its reader."""

    ok: bool
    output: msgspec.Raw = msgspec.Raw(b"{}")
    error: ActionError | None = None


_REPLY = msgspec.json.Decoder(_Reply)
_RESULT = msgspec.json.Decoder(ActionResult)


class SandboxProcess(FrameProtocol):
    """A live sandbox. Requests may overlap; their replies come in any order."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: int) -> None:
        super().__init__()
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._waiting: dict[int, OnReply] = {}
        # Why no requests are taken any more; empty while the sandbox lives.
        self._lost = ""
        # The process that was started has ended; no process has its standard error open; the connection or the process ended.
        self._exited, self._silent, self._ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._stderr, self._said = stderr, b""
        self._pidfd = os.pidfd_open(process.pid)
        os.set_blocking(stderr, False)
        self._loop.add_reader(self._pidfd, self._reap)
        self._loop.add_reader(stderr, self._read_stderr)

    @property
    def pid(self) -> int:
        """Its process id on this machine."""
        return self._process.pid

    @classmethod
    async def start(cls, spec: SandboxSpec, report: LevelReport) -> Self:
        """Start a sandbox and wait until it answers. Raises `SandboxUnavailable`."""
        ours, theirs = socket.socketpair()
        with theirs:
            program = (*python_inside(spec), "-c", _RUN_SERVER, str(theirs.fileno()))
            try:
                command = build_launch(spec, report, program, pass_fds=(theirs.fileno(),))
            except BaseException:
                ours.close()
                raise
            return await cls.launch(command, ours, spec.environment)

    @classmethod
    async def launch(cls, command: LaunchCommand, connection: socket.socket, environment: Mapping[str, str]) -> Self:
        """Start a command whose first process serves the other end of the connection."""
        try:
            process, stderr = _spawn(command)
        except OSError as error:
            connection.close()
            raise SandboxUnavailable(f"The sandbox cannot be started: {error.strerror}.", remedy=_REMEDY) from error
        finally:
            command.close()
        sandbox = cls(process, stderr)
        try:
            await sandbox._loop.create_unix_connection(lambda: sandbox, sock=connection)
            await sandbox._configure(environment)
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return sandbox

    async def call(self, action: str, arguments: Mapping[str, Any]) -> ActionResult:
        """Run an action. Raises `SandboxLost` if the sandbox ends before it replies."""
        payload = await self.send(msgspec.json.encode({"action": action, "arguments": arguments}))
        try:
            return _RESULT.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._distrust("a reply that is not valid")
            raise self._make_error() from error

    def send(self, payload: bytes | bytearray) -> asyncio.Future[bytes]:
        """Send a request. The reply fails with `SandboxLost` if the sandbox ends before it."""
        reply: asyncio.Future[bytes] = self._loop.create_future()
        self.request(payload, partial(settle, reply))
        return reply

    def request(self, payload: bytes | bytearray, on_reply: OnReply) -> None:
        """Send a request. `on_reply` gets the reply, or `SandboxLost` if the sandbox ends before it."""
        if self._lost:
            on_reply(self._make_error())
            return
        self._number += 1
        self._waiting[self._number] = on_reply
        self.send_frame(self._number, payload)

    async def close(self) -> None:
        """End the sandbox and everything inside. Returns when nothing of it is left."""
        self._lose("The sandbox was closed.")
        if not await self._wait_until_ended(_END_SECONDS):
            self._kill()
            await self._wait_until_ended(_KILL_SECONDS)

    async def wait_closed(self) -> None:
        """Return when the sandbox has ended, or takes no requests any more."""
        await self._ended.wait()

    def frame_received(self, number: int, payload: bytes | bytearray) -> None:
        on_reply = self._waiting.pop(number, None)
        if on_reply is None:
            self._distrust("a reply to a request that was not made")
            return
        try:
            _REPLY.decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            self._waiting[number] = on_reply
            self._distrust("a reply that is not valid")
            return
        on_reply(bytes(payload))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the signature is asyncio's
        self._lose("The sandbox ended unexpectedly.")

    async def _configure(self, environment: Mapping[str, str]) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                result = await self.call("configure", {"environment": dict(environment)})
        except (SandboxLost, TimeoutError) as error:
            await self._wait_until_ended(_END_SECONDS)
            said = self._said.decode("utf-8", "replace").strip()
            raise SandboxUnavailable(f"The sandbox did not start. {said or 'It gave no reason.'}", remedy=_REMEDY) from error
        if not result.ok:
            message = result.error.message if result.error is not None else "It gave no reason."
            raise SandboxUnavailable(f"The sandbox did not accept its configuration. {message}")

    def _refuse(self) -> None:
        self._distrust("a frame that is too large")
        super()._refuse()

    def _distrust(self, what: str) -> None:
        self._lose(f"The sandbox sent {what}, so it was ended.")

    def _lose(self, sentence: str) -> None:
        """Refuse further requests, close the connection, and let everybody who waits know. The first reason counts."""
        if self._lost:
            return
        self._lost = sentence
        self._ended.set()
        if self.transport is not None:
            # pid 1 ends with its connection, and the kernel ends the rest.
            self.transport.abort()
        self._loop.call_later(_END_SECONDS, self._kill)
        waiting, self._waiting = self._waiting, {}
        for on_reply in waiting.values():
            on_reply(self._make_error())

    def _make_error(self) -> SandboxLost:
        return SandboxLost(self._lost, remedy=_LOST_REMEDY)

    async def _wait_until_ended(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
                await self._silent.wait()
        except TimeoutError:
            return False
        return True

    def _kill(self) -> None:
        if not self._exited.is_set():
            # Not reaped yet, so its id is still its own.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        if self._process.poll() is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._exited.set()
        self._lose("The sandbox ended unexpectedly.")

    def _read_stderr(self) -> None:
        """Keep what was said first: the reason why no sandbox was started."""
        with suppress(BlockingIOError):
            data = os.read(self._stderr, _STDERR_BYTES)
            self._said = (self._said + data)[:_STDERR_BYTES]
            if not data:
                self._loop.remove_reader(self._stderr)
                os.close(self._stderr)
                self._silent.set()


def _spawn(command: LaunchCommand) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process in a session of its own, so that Ctrl-C at the terminal of the host does not end it."""
    stderr, stderr_end = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603  # our own launcher
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr_end,
            env=command.environment,
            pass_fds=command.pass_fds,
            start_new_session=True,
        )
    except OSError:
        os.close(stderr)
        raise
    finally:
        os.close(stderr_end)
    return process, stderr
