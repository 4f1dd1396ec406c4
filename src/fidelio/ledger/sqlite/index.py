"""Keeps the search index behind the events: soon, in small steps, and never in anybody's way.

The index is a projection. Its transactions are not synced by themselves (the next append's sync carries them along), and after
a crash it simply goes on from the position it had reached.
"""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from typing import Literal

import apsw

from fidelio.ledger.codec import decode
from fidelio.ledger.terms import indexed, texts

Source = Literal["event", "document"]

STEP = 256
DELAY_S = 0.2

_EVENT = """
SELECT e.position, e.session, e.type, e.body, s.kind, s.parent FROM events AS e JOIN sessions AS s ON s.id = e.session
"""
_DOCUMENT = """
SELECT v.key, v.path, v.session, s.kind, s.parent, b.content, v.space
FROM document_versions AS v JOIN sessions AS s ON s.id = v.session LEFT JOIN blobs AS b ON b.digest = v.digest
"""
_INSERT = {
    "event": "INSERT INTO event_words (rowid, words, tags) VALUES (?, ?, ?)",
    "document": "INSERT INTO document_words (rowid, words, tags) VALUES (?, ?, ?)",
}
_DELETE = {
    "event": "INSERT INTO event_words (event_words, rowid, words, tags) VALUES ('delete', ?, ?, ?)",
    "document": "INSERT INTO document_words (document_words, rowid, words, tags) VALUES ('delete', ?, ?, ?)",
}


class Indexer:
    """Knows when a step is due; `step` carries one out on the writer's connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._due: float | None = time.monotonic()

    def wanted(self) -> None:
        """There may be something new: look at it after a short while, in which more may have come."""
        if self._due is None:
            self._due = time.monotonic() + DELAY_S

    def due_in(self) -> float | None:
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def step(self) -> None:
        # An error leaves the next step due a little later, so a full disk is not hammered.
        self._due = time.monotonic() + DELAY_S
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            more = advance(self._connection, STEP)
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.execute("PRAGMA synchronous = FULL")
        self._due = time.monotonic() if more else None


def advance(connection: apsw.Connection, most: int) -> bool:
    """Indexes up to `most` events and as many documents; says whether there may be more. Runs in the caller's transaction."""
    events = _advance_events(connection, most)
    documents = _advance_documents(connection, most)
    return most in (events, documents)


def reached(connection: apsw.Connection, source: Source) -> int:
    return int(connection.execute("SELECT reached FROM search_progress WHERE source = ?", (source,)).get)


def lags(connection: apsw.Connection) -> bool:
    newest: int = connection.execute("SELECT max(position) FROM events").get or 0
    return newest > reached(connection, "event")


@lru_cache(maxsize=4096)
def tag(kind: str, value: str) -> str:
    """A filter as one word: any session id or event type, made of letters that every tokeniser leaves whole."""
    return kind + hashlib.sha256(value.encode()).hexdigest()[:16]


def forget_event(connection: apsw.Connection, position: int) -> None:
    """Takes one event's words out of the index; its body must still be there, for they are found through it."""
    if position > reached(connection, "event"):
        return
    _, session, type_, body, kind, parent = connection.execute(f"{_EVENT} WHERE e.position = ?", (position,)).get
    if body is not None:
        connection.execute(_DELETE["event"], (position, _body_words(body), _tags(session, kind, parent, type_)))


def _advance_events(connection: apsw.Connection, most: int) -> int:
    since = reached(connection, "event")
    rows = connection.execute(f"{_EVENT} WHERE e.position > ? ORDER BY e.position LIMIT ?", (since, most)).fetchall()
    for position, session, type_, body, kind, parent in rows:
        if body is not None:
            connection.execute(_INSERT["event"], (position, _body_words(body), _tags(session, kind, parent, type_)))
    if rows:
        _reach(connection, "event", rows[-1][0])
    return len(rows)


def _advance_documents(connection: apsw.Connection, most: int) -> int:
    since = reached(connection, "document")
    rows = connection.execute(f"{_DOCUMENT} WHERE v.key > ? ORDER BY v.key LIMIT ?", (since, most)).fetchall()
    for key, path, session, kind, parent, content, space in rows:
        _forget_document(connection, space, path)
        if content is not None:
            connection.execute(_INSERT["document"], (key, document_words(path, content), _tags(session, kind, parent)))
        connection.execute(
            "UPDATE documents SET indexed = ? WHERE space = ? AND path = ?", (key if content is not None else None, space, path)
        )
    if rows:
        _reach(connection, "document", rows[-1][0])
    return len(rows)


def _forget_document(connection: apsw.Connection, space: str, path: str) -> None:
    """Only the newest version of a document is found; the one before it leaves the index."""
    indexed = connection.execute("SELECT indexed FROM documents WHERE space = ? AND path = ?", (space, path)).get
    if indexed is not None:
        row = connection.execute(f"{_DOCUMENT} WHERE v.key = ?", (indexed,)).get
        key, path, session, kind, parent, content, _ = row
        connection.execute(_DELETE["document"], (key, document_words(path, content), _tags(session, kind, parent)))


def document_fields(path: str, content: bytes) -> tuple[tuple[str, str], ...]:
    return (("path", path), ("text", content.decode()))


def document_words(path: str, content: bytes) -> str:
    return indexed(text for _, text in document_fields(path, content))


def _body_words(body: str) -> str:
    return indexed(texts(decode(body)))


def _tags(session: str, kind: str, parent: str | None, type_: str | None = None) -> str:
    found = [tag("s", session), tag("k", kind)]
    if parent is not None:
        found.append(tag("p", parent))
    if type_ is not None:
        found.append(tag("t", type_))
    return " ".join(found)


def _reach(connection: apsw.Connection, source: Source, position: int) -> None:
    connection.execute("UPDATE search_progress SET reached = ? WHERE source = ?", (position, source))
