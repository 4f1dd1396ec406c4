"""FTS5 index of events and documents, updated in the background in small steps.

The index is a projection. Its transactions are not synced (the sync of the next append covers them), and after a crash it
continues from the stored position.

Nearly all bodies are plain: only ASCII and no escaped control characters. SQLite extracts their words itself, a whole step in a
single statement and without the GIL. All other bodies are tokenized by `tokenize` first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Literal

import apsw

from fidelio.errors.ledger import RESTORE, LedgerDamaged
from fidelio.ledger.model import MARK, decode_body
from fidelio.ledger.search import iter_fields, tokenize
from fidelio.ledger.sqlite.schema import Row, fetch, join_sql, read_newest_position

Source = Literal["event", "document"]

STEP_SIZE = 2048
# A step waits for a pause between commits, but not longer than the deadline: an event is searchable within a second.
PAUSE_S = 0.05
DEADLINE_S = 0.8
# A token that no query can contain, so that a phrase never matches across two fields.
FIELD_SEPARATOR = "\x01"

_EVENTS = "FROM events AS e JOIN sessions AS s ON s.id = e.session WHERE"
_PLAIN = "length(e.body) = octet_length(e.body) AND instr(e.body, '\\u') = 0"
_WORDS = join_sql(
    "coalesce((SELECT group_concat(t.atom,",
    f"' {FIELD_SEPARATOR} '",
    # Nobody searches for the digests that the ledger has added to a body.
    f") FROM json_tree(json_remove(e.body, '$.{MARK}')) AS t WHERE t.type IN ('text', 'integer')), '')",
)
_TAGS = join_sql(
    "'s' || hex(e.session) || ' k' || hex(s.kind) || ' n' || hex(s.namespace) || ' t' || hex(e.type)",
    "|| coalesce(' p' || hex(s.parent), '')",
)
_OTHERS = join_sql("SELECT e.position, e.body,", _TAGS, _EVENTS, "e.position > ? AND e.position <= ? AND NOT (", _PLAIN, ")")

_INSERT = "INSERT INTO event_words (rowid, words, tags)"
_INSERT_PLAIN = join_sql(
    _INSERT, "SELECT e.position,", _WORDS, ",", _TAGS, _EVENTS, "e.position > ? AND e.position <= ? AND", _PLAIN
)
_INSERT_OTHER = join_sql(_INSERT, "VALUES (?, ?, ?)")
_DELETE = "INSERT INTO event_words (event_words, rowid, words, tags)"
_DELETE_PLAIN = join_sql(
    _DELETE, "SELECT 'delete', e.position,", _WORDS, ",", _TAGS, _EVENTS, "e.position > ? AND e.position <= ? AND", _PLAIN
)
_DELETE_OTHER = join_sql(_DELETE, "VALUES ('delete', ?, ?, ?)")

# Removing the words of an event costs about as much as rewriting this many events of the index.
REWRITES_PER_EVENT = 200
_IN_SESSIONS = "(SELECT value FROM json_each(?)) AND e.position <= ? AND e.body IS NOT NULL"
_OF_SESSIONS = join_sql("e.session IN", _IN_SESSIONS)
_OF_REST = join_sql("e.session NOT IN", _IN_SESSIONS)
# Ordered by position: FTS5 flushes its pending data whenever a rowid is smaller than the previous rowid.
_AS_PLAIN = join_sql("AND", _PLAIN, "ORDER BY e.position")
_AS_OTHER = join_sql("AND NOT (", _PLAIN, ") ORDER BY e.position")
_COUNT_EVENTS = join_sql("SELECT count(*) FROM events AS e WHERE", _OF_SESSIONS)
_DELETE_SESSIONS = join_sql(_DELETE, "SELECT 'delete', e.position,", _WORDS, ",", _TAGS, _EVENTS, _OF_SESSIONS, _AS_PLAIN)
_INSERT_REST = join_sql(_INSERT, "SELECT e.position,", _WORDS, ",", _TAGS, _EVENTS, _OF_REST, _AS_PLAIN)
_OTHERS_OF_SESSIONS = join_sql("SELECT e.position, e.body,", _TAGS, _EVENTS, _OF_SESSIONS, _AS_OTHER)
_OTHERS_OF_REST = join_sql("SELECT e.position, e.body,", _TAGS, _EVENTS, _OF_REST, _AS_OTHER)

_DOCUMENT = """
SELECT v.key, v.path, v.session, s.kind, s.namespace, s.parent, b.content, v.space
FROM document_versions AS v JOIN sessions AS s ON s.id = v.session LEFT JOIN blobs AS b ON b.digest = v.digest
"""
_INSERT_DOCUMENT = "INSERT INTO document_words (rowid, words, tags) VALUES (?, ?, ?)"
_DELETE_DOCUMENT = "INSERT INTO document_words (document_words, rowid, words, tags) VALUES ('delete', ?, ?, ?)"


class Indexer:
    """Schedules and runs the steps of the index on the connection of the writer."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        # Due at once: the last process may have ended before it indexed all events.
        self._first_scheduled_at: float | None = 0.0
        self._last_scheduled_at = 0.0
        self._is_sync_relaxed = False

    def schedule(self) -> None:
        """Schedule a step because there may be new events."""
        self._last_scheduled_at = time.monotonic()
        if self._first_scheduled_at is None:
            self._first_scheduled_at = self._last_scheduled_at

    def due_in(self) -> float | None:
        """Seconds until the next step; None if none is scheduled."""
        if self._first_scheduled_at is None:
            return None
        return max(0.0, min(self._last_scheduled_at + PAUSE_S, self._first_scheduled_at + DEADLINE_S) - time.monotonic())

    def step(self) -> None:
        self._is_sync_relaxed = True
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("BEGIN IMMEDIATE")
        has_more = index_step(self._connection, STEP_SIZE)
        self._connection.execute("COMMIT")
        self.restore_sync()
        if not has_more:
            self._first_scheduled_at = None

    def back_off(self) -> None:
        """Roll back after an error and delay the next step, so that a full disk does not cause a busy loop."""
        self._first_scheduled_at = self._last_scheduled_at = time.monotonic()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def restore_sync(self) -> None:
        """Set `PRAGMA synchronous` back to FULL, also after a failed step: the commits of callers must be durable."""
        if self._is_sync_relaxed:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._is_sync_relaxed = False


