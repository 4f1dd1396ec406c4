"""Lookup of the process at the other end of a TCP connection, so that its signs of an agent count.

Only under Linux and only for peers on this machine: the tables of the kernel list both ends of such a connection, with the
inode of each socket, and the files of a process link to that inode. A process can hide its files, close its end after it has
sent a request, or use another address of the machine than loopback; another user's files are hidden anyway. None of them is
taken for a person's program: there, a peer that is not found is an agent of unknown run. Apart from `caller`, because only
servers over HTTP need it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from fidelio.processes.caller import UNKNOWN_AGENT, UNSEEN, Caller, combine_callers, decide_caller, read_signs

_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
Address = tuple[str, int]


def identify_peer(peer: Address | None, server: Address | None) -> Caller:
    """Decide who is at the other end of a TCP connection to this machine, by the processes that hold it.

    Slow: it looks at the files of all processes. Several processes may hold a connection; each of them counts. `UNSEEN`: the
    peer is on another machine, or this system does not show its processes.
    """
    if peer is None or server is None or not _TABLES[0].exists() or not _is_own_address(peer[0]):
        return UNSEEN
    holders = tuple(_find_holders(_find_socket(peer, server[1])))
    found = combine_callers(*(decide_caller(read_signs(pid)) for pid in holders)) if holders else UNKNOWN_AGENT
    return replace(found, processes=holders)


def _is_own_address(host: str) -> bool:
    """Whether an address belongs to this machine: only then can it be bound."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    plain = getattr(address, "ipv4_mapped", None) or address
    if plain.is_loopback:
        return True
    try:
        with socket.socket(socket.AF_INET if plain.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((str(plain), 0))
    except OSError:
        return False
    return True


def _find_socket(peer: Address, server_port: int) -> str:
    """The link of the peer's socket in the list of open files of its process; empty if it is not in the tables."""
    local = {f"{form}:{peer[1]:04X}" for form in _encode_address(peer[0])}
    for table in _TABLES:
        for line in _read_lines(table):
            # sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
            fields = line.split()
            if fields[1] in local and fields[2].endswith(f":{server_port:04X}") and fields[3] == _ESTABLISHED:
                return f"socket:[{fields[9]}]"
    return ""


def _encode_address(host: str) -> tuple[str, ...]:
    """The forms of an address in the tables: words in the byte order of the machine. An IPv6 socket maps an IPv4 address."""
    address = ipaddress.ip_address(host)
    plain = getattr(address, "ipv4_mapped", None) or address
    forms = [plain.packed] if plain.version == 6 else [plain.packed, bytes(10) + b"\xff\xff" + plain.packed]
    return tuple("".join(f"{word:08X}" for word in struct.unpack(f"={len(form) // 4}I", form)) for form in forms)


def _read_lines(table: Path) -> list[str]:
    try:
        return table.read_text("ascii").splitlines()[1:]
    except OSError:
        return []


def _find_holders(link: str) -> Iterator[int]:
    """The processes, of any user that this process may inspect, that have the socket open."""
    for process in os.scandir("/proc") if link else ():
        if process.name.isdigit() and link in _list_open_files(process.path):
            yield int(process.name)


def _list_open_files(process: str) -> Iterator[str]:
    try:
        files = os.listdir(f"{process}/fd")  # noqa: PTH208  # called for every process of the machine
    except OSError:
        # The process has ended, hides its files, or belongs to another user.
        return
    for file in files:
        with suppress(OSError):  # closed meanwhile; the others still count
            yield os.readlink(f"{process}/fd/{file}")  # noqa: PTH115  # called for every open file of the machine
