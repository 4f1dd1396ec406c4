"""Keeps the search index behind the events: soon, in small steps, and never in anybody's way.

The index is a projection. Its transactions are not synced by themselves (the next append's sync carries them along), and after
a crash it simply goes on from the position it had reached.

Nearly all bodies are plain: nothing but ASCII, no escaped control characters. SQLite takes their words out by itself, a whole
step in one statement, while the interpreter serves the callers. The others are folded by `terms.words` first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Literal

import apsw

from fidelio.ledger.codec import decode
from fidelio.ledger.search import texts, words
from fidelio.ledger.sqlite.rows import Row, fetch, statement

Source = Literal["event", "document"]

STEP = 2048
# The index waits for a pause between commits, which usually comes soon, but not for longer than the second it promises.
PAUSE_S = 0.05
DEADLINE_S = 0.8
# A word for the tokeniser, but one that no search text can hold: a phrase never reaches from one field into the next.
BORDER = "\x01"

_EVENTS = "FROM events AS e JOIN sessions AS s ON s.id = e.session WHERE"
_PLAIN = "length(e.body) = octet_length(e.body) AND instr(e.body, '\\u') = 0"
_WORDS = statement(
    "coalesce((SELECT group_concat(t.atom,",
    f"' {BORDER} '",
    ") FROM json_tree(e.body) AS t WHERE t.type IN ('text', 'integer')), '')",
)
_TAGS = "'s' || hex(e.session) || ' k' || hex(s.kind) || ' t' || hex(e.type) || coalesce(' p' || hex(s.parent), '')"
_OTHERS = statement("SELECT e.position, e.body,", _TAGS, _EVENTS, "e.position > ? AND e.position <= ? AND NOT (", _PLAIN, ")")

_INSERT = "INSERT INTO event_words (rowid, words, tags)"
_INSERT_PLAIN = statement(
    _INSERT, "SELECT e.position,", _WORDS, ",", _TAGS, _EVENTS, "e.position > ? AND e.position <= ? AND", _PLAIN
)
_INSERT_OTHER = statement(_INSERT, "VALUES (?, ?, ?)")
_DELETE = "INSERT INTO event_words (event_words, rowid, words, tags)"
_DELETE_PLAIN = statement(
    _DELETE, "SELECT 'delete', e.position,", _WORDS, ",", _TAGS, _EVENTS, "e.position > ? AND e.position <= ? AND", _PLAIN
)
_DELETE_OTHER = statement(_DELETE, "VALUES ('delete', ?, ?, ?)")

# Taking an event's words out of their places costs about as much as writing anew this many events of the index.
REWRITES_PER_EVENT = 200
_KNOWN = "(SELECT value FROM json_each(?)) AND e.position <= ? AND e.body IS NOT NULL"
_OF_SESSIONS = statement("e.session IN", _KNOWN)
_OF_REST = statement("e.session NOT IN", _KNOWN)
# In the order of the events: FTS writes out what it has gathered whenever a smaller number comes.
_AS_PLAIN = statement("AND", _PLAIN, "ORDER BY e.position")
_AS_OTHER = statement("AND NOT (", _PLAIN, ") ORDER BY e.position")
_HOW_MANY = statement("SELECT count(*) FROM events AS e WHERE", _OF_SESSIONS)
_DELETE_SESSIONS = statement(_DELETE, "SELECT 'delete', e.position,", _WORDS, ",", _TAGS, _EVENTS, _OF_SESSIONS, _AS_PLAIN)
_INSERT_REST = statement(_INSERT, "SELECT e.position,", _WORDS, ",", _TAGS, _EVENTS, _OF_REST, _AS_PLAIN)
_OTHERS_OF_SESSIONS = statement("SELECT e.position, e.body,", _TAGS, _EVENTS, _OF_SESSIONS, _AS_OTHER)
_OTHERS_OF_REST = statement("SELECT e.position, e.body,", _TAGS, _EVENTS, _OF_REST, _AS_OTHER)

_DOCUMENT = """
SELECT v.key, v.path, v.session, s.kind, s.parent, b.content, v.space
FROM document_versions AS v JOIN sessions AS s ON s.id = v.session LEFT JOIN blobs AS b ON b.digest = v.digest
"""
_INSERT_DOCUMENT = "INSERT INTO document_words (rowid, words, tags) VALUES (?, ?, ?)"
_DELETE_DOCUMENT = "INSERT INTO document_words (document_words, rowid, words, tags) VALUES ('delete', ?, ?, ?)"


class Indexer:
    """Knows when a step is due; `step` carries one out on the writer's connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        # Due at once: whoever wrote before may have ended before the index had caught up.
        self._first: float | None = 0.0
        self._last = 0.0
        self._relaxed = False

    def wanted(self) -> None:
        """There is something new, or there may be."""
        self._last = time.monotonic()
        if self._first is None:
            self._first = self._last

    def due_in(self) -> float | None:
        """Seconds until the next step, as things are; None when there is nothing to do."""
        if self._first is None:
            return None
        return max(0.0, min(self._last + PAUSE_S, self._first + DEADLINE_S) - time.monotonic())

    def step(self) -> None:
        self._relaxed = True
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("BEGIN IMMEDIATE")
        more = advance(self._connection, STEP)
        self._connection.execute("COMMIT")
        self.insist_on_sync()
        if not more:
            self._first = None

    def give_up(self) -> None:
        """After an error: the next step comes a little later, so that a full disk is not hammered."""
        self._first = self._last = time.monotonic()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def insist_on_sync(self) -> None:
        """Whatever happened to a step: a caller's commit is never written under its relaxed setting."""
        if self._relaxed:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._relaxed = False


