"""Memory stores in the sandboxes of sessions: a directory below /mnt/memory for each, in step with its store.

A directory that the agent can write is read and written only by the process inside of its sandbox: whatever link it has planted
leads nowhere that the agent could not go. One that is mounted read-only is written by us, and no agent ever could. What both
sides had last is kept beside them on the host, where no sandbox sees it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import FidelioError, MemoryPathConflict, MemoryPreconditionFailed, SandboxError, SessionNotFound
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.attachments import SessionResource
from fidelio.runtime.memory_stores.merging import MergeStep, plan_merge
from fidelio.runtime.memory_stores.record import MemoriesRecord
from fidelio.runtime.memory_stores.rules import MAX_CONTENT, MAX_MEMORIES, find_path_problem
from fidelio.runtime.memory_stores.service import MemoryStores, read_store_id
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import RuntimeContext, ToolCall
from fidelio.sandbox.directory import host_uid, share
from fidelio.sandbox.model import Access, Mount

TYPE = "memory_store"
_WRITABLE, _READ_ONLY, _STATE = "memory-stores", "memory-stores-read-only", "memory-stores-state"
_MAX_ENTRIES = 2 * MAX_MEMORIES
_MAX_LISTED = 50
# How a file of the sandbox is called while it is written.
_UNFINISHED = ".fidelio-write-"


class MountedStore(msgspec.Struct, frozen=True):
    """A memory store of a session. Its directory on the host has its id, so that no other store ever finds its files."""

    id: str
    path: str
    access: Access
    title: str
    description: str
    instructions: str

    def source(self, directory: Path) -> Path:
        return directory / (_WRITABLE if self.access == "read_write" else _READ_ONLY) / self.id

    def state(self, directory: Path) -> Path:
        return directory / _STATE / f"{self.access}-{self.id}.json"


class SyncState(msgspec.Struct):
    """What sandbox and store had when they were last the same: `version` is the last event of the store by then.

    `reported`: what could not be stored, so that it is said once. `is_new`: they never were the same.
    """

    version: int = 0
    wake: str = ""
    contents: dict[str, str] = {}
    reported: dict[str, str] = {}
    is_new: bool = False


class SyncReport(msgspec.Struct):
    """What a synchronization has changed in the store, and what it could not."""

    stored: list[dict[str, str]] = msgspec.field(default_factory=list)
    problems: list[dict[str, str]] = msgspec.field(default_factory=list)


def list_stores(record: RuntimeRecord) -> tuple[MountedStore, ...]:
    """The memory stores of a session, as they were when they were attached."""
    return tuple(_read(resource) for resource in record.resources if resource.type == TYPE)


def _read(resource: SessionResource) -> MountedStore:
    content = resource.content
    access: Access = "read_only" if content.get("access") == "read_only" else "read_write"
    texts = (content.get("name", ""), content.get("description", ""), content.get("instructions", ""))
    return MountedStore(content["memory_store_id"], content["mount_path"], access, *texts)


def list_store_mounts(record: RuntimeRecord, directory: Path) -> Iterator[Mount]:
    for store in list_stores(record):
        yield Mount(store.path, str(store.source(directory)), store.access, "memory_store")


def prepare_stores(record: RuntimeRecord, directory: Path) -> None:
    """Make the directories of the stores."""
    stores = list_stores(record)
    for store in stores:
        store.state(directory).parent.mkdir(mode=0o700, exist_ok=True)
        source = store.source(directory)
        if not source.is_dir():
            source.parent.mkdir(mode=0o700, exist_ok=True)
            source.mkdir(mode=0o755)
            share(source.parent, host_uid(directory))


async def sync_stores(call: ToolCall) -> None:
    """Bring the stores of the session and the directories in its sandbox to the same state, and note what has happened."""
    directory = call.context.home.path / "sandboxes" / call.record.directory
    for store in list_stores(call.record):
        report = await _sync(call, store, directory)
        if report.stored or report.problems:
            body = {
                "memory_store_id": store.id,
                "mount_path": store.path,
                "stored": report.stored[:_MAX_LISTED],
                "problems": report.problems[:_MAX_LISTED],
            }
            call.noted.append(NewEvent(type=e.MEMORY_STORE_SYNCED, body=body, actor="runtime"))
            call.problems += [f"{store.path}{each['path']}: {each['problem']}" for each in report.problems[:_MAX_LISTED]]


async def _sync(call: ToolCall, store: MountedStore, directory: Path) -> SyncReport:
    state, report = await asyncio.to_thread(_load_state, store, directory), SyncReport()
    stores = MemoryStores(call.context, call.record.project)
    try:
        id_ = read_store_id(store.id)
        await stores.objects.load(id_)
        version = (await call.context.ledger.session(id_)).last_seq
        is_same = (state.version, state.wake) == (version, call.wake) and not state.is_new
        if is_same and (store.access == "read_only" or not call.has_changed):
            return report
        side = _WritableSide(call, store) if store.access == "read_write" else _ReadOnlySide(store, directory)
        await _Merge(call.context, stores, id_, side, state, report, call.session.id).run()
    except SessionNotFound:
        _report(state, report, "/", "The memory store was deleted; what is written here is not kept.", "deleted")
    except (SandboxError, _SideFailure) as error:
        _report(state, report, "/", f"It is not in step with its store: {error}", str(error))
    else:
        # What was stored since the beginning, also by this call, is looked at again the next time.
        state.version, state.wake, state.is_new = version, call.wake, False
    await asyncio.to_thread(_save_state, store, directory, state)
    return report


def _report(state: SyncState, report: SyncReport, path: str, problem: str, about: str) -> None:
    if state.reported.get(path) != about:
        state.reported[path] = about
        report.problems.append({"path": path, "problem": problem})


class _SideFailure(Exception):
    """The directory of a sandbox cannot be read or changed; the message says why."""


class _WritableSide:
    """The directory that the agent can write, through the process of its sandbox, whose replies are hostile input."""

    def __init__(self, call: ToolCall, store: MountedStore) -> None:
        self._call, self._top = call, store.path
        self.can_change = True
        self.problems: dict[str, str] = {}

    async def list(self) -> dict[str, str]:
        arguments = {"path": self._top, "limit": _MAX_ENTRIES, "digests": True}
        output = await self._act("list_tree", arguments)
        entries = output.get("entries")
        if not isinstance(entries, list) or output.get("truncated"):
            raise _SideFailure(f"it has more than {_MAX_ENTRIES} files and directories, or very large ones.")
        return dict(self._read_entry(entry) for entry in entries if self._is_file(entry))

    def _is_file(self, entry: Any) -> bool:
        """Whether an entry is a document. Why it is none is a problem."""
        path = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(path, str) or not path.startswith(f"{self._top}/"):
            return False
        inner = path.removeprefix(self._top)
        if entry.get("kind") == "directory" or inner.rpartition("/")[2].startswith(_UNFINISHED):
            return False
        size = entry.get("size")
        problem = ""
        if entry.get("kind") != "file":
            problem = "Links and special files are not kept."
        elif not isinstance(size, int) or size > MAX_CONTENT:
            problem = f"It has {size} bytes; {MAX_CONTENT} can be kept. Split it."
        elif name := find_path_problem(inner):
            problem = f"The path {name}, so it is not kept."
        elif not isinstance(entry.get("digest"), str):
            problem = "It cannot be read."
        if problem:
            self.problems[inner] = problem
        return not problem

    def _read_entry(self, entry: Mapping[str, Any]) -> tuple[str, str]:
        return str(entry["path"]).removeprefix(self._top), str(entry["digest"])

    async def read(self, path: str, digest: str) -> bytes | None:
        """The content; None if it has changed since it was listed."""
        output = await self._act("read_bytes", {"path": self._top + path, "length": MAX_CONTENT + 1})
        try:
            data = base64.b64decode(output.get("data", ""), validate=True)
        except (binascii.Error, ValueError, TypeError):
            return None
        return data if hashlib.sha256(data).hexdigest() == digest and len(data) <= MAX_CONTENT else None

    async def write(self, path: str, content: bytes, before: str | None) -> None:
        parent = (self._top + path).rpartition("/")[0]
        await self._act("mkdir", {"path": parent, "recursive": True})
        data = base64.b64encode(content).decode()
        await self._act("write_bytes", {"path": self._top + path, "data": data, "append": False, "expectDigest": before or ""})

    async def remove(self, path: str, before: str | None) -> None:
        found = await self._act("digest", {"path": self._top + path})
        if found.get("digest") == before:
            await self._act("remove", {"path": self._top + path})

    async def _act(self, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        result = await self._call.context.sandboxes.call(self._call.spec, action, arguments)
        if result.error is not None:
            raise _SideFailure(result.error.message)
        return result.output


class _ReadOnlySide:
    """The directory that the agent can only read: its files are what we wrote."""

    def __init__(self, store: MountedStore, directory: Path) -> None:
        self._top, self._uid = store.source(directory), host_uid(directory)
        self.can_change = False
        self.problems: dict[str, str] = {}

    async def list(self) -> dict[str, str]:
        return await asyncio.to_thread(self._list)

    def _list(self) -> dict[str, str]:
        files = (path for path in self._top.rglob("*") if path.is_file() and not path.is_symlink())
        return {"/" + path.relative_to(self._top).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    async def read(self, path: str, digest: str) -> bytes | None:
        raise AssertionError(f"{path} ({digest}) would be stored, and nothing of a read-only directory is")

    async def write(self, path: str, content: bytes, before: str | None) -> None:  # noqa: ARG002  # of the other side too
        await asyncio.to_thread(self._write, self._top / path[1:], content)

    async def remove(self, path: str, before: str | None) -> None:  # noqa: ARG002  # of the other side too
        await asyncio.to_thread(self._remove, self._top / path[1:])

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(_UNFINISHED + os.urandom(8).hex())
        unfinished.write_bytes(content)
        unfinished.chmod(0o644)
        unfinished.replace(path)
        share(self._top, self._uid)

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        while path.parent != self._top and not any(path.parent.iterdir()):
            path = path.parent
            path.rmdir()


class _Merge:
    """A merge of a directory and its store."""

    def __init__(
        self,
        context: RuntimeContext,
        stores: MemoryStores,
        store: str,
        side: _WritableSide | _ReadOnlySide,
        state: SyncState,
        report: SyncReport,
        session: str,
    ) -> None:
        self._context, self._stores, self._store = context, stores, store
        self._side, self._state, self._result, self._session = side, state, report, session

    async def run(self) -> None:
        files = await self._side.list()
        memories = await self._stores.memories(self._store)
        contents = {memory.path: memory.sha256 for memory in memories.entries.values()}
        # Before the first time, and where only we write, the directory has no changes of its own.
        base = self._state.contents if self._side.can_change and not self._state.is_new else files
        # What could not be stored stays as it is: it was neither deleted nor replaced.
        known = {path: digest for path, digest in base.items() if path not in self._side.problems}
        held = {path: digest for path, digest in contents.items() if path not in self._side.problems}
        steps = plan_merge(known, files, held)
        for step in steps:
            await self._carry_out(step, memories)
        if self._side.can_change:
            await self._remember(known, await self._side.list() if steps else files)
        for path, problem in self._side.problems.items():
            _report(self._state, self._result, path, problem, problem)

    async def _remember(self, known: Mapping[str, str], files: Mapping[str, str]) -> None:
        """Both sides have the same now, but for what failed, which is merged from the former state again."""
        after = {memory.path: memory.sha256 for memory in (await self._stores.memories(self._store)).entries.values()}
        same = {path: digest for path, digest in files.items() if after.get(path) == digest}
        rest = {path: digest for path, digest in known.items() if path not in same and (path in files or path in after)}
        self._state.contents = {**rest, **same}

    async def _carry_out(self, step: MergeStep, memories: MemoriesRecord) -> None:
        try:
            if step.action == "remove_file":
                await self._side.remove(step.path, step.before)
            elif step.action == "write_file":
                content = await self._stores.content(step.after or "")
                await self._side.write(step.path, content.encode(), step.before)
            else:
                await self._store_step(step, memories)
        except (MemoryPreconditionFailed, MemoryPathConflict) as error:
            if step.action != "store_copy":
                # Somebody was faster, or a document is where the agent has a directory: it is merged again the next time.
                _report(self._state, self._result, step.path, str(error), str(error))
        except _SideFailure as error:
            _report(self._state, self._result, step.path, f"It could not be brought here: {error}", str(error))
        except FidelioError as error:
            _report(self._state, self._result, step.path, str(error), f"{step.after} {error.code}")

    async def _store_step(self, step: MergeStep, memories: MemoriesRecord) -> None:
        memory = memories.find(step.path)
        if step.action == "remove_memory" and memory is not None:
            await self._stores.remove(self._store, memory.id, expected=step.before, by=self._session)
            self._note(step.path, "deleted")
            return
        content = await self._read(step)
        if content is None:
            return
        if memory is None:
            await self._stores.add(self._store, step.path, content, by=self._session)
            self._note(step.path, "created")
        else:
            await self._stores.change(self._store, memory.id, content=content, expected=step.before, by=self._session)
            self._note(step.path, "modified")
        if step.action == "store_copy":
            message = "Somebody else changed the document too. Theirs is at its path, yours was kept here."
            _report(self._state, self._result, step.path, message, step.after or "")

    async def _read(self, step: MergeStep) -> bytes | None:
        """The content of a step of the sandbox; None, with a problem, for what is no text."""
        path = step.source or step.path
        content = await self._side.read(path, step.after or "")
        if content is not None and not _is_text(content):
            _report(self._state, self._result, path, "It is no text in UTF-8, so it is not kept.", step.after or "")
            return None
        return content

    def _note(self, path: str, operation: str) -> None:
        self._result.stored.append({"path": path, "operation": operation})


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _load_state(store: MountedStore, directory: Path) -> SyncState:
    try:
        return msgspec.json.decode(store.state(directory).read_bytes(), type=SyncState)
    except (FileNotFoundError, msgspec.MsgspecError):
        return SyncState(is_new=True)


def _save_state(store: MountedStore, directory: Path, state: SyncState) -> None:
    path = store.state(directory)
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(msgspec.json.encode(state))
    unfinished.replace(path)
