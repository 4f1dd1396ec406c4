"""Schema and migrations of the SQLite ledger, its column lists, and functions that run statements.

`MIGRATIONS[n]` leads from version n to n + 1. A new file runs all of them, so every migration is tested whenever a ledger is
created. A released migration is never edited: append another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from fidelio.errors import SchemaMismatch

APPLICATION_ID = 0x46644C67  # "FdLg", by which `file` and `read_version` recognize a ledger

Row = tuple[Any, ...]

EVENT = "position, session, seq, id, type, actor, time, body, salt, digest, hash"
REQUEST = (
    "id, session, kind, about, question, options, subject, detail, state, answer, answered_by, channel, assurance,"
    " opened_at, closed_at, expires_at"
)

_FIRST = """
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT,
    parent TEXT,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    head BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX sessions_by_name ON sessions (namespace, name) WHERE name IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_kind ON sessions (kind);
CREATE INDEX sessions_by_status ON sessions (status);
CREATE INDEX sessions_by_namespace ON sessions (namespace);
CREATE INDEX sessions_by_kind_status ON sessions (kind, status);
CREATE INDEX sessions_by_namespace_kind ON sessions (namespace, kind);
CREATE INDEX sessions_by_namespace_status ON sessions (namespace, status);
CREATE INDEX sessions_by_namespace_kind_status ON sessions (namespace, kind, status);

CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    actor TEXT NOT NULL,
    time INTEGER NOT NULL,
    body TEXT,
    salt BLOB,
    digest BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_by_session ON events (session, seq);

CREATE TABLE requests (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    about TEXT NOT NULL,
    question TEXT NOT NULL,
    options TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    state TEXT NOT NULL,
    answer TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    channel TEXT NOT NULL,
    assurance TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    expires_at INTEGER
) STRICT;
CREATE UNIQUE INDEX requests_by_subject ON requests (session, about);
CREATE INDEX requests_by_state ON requests (state);
CREATE INDEX requests_by_session ON requests (session, state);

