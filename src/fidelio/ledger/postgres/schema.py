"""The tables, and how an older database becomes a newer one.

A ledger lives in the schema `fidelio` of the database its address names, so one server keeps as many ledgers as it has
databases, beside whatever else they hold. `MIGRATIONS[n]` leads from version n to n + 1; a migration that has been released
is never edited.

Names and paths compare by their bytes (`COLLATE "C"`): the order of a page must not depend on the language of the server.
"""

from __future__ import annotations

from fidelio.errors import SchemaMismatch
from fidelio.ledger.postgres.database import Database, Link
from fidelio.ledger.postgres.notifications import CHANNEL

MIGRATION_LOCK = 0x46644C67_01
POSITION_LOCK = 0x46644C67_02

_SESSIONS = """
CREATE TABLE sessions (
    number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    id text COLLATE "C" PRIMARY KEY,
    kind text NOT NULL,
    namespace text NOT NULL,
    name text,
    parent text COLLATE "C",
    status text NOT NULL,
    reason text NOT NULL,
    record text NOT NULL,
    last_seq bigint NOT NULL,
    head bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE UNIQUE INDEX sessions_by_name ON sessions (namespace, name) WHERE name IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions (parent, number) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_kind ON sessions (kind, number);
CREATE INDEX sessions_by_status ON sessions (status, number);
CREATE INDEX sessions_by_kind_status ON sessions (kind, status, number);
CREATE INDEX sessions_by_namespace ON sessions (namespace, number);
CREATE INDEX sessions_by_namespace_kind ON sessions (namespace, kind, number);
CREATE INDEX sessions_by_namespace_status ON sessions (namespace, status, number);
CREATE INDEX sessions_by_namespace_kind_status ON sessions (namespace, kind, status, number);
"""

_EVENTS = f"""
CREATE TABLE events (
    position bigint PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    type text NOT NULL,
    actor text NOT NULL,
    time bigint NOT NULL,
    raw text,
    salt bytea,
    digest bytea NOT NULL,
    hash bytea NOT NULL,
    UNIQUE (session, seq)
);

-- Whoever appends holds one lock from here to the end of the transaction: positions become visible in their own order, and a
-- follower that has read position n never misses a smaller one that is committed later. Each statement in here sees what was
-- committed before it, so the last position is read after the lock was won. The notification is sent by the commit.
CREATE FUNCTION reserve_positions(how_many integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE last bigint;
BEGIN
    PERFORM pg_advisory_xact_lock({POSITION_LOCK});
    SELECT coalesce(max(position), 0) INTO last FROM fidelio.events;
    PERFORM pg_notify('{CHANNEL}', (last + how_many)::text);
    RETURN last;
END $$;
"""

_REQUESTS = """
CREATE TABLE requests (
    number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    id text COLLATE "C" PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    question text NOT NULL,
    options text NOT NULL,
    subject text NOT NULL,
    detail text NOT NULL,
    state text NOT NULL,
    answer text NOT NULL,
    answered_by text NOT NULL,
    channel text NOT NULL,
    assurance text NOT NULL,
    opened_at bigint NOT NULL,
    closed_at bigint,
    expires_at bigint,
    UNIQUE (session, key)
);
CREATE INDEX requests_by_state ON requests (state, number);
CREATE INDEX requests_by_session ON requests (session, state, number);
"""

_DOCUMENTS = """
CREATE TABLE blobs (digest text COLLATE "C" PRIMARY KEY, content bytea NOT NULL);
CREATE TABLE event_blobs (digest text COLLATE "C", position bigint, PRIMARY KEY (digest, position));
CREATE INDEX event_blobs_by_position ON event_blobs (position);
CREATE TABLE documents (
    space text COLLATE "C",
    path text COLLATE "C",
    version bigint NOT NULL,
    deleted boolean NOT NULL,
    PRIMARY KEY (space, path)
);
CREATE TABLE document_versions (
    space text COLLATE "C",
    path text COLLATE "C",
    version bigint,
    digest text COLLATE "C",
    author text NOT NULL,
    session text COLLATE "C" NOT NULL,
    time bigint NOT NULL,
    PRIMARY KEY (space, path, version)
);
CREATE INDEX document_versions_by_digest ON document_versions (digest) WHERE digest IS NOT NULL;
"""

