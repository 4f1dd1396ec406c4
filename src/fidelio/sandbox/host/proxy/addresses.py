"""Names and addresses that a sandbox may connect to: the rules, and the resolution of names.

The proxy connects to the very address that was checked. A second resolution could give another one (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
IsPublic: TypeAlias = Callable[[Address], bool]

_MAX_NAME = 253
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
# So many names are looked up at once, for all sandboxes.
_RESOLVER_THREADS = 4

# Refused: this host, private, shared (RFC 6598), link-local, protocol assignments, documentation, benchmarks, relays,
# multicast, reserved. The list is ours because that of `ipaddress` differs between versions of Python.
_REFUSED_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            # Azure answers here with the configuration and keys of the virtual machine.
            "168.63.129.16/32",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
# Of IPv6 only global unicast is accepted, without the parts that embed other addresses or are for special use.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")))


def normalize_name(name: str) -> str:
    """A host name in lower case without the final dot; empty if it is not a name of the form that DNS has.

    Numbers in any spelling of an IPv4 address (`127.1`, `0x7f000001`, `2130706433`) are no names, and neither is `[::1]`.
    """
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        return ""
    return "" if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1], re.ASCII) else name


def is_listed(name: str, hosts: Sequence[str]) -> bool:
    """Whether a normalized name is among the hosts; `*.example.org` covers every subdomain, but not `example.org`."""
    return any(_matches(name, host.lower().removesuffix(".")) for host in hosts)


def _matches(name: str, host: str) -> bool:
    return name.endswith(host[1:]) and name != host[1:] if host.startswith("*.") else name == host


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet and not to this machine."""
    if isinstance(address, ipaddress.IPv4Address):
        refused = any(address in network for network in _REFUSED_V4)
    else:
        refused = (
            address not in _GLOBAL_V6 or address.scope_id is not None or any(address in network for network in _REFUSED_V6)
        )
    return not refused and not is_own(address)


def is_own(address: Address) -> bool:
    """Whether an address belongs to this machine: services that listen on it may trust local clients."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Only an address of its own can be bound. Nothing is sent.
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


async def resolve(name: str, port: int) -> Sequence[Address]:
    """The addresses of a name, by the resolver of this machine. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_resolver_threads(), _lookup, name, port)
    return list(dict.fromkeys(found))


def _lookup(name: str, port: int) -> list[Address]:
    # The final dot keeps the resolver from trying the search domains of this machine.
    found = socket.getaddrinfo(f"{name}.", port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [ipaddress.ip_address(address[0].partition("%")[0]) for *_, address in found if isinstance(address[0], str)]


@cache
def _resolver_threads() -> ThreadPoolExecutor:
    """Threads of their own, so that slow name servers do not hold up other work of the process."""
    return ThreadPoolExecutor(_RESOLVER_THREADS, thread_name_prefix="sandbox-resolver")
