"""Signing in to the web page: links that work once, the cookies that they are exchanged for, and tokens for forms.

A link is printed in a terminal and works once, for ten minutes. Which links were used is noted in the home, because several
servers may serve it; a link that is older than the process is refused too. The cookie is bound to this browser by its random
id; a form carries a token that is derived from the same id, so a page of another origin cannot make one up. Browsers that
signed out are noted in a file of the home: their cookies stay refused when the server is started again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import TokenError
from fidelio.ids import new_id
from fidelio.tokens.keyring import KeyRing
from fidelio.tokens.seal import Seal

SIGN_IN_PATH = "/sign-in"
LINK_MS = 10 * 60 * 1000
VISIT_MS = 7 * 24 * 60 * 60 * 1000
_LINK, _VISIT, _FORM = "web-link", "web-visit", "web-form"


class Visitor(msgspec.Struct, frozen=True):
    """A browser that is signed in. `form_token` must come with every change."""

    id: str
    form_token: str


class SignIn:
    """Creates and checks links, cookies and tokens of forms."""

    def __init__(self, keys: KeyRing, ended: Path, used: Path, clock: Clock = now_ms) -> None:
        """`ended` is the file with the digests of the visits that have ended, `used` the directory of used links."""
        self._clock = clock
        self._file = ended
        self._used = used
        self._ended = _read_ended(ended, clock())
        self._links, self._visits, self._forms = Seal(keys, _LINK), Seal(keys, _VISIT), Seal(keys, _FORM)
        self._started_at = clock()

    def redeem(self, link: str) -> str | None:
        """The cookie for a link that is genuine, fresh and unused; None for any other."""
        payload = self._read(self._links, link)
        name, created_at = payload.get("id"), payload.get("at")
        if not isinstance(name, str) or not isinstance(created_at, int):
            return None
        if created_at < self._started_at or not self._use(name, created_at):
            return None
        return self._visits.seal({"id": new_id("", 20)}, expires=self._clock() + VISIT_MS)

    def read_cookie(self, cookie: str) -> Visitor | None:
        """The browser that a cookie belongs to; None if it is not signed in."""
        name = self._read(self._visits, cookie).get("id") if cookie else None
        if not isinstance(name, str) or _digest(name) in self._ended:
            return None
        return Visitor(name, self._forms.seal({"id": name}))

    def accepts_form(self, visitor: Visitor, token: str) -> bool:
        """Whether a token of a form was made for this browser."""
        name = self._read(self._forms, token).get("id") if token else None
        return isinstance(name, str) and hmac.compare_digest(name, visitor.id)

    def end_visit(self, visitor: Visitor) -> None:
        """Sign a browser out: its cookie is refused from now on, by other servers of this home after their next start."""
        self._ended.add(_digest(visitor.id))
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{self._clock()} {_digest(visitor.id)}\n")

    def _use(self, name: str, created_at: int) -> bool:
        """Note that a link was used; False if it was before. Of servers that try at once a single server creates the file."""
        self._used.mkdir(mode=0o700, exist_ok=True)
        for known in self._used.glob("[0-9]*-*"):
            # Only genuine links get here, and an old one is refused by its age.
            if int(known.name.partition("-")[0]) <= self._clock() - LINK_MS:
                known.unlink(missing_ok=True)
        try:
            (self._used / f"{created_at}-{_digest(name)}").touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _read(self, seal: Seal, token: str) -> dict[str, Any]:
        try:
            return seal.open(token, now=self._clock())
        except TokenError:
            return {}


def _digest(name: str) -> str:
    return hashlib.sha256(f"{_VISIT}:{name}".encode()).hexdigest()


def _read_ended(file: Path, now: int) -> set[str]:
    """The visits that have ended, without those that are over by their time."""
    try:
        lines = [line.split() for line in file.read_text("ascii").splitlines()]
    except (FileNotFoundError, UnicodeDecodeError):
        return set()
    return {line[1] for line in lines if len(line) == 2 and line[0].isdigit() and int(line[0]) > now - VISIT_MS}


def make_link(keys: KeyRing, base: str, target: str = "/", *, clock: Clock = now_ms) -> str:
    """An address that signs a browser in once and shows `target`."""
    now = clock()
    key = Seal(keys, _LINK).seal({"id": new_id("", 20), "at": now}, expires=now + LINK_MS)
    query = {"key": key, **({"next": target} if target != "/" else {})}
    return f"{base}{SIGN_IN_PATH}?{urlencode(query)}"


def choose_target(target: str) -> str:
    """Where to go after signing in: a path of this server, never another origin."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_path and "\\" not in target else "/"


def is_own_origin(origin: str, address: str, hosts: Collection[str], public_url: str = "") -> bool:
    """Whether pages of this server have an origin. `address` is scheme and host of the request, as it arrived.

    A proxy with TLS passes on over http what a browser sent from an origin with https: at one of the `hosts` that the settings
    name, or at `public_url`, where the proxy may also replace the host.
    """
    own, public = urlsplit(address.lower()), urlsplit(public_url.lower())
    accepted = {f"{own.scheme}://{own.netloc}"}
    if own.hostname in hosts:
        accepted.add(f"https://{own.netloc}")
    if public.netloc:
        accepted.add(f"{public.scheme}://{public.netloc}")
    return origin in accepted
