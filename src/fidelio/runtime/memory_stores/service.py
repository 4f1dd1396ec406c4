"""Memory stores of a project: the stores, their memories and every version of these.

A version is an event of the store that refers to its content; the record of the store has the newest of each memory. So a
change is decided on what is committed, and erasing a version is the redaction of one event: its content, path and digest leave
the ledger, and the chain still verifies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import MemoryNotFound, MemoryProblem, SessionExists, UsageProblem
from fidelio.ids import ALPHABET, SESSION_PREFIX, derive_id, new_id
from fidelio.ledger.encoding import REDACTED, hash_blob
from fidelio.ledger.model import Event, NewEvent, Page
from fidelio.ledger.paging import all_events
from fidelio.ledger.redaction import read_left, read_seqs
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.memory_stores import rules
from fidelio.runtime.memory_stores.record import MemoriesRecord, Memory, Operation, describe_version
from fidelio.runtime.objects import Objects, StoredObject
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

STORE_PREFIX, VERSION_PREFIX = "memstore_", "memver_"
_ID_LENGTH = 12
_MEMORY, _MEMORY_CHARACTERS = "mem_", 20
_WINDOW = 1_000
_MAX_NUMBER = 15


class MemoryStore(msgspec.Struct, frozen=True):
    """What a person says about a store. `changed_at` is 0 until it is changed."""

    name: str
    description: str = ""
    metadata: dict[str, str] = {}
    changed_at: int = 0


StoredStore = StoredObject[MemoryStore]


class MemoryVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a memory. `path`, `sha256` and `size` are None where it was redacted; a deletion has the path only."""

    number: int
    memory_id: str
    operation: Operation
    actor: str
    created_at: int
    path: str | None = None
    sha256: str | None = None
    size: int | None = None
    redacted_at: int = 0
    redacted_by: str = ""


class MemoryStores:
    """The memory stores of a project. `by` is who changes something: `api`, or the id of a session."""

    def __init__(self, context: RuntimeContext, project: str) -> None:
        self._context = context
        self.objects = Objects(context, project, "memory_store", MemoryStore)

    async def update(self, store: str, revise: Callable[[MemoryStore], MemoryStore], *, by: str) -> StoredStore:
        """Change what is said about a store."""

        def change(found: StoredStore) -> MemoryStore:
            after = revise(found.content)
            return after if after == found.content else replace(after, changed_at=self._context.clock())

        return await self.objects.update(store, change, by=by)

    async def memories(self, store: str) -> MemoriesRecord:
        """The memories of a store that the caller has loaded."""
        return (await self._context.unit.load(store)).record.memories

    async def load(self, store: str, memory: str) -> Memory:
        await self.objects.load(store)
        return _find(await self.memories(store), memory)

    async def content(self, sha256: str) -> str:
        data = await self._context.ledger.blob(sha256)
        if data is None:
            raise MemoryNotFound("The content was redacted meanwhile.", remedy="Retrieve it again.")
        return data.decode()

    async def add(self, store: str, path: str, content: bytes, *, by: str, key: str = "") -> Memory:
        """A new memory. Raises `MemoryPathConflict` if the path is taken.

        `key`: an idempotency key. Repeated with the same path and content, it returns the memory that the first call made.
        """
        rules.check_path(path)
        rules.check_size(len(content))
        memory_id = derive_id(_MEMORY, f"{store}:{key}", _MEMORY_CHARACTERS) if key else new_id(_MEMORY, _MEMORY_CHARACTERS)

        def decide(record: MemoriesRecord) -> NewEvent | None:
            if (found := record.entries.get(memory_id)) is not None:
                _check_repeated(found, path, content)
                return None
            rules.check_room(record)
            rules.check_free(record, path)
            return _version(memory_id, "created", path, hash_blob(content), len(content), by)

        return _find(await self._change(store, decide, content), memory_id)

    async def change(
        self,
        store: str,
        memory: str,
        *,
        path: str | None = None,
        content: bytes | None = None,
        expected: str | None = None,
        by: str,
    ) -> Memory:
        """Another content or path. The same content at the same path is no new version."""
        if path is not None:
            rules.check_path(path)
        rules.check_size(len(content or b""))

        def decide(record: MemoriesRecord) -> NewEvent | None:
            found = _find(record, memory)
            rules.check_expected(found, expected)
            new_path = found.path if path is None else path
            rules.check_free(record, new_path, of=memory)
            digest, size = (found.sha256, found.size) if content is None else (hash_blob(content), len(content))
            is_same = (new_path, digest) == (found.path, found.sha256)
            return None if is_same else _version(memory, "modified", new_path, digest, size, by)

        return _find(await self._change(store, decide, content), memory)

    async def remove(self, store: str, memory: str, *, expected: str | None = None, by: str) -> None:
        """Delete a memory. Its versions stay. An archived store accepts this too."""

        def decide(record: MemoriesRecord) -> NewEvent | None:
            found = _find(record, memory)
            rules.check_expected(found, expected)
            body = describe_version(memory, "deleted", found.path)
            return NewEvent(type=e.MEMORY_VERSION_STORED, body=body, actor=by)

        await self._change(store, decide, is_deletion=True)

    async def version(self, store: str, number: int) -> MemoryVersion:
        await self.objects.load(store)
        events = await self._context.ledger.events(store, after=number - 1, types=(e.MEMORY_VERSION_STORED,), limit=1)
        if not events or events[0].seq != number:
            raise MemoryNotFound("There is no such version of a memory.")
        return (await self._read_versions(store, events))[0]

    async def versions(
        self, store: str, keep: Callable[[MemoryVersion], bool], *, before: int | None, limit: int
    ) -> Page[MemoryVersion]:
        """The versions that `keep` accepts, newest first.

        `before`: the number of the last version of the page before."""
        found: list[MemoryVersion] = []
        async for version in self._walk(store, before):
            if keep(version):
                found.append(version)
            if len(found) > limit:
                return Page(tuple(found[:limit]), str(found[limit - 1].number))
        return Page(tuple(found), None)

    async def redact(self, store: str, number: int, *, by: str) -> MemoryVersion:
        """Erase path, content and digest of a version from the ledger. Redacting it again changes nothing."""
        version = await self.version(store, number)
        memory = (await self.memories(store)).entries.get(version.memory_id)
        if memory is not None and memory.version == number:
            raise MemoryProblem(
                f"This is the current version of the memory {memory.id}.",
                remedy="Update or delete the memory first, then redact this version.",
            )
        if not version.redacted_at:
            await self._context.ledger.redact(store, [number], actor=by, reason="The version of a memory was redacted.")
        return await self.version(store, number)

    async def _change(
        self,
        store: str,
        decide: Callable[[MemoriesRecord], NewEvent | None],
        content: bytes | None = None,
        *,
        is_deletion: bool = False,
    ) -> MemoriesRecord:
        await self.objects.load(store)

        def commit(current: LoadedRuntime) -> SessionDecision[None] | None:
            if current.record.is_archived and not is_deletion:
                raise UsageProblem("The memory store is archived.", remedy="Use another one: an archived one is not changed.")
            event = decide(current.record.memories)
            blobs = () if content is None else (content,)
            return None if event is None else SessionDecision(None, events=(event,), blobs=blobs)

        return (await self._context.unit.update(store, commit)).record.memories

    async def _walk(self, store: str, before: int | None) -> AsyncIterator[MemoryVersion]:
        """The versions of a store backwards, read in windows of events."""
        end = (await self._context.ledger.session(store)).last_seq + 1 if before is None else before
        while end > 1:
            start = max(1, end - _WINDOW)
            page = await self._context.ledger.events(
                store, after=start - 1, types=(e.MEMORY_VERSION_STORED,), limit=end - start
            )
            for version in reversed(await self._read_versions(store, tuple(each for each in page if each.seq < end))):
                yield version
            end = start
            # A read from SQLite does not suspend.
            await asyncio.sleep(0)

    async def _read_versions(self, store: str, events: tuple[Event, ...]) -> list[MemoryVersion]:
        redacted = any(event.redacted for event in events)
        notices = await all_events(self._context.ledger, store, types=(REDACTED,)) if redacted else []
        erased = {seq: notice for notice in reversed(notices) for seq in read_seqs(notice)}
        left = (await read_left(self._context.ledger, store))[0] if redacted else {}
        return [_read_version(event, left.get(event.seq, {}), erased.get(event.seq)) for event in events]