def advance(connection: apsw.Connection, most: int) -> bool:
    """Indexes up to `most` events and as many documents; says whether there may be more. Runs in the caller's transaction."""
    since = reached(connection, "event")
    _run_for_events(connection, since, since + most, _INSERT_PLAIN, _INSERT_OTHER)
    newest = _newest(connection)
    until = min(newest, since + most)
    if until > since:
        _reach(connection, "event", until)
    return _advance_documents(connection, most) == most or until < newest


def reached(connection: apsw.Connection, source: Source) -> int:
    return int(connection.execute("SELECT reached FROM search_progress WHERE source = ?", (source,)).get)


def lags(connection: apsw.Connection) -> bool:
    return _newest(connection) > reached(connection, "event")


def tag(kind: str, value: str) -> str:
    """A filter as one word: any session id or event type, in letters and digits that the tokeniser leaves whole."""
    return kind + value.encode().hex()


def forget_event(connection: apsw.Connection, position: int) -> None:
    """Takes one event's words out of the index; its body must still be there, for they are found through it."""
    if position <= reached(connection, "event"):
        _run_for_events(connection, position - 1, position, _DELETE_PLAIN, _DELETE_OTHER)


def forget_sessions(connection: apsw.Connection, sessions: str) -> None:
    """Takes all words of these sessions (a JSON list of ids) out of the index and out of the bytes it lies in.

    A few are taken from their places. More than that are struck off, and then the index is written anew without them: a
    thousand sessions would else hold the write lock for a quarter of a minute. Where most of it goes, only the rest is kept.
    """
    known = reached(connection, "event")
    erased = connection.execute(_HOW_MANY, (sessions, known)).get
    if erased * REWRITES_PER_EVENT <= known:
        _forget_sessions(connection, sessions, known)
    elif erased * 2 < known:
        _strike_off(connection, sessions, known)
    else:
        _keep_rest(connection, sessions, known)


def _strike_off(connection: apsw.Connection, sessions: str, known: int) -> None:
    connection.execute("INSERT INTO event_words (event_words, rank) VALUES ('secure-delete', 0)")
    _forget_sessions(connection, sessions, known)
    connection.execute("INSERT INTO event_words (event_words, rank) VALUES ('secure-delete', 1)")
    connection.execute("INSERT INTO event_words (event_words) VALUES ('optimize')")


