"""Vaults: secrets of a person that sessions can be attached to. Their values never enter a sandbox, an event or a prompt.

A session sees only that the vaults attached to it exist: `/vaults/NAME` is an empty directory. Values are sealed with a key of
the key ring and stored as blobs of events of their own; replacing, removing and resealing a value erases the former one from
the ledger. This protects a copied database, not a stolen home, which has the keys too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.errors import Command, DocumentConflict, Hint, SessionNotFound, VaultProblem
from fidelio.ids import SESSION_PREFIX, new_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import Document, NewEvent, PutDocument
from fidelio.ledger.paging import event_pages
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.credentials.service import ProjectVaults, reseal_credentials
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.secrets import needs_reseal, open_sealed, seal
from fidelio.runtime.stores import Store, find_store, open_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.model import VAULTS

MAX_VALUE = 64 << 10
ID_PREFIX = "vlt_"
_PURPOSE = "vault"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_LIST = Hint(Command("vaults", "list"), " lists them.")


class Vault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A vault without its value. `digest` is that of the sealed value. `title`: how it is shown, if not by its name."""

    id: str
    name: str
    created_at: int
    changed_at: int
    digest: str
    title: str = ""

    @property
    def mount_path(self) -> str:
        return f"{VAULTS}/{self.name}"

    def describe(self) -> dict[str, Any]:
        """The vault for an agent."""
        return {"id": self.id, "displayName": self.title or self.name, "mountPath": self.mount_path}


class _StoredVault(msgspec.Struct, frozen=True):
    vault: Vault
    number: int


