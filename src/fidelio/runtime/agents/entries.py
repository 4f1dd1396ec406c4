"""Agents as programs see them: by the id of their store, with a lifetime, preconditions and paged lists.

An agent that a program creates has a name of its own making, so it can be used by name as well: with `fidelio chat`, or as the
agent of a session. One that a file defines belongs to the file: it is changed there, and a program can read and use it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable

import msgspec

from fidelio.errors import AgentDefinitionProblem, DocumentConflict, SessionExists, SessionNotFound, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.model import NewEvent, Page, PutDocument, Session
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition, decode_agent
from fidelio.runtime.agents.files import resolve_agent
from fidelio.runtime.agents.versions import BUILT_IN, DEFINITION_PATH, agent_space
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.stores import describe, find_store, open_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

_NAMESPACE = "runtime-store:substrate"
_FILE = "file"
_ATTEMPTS = 8
_OTHER = re.compile(r"[^a-z0-9]+")


class AgentEntry(msgspec.Struct, frozen=True):
    """A version of an agent. `id` is that of its store; `archived_at` is 0 while it is in use."""

    id: str
    project: str
    name: str
    version: int
    definition: AgentDefinition
    author: str
    created_at: int
    updated_at: int
    archived_at: int

    @property
    def is_from_file(self) -> bool:
        return self.author in (_FILE, BUILT_IN)


async def create_agent(
    context: RuntimeContext, project: str, definition: AgentDefinition, *, by: str, key: str = ""
) -> AgentEntry:
    """Define an agent under a new name. `key`: an idempotency key; used for another content, it raises `SessionExists`."""
    name = _make_name(definition.title, key)
    store = await open_store(context, "substrate", project=project, agent=name)
    try:
        first = _document(store.id, definition, 0, by)
        await context.ledger.commit(store.change(*_describe(name, definition, 1, by), documents=(first,)))
    except DocumentConflict:
        # The key was used before, perhaps by another process a moment ago.
        if (await load_named(context, project, name, 1)).definition != definition:
            raise SessionExists(
                f"The key {key!r:.80} was used for another agent.", remedy="Use a new key for each creation."
            ) from None
    return await load_named(context, project, name)


async def load_entry(context: RuntimeContext, project: str, id_: str, version: int | None = None) -> AgentEntry:
    """A version of an agent of the project, the newest if `version` is None. Raises `SessionNotFound`."""
    found = await _read(context, project, await context.ledger.session(id_), version)
    if found is None:
        raise SessionNotFound(f"There is no agent {id_!r:.80}" + (f" with version {version}." if version else "."))
    return found


async def load_named(context: RuntimeContext, project: str, name: str, version: int | None = None) -> AgentEntry:
    """A version of the agent with this name. Raises `SessionNotFound`."""
    store = await find_store(context, "substrate", project=project, agent=name)
    if store is None:
        raise SessionNotFound(f"There is no agent {name!r:.80}.")
    return await load_entry(context, project, store.id, version)


async def load_usable(context: RuntimeContext, project: str, id_: str, version: int | None = None) -> AgentEntry:
    """The version that a new session gets. That of a file is what the file says now."""
    entry = await load_entry(context, project, id_, version)
    if entry.archived_at:
        raise AgentDefinitionProblem("The agent is archived.", remedy="Use another one: it begins no sessions any more.")
    if version is not None or not entry.is_from_file:
        return entry
    await resolve_agent(context, project, entry.name)
    return await load_entry(context, project, id_)


async def list_entries(
    context: RuntimeContext, project: str, *, accept: Callable[[AgentEntry], bool], cursor: str | None = None, limit: int
) -> Page[AgentEntry]:
    """A page of the agents of the project that `accept` takes, newest first."""
    found: list[AgentEntry] = []
    while True:
        # At most as many as are missing: then the cursor is exactly behind the last of the page.
        page = await context.ledger.sessions(kind="runtime", namespace=_NAMESPACE, cursor=cursor, limit=limit - len(found))
        entries = [await _read(context, project, session, None) for session in page.items]
        found += [entry for entry in entries if entry is not None and accept(entry)]
        cursor = page.next
        if cursor is None or len(found) == limit:
            return Page(tuple(found), cursor)


async def list_entry_versions(
    context: RuntimeContext, entry: AgentEntry, *, before: int | None, limit: int
) -> tuple[AgentEntry, ...]:
    """The versions of an agent below `before`, newest first."""
    newest = entry.version if before is None else min(before - 1, entry.version)
    numbers = range(newest, max(newest - limit, 0), -1)
    return tuple([await load_entry(context, entry.project, entry.id, number) for number in numbers])


async def update_agent(
    context: RuntimeContext,
    project: str,
    id_: str,
    change: Callable[[AgentEntry], Awaitable[AgentDefinition]],
    *,
    by: str,
    version: int | None = None,
) -> AgentEntry:
    """Store a content as the next version; the same content changes nothing.

    `change` computes it from the newest version, and again if another writer was faster. `version`: the version that the caller
    has seen; raises `DocumentConflict` if there is a newer one.
    """
    for attempt in range(_ATTEMPTS):
        entry = await load_entry(context, project, id_)
        _refuse_fixed(entry)
        if version is not None and version != entry.version:
            raise DocumentConflict("agent", expected=version, actual=entry.version)
        definition = await change(entry)
        if definition == entry.definition:
            return entry
        try:
            await _put(context, entry, definition, by)
        except DocumentConflict:
            if version is not None or attempt + 1 == _ATTEMPTS:
                raise
            continue
        return await load_entry(context, project, id_)
    raise AssertionError("the last attempt returns or raises")


async def archive_agent(context: RuntimeContext, project: str, id_: str, *, by: str) -> AgentEntry:
    """Keep an agent as it is: it begins no sessions any more. Archiving it again changes nothing."""
    entry = await load_entry(context, project, id_)
    if not entry.archived_at:
        _refuse_fixed(entry)

    def archive(current: LoadedRuntime) -> SessionDecision[None] | None:
        event = NewEvent(type=e.SESSION_ARCHIVED, body={}, actor=by)
        return None if current.record.is_archived else SessionDecision(None, events=(event,))

    await context.unit.update(id_, archive)
    return await load_entry(context, project, id_)


async def _put(context: RuntimeContext, entry: AgentEntry, definition: AgentDefinition, by: str) -> None:
    events = _describe(entry.name, definition, entry.version + 1, by)
    documents = (_document(entry.id, definition, entry.version, by),)
    await context.unit.update(entry.id, lambda _: SessionDecision(None, events=events, documents=documents))


def _describe(name: str, definition: AgentDefinition, version: int, by: str) -> tuple[NewEvent, ...]:
    body = {"name": name, "source": "", "model": definition.model, "version": version, "by": by}
    return (NewEvent(type=e.AGENT_DEFINED, body=body, actor=by),)


def _document(store: str, definition: AgentDefinition, expect: int, by: str) -> PutDocument:
    text = describe(msgspec.to_builtins(definition))
    return PutDocument(space=agent_space(store), path=DEFINITION_PATH, text=text, author=by, expect=expect)


async def _read(context: RuntimeContext, project: str, session: Session, version: int | None) -> AgentEntry | None:
    """The agent that owns a store; None if the session is no store of an agent of the project, or has no such version."""
    if session.kind != "runtime" or session.namespace != _NAMESPACE or session.status == DELETED:
        return None
    record = RuntimeRecords().read(session.raw)
    if record.project != project:
        return None
    found = await context.ledger.document(agent_space(session.id), DEFINITION_PATH, version=version)
    if found is None or found.text is None:
        return None
    definition = decode_agent(found.text, f"Version {found.version} of the agent {record.agent}")
    updated = max(found.time, record.archived_at) if version is None else found.time
    return AgentEntry(
        session.id,
        project,
        record.agent,
        found.version,
        definition,
        found.author,
        created_at=session.created_at,
        updated_at=updated,
        archived_at=record.archived_at,
    )


def _refuse_fixed(entry: AgentEntry) -> None:
    if entry.archived_at:
        raise UsageProblem("The agent is archived.", remedy="Create another one: an archived one is not changed.")
    if entry.is_from_file:
        raise UsageProblem(f"The agent {entry.name} is defined by a file or built in.", remedy="Change its file.")


def _make_name(title: str, key: str) -> str:
    """A name that no other agent has: readable, and the same for the same key."""
    readable = _OTHER.sub("-", title.lower()).strip("-")[:40].rstrip("-") or "agent"
    if key:
        return f"agent-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return f"{readable}-{new_id('', 8)}"
