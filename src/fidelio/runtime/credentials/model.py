"""Credentials as the record of a vault has them, and the rules for them. Pure: no clock, no I/O.

Events and record have a credential without its secrets. These are sealed apart from it, and `digest` refers to them. No error
here has a value of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from fidelio.errors import SessionExists, VaultProblem
from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

MAX_SECRET = 64 << 10
MAX_URL = 2_048
MAX_CREDENTIALS = 20
# With the archived ones.
MAX_STORED = 200
# A token that ends so soon may end on the way.
EXPIRY_MARGIN_MS = 60_000
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")

CredentialType: TypeAlias = Literal["static_bearer", "mcp_oauth"]
EndpointAuth: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post"]


class VaultContent(msgspec.Struct, frozen=True):
    """What a person says about a vault. `changed_at` is 0 until it is changed."""

    display_name: str
    metadata: dict[str, str] = {}
    changed_at: int = 0


class RefreshSettings(msgspec.Struct, frozen=True):
    """How a new access token is obtained, without the secrets."""

    client_id: str
    token_endpoint: str
    endpoint_auth: EndpointAuth
    resource: str | None = None
    scope: str | None = None


class Secrets(msgspec.Struct, frozen=True):
    """The secrets of a credential. They exist only in memory and sealed."""

    token: str
    refresh_token: str = ""
    client_secret: str = ""

    def __repr__(self) -> str:
        # A traceback or a log must not show them.
        return "Secrets(...)"


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential. `expires_at` and `archived_at` are 0 where there is no such moment."""

    id: str
    type: CredentialType
    mcp_server_url: str
    display_name: str | None = None
    metadata: dict[str, str] = {}
    expires_at: int = 0
    refresh: RefreshSettings | None = None
    created_at: int
    updated_at: int
    archived_at: int = 0
    digest: str = ""

    def needs_refresh(self, now: int) -> bool:
        return self.refresh is not None and 0 < self.expires_at <= now + EXPIRY_MARGIN_MS


def check_url(name: str, url: str) -> None:
    """Raise `VaultProblem` for an address that no secret may be sent to."""
    try:
        address = urlsplit(url)
        host, _ = address.hostname or "", address.port
    except ValueError:
        raise VaultProblem(f"{name}: this is not an address.", remedy="Use https://HOST/PATH.") from None
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise VaultProblem(f"{name}: this is not an address of up to {MAX_URL} characters.", remedy="Use https://HOST/PATH.")
    if not host or address.username is not None or address.password is not None or address.fragment:
        raise VaultProblem(
            f"{name}: an address has a host, and neither a user nor a fragment.", remedy="Use https://HOST/PATH."
        )
    if address.scheme != "https" and not (address.scheme == "http" and _LOOPBACK.fullmatch(host)):
        raise VaultProblem(f"{name}: a secret is sent only over https, or to this machine.", remedy="Use https://HOST/PATH.")


def check_secret(name: str, value: str) -> None:
    """Raise `VaultProblem` for what cannot be sent in a header."""
    if not value or len(value) > MAX_SECRET:
        raise VaultProblem(f"{name}: it has {len(value)} characters.", remedy=f"Use 1 to {MAX_SECRET}.")
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise VaultProblem(f"{name}: it has characters that cannot be sent in a header.", remedy="Store it as a single line.")


def associated_data(vault: str, credential: str) -> str:
    """What the sealed secrets are bound to: moved to another credential or vault they do not open."""
    return f"{vault}:{credential}"


class CredentialsRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The credentials of a vault by id, folded from its events."""

    entries: dict[str, Credential] = {}


CredentialsFold: TypeAlias = Callable[[CredentialsRecord, RecordEvent], CredentialsRecord]


def _set_credential(record: CredentialsRecord, event: RecordEvent) -> CredentialsRecord:
    rest = _without(record, event.body["credential_id"])
    if not event.body.get("credential"):
        # A person has redacted the event: nothing is left that could be used.
        return CredentialsRecord(rest)
    credential = msgspec.convert(event.body["credential"], Credential)
    return CredentialsRecord({**rest, credential.id: credential})


def _remove_credential(record: CredentialsRecord, event: RecordEvent) -> CredentialsRecord:
    return CredentialsRecord(_without(record, event.body["credential_id"]))


def _without(record: CredentialsRecord, credential: str) -> dict[str, Credential]:
    return {id_: each for id_, each in record.entries.items() if id_ != credential}


CREDENTIAL_FOLDS: Mapping[str, CredentialsFold] = {
    e.CREDENTIAL_SET: _set_credential,
    e.CREDENTIAL_REMOVED: _remove_credential,
}


def check_room(record: CredentialsRecord, new: Credential) -> None:
    """Raise `SessionExists` if an active credential has the same server, and `VaultProblem` if the vault is full."""
    active = [each for each in record.entries.values() if not each.archived_at]
    if same := next((each for each in active if each.mcp_server_url == new.mcp_server_url), None):
        raise SessionExists(
            f"auth.mcp_server_url: the credential {same.id} of this vault is for the same server.",
            remedy="Update it, or archive it first.",
        )
    if len(active) >= MAX_CREDENTIALS or len(record.entries) >= MAX_STORED:
        raise VaultProblem(
            f"The vault has {len(active)} credentials and {len(record.entries) - len(active)} archived ones.",
            remedy=f"Delete some: {MAX_CREDENTIALS} active and {MAX_STORED} in all are possible.",
        )