def index_step(connection: apsw.Connection, limit: int) -> bool:
    """Index up to `limit` events and documents in the transaction of the caller; return whether there may be more."""
    after = read_progress(connection, "event")
    _update_events(connection, after, after + limit, _INSERT_PLAIN, _INSERT_OTHER)
    newest = read_newest_position(connection)
    until = min(newest, after + limit)
    if until > after:
        _store_progress(connection, "event", until)
    return _index_documents(connection, limit) == limit or until < newest


def read_progress(connection: apsw.Connection, source: Source) -> int:
    reached = connection.execute("SELECT reached FROM search_progress WHERE source = ?", (source,)).get
    if type(reached) is not int:
        raise LedgerDamaged("The ledger is damaged: the progress of its search index is missing.", remedy=RESTORE)
    return reached


def is_behind(connection: apsw.Connection) -> bool:
    return read_newest_position(connection) > read_progress(connection, "event")


def encode_tag(kind: str, value: str) -> str:
    """Encode a filter value (session id, event type) as a token of letters and digits that the tokenizer does not split."""
    return kind + value.encode().hex()


def remove_event(connection: apsw.Connection, position: int) -> None:
    """Remove an event from the index. Its body must still be stored, because the words are computed from it."""
    if position <= read_progress(connection, "event"):
        _update_events(connection, position - 1, position, _DELETE_PLAIN, _DELETE_OTHER)


def remove_sessions(connection: apsw.Connection, sessions: str) -> None:
    """Remove all words of sessions (a JSON list of ids) from the index and from its pages on disk.

    A few events are removed in place. Many are removed without secure-delete, and then the index is optimized, which rewrites
    it; otherwise 1,000 sessions would hold the write lock for about 15 seconds. If most events go, the index is rebuilt from
    the remaining events.
    """
    indexed_until = read_progress(connection, "event")
    erased_count = connection.execute(_COUNT_EVENTS, (sessions, indexed_until)).get
    if erased_count * REWRITES_PER_EVENT <= indexed_until:
        _remove_from_index(connection, sessions, indexed_until)
    elif erased_count * 2 < indexed_until:
        _remove_and_optimize(connection, sessions, indexed_until)
    else:
        _rebuild_without(connection, sessions, indexed_until)