def make_version_id(store: str, number: int) -> str:
    """The id of a version on the wire: that of its store, and its number there."""
    return f"{VERSION_PREFIX}{store.removeprefix(SESSION_PREFIX)}{number}"


def read_version_id(store: str, id_: str) -> int:
    """The number of a version. Raises `MemoryNotFound` for what is no id of a version of this store."""
    number = id_.removeprefix(VERSION_PREFIX + store.removeprefix(SESSION_PREFIX))
    is_number = number.isascii() and number.isdigit() and len(number) < _MAX_NUMBER and not number.startswith("0")
    if not is_number:
        raise MemoryNotFound(f"Memory version {id_!r:.100} was not found.")
    return int(number)


def make_store_id(store: str) -> str:
    return STORE_PREFIX + store.removeprefix(SESSION_PREFIX)


def read_store_id(id_: str) -> str:
    """The session in the ledger that is a store. Raises `MemoryNotFound` for what is no id of a store."""
    name = id_.removeprefix(STORE_PREFIX)
    if name == id_ or len(name) != _ID_LENGTH or not set(name) <= set(ALPHABET):
        raise MemoryNotFound(f"Memory store {id_!r:.100} was not found.")
    return SESSION_PREFIX + name


def _find(record: MemoriesRecord, memory: str) -> Memory:
    found = record.entries.get(memory)
    if found is None:
        raise MemoryNotFound(f"Memory {memory!r:.100} was not found.")
    return found


def _check_repeated(found: Memory, path: str, content: bytes) -> None:
    if (found.path, found.sha256) != (path, hash_blob(content)):
        raise SessionExists("The key was used for another memory.", remedy="Use a new key for each creation.")


def _version(memory: str, operation: Operation, path: str, digest: str, size: int, by: str) -> NewEvent:
    body = describe_version(memory, operation, path, digest, size)
    return NewEvent(type=e.MEMORY_VERSION_STORED, body=body, blobs=(digest,), actor=by)


def _read_version(event: Event, left: Mapping[str, Any], notice: Event | None) -> MemoryVersion:
    body = left.get("body", {}) if event.redacted else event.body
    content = {} if event.redacted else body["content"]
    return MemoryVersion(
        number=event.seq,
        memory_id=body.get("memory_id", ""),
        operation=body.get("operation", "modified"),
        actor=event.actor,
        created_at=event.time,
        path=content.get("path"),
        sha256=content.get("sha256"),
        size=content.get("size"),
        redacted_at=notice.time if event.redacted and notice is not None else 0,
        redacted_by=notice.actor if event.redacted and notice is not None else "",
    )
