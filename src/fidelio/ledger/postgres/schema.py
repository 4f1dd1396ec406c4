"""Schema and migrations of the PostgreSQL ledger.

The tables are in the schema `fidelio` of the database, which may hold other schemas too. `MIGRATIONS[n]` leads from version n
to n + 1; a released migration is never edited.

Names and paths use `COLLATE "C"`: the order of a page must not depend on the locale of the server.
"""

from __future__ import annotations

from fidelio.errors import SchemaMismatch
from fidelio.ledger.postgres.database import Connection, Database
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

-- The lock is held until the transaction ends, so positions become visible in ascending order: a reader that has seen position
-- n never misses a smaller position that is committed later. The last position is read after the lock is acquired, and each
-- statement sees everything that was committed before it. The notification is sent at the commit.
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

# The rows of deleted sessions stay, so lists without a status filter need partial indexes that exclude them. The last index
# finds the documents of a session.
_DELETION_INDEXES = """
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

MIGRATIONS: tuple[str, ...] = (_SESSIONS + _EVENTS + _REQUESTS + _DOCUMENTS + _JOBS + _SEARCH, _DELETION_INDEXES)
VERSION = len(MIGRATIONS)

# Reads the catalogue tables: functions such as to_regclass may return a cached state from before a migration.
_SELECT_STATE = """
SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'fidelio') AS schema,
    EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = 'fidelio' AND tablename = 'schema_version') AS is_ledger
"""


async def migrate(database: Database) -> None:
    """Migrate a new or older ledger to `VERSION`; raise `SchemaMismatch` for a newer schema or that of another program."""
    async with database.connection() as connection:
        if await _read_version(connection, database.address) == VERSION:
            return
    await database.write(lambda connection: _run_migrations(connection, database.address))


async def _run_migrations(connection: Connection, address: str) -> None:
    # The version is read again under the lock: another process may have migrated the ledger meanwhile.
    await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
    version = await _read_version(connection, address)
    if version == 0:
        await connection.execute("CREATE SCHEMA fidelio; CREATE TABLE fidelio.schema_version (version integer NOT NULL)")
        await connection.execute("INSERT INTO fidelio.schema_version VALUES (0)")
    for step in MIGRATIONS[version:]:
        await connection.execute(step)
    await connection.execute("UPDATE fidelio.schema_version SET version = $1", VERSION)


async def _read_version(connection: Connection, address: str) -> int:
    state = await connection.fetchrow(_SELECT_STATE)
    assert state is not None
    if not state["schema"]:
        return 0
    if not state["is_ledger"]:
        raise SchemaMismatch(
            f"The schema fidelio in {address} belongs to another program.", remedy="Use another database for the ledger."
        )
    version = int(await connection.fetchval("SELECT version FROM fidelio.schema_version"))
    if version > VERSION:
        raise SchemaMismatch(
            f"{address} has schema version {version}; this Fidelio knows up to {VERSION}.", remedy="Update Fidelio to use it."
        )
    return version