def _remove_and_optimize(connection: apsw.Connection, sessions: str, indexed_until: int) -> None:
    connection.execute("INSERT INTO event_words (event_words, rank) VALUES ('secure-delete', 0)")
    _remove_from_index(connection, sessions, indexed_until)
    connection.execute("INSERT INTO event_words (event_words, rank) VALUES ('secure-delete', 1)")
    connection.execute("INSERT INTO event_words (event_words) VALUES ('optimize')")


def _rebuild_without(connection: apsw.Connection, sessions: str, indexed_until: int) -> None:
    connection.execute("INSERT INTO event_words (event_words) VALUES ('delete-all')")
    connection.execute(_INSERT_REST, (sessions, indexed_until))
    connection.executemany(_INSERT_OTHER, _to_index_rows(fetch(connection, _OTHERS_OF_REST, (sessions, indexed_until))))


def _remove_from_index(connection: apsw.Connection, sessions: str, indexed_until: int) -> None:
    connection.execute(_DELETE_SESSIONS, (sessions, indexed_until))
    others = fetch(connection, _OTHERS_OF_SESSIONS, (sessions, indexed_until))
    connection.executemany(_DELETE_OTHER, _to_index_rows(others))


def _update_events(connection: apsw.Connection, after: int, until: int, for_plain: str, for_others: str) -> None:
    connection.execute(for_plain, (after, until))
    connection.executemany(for_others, _to_index_rows(fetch(connection, _OTHERS, (after, until))))


def _to_index_rows(rows: Sequence[Row]) -> Iterator[tuple[int, str, str]]:
    bodies = ((position, decode_body(raw), tags) for position, raw, tags in rows)
    return ((position, encode_words([text for _, text in iter_fields(body)]), tags) for position, body, tags in bodies)


def _index_documents(connection: apsw.Connection, limit: int) -> int:
    after = read_progress(connection, "document")
    rows = fetch(connection, join_sql(_DOCUMENT, "WHERE v.key > ? ORDER BY v.key LIMIT ?"), (after, limit))
    for key, path, *session, content, space in rows:
        _remove_document(connection, space, path)
        if content is not None:
            connection.execute(_INSERT_DOCUMENT, (key, encode_document(path, content), _build_tags(*session)))
        connection.execute(
            "UPDATE documents SET indexed = ? WHERE space = ? AND path = ?", (key if content is not None else None, space, path)
        )
    if rows:
        _store_progress(connection, "document", rows[-1][0])
    return len(rows)


def remove_version(connection: apsw.Connection, key: int, space: str, path: str) -> None:
    """Remove a version of a document if it is the indexed version. Its text must still be stored."""
    if connection.execute("SELECT indexed FROM documents WHERE space = ? AND path = ?", (space, path)).get == key:
        _remove_document(connection, space, path)
        connection.execute("UPDATE documents SET indexed = NULL WHERE space = ? AND path = ?", (space, path))


def _remove_document(connection: apsw.Connection, space: str, path: str) -> None:
    """Remove the indexed version of a document, if any."""
    indexed = connection.execute("SELECT indexed FROM documents WHERE space = ? AND path = ?", (space, path)).get
    if indexed is not None:
        row = connection.execute(join_sql(_DOCUMENT, "WHERE v.key = ?"), (indexed,)).get
        key, path, *session, content, _ = row
        connection.execute(_DELETE_DOCUMENT, (key, encode_document(path, content), _build_tags(*session)))


def encode_document(path: str, content: bytes) -> str:
    return encode_words([path, content.decode()])


def encode_words(fields: Sequence[str]) -> str:
    """Join the words of fields into a text from which FTS5 tokenizes exactly the words of `tokenize`."""
    return f" {FIELD_SEPARATOR} ".join([" ".join(tokenize(field)) for field in fields])


def _build_tags(session: str, kind: str, namespace: str, parent: str | None) -> str:
    tags = [encode_tag("s", session), encode_tag("k", kind), encode_tag("n", namespace)]
    return " ".join(tags if parent is None else [*tags, encode_tag("p", parent)])


def _store_progress(connection: apsw.Connection, source: Source, position: int) -> None:
    connection.execute("UPDATE search_progress SET reached = ? WHERE source = ?", (position, source))
