"""Stores: runtime sessions that own what several sessions share, so that deleting a working session deletes none of it.

There is one store per project and agent for the shared files (the substrate), and one per home for environments and for vaults.
A store is created on first use and found by its name. What it owns are documents and blobs that its own events refer to.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from fidelio.errors import SessionExists, SessionNotFound, UsageProblem
from fidelio.ids import new_session_id
from fidelio.ledger.model import Change, NewEvent, NewSession, PutDocument, Session
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

StoreKind = Literal["substrate", "environments", "vaults", "keys", "work", "webhooks"]
_HOME_WIDE, _PAGE = "home", 200


class Store(msgspec.Struct, frozen=True):
    """A store. `directory` is the random name under which its files are shown to sandboxes."""

    id: str
    kind: StoreKind
    directory: str
    last_seq: int

    @property
    def space(self) -> str:
        """The space of its documents."""
        return f"{self.kind}:{self.id}"

    def change(self, *events: NewEvent, documents: tuple[PutDocument, ...] = (), blobs: tuple[bytes, ...] = ()) -> Change:
        """A change of the store, for a commit of its own or linked to that of a session.

        It expects no sequence number: changes of different documents do not disturb each other, and each document carries the
        version that it is based on.
        """
        return Change(session=self.id, events=events, documents=documents, blobs=blobs)


async def find_store(context: RuntimeContext, kind: StoreKind, *, project: str = "", agent: str = "") -> Store | None:
    """The store; None if nothing was ever stored there."""
    name = _store_name(kind, project, agent)
    try:
        return _to_store(kind, await context.ledger.session_by_name(name, namespace=f"runtime-store:{kind}"))
    except SessionNotFound:
        return None


async def iter_substrates(context: RuntimeContext, project: str) -> AsyncIterator[tuple[str, Store]]:
    """The agents of a project, each with the store of its shared files."""
    namespace, ending, after = "runtime-store:substrate", _store_name("substrate", project, ""), ""
    while page := await context.ledger.sessions_by_name(namespace, ending, after=after, limit=_PAGE):
        for session in page:
            record = RuntimeRecords().read(session.raw)
            if record.project == project and record.agent:
                yield record.agent, _to_store("substrate", session)
        after = page[-1].name or ""


async def open_store(context: RuntimeContext, kind: StoreKind, *, project: str = "", agent: str = "") -> Store:
    """The store, created if there is none."""
    if (found := await find_store(context, kind, project=project, agent=agent)) is not None:
        return found
    namespace, name = f"runtime-store:{kind}", _store_name(kind, project, agent)
    body = {"role": "store", "agent": agent, "project": project, "directory": secrets.token_hex(8)}
    create = NewSession(kind="runtime", namespace=namespace, name=name)
    decision = SessionDecision(None, events=(NewEvent(type=e.STARTED, body=body),), create=create)
    try:
        return _to_store(kind, (await context.unit.create(new_session_id(), RuntimeRecord(), decision)).session)
    except SessionExists:
        # Another process was faster.
        return _to_store(kind, await context.ledger.session_by_name(name, namespace=namespace))


def refuse_store(session: LoadedRuntime) -> None:
    """Refuse what only a session can do or have done to it: calls, permissions, an end."""
    if session.record.role == "store":
        raise UsageProblem(
            f"Session {session.id} is a store: it keeps what several sessions share.", remedy="Name a session of an agent."
        )


def shared_directory(context: RuntimeContext, store: Store, area: str) -> Path:
    """The directory of the host in which files of the store are shown to sandboxes."""
    return context.home.path / "sandboxes" / area / store.directory


def describe(body: dict[str, Any]) -> str:
    """Metadata of a document as text."""
    return msgspec.json.encode(body, order="sorted").decode()


def _store_name(kind: StoreKind, project: str, agent: str) -> str:
    if kind not in ("substrate", "work"):
        return _HOME_WIDE
    # A path may be longer than a name; the record has it in full.
    return f"{agent}@{hashlib.sha256(project.encode(errors='replace')).hexdigest()[:24]}"


def _to_store(kind: StoreKind, session: Session) -> Store:
    record = RuntimeRecords().read(session.raw)
    return Store(session.id, kind, record.directory, session.last_seq)
