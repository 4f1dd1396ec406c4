"""The tables, and how an older file becomes a newer one.

`MIGRATIONS[n]` leads from version n to n + 1; a new file walks through all of them, so the oldest migration is tested every
time a ledger is created. A migration that has been released is never edited: append another one.
"""

from __future__ import annotations

import apsw

from fidelio.errors import SchemaMismatch

APPLICATION_ID = 0x46644C67  # "FdLg", so that `file` and we ourselves know our own

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

# Deleted sessions stay, and a page of the others must not cost more for it: the lists that do not ask for a status have
# indexes without them. And what a session wrote is found by the session.
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

# A session changes its status again and again, and every index that knows the status is written each time. So the lists that
# only leave out deleted sessions have a column for that, set by a trigger because an older Fidelio may have the file open, too.
# The lists nobody turns over by status have no index for it, and the requests of a session are found by `requests_by_subject`.
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

MIGRATIONS: tuple[str, ...] = (_FIRST, _SECOND, _THIRD)
VERSION = len(MIGRATIONS)


def migrate(connection: apsw.Connection, path: str) -> None:
    """Brings a new or older file to `VERSION`; raises `SchemaMismatch` for a newer or foreign one."""
    if version(connection, path) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Two processes may open an old file at once: the one that comes second finds the work done.
        for step in MIGRATIONS[version(connection, path) :]:
            run(connection, step)
        run(connection, f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def version(connection: apsw.Connection, path: str) -> int:
    """The schema version of the file, 0 for a new one; raises `SchemaMismatch` when it cannot be ours to use."""
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


def run(connection: apsw.Connection, script: str) -> None:
    """Several statements whose rows nobody wants; apsw would stop at the first row."""
    for _ in connection.execute(script):
        pass
