"""HTTP server on uvicorn: listens until it is stopped. Prints nothing; the caller informs the user."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import uvicorn
from starlette.applications import Starlette

from fidelio.errors import UsageProblem
from fidelio.settings import HttpLimits
from fidelio.surfaces.http.connections import limit_connections
from fidelio.surfaces.http.guard import is_loopback

STOP_SECONDS = 5
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 7333
_IPV6_LOOPBACK = "::1"
_ATTEMPTS = 20


async def serve_http(
    app: Starlette,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    ready: Callable[[str], None] | None = None,
    limits: HttpLimits | None = None,
) -> None:
    """Serve until a signal or cancellation. `ready` gets the address, with the actual port if `port` is 0."""
    if not is_loopback(host) and not app.state.has_token:
        raise UsageProblem(
            f"Listening on {host} would let other machines in without authentication.",
            remedy="Set a bearer token with --token or FIDELIO_TOKEN, leave out --no-token, or listen on 127.0.0.1.",
        )
    with open_listeners(host, port) as listeners:
        server = _Server(_config(app, limits or HttpLimits()))
        if ready is not None:
            ready(_address(host, listeners[0]))
        await _until_stopped(server, listeners)


async def _until_stopped(server: _Server, listeners: list[socket.socket]) -> None:
    """Run the server. A cancellation requests a graceful shutdown, as a signal does, and waits for its end."""
    serving = asyncio.create_task(server.serve(sockets=listeners))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn would log an error for every stream that the shutdown cuts.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def _config(app: Starlette, limits: HttpLimits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limit_connections(limits),
        ws="none",
        # Not `auto`, which serves on when the start of the application fails: then streams would be refused.
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        # Programs of this machine are identified by their address, so none may claim another one in a header.
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


@contextmanager
def open_listeners(host: str, port: int) -> Iterator[list[socket.socket]]:
    """The listeners of an address. On loopback also that of IPv6, which browsers may try first for `localhost`.

    Another user of the machine who listened there would get what browsers send to this server, such as a sign-in link.
    """
    with ExitStack() as stack:
        if host not in (DEFAULT_HOST, "localhost") or not _has_ipv6():
            yield [stack.enter_context(open_listener(host, port))]
            return
        for attempt in range(_ATTEMPTS):
            first = stack.enter_context(open_listener(host, port))
            try:
                second = stack.enter_context(open_listener(_IPV6_LOOPBACK, first.getsockname()[1]))
            except UsageProblem:
                # A free port of one address may be in use at the other.
                if port or attempt == _ATTEMPTS - 1:
                    raise
                stack.close()
                continue
            yield [first, second]
            return


def _has_ipv6() -> bool:
    """Whether this machine has the loopback address of IPv6; containers often have not."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((_IPV6_LOOPBACK, 0))
    except OSError:
        return False
    return True


@contextmanager
def open_listener(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; without it every reply is delayed by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    try:
        yield listener
    finally:
        listener.close()


def _cannot_listen(host: str, port: int, error: Exception) -> UsageProblem:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        remedy = "Stop the program that uses it, or choose another port with --port; --port 0 takes a free one."
        return UsageProblem(f"Port {port} on {host} is in use.", remedy=remedy)
    reason = getattr(error, "strerror", None) or str(error)
    return UsageProblem(f"Cannot listen on {host}, port {port}: {reason}.", remedy="Choose another with --host and --port.")


def _address(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host.strip('[]')}]:{port}" if ":" in host else f"http://{host}:{port}"
