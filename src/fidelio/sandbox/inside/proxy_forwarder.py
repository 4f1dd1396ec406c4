"""Forwarder to the proxy of the host, for sandboxes with network `limited` or `unrestricted`.

Programs expect a proxy at a TCP address, and the network namespace has only its own loopback. So a child of pid 1 listens there
and passes every connection on to the socket of the proxy, which decides what is allowed. Nothing is read or decided here.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from fidelio.sandbox.inside.launch_system import PR_SET_PDEATHSIG, close_other_descriptors, prctl
from fidelio.sandbox.inside.loop import READ, EventLoop, QueuedWriter, read_available

PROXY_SOCKET = "/.fidelio/proxy.sock"
ADDRESS = ("127.0.0.1", 3128)
_URL = f"http://{ADDRESS[0]}:{ADDRESS[1]}"
_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOCAL = "localhost,127.0.0.1,::1"
VARIABLES = {
    **dict.fromkeys((*_NAMES, *(name.lower() for name in _NAMES)), _URL),
    "NO_PROXY": _LOCAL,
    "no_proxy": _LOCAL,
}
_MAX_CONNECTIONS = 128
_MAX_QUEUED = 256 << 10
_RESTART_SECONDS = 1.0


def is_wanted() -> bool:
    """Whether the host serves a proxy for this sandbox."""
    return os.path.exists(PROXY_SOCKET)  # noqa: PTH110  # a fixed path


def keep_running(loop: EventLoop, proxy: str = PROXY_SOCKET, address: tuple[str, int] = ADDRESS) -> None:
    """Run the forwarder in a child. A command can kill it, so it is started again."""

    def start() -> None:
        try:
            loop.fork(lambda: forward(listener, proxy), lambda _: again())
        except OSError:
            again()

    def again() -> None:
        loop.call_later(_RESTART_SECONDS, start)

    # Bound here and kept, so that connections wait while the child is started, and no command can take the address.
    listener = socket.create_server(address, backlog=_MAX_CONNECTIONS)
    start()


def forward(listener: socket.socket, proxy: str) -> None:
    """Forward connections until this process is killed."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    close_other_descriptors((listener.fileno(),))
    loop = EventLoop()
    open_pairs: set[Pair] = set()

    def accept() -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        if len(open_pairs) >= _MAX_CONNECTIONS:
            accepted.close()
            return
        try:
            other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            other.connect(proxy)
        except OSError:
            accepted.close()
            return
        pair = Pair(loop, accepted, other, lambda: open_pairs.discard(pair))
        open_pairs.add(pair)

    listener.setblocking(False)
    loop.watch(listener.fileno(), READ, accept)
    loop.run()


class Pair:
    """Two connections that get what the other sends. Ends when both directions have ended, or any fails."""

    def __init__(self, loop: EventLoop, first: socket.socket, second: socket.socket, on_end: Callable[[], None]) -> None:
        self._on_end, self._sockets = on_end, (first, second)
        self._directions = [Direction(loop, first, second, self._check), Direction(loop, second, first, self._check)]

    def _check(self, *, failed: bool) -> None:
        if not failed and not all(direction.has_ended for direction in self._directions):
            return
        for direction in self._directions:
            direction.close()
        for each in self._sockets:
            each.close()
        self._on_end()


class Direction:
    """Forwards what a connection sends to the other, and then the end."""

    def __init__(self, loop: EventLoop, source: socket.socket, target: socket.socket, on_end: Callable[..., None]) -> None:
        self._loop, self._source, self._target, self._on_end = loop, source.fileno(), target, on_end
        self.has_ended = self._is_closed = self._has_all = False
        source.setblocking(False)
        # The loop has one callback for each descriptor, and the other direction reads from the target.
        self._writer = QueuedWriter(loop, os.dup(target.fileno()), lambda: on_end(failed=True), self._continue)
        loop.watch(self._source, READ, self._receive)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.unwatch(self._source)
            self._writer.close()

    def _receive(self) -> None:
        try:
            data = read_available(self._source)
        except OSError:
            self._on_end(failed=True)
            return
        if data:
            self._writer.write(data)
            if self._writer.pending > _MAX_QUEUED:
                self._loop.unwatch(self._source)
        elif data == b"":
            self._has_all = True
            self._loop.unwatch(self._source)
            if not self._writer.pending:
                self._continue()

    def _continue(self) -> None:
        """Nothing is queued: read on, or forward the end."""
        if not self._has_all:
            self._loop.watch(self._source, READ, self._receive)
            return
        with suppress(OSError):
            self._target.shutdown(socket.SHUT_WR)
        self.has_ended = True
        self._on_end(failed=False)
