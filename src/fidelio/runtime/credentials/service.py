"""Credentials in the vaults of a project: stored without their secrets, which are sealed and erased when they are replaced.

The secrets are a blob that an event of the vault refers to. Replacing, archiving and deleting redacts that event, so that no
former secret stays in the ledger, sealed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from fidelio.errors import DocumentConflict, SessionExists, SessionNotFound, VaultProblem
from fidelio.ids import derive_id, new_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import NewEvent
from fidelio.ledger.paging import all_pages, event_pages
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.credentials.model import (
    Credential,
    CredentialsRecord,
    Secrets,
    VaultContent,
    associated_data,
    check_room,
)
from fidelio.runtime.objects import Objects, StoredObject
from fidelio.runtime.secrets import needs_reseal, open_sealed, seal
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

_PURPOSE = "vault-credential"
_NAMESPACE = "runtime-object:vault:"
_ID_PREFIX, _ID_CHARACTERS = "vcrd_", 20

StoredVault = StoredObject[VaultContent]
Revision = Callable[[Credential, Secrets], tuple[Credential, Secrets]]


class ProjectVaults:
    """The vaults of a project, and their credentials. Only a person changes them; the surfaces see to that."""

    def __init__(self, context: RuntimeContext, project: str) -> None:
        self._context = context
        self.objects = Objects(context, project, "vault", VaultContent)

    async def archive(self, vault: str, *, by: str) -> StoredVault:
        """Archive a vault and its credentials: their secrets are erased. Archiving it again finishes what a crash left."""
        found = await self.objects.archive(vault, by=by)
        for credential in await self.list(vault):
            await self.archive_credential(vault, credential.id, by=by)
        return found

    async def list(self, vault: str) -> tuple[Credential, ...]:
        """All credentials, newest first, with the archived ones."""
        await self.objects.load(vault)
        entries = (await self._record(vault)).entries.values()
        return tuple(sorted(entries, key=lambda each: (each.created_at, each.id), reverse=True))

    async def load(self, vault: str, credential: str) -> Credential:
        await self.objects.load(vault)
        return _find(await self._record(vault), credential)

    async def add(self, vault: str, draft: Credential, secrets: Secrets, *, by: str, key: str = "") -> Credential:
        """Store a new credential. Raises `SessionExists` if the vault has an active credential for the same server.

        `key`: an idempotency key. Repeated with the same content, it returns the credential that the first call made.
        """
        id_ = derive_id(_ID_PREFIX, f"{vault}:{key}", _ID_CHARACTERS) if key else new_id(_ID_PREFIX, _ID_CHARACTERS)
        new = replace(draft, id=id_)
        await self._require_active(vault)
        if (found := (await self._record(vault)).entries.get(id_)) is not None:
            return await self._repeat(vault, found, new, secrets)
        return await self._store(vault, new, secrets, lambda record: check_room(record, new), by)

    async def change(self, vault: str, credential: str, revise: Revision, *, by: str) -> Credential:
        """Store what `revise` makes of a credential and its secrets. Raises `DocumentConflict` if another call was faster."""
        await self._require_active(vault)
        before, secrets = await self.open_secrets(vault, credential)
        after, new_secrets = revise(before, secrets)
        if (after, new_secrets) == (before, secrets):
            return before
        return await self._replace(vault, before, replace(after, updated_at=self._context.clock()), new_secrets, by)

    async def archive_credential(self, vault: str, credential: str, *, by: str) -> Credential:
        """Keep a credential without its secrets; another for its server can be created."""
        await self.objects.load(vault)

        def archive(current: LoadedRuntime) -> SessionDecision[None] | None:
            found, now = _find(current.record.credentials, credential), self._context.clock()
            ended = replace(found, archived_at=now, updated_at=now, digest="")
            return None if found.archived_at else SessionDecision(None, events=(_set(ended, "archived", by),))

        committed = await self._context.unit.update(vault, archive)
        await self._erase(vault, credential, keep="")
        return _find(committed.record.credentials, credential)

    async def remove(self, vault: str, credential: str, *, by: str) -> None:
        await self.objects.load(vault)

        def remove(current: LoadedRuntime) -> SessionDecision[None]:
            _find(current.record.credentials, credential)
            event = NewEvent(type=e.CREDENTIAL_REMOVED, body={"credential_id": credential}, actor=by)
            return SessionDecision(None, events=(event,))

        await self._context.unit.update(vault, remove)
        await self._erase(vault, credential, keep="")

    async def open_secrets(self, vault: str, credential: str) -> tuple[Credential, Secrets]:
        """A credential with its secrets, for our own clients."""
        found = await self.load(vault, credential)
        if found.archived_at:
            raise VaultProblem(f"The credential {credential} is archived.", remedy="Create another one.")
        return found, await self._open(vault, found)

    async def find(self, vaults: Iterable[str], url: str) -> tuple[str, Credential] | None:
        """The active credential for a server: of the first vault that has it, and that vault."""
        for vault in vaults:
            try:
                found = await self.objects.load(vault)
            except SessionNotFound:
                # Deleted since it was attached.
                continue
            entries = () if found.archived_at else (await self._record(vault)).entries.values()
            for credential in entries:
                if credential.mcp_server_url == url and not credential.archived_at:
                    return vault, credential
        return None

    async def reseal(self, vault: str, *, by: str) -> int:
        """Seal the secrets of a vault with the active key; returns how many were sealed with another key."""
        count = 0
        for credential in (await self._record(vault)).entries.values():
            if credential.digest and needs_reseal(self._context.open_keys(), await self._load_sealed(credential)):
                # Who replaces them at the same moment seals them with the active key too.
                with suppress(DocumentConflict):
                    await self._replace(vault, credential, credential, await self._open(vault, credential), by)
                    count += 1
        return count

    async def _repeat(self, vault: str, found: Credential, new: Credential, secrets: Secrets) -> Credential:
        moments = {"created_at": found.created_at, "updated_at": found.updated_at, "digest": found.digest}
        if replace(new, **moments) != found or await self._open(vault, found) != secrets:
            raise SessionExists("The key was used for another credential.", remedy="Use a new key for each creation.")
        return found

    async def _replace(self, vault: str, before: Credential, after: Credential, secrets: Secrets, by: str) -> Credential:
        def check(record: CredentialsRecord) -> None:
            found = _find(record, before.id)
            if found != before:
                raise DocumentConflict(before.id, expected=before.updated_at, actual=found.updated_at)

        return await self._store(vault, after, secrets, check, by)

    async def _store(
        self, vault: str, credential: Credential, secrets: Secrets, check: Callable[[CredentialsRecord], None], by: str
    ) -> Credential:
        """Store a credential with its secrets if the record allows it, then erase the former secrets."""
        plain = msgspec.json.encode(secrets).decode()
        sealed = seal(self._context.open_keys(), _PURPOSE, associated_data(vault, credential.id), plain).encode()
        stored = replace(credential, digest=hash_blob(sealed))
        body = {"vault": vault, "credential_id": credential.id}
        value = NewEvent(type=e.VAULT_VALUE_STORED, body=body, blobs=(stored.digest,), actor=by)

        def commit(current: LoadedRuntime) -> SessionDecision[None]:
            if current.record.is_archived:
                raise _archived()
            check(current.record.credentials)
            return SessionDecision(None, events=(_set(stored, "stored", by), value), blobs=(sealed,))

        await self._context.unit.update(vault, commit)
        await self._erase(vault, credential.id, keep=stored.digest)
        return stored

    async def _erase(self, vault: str, credential: str, *, keep: str) -> None:
        """Redact the events of former secrets, which deletes their blobs. What a crash left is found the next time."""
        former: list[int] = []
        async for page in event_pages(self._context.ledger, vault, types=(e.VAULT_VALUE_STORED,)):
            former += [event.seq for event in page if not event.redacted and event.body["credential_id"] == credential]
        newest = former[-1:] if keep else []
        if outdated := [seq for seq in former if seq not in newest]:
            reason = "The secrets were replaced or removed."
            await self._context.ledger.redact(vault, outdated, actor="vaults", reason=reason)

    async def _require_active(self, vault: str) -> None:
        if (await self.objects.load(vault)).archived_at:
            raise _archived()

    async def _record(self, vault: str) -> CredentialsRecord:
        return (await self._context.unit.load(vault)).record.credentials

    async def _load_sealed(self, credential: Credential) -> str:
        content = await self._context.ledger.blob(credential.digest)
        if content is None:
            raise VaultProblem(f"The secrets of the credential {credential.id} are missing.", remedy="Create it again.")
        return content.decode()

    async def _open(self, vault: str, credential: Credential) -> Secrets:
        aad = associated_data(vault, credential.id)
        plain = open_sealed(self._context.open_keys(), _PURPOSE, aad, await self._load_sealed(credential))
        return msgspec.json.decode(plain, type=Secrets)


def _find(record: CredentialsRecord, credential: str) -> Credential:
    found = record.entries.get(credential)
    if found is None:
        raise SessionNotFound(f"Credential {credential!r:.100} was not found.")
    return found


def _set(credential: Credential, change: str, by: str) -> NewEvent:
    body = {"credential_id": credential.id, "change": change, "credential": msgspec.to_builtins(credential)}
    return NewEvent(type=e.CREDENTIAL_SET, body=body, actor=by)


def _archived() -> VaultProblem:
    return VaultProblem("The vault is archived.", remedy="Use another one: an archived one is not changed.")


async def reseal_credentials(context: RuntimeContext, *, by: str) -> int:
    """Seal the secrets in the vaults of all projects with the active key; returns how many were sealed with another key."""
    count, vaults = 0, ProjectVaults(context, "")
    async for session in all_pages(partial(context.ledger.sessions, kind="runtime")):
        if session.namespace.startswith(_NAMESPACE):
            count += await vaults.reseal(session.id, by=by)
    return count