def _keep_rest(connection: apsw.Connection, sessions: str, known: int) -> None:
    connection.execute("INSERT INTO event_words (event_words) VALUES ('delete-all')")
    connection.execute(_INSERT_REST, (sessions, known))
    connection.executemany(_INSERT_OTHER, _folded(fetch(connection, _OTHERS_OF_REST, (sessions, known))))


def _forget_sessions(connection: apsw.Connection, sessions: str, known: int) -> None:
    connection.execute(_DELETE_SESSIONS, (sessions, known))
    others = fetch(connection, _OTHERS_OF_SESSIONS, (sessions, known))
    connection.executemany(_DELETE_OTHER, _folded(others))


def _run_for_events(connection: apsw.Connection, after: int, until: int, for_plain: str, for_others: str) -> None:
    connection.execute(for_plain, (after, until))
    connection.executemany(for_others, _folded(fetch(connection, _OTHERS, (after, until))))


def _folded(rows: Sequence[Row]) -> Iterator[tuple[int, str, str]]:
    return ((position, indexed(texts(decode(body))), tags) for position, body, tags in rows)


def _newest(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT max(position) FROM events").get or 0)


def _advance_documents(connection: apsw.Connection, most: int) -> int:
    since = reached(connection, "document")
    rows = fetch(connection, statement(_DOCUMENT, "WHERE v.key > ? ORDER BY v.key LIMIT ?"), (since, most))
    for key, path, session, kind, parent, content, space in rows:
        _forget_document(connection, space, path)
        if content is not None:
            connection.execute(_INSERT_DOCUMENT, (key, document_words(path, content), _tags(session, kind, parent)))
        connection.execute(
            "UPDATE documents SET indexed = ? WHERE space = ? AND path = ?", (key if content is not None else None, space, path)
        )
    if rows:
        _reach(connection, "document", rows[-1][0])
    return len(rows)


def forget_version(connection: apsw.Connection, key: int, space: str, path: str) -> None:
    """Takes one version of a document out of the index, if it is the one that is found; its text must still be there."""
    if connection.execute("SELECT indexed FROM documents WHERE space = ? AND path = ?", (space, path)).get == key:
        _forget_document(connection, space, path)
        connection.execute("UPDATE documents SET indexed = NULL WHERE space = ? AND path = ?", (space, path))


def _forget_document(connection: apsw.Connection, space: str, path: str) -> None:
    """Only the newest version of a document is found; the one before it leaves the index."""
    indexed = connection.execute("SELECT indexed FROM documents WHERE space = ? AND path = ?", (space, path)).get
    if indexed is not None:
        row = connection.execute(statement(_DOCUMENT, "WHERE v.key = ?"), (indexed,)).get
        key, path, session, kind, parent, content, _ = row
        connection.execute(_DELETE_DOCUMENT, (key, document_words(path, content), _tags(session, kind, parent)))


def document_fields(path: str, content: bytes) -> tuple[tuple[str, str], ...]:
    return (("path", path), ("text", content.decode()))


def document_words(path: str, content: bytes) -> str:
    return indexed([text for _, text in document_fields(path, content)])


def indexed(fields: Sequence[str]) -> str:
    """What the index is given for these fields; its tokeniser makes exactly the words of `terms.words` of it."""
    return f" {BORDER} ".join([" ".join(words(field)) for field in fields])


def _tags(session: str, kind: str, parent: str | None) -> str:
    found = [tag("s", session), tag("k", kind)]
    return " ".join(found if parent is None else [*found, tag("p", parent)])


def _reach(connection: apsw.Connection, source: Source, position: int) -> None:
    connection.execute("UPDATE search_progress SET reached = ? WHERE source = ?", (position, source))