CREATE TABLE blobs (digest TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE event_blobs (digest TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (digest, position))
    STRICT, WITHOUT ROWID;
CREATE INDEX event_blobs_by_position ON event_blobs (position);

CREATE TABLE documents (
    space TEXT NOT NULL,
    path TEXT NOT NULL,
    version INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    indexed INTEGER,
    PRIMARY KEY (space, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE document_versions (
    key INTEGER PRIMARY KEY,
    space TEXT NOT NULL,
    path TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest TEXT,
    author TEXT NOT NULL,
    session TEXT NOT NULL,
    time INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX document_versions_by_path ON document_versions (space, path, version);
CREATE INDEX document_versions_by_digest ON document_versions (digest) WHERE digest IS NOT NULL;

CREATE TABLE jobs (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    about TEXT,
    due INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    state TEXT NOT NULL,
    error TEXT NOT NULL,
    waiting INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_that_wait ON jobs (session, kind, about) WHERE waiting AND about IS NOT NULL;
CREATE INDEX jobs_by_lane ON jobs (session, kind, state, due);
CREATE INDEX jobs_by_due ON jobs (state, due);
CREATE TABLE lanes (session TEXT NOT NULL, kind TEXT NOT NULL, ready_at INTEGER NOT NULL, PRIMARY KEY (session, kind))
    STRICT, WITHOUT ROWID;
CREATE INDEX lanes_by_readiness ON lanes (kind, ready_at);
CREATE TABLE leases (
    session TEXT PRIMARY KEY,
    fence INTEGER NOT NULL,
    job TEXT,
    owner TEXT NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE search_progress (source TEXT PRIMARY KEY, reached INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO search_progress VALUES ('event', 0), ('document', 0);
CREATE VIRTUAL TABLE event_words USING fts5 (
    words, tags, content='', columnsize=0, prefix='1 2', tokenize="ascii tokenchars '\x01'"
);
CREATE VIRTUAL TABLE document_words USING fts5 (
    words, tags, content='', columnsize=0, prefix='1 2', tokenize="ascii tokenchars '\x01'"
);
CREATE VIRTUAL TABLE event_vocabulary USING fts5vocab (event_words, instance);
CREATE VIRTUAL TABLE document_vocabulary USING fts5vocab (document_words, instance);
INSERT INTO event_words (event_words, rank) VALUES ('secure-delete', 1);
INSERT INTO document_words (document_words, rank) VALUES ('secure-delete', 1);
"""

# The rows of deleted sessions stay, so lists without a status filter need partial indexes that exclude them. The last index
# finds the documents of a session.
_SECOND = """
DROP INDEX sessions_by_kind;
DROP INDEX sessions_by_namespace;
DROP INDEX sessions_by_namespace_kind;
CREATE INDEX sessions_there ON sessions (key) WHERE status <> 'deleted';
CREATE INDEX sessions_by_kind ON sessions (kind) WHERE status <> 'deleted';
CREATE INDEX sessions_by_namespace ON sessions (namespace) WHERE status <> 'deleted';
CREATE INDEX sessions_by_namespace_kind ON sessions (namespace, kind) WHERE status <> 'deleted';
CREATE INDEX sessions_by_name_alone ON sessions (name) WHERE name IS NOT NULL;
CREATE INDEX document_versions_by_session ON document_versions (session);
"""

# Every change of a status rewrites all indexes that depend on it. Lists that only exclude deleted sessions therefore use a
# column of their own, set by a trigger because an older release may have the file open. Lists that are never filtered by status
# lose that index, and the requests of a session are found by `requests_by_subject`.
_THIRD = """
ALTER TABLE sessions ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET deleted = 1 WHERE status = 'deleted';
DROP INDEX sessions_there;
DROP INDEX sessions_by_kind;
DROP INDEX sessions_by_namespace;
DROP INDEX sessions_by_namespace_kind;
DROP INDEX sessions_by_namespace_status;
DROP INDEX requests_by_session;
CREATE TRIGGER sessions_gone AFTER UPDATE OF status ON sessions WHEN NEW.status = 'deleted' AND NEW.deleted = 0
    BEGIN UPDATE sessions SET deleted = 1 WHERE key = NEW.key; END;
CREATE INDEX sessions_there ON sessions (key) WHERE deleted = 0;
CREATE INDEX sessions_by_kind ON sessions (kind) WHERE deleted = 0;
CREATE INDEX sessions_by_namespace ON sessions (namespace) WHERE deleted = 0;
CREATE INDEX sessions_by_namespace_kind ON sessions (namespace, kind) WHERE deleted = 0;
"""

# Rows of the search index have a tag for the namespace of their session. The index is emptied here and filled again in the
# background.
_FOURTH = """
INSERT INTO event_words (event_words) VALUES ('delete-all');
INSERT INTO document_words (document_words) VALUES ('delete-all');
UPDATE search_progress SET reached = 0 WHERE source IN ('event', 'document');
UPDATE documents SET indexed = NULL;
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _SECOND, _THIRD, _FOURTH)
VERSION = len(MIGRATIONS)


def migrate(connection: apsw.Connection, path: str) -> None:
    """Migrate a new or older file to `VERSION`; raise `SchemaMismatch` for a newer file or that of another program."""
    if read_version(connection, path) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # The version is read again under the lock: another process may have migrated the file meanwhile.
        for step in MIGRATIONS[read_version(connection, path) :]:
            run_script(connection, step)
        run_script(connection, f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def read_version(connection: apsw.Connection, path: str) -> int:
    """Read the schema version, 0 for a new file; raise `SchemaMismatch` for a newer file or that of another program."""
    application, found, tables = connection.execute(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),"
        " (SELECT count(*) FROM sqlite_schema)"
    ).get
    if application != APPLICATION_ID and (application or found or tables):
        raise SchemaMismatch(f"{path} is the database of another program.", remedy="Choose another home with --home DIR.")
    if found > VERSION:
        raise SchemaMismatch(
            f"{path} has schema version {found}; this Fidelio knows up to {VERSION}.", remedy="Update Fidelio to use it."
        )
    return int(found)


def run_script(connection: apsw.Connection, script: str) -> None:
    """Run several statements to their end; apsw stops at the first row unless it is consumed."""
    for _ in connection.execute(script):
        pass


def join_sql(*fragments: str) -> str:
    """Join SQL fragments that are constants of this package; values are always bound as parameters."""
    return " ".join(fragments)


def fetch(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> list[Row]:
    rows: list[Row] = connection.execute(statement, values).fetchall()
    return rows


def read_newest_position(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT max(position) FROM events").get or 0)
