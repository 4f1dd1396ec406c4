"""Settings from the environment.

Command line options override them; both override the defaults. Values are validated here, so that a wrong value is reported at
the start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fidelio import __version__
from fidelio.errors import Text, UsageProblem
from fidelio.home import Home, HomeSearch, search_home

POSTGRES = ("postgresql://", "postgres://")
# An origin: the page is served at the root of its host.
_PUBLIC_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,300}")


class AgentLimits(NamedTuple):
    """Maximum numbers of concurrent agents, in a project and in all, and of nested sessions.

    An agent is a program of several hundred megabytes; the numbers suit a developer's machine.
    """

    per_project: int = 4
    total: int = 16
    depth: int = 3


class HttpLimits(NamedTuple):
    """Limits that keep a client from stopping the HTTP server for the others."""

    connections: int = 500
    # On one machine all clients have the same address.
    per_peer: int = 250
    # From the first byte of a request to its last, and how long a client may read nothing of what is sent to it.
    read_seconds: float = 30.0
    send_seconds: float = 60.0
    # All request bodies in memory together, without the first 64 KB of each.
    body_megabytes: int = 64
    # Sessions of the MCP protocol, and how long one may be without a request.
    sessions: int = 1000
    idle_seconds: float = 1800.0
    # Requests of the API /v1 in a second; a program may begin with twice as many.
    api_rate: int = 1000


class Settings(NamedTuple):
    """The validated settings of a process."""

    home: Home
    ledger: str
    server_name: str = "fidelio"
    server_version: str = __version__
    min_response_ms: int = 3000
    # Whether a token that does not verify may start a session at the position that it claims.
    adoption: bool = True
    # How long a call that waits for an agent stays open; most clients give up after a minute. 0: to the end.
    sync_seconds: float = 50.0
    agents: AgentLimits = AgentLimits()
    # The kind of agent for blueprints that name none; None: the first that works on this machine.
    executor: str | None = None
    http: HttpLimits = HttpLimits()
    # The address of a search with `{query}` in it, for the tool web_search; empty: no agent has the tool.
    web_search: str = ""
    # Where people reach the page if that is not where `up` listens, such as the address of a proxy; without a slash at the end.
    public_url: str = ""
    # How the home was found; the surface that loads the settings prints its warnings.
    search: HomeSearch | None = None

    def warnings(self) -> Iterator[Text]:
        """What a person should know about directories that were found and are not used."""
        return self.search.warnings() if self.search else iter(())

    def untrusted(self) -> tuple[Path, ...]:
        """The directories whose workflows and blueprints are not used because nobody has trusted them."""
        return self.search.untrusted if self.search else ()


def load_settings(home: str | None = None, *, environ: Mapping[str, str] | None = None) -> Settings:
    environ = os.environ if environ is None else environ
    search = search_home(home, environ=environ)
    return Settings(
        home=search.home,
        ledger=find_ledger_address(environ, search.home),
        server_name=environ.get("FIDELIO_SERVER_NAME") or "fidelio",
        server_version=environ.get("FIDELIO_SERVER_VERSION") or __version__,
        min_response_ms=_read_milliseconds(environ, "FIDELIO_MIN_RESPONSE_SECONDS", default=3.0),
        adoption=_read_switch(environ, "FIDELIO_ADOPTION", default="on"),
        sync_seconds=_read_milliseconds(environ, "FIDELIO_SYNC_SECONDS", default=50.0) / 1000,
        agents=_read_agent_limits(environ),
        executor=environ.get("FIDELIO_AGENTS_EXECUTOR") or None,
        search=search,
        http=_read_http_limits(environ),
        web_search=_read_search(environ),
        public_url=_read_public_url(environ),
    )


def find_ledger_address(environ: Mapping[str, str], home: Home) -> str:
    """The path or PostgreSQL address of the ledger. Other schemes are refused, because they would be taken for a file name.

    The path is absolute, because child processes have other working directories.
    """
    address = environ.get("FIDELIO_LEDGER") or str(home.ledger)
    is_path = "://" not in address and not address.startswith((":memory:", "file:"))
    if not is_path and not address.startswith(POSTGRES):
        # Show only the scheme, because the rest of an address may contain a password.
        scheme = "".join(address.partition("://")[:2])
        raise UsageProblem(
            f"FIDELIO_LEDGER has the unsupported scheme {scheme!r}.",
            remedy=f"Use a file path, or an address that begins with {' or '.join(POSTGRES)}.",
        )
    return str(Path(address).absolute()) if is_path else address


def _read_milliseconds(environ: Mapping[str, str], name: str, *, default: float) -> int:
    text = environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise UsageProblem(f"{name} is {text!r}.", remedy="Give a number of seconds from 0 to 86400, such as 3 or 0.5.")
    return round(seconds * 1000)


def _read_search(environ: Mapping[str, str]) -> str:
    address = environ.get("FIDELIO_WEB_SEARCH", "")
    if address and not (address.startswith(("https://", "http://")) and "{query}" in address):
        # Not shown: an address may contain a key.
        raise UsageProblem(
            "FIDELIO_WEB_SEARCH is no address with {query} in it.",
            remedy="Write one such as https://search.example/search?q={query}&format=json.",
        )
    return address


def _read_public_url(environ: Mapping[str, str]) -> str:
    address = environ.get("FIDELIO_PUBLIC_URL", "").rstrip("/")
    if address and not _PUBLIC_URL.fullmatch(address):
        raise UsageProblem(
            f"FIDELIO_PUBLIC_URL is {address!r:.200}.", remedy="Write the address of the page, such as https://fidelio.example."
        )
    return address


def _read_switch(environ: Mapping[str, str], name: str, *, default: str) -> bool:
    text = environ.get(name) or default
    if text not in ("on", "off"):
        raise UsageProblem(f"{name} is {text!r}.", remedy="Say on or off.")
    return text == "on"


def _read_agent_limits(environ: Mapping[str, str]) -> AgentLimits:
    defaults = AgentLimits()
    return AgentLimits(
        per_project=_read_count(environ, "FIDELIO_AGENTS_PER_PROJECT", at_least=1, default=defaults.per_project),
        total=_read_count(environ, "FIDELIO_AGENTS_TOTAL", at_least=1, default=defaults.total),
        depth=_read_count(environ, "FIDELIO_AGENTS_DEPTH", at_least=0, default=defaults.depth),
    )


def _read_http_limits(environ: Mapping[str, str]) -> HttpLimits:
    defaults = HttpLimits()
    return HttpLimits(
        connections=_read_count(environ, "FIDELIO_HTTP_CONNECTIONS", at_least=1, default=defaults.connections),
        per_peer=_read_count(environ, "FIDELIO_HTTP_CONNECTIONS_PER_PEER", at_least=1, default=defaults.per_peer),
        read_seconds=_read_timeout(environ, "FIDELIO_HTTP_READ_SECONDS", default=defaults.read_seconds),
        send_seconds=_read_timeout(environ, "FIDELIO_HTTP_SEND_SECONDS", default=defaults.send_seconds),
        body_megabytes=_read_count(environ, "FIDELIO_HTTP_BODY_MEGABYTES", at_least=1, default=defaults.body_megabytes),
        sessions=_read_count(environ, "FIDELIO_HTTP_SESSIONS", at_least=1, default=defaults.sessions),
        idle_seconds=_read_timeout(environ, "FIDELIO_HTTP_IDLE_SECONDS", default=defaults.idle_seconds),
        api_rate=_read_count(environ, "FIDELIO_HTTP_API_RATE", at_least=1, default=defaults.api_rate),
    )


def _read_timeout(environ: Mapping[str, str], name: str, *, default: float) -> float:
    """A time limit. 0 would refuse everything, so it is not taken."""
    milliseconds = _read_milliseconds(environ, name, default=default)
    if not milliseconds:
        raise UsageProblem(f"{name} is 0.", remedy="Give a number of seconds above 0, such as 30.")
    return milliseconds / 1000


def _read_count(environ: Mapping[str, str], name: str, *, at_least: int, default: int) -> int:
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and at_least <= int(text) <= 10_000):
        raise UsageProblem(f"{name} is {text!r}.", remedy=f"Give a whole number from {at_least} to 10000.")
    return int(text)
