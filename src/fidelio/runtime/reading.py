"""Runtime sessions for readers: the sessions of a project, and their events with all texts.

A page of events stays small because a long text is only referred to. Whoever shows an event needs the text itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.ledger import Ledger
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event, Page, Session
from fidelio.ledger.unit_of_work import LoadedSession
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.sessions import session_namespace
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

_PAGE = 100
# Keys of bodies whose value is a stored text; the text of the first two is JSON.
_JSON_TEXTS = ("input", "result")
_TEXTS = ("text", "summary_text")


class SessionReader:
    """The stored sessions and events, for surfaces: reading only."""

    def __init__(self, context: RuntimeContext) -> None:
        self._ledger, self._unit = context.ledger, context.unit

    async def load(self, session: str) -> LoadedRuntime:
        return await self._unit.load(session)

    async def session(self, session: str) -> Session:
        return await self._ledger.session(session)

    async def find_named(self, name: str, project: str) -> Session:
        """The session with this name in a project. Raises `SessionNotFound`."""
        return await self._ledger.session_by_name(name, namespace=session_namespace(project))

    async def sessions(self, project: str, *, cursor: str | None, limit: int, oldest_first: bool = False) -> Page[Session]:
        """A page of the sessions of a project."""
        namespace = session_namespace(project)
        return await self._ledger.sessions(
            kind="runtime", namespace=namespace, cursor=cursor, limit=limit, oldest_first=oldest_first
        )

    async def events(self, session: str, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000) -> tuple[Event, ...]:
        """The events of a session behind a number, in order."""
        return await self._ledger.events(session, after=after, types=types, limit=limit)

    def follow(self, *, after: int) -> AsyncIterator[Event]:
        """Yield the events of all sessions as they are appended; never ends."""
        return self._ledger.follow(after=after)

    async def wait(self, *, after: int, timeout: float) -> int:
        """The newest position as soon as it exceeds `after`, at the latest after `timeout` seconds."""
        return await self._ledger.wait(after=after, timeout=timeout)


async def list_sessions(
    context: RuntimeContext, project: str, *, ended: bool = False
) -> AsyncIterator[tuple[Session, RuntimeRecord]]:
    """The sessions of a project, newest first; those that have ended only if they are wanted."""
    cursor: str | None = None
    while True:
        page = await context.ledger.sessions(kind="runtime", namespace=session_namespace(project), cursor=cursor, limit=_PAGE)
        for session in page.items:
            if session.status != DELETED and (ended or session.status != "terminated"):
                yield session, RuntimeRecords().read(session.raw)
        cursor = page.next
        if cursor is None:
            return


async def list_descendants(context: RuntimeContext, session: str) -> list[LoadedRuntime]:
    """The sessions that a session has delegated to, and those below them, oldest first; without deleted ones."""
    found: list[LoadedRuntime] = []
    parents = [session]
    while parents:
        page = await context.ledger.sessions(kind="runtime", parent=parents.pop(0), limit=_PAGE)
        for child in reversed(page.items):
            if child.status != DELETED:
                found.append(LoadedSession(child, await context.unit.load_record(child)))
                parents.append(child.id)
    return sorted(found, key=lambda loaded: loaded.session.created_at)


async def find_newest_session(context: RuntimeContext, project: str, agent: str) -> Session | None:
    """The newest session of an agent that can go on, without those that it has delegated to."""
    async for session, record in list_sessions(context, project):
        if record.agent == agent and record.agent_version and not (record.depth or record.is_archived):
            return session
    return None


async def load_open_calls(context: RuntimeContext, session: str, *, until: int) -> list[Event]:
    """The events of the calls without a result that were made up to an event."""
    record = (await context.unit.load(session)).record
    found: list[Event] = []
    for call in record.wakes.open_calls:
        if call.seq <= until:
            found += await context.ledger.events(session, after=call.seq - 1, limit=1)
    return found


async def load_body(context: RuntimeContext, event: Event) -> dict[str, Any]:
    """The body of an event with its texts: `content` as blocks, `input` and `result` as values. Images have no data."""
    body, ledger = event.body, context.ledger
    for key in _JSON_TEXTS:
        if _is_stored(body.get(key)):
            text = await load_text(ledger, body[key])
            body[key] = text if body.get("form") == "text" else _decode(text)
    for key in _TEXTS:
        if _is_stored(body.get(key)):
            body[key] = await load_text(ledger, body[key])
    if isinstance(body.get("content"), list):
        body["content"] = [await _load_block(ledger, block) for block in body["content"] if isinstance(block, dict)]
    return body


async def load_whole_body(context: RuntimeContext, event: Event) -> dict[str, Any]:
    """The body of an event with its texts: results as texts, inputs as values, images with their data."""
    body, ledger = event.body, context.ledger
    for key in ("result", "text", "rubric"):
        if _is_stored(body.get(key)):
            body[key] = await load_text(ledger, body[key])
    if _is_stored(body.get("input")):
        body["input"] = _decode(await load_text(ledger, body["input"]))
    for key in ("content", "images"):
        if isinstance(body.get(key), list):
            body[key] = [await _load_whole_block(ledger, block) for block in body[key] if isinstance(block, dict)]
    return body


def measure_texts(body: Mapping[str, Any]) -> int:
    """How many bytes `load_whole_body` adds to a body."""
    values = [body.get(key) for key in ("result", "text", "rubric", "input")]
    for key in ("content", "images"):
        found = body.get(key)
        blocks = [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []
        values += [block.get("stored") or (block.get("source") or {}).get("stored") for block in blocks]
    return sum(int(value["size"]) for value in values if isinstance(value, dict) and _is_stored(value))


async def _load_whole_block(ledger: Ledger, block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "image":
        source = block.get("source") or {}
        data = await load_text(ledger, source["stored"]) if "stored" in source else source.get("data", "")
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": source.get("media_type", "image/png"), "data": data},
        }
    return {"type": "text", "text": await load_text(ledger, block["stored"]) if "stored" in block else block.get("text", "")}


def join_content(body: dict[str, Any]) -> str:
    """The texts of a message; an image is named by its type."""
    blocks = body.get("content") or ()
    return "\n".join(block.get("text") or f"({block.get('media_type', 'image')})" for block in blocks)


async def _load_block(ledger: Ledger, block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "image":
        return {"type": "image", "media_type": (block.get("source") or {}).get("media_type", "image")}
    text = await load_text(ledger, block["stored"]) if "stored" in block else block.get("text", "")
    return {"type": "text", "text": text}


def _is_stored(value: Any) -> bool:
    return isinstance(value, dict) and "text" in value and "size" in value


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