class Vaults:
    """The vaults of a home. Only a person changes them; the surfaces see to that."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    async def add(self, name: str, value: str, *, by: str, replaces: bool = False) -> Vault:
        """Store a value under a new name. `replaces`: or instead of the present value."""
        check_name(name)
        _check_value(value)
        store = await self._store()
        document = await self._context.ledger.document(store.space, name)
        found = _decode(document)
        if found is not None and not replaces:
            raise VaultProblem(f"The vault {name} exists.", remedy="Choose another name, or replace its value explicitly.")
        now = self._context.clock()
        vault = Vault(new_id(ID_PREFIX), name, now, now, "") if found is None else replace(found.vault, changed_at=now)
        number = 0 if document is None else document.version
        return await self._write(store, _StoredVault(vault, number), value, "added" if found is None else "replaced", by)

    async def remove(self, name: str, *, by: str) -> None:
        """Delete a vault, and its value from the ledger. Sessions that are attached to it no longer see it."""
        store = await self._store()
        found = await self._load(store, name)
        document = PutDocument(space=store.space, path=name, text=None, author=by, expect=found.number)
        await self._context.ledger.commit(store.change(_changed(found.vault, "removed", by), documents=(document,)))
        await self._erase_values(store, found.vault.id, except_for="")

    async def list(self) -> tuple[Vault, ...]:
        store = await find_store(self._context, "vaults")
        vaults: list[Vault] = []
        cursor: str | None = None
        while store is not None:
            page = await self._context.ledger.documents(store.space, cursor=cursor, limit=200)
            vaults += [(await self._load(store, listed.path)).vault for listed in page.items]
            cursor = page.next
            if cursor is None:
                break
        return tuple(vaults)

    async def require(self, names: Iterable[str]) -> None:
        """Raise `VaultProblem` for the first name that is not a vault."""
        for name in names:
            await self._load(await self._store(), name)

    async def attach(self, session: str, name: str, *, by: str) -> None:
        """Let a session see a vault."""
        await self.require((name,))
        await self._configure(session, lambda names: (*names, name), by)

    async def detach(self, session: str, name: str, *, by: str) -> None:
        await self._configure(session, lambda names: (each for each in names if each != name), by)

    async def open_value(self, record: RuntimeRecord, name: str) -> str:
        """The value, for our own HTTP and MCP clients. Raises `VaultProblem` if the session is not attached to the vault."""
        if name not in record.vaults:
            raise VaultProblem(f"The session is not attached to the vault {name!r:.80}.", remedy="Attach it first.")
        store = await self._store()
        found = await self._load(store, name)
        value = await self._open(found)
        # Another process may seal it anew at the same moment.
        with suppress(DocumentConflict):
            await self._reseal(store, found, value, by="vaults")
        return value

    async def reseal(self, *, by: str) -> int:
        """Seal every value with the active key of the key ring; returns how many were sealed with another key."""
        count = await reseal_credentials(self._context, by=by)
        store = await find_store(self._context, "vaults")
        if store is None:
            return count
        found = [await self._load(store, vault.name) for vault in await self.list()]
        return count + sum([await self._reseal(store, each, await self._open(each), by=by) for each in found])

    async def _reseal(self, store: Store, found: _StoredVault, value: str, *, by: str) -> bool:
        if not needs_reseal(self._context.open_keys(), await self._load_sealed(found.vault)):
            return False
        await self._write(store, found, value, "resealed", by)
        return True

    async def _store(self) -> Store:
        return await open_store(self._context, "vaults")

    async def _load(self, store: Store, name: str) -> _StoredVault:
        found = _decode(await self._context.ledger.document(store.space, name)) if _NAME.fullmatch(name) else None
        if found is None:
            raise VaultProblem(f"There is no vault {name!r:.80}.", remedy=_LIST)
        return found

    async def _load_sealed(self, vault: Vault) -> str:
        content = await self._context.ledger.blob(vault.digest)
        if content is None:
            raise VaultProblem(f"The value of the vault {vault.name} is missing in the ledger.", remedy="Add it again.")
        return content.decode()

    async def _open(self, found: _StoredVault) -> str:
        sealed = await self._load_sealed(found.vault)
        return open_sealed(self._context.open_keys(), _PURPOSE, _associated_data(found.vault), sealed)

    async def _write(self, store: Store, found: _StoredVault, value: str, change: str, by: str) -> Vault:
        """Store a value on top of the state that was seen, then erase the former value."""
        sealed = seal(self._context.open_keys(), _PURPOSE, _associated_data(found.vault), value).encode()
        vault = replace(found.vault, digest=hash_blob(sealed))
        stored = NewEvent(type=e.VAULT_VALUE_STORED, body={"vault": vault.id}, blobs=(vault.digest,), actor=by)
        text = msgspec.json.encode(vault).decode()
        document = PutDocument(space=store.space, path=vault.name, text=text, author=by, expect=found.number)
        await self._context.ledger.commit(
            store.change(_changed(vault, change, by), stored, documents=(document,), blobs=(sealed,))
        )
        await self._erase_values(store, vault.id, except_for=vault.digest)
        return vault

    async def _erase_values(self, store: Store, vault: str, *, except_for: str) -> None:
        """Redact the events of former values, which deletes their blobs. What a crash left is found the next time."""
        former: list[int] = []
        async for page in event_pages(self._context.ledger, store.id, after=0, types=(e.VAULT_VALUE_STORED,)):
            former += [event.seq for event in page if not event.redacted and event.body.get("vault") == vault]
        newest = former[-1:] if except_for else []
        if outdated := [seq for seq in former if seq not in newest]:
            await self._context.ledger.redact(store.id, outdated, actor="vaults", reason="The value was replaced or removed.")

    async def _configure(self, session: str, change: Any, by: str) -> None:
        def decide(current: LoadedRuntime) -> SessionDecision[None]:
            names = list(dict.fromkeys(change(current.record.vaults)))
            return SessionDecision(None, events=(NewEvent(type=e.CONFIGURED, body={"vaults": names}, actor=by),))

        await self._context.unit.update(session, decide)


async def list_visible(context: RuntimeContext, record: RuntimeRecord) -> tuple[Vault, ...]:
    """The vaults that a session sees: those of the home and of the API that it is attached to and that still exist."""
    return (*await list_attached(context, record), *await _list_of_api(context, record))


async def _list_of_api(context: RuntimeContext, record: RuntimeRecord) -> list[Vault]:
    vaults, found = ProjectVaults(context, record.project), list[Vault]()
    for id_ in record.vault_ids:
        with suppress(SessionNotFound):
            stored = await vaults.objects.load(id_)
            name = f"{ID_PREFIX}{id_.removeprefix(SESSION_PREFIX)}"
            found.append(Vault(name, name, stored.created_at, stored.updated_at, "", stored.content.display_name))
    return found


async def list_attached(context: RuntimeContext, record: RuntimeRecord) -> tuple[Vault, ...]:
    """The vaults of the home that a session is attached to and that still exist."""
    if not record.vaults:
        return ()
    store = await open_store(context, "vaults")
    found = [_decode(await context.ledger.document(store.space, name)) for name in record.vaults if _NAME.fullmatch(name)]
    return tuple(stored.vault for stored in found if stored is not None)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise VaultProblem(f"{name!r:.80} is not a name of a vault.", remedy="Use 1 to 60 letters, digits, '-' and '_'.")


def describe_vault(vault: Vault) -> dict[str, Any]:
    """The vault for a person."""
    return {**vault.describe(), "createdAt": format_iso(vault.created_at), "changedAt": format_iso(vault.changed_at)}


def _check_value(value: str) -> None:
    if not value or len(value.encode(errors="replace")) > MAX_VALUE or "\0" in value:
        raise VaultProblem(f"The value has {len(value)} characters.", remedy=f"Use 1 to {MAX_VALUE} bytes of text without NUL.")


def _changed(vault: Vault, change: str, by: str) -> NewEvent:
    return NewEvent(type=e.VAULT_CHANGED, body={"vault": vault.id, "name": vault.name, "change": change, "by": by}, actor=by)


def _associated_data(vault: Vault) -> str:
    # A sealed value that is moved to another vault or name does not open there.
    return f"{vault.id}:{vault.name}"


def _decode(document: Document | None) -> _StoredVault | None:
    if document is None or document.text is None:
        return None
    return _StoredVault(msgspec.json.decode(document.text, type=Vault), document.version)