_JOBS = """
CREATE TABLE jobs (
    number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    id text COLLATE "C" PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    payload text NOT NULL,
    key text,
    due bigint NOT NULL,
    attempts integer NOT NULL,
    state text NOT NULL,
    error text NOT NULL,
    waiting boolean NOT NULL
);
CREATE UNIQUE INDEX jobs_that_wait ON jobs (session, kind, key) WHERE waiting AND key IS NOT NULL;
CREATE INDEX jobs_by_lane ON jobs (session, kind, state, due, number);
CREATE INDEX jobs_by_due ON jobs (state, due, number);
CREATE TABLE lanes (session text COLLATE "C", kind text, ready_at bigint NOT NULL, PRIMARY KEY (session, kind));
CREATE INDEX lanes_by_readiness ON lanes (kind, ready_at);
CREATE TABLE leases (
    session text COLLATE "C" PRIMARY KEY,
    fence bigint NOT NULL,
    job text COLLATE "C",
    owner text NOT NULL,
    expires bigint NOT NULL
);
"""

_SEARCH = """
CREATE TABLE search (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL,
    session text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    parent text COLLATE "C",
    type text NOT NULL,
    position bigint,
    space text COLLATE "C",
    path text COLLATE "C",
    words tsvector NOT NULL
);
CREATE INDEX search_by_words ON search USING gin (words);
CREATE INDEX search_by_source ON search (source, number);
CREATE INDEX search_by_session ON search (session, number);
CREATE INDEX search_by_parent ON search (parent, number) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX search_by_position ON search (position) WHERE position IS NOT NULL;
CREATE UNIQUE INDEX search_by_path ON search (space, path) WHERE path IS NOT NULL;
"""

# Deleted sessions stay, and a page of the others must not cost more for it: the lists that do not ask for a status have
# indexes without them. And what a session wrote is found by the session.
_ERASING = """
DROP INDEX sessions_by_kind;
DROP INDEX sessions_by_namespace;
DROP INDEX sessions_by_namespace_kind;
CREATE INDEX sessions_there ON sessions (number) WHERE status <> 'deleted';
CREATE INDEX sessions_by_kind ON sessions (kind, number) WHERE status <> 'deleted';
CREATE INDEX sessions_by_name_alone ON sessions (name, number) WHERE name IS NOT NULL;
CREATE INDEX sessions_by_namespace ON sessions (namespace, number) WHERE status <> 'deleted';
CREATE INDEX sessions_by_namespace_kind ON sessions (namespace, kind, number) WHERE status <> 'deleted';
CREATE INDEX document_versions_by_session ON document_versions (session);
"""

MIGRATIONS: tuple[str, ...] = (_SESSIONS + _EVENTS + _REQUESTS + _DOCUMENTS + _JOBS + _SEARCH, _ERASING)
VERSION = len(MIGRATIONS)

# Read from the catalogue as from any table: the functions that look names up may remember how it was before a migration.
_WHAT_IS_THERE = """
SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'fidelio') AS schema,
    EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = 'fidelio' AND tablename = 'schema_version') AS ours
"""


async def migrate(database: Database) -> None:
    """Brings a new or older ledger to `VERSION`; raises `SchemaMismatch` for a newer or foreign one."""
    async with database.link() as link:
        if await _version(link, database.where) == VERSION:
            return
    await database.write(lambda link: _walk(link, database.where))


async def _walk(link: Link, where: str) -> None:
    # Two processes may open an old ledger at once: the one that comes second finds the work done.
    await link.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
    version = await _version(link, where)
    if version == 0:
        await link.execute("CREATE SCHEMA fidelio; CREATE TABLE fidelio.schema_version (version integer NOT NULL)")
        await link.execute("INSERT INTO fidelio.schema_version VALUES (0)")
    for step in MIGRATIONS[version:]:
        await link.execute(step)
    await link.execute("UPDATE fidelio.schema_version SET version = $1", VERSION)


async def _version(link: Link, where: str) -> int:
    found = await link.fetchrow(_WHAT_IS_THERE)
    assert found is not None
    if not found["schema"]:
        return 0
    if not found["ours"]:
        raise SchemaMismatch(
            f"The schema fidelio in {where} belongs to another program.", remedy="Use another database for the ledger."
        )
    version = int(await link.fetchval("SELECT version FROM fidelio.schema_version"))
    if version > VERSION:
        raise SchemaMismatch(
            f"{where} has schema version {version}; this Fidelio knows up to {VERSION}.", remedy="Update Fidelio to use it."
        )
    return version
