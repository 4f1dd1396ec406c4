"""Unix sockets on which the host listens: for its clients, and for the proxy of each sandbox.

The event loop's own servers are not used: they take a path, which may be longer than the address of a socket, and some versions
of Python remove the file by that path when they end.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_BACKLOG = 128


def open_listener(directory: Path, name: str, *, owner: int | None = None) -> socket.socket:
    """A listening socket for its owner only, by default this user. It replaces a file that a killed process has left."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    draft = f".{name}-{secrets.token_hex(8)}"
    try:
        # The file gets the mode of the descriptor, so no other user can connect at any moment.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(f"/proc/self/fd/{handle}/{draft}")
        listener.listen(_BACKLOG)
        if owner is not None and owner != os.geteuid():
            os.chown(draft, owner, owner, dir_fd=handle, follow_symlinks=False)
        # Clients find the former socket or this one, never none.
        os.rename(draft, name, src_dir_fd=handle, dst_dir_fd=handle)
    except OSError:
        listener.close()
        with suppress(OSError):
            os.unlink(draft, dir_fd=handle)
        raise
    finally:
        os.close(handle)
    return listener


async def accept_connections(listener: socket.socket, factory: Callable[[], asyncio.BaseProtocol]) -> None:
    """Accept connections until cancelled. Raises `OSError`, for example if this process has no descriptors left."""
    loop = asyncio.get_running_loop()
    while True:
        connection, _ = await loop.sock_accept(listener)
        try:
            await loop.connect_accepted_socket(factory, connection)
        except OSError:
            # The peer has closed already.
            connection.close()


def remove_socket(directory: Path, name: str, identity: os.stat_result) -> None:
    """Remove the file of a socket, unless another socket has replaced it."""
    with suppress(OSError):
        if os.path.samestat((directory / name).lstat(), identity):
            (directory / name).unlink()
