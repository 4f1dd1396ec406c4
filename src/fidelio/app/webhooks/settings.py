"""The webhooks of a home: addresses of the user, each with the secret that signs what is sent there.

They are in a file of the home that only its owner can read. They are the user's own setting, so private addresses are allowed;
a home that nobody trusts has none. Commands that send nothing read this module, so it loads neither the HTTP client nor the
runtime.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from fidelio.errors import HomeProblem, UsageProblem
from fidelio.home import Home
from fidelio.ids import new_id
from fidelio.locks import FileLock

MAX_WEBHOOKS, MIN_SECRET, MAX_SECRET = 20, 16, 512
_LOCK = "webhooks"


class Webhook(msgspec.Struct, frozen=True):
    """An address that is notified. `secret` signs what is sent."""

    id: str
    url: str
    secret: str
    created_at: int

    def __repr__(self) -> str:
        return f"Webhook({self.id!r}, {self.url!r})"


class _File(msgspec.Struct):
    webhooks: tuple[Webhook, ...] = ()


class Webhooks:
    """The webhooks of a home, in a file with mode 0600."""

    def __init__(self, home: Home) -> None:
        self._home, self._path = home, home.path / "webhooks.json"

    def list(self) -> tuple[Webhook, ...]:
        """The webhooks; none in a home that nobody trusts."""
        if not self._home.is_trusted:
            return ()
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return ()
        try:
            return msgspec.json.decode(content, type=_File).webhooks
        except msgspec.MsgspecError as error:
            raise HomeProblem(f"{self._path} is damaged: {error}.", remedy="Remove it, and add the webhooks again.") from error

    def add(self, url: str, secret: str, *, now: int) -> Webhook:
        """Store a webhook."""
        check_url(url)
        if not MIN_SECRET <= len(secret) <= MAX_SECRET or not secret.isprintable():
            raise UsageProblem(
                f"The secret has {len(secret)} characters.", remedy=f"Use {MIN_SECRET} to {MAX_SECRET} printable characters."
            )
        known = self.list()
        if len(known) >= MAX_WEBHOOKS:
            raise UsageProblem(f"There are {len(known)} webhooks already.", remedy="Remove one first.")
        webhook = Webhook(new_id("wh_"), url, secret, now)
        self._save((*known, webhook))
        return webhook

    def find(self, name: str) -> Webhook:
        """The webhook with this id. Raises `UsageProblem`."""
        known = self.list()
        found = next((webhook for webhook in known if webhook.id == name), None)
        if found is None:
            listed = ", ".join(webhook.id for webhook in known) or "none"
            raise UsageProblem(f"There is no webhook {name!r:.80}.", remedy=f"The webhooks are: {listed}.")
        return found

    def remove(self, name: str) -> Webhook:
        """Remove the webhook with this id. Deliveries that are due to it are dropped."""
        found = self.find(name)
        self._save(tuple(webhook for webhook in self.list() if webhook.id != name))
        return found

    def lock(self) -> FileLock:
        """The lock of the process that sends."""
        return FileLock(self._home.lock_path(_LOCK))

    def is_sending(self) -> bool:
        """Whether a process of this home sends now."""
        lock = self.lock()
        if not lock.acquire():
            return True
        lock.release()
        return False

    def _save(self, webhooks: Sequence[Webhook]) -> None:
        self._home.ensure()
        draft = self._path.with_name(f".webhooks.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_File(tuple(webhooks))))
            draft.replace(self._path)
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise


def check_url(url: str) -> None:
    """Raise for an address that cannot be used, or that carries a secret itself."""
    try:
        address = urlsplit(url)
        host, _ = address.hostname, address.port
    except ValueError as error:
        raise UsageProblem(f"{url!r:.200} is not an address: {error}.", remedy="Write https://HOST/PATH.") from error
    if address.scheme not in ("http", "https") or not host:
        raise UsageProblem(f"{url!r:.200} is not an HTTP address.", remedy="Write https://HOST/PATH.")
    if address.username or address.password:
        raise UsageProblem("The address contains a user or a password.", remedy="Leave it out; deliveries are signed.")


def describe_address(url: str) -> str:
    """What a person should know about where the questions go; empty if there is nothing."""
    address = urlsplit(url)
    host = address.hostname or ""
    try:
        is_private = not ip_address(host).is_global
    except ValueError:
        is_private = host == "localhost" or host.endswith((".localhost", ".local", ".internal")) or "." not in host
    where = "The address is on this machine or in a private network. " if is_private else ""
    clear = "" if address.scheme == "https" else "It is not encrypted: whoever is between can read the questions. "
    return (where + clear).strip()
