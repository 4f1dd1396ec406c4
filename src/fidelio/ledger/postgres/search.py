"""Full-text search with tsvector: the newest matches, ranked."""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import BadQuery
from fidelio.ledger.checks import session_not_found
from fidelio.ledger.model import Hit, Query
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.search import CANDIDATES, MAX_HITS, Term, parse_query, select_best, to_document_hits, to_event_hits

_SELECT_EVENTS = """
SELECT e.session, e.seq, e.type, e.time, e.raw FROM (
    SELECT position, number FROM search WHERE source = 'event' AND {conditions} ORDER BY number DESC LIMIT $2
) AS found JOIN events AS e USING (position) ORDER BY found.number DESC
"""
_SELECT_DOCUMENTS = """
SELECT v.session, v.space, v.path, v.version, v.time, b.content FROM (
    SELECT space, path, number FROM search WHERE source = 'document' AND {conditions} ORDER BY number DESC LIMIT $2
) AS found JOIN documents AS d USING (space, path) JOIN document_versions AS v USING (space, path, version)
JOIN blobs AS b USING (digest) ORDER BY found.number DESC
"""


class Conditions:
    """SQL conditions on search rows and their values. `$2` is the maximum number of candidates."""

    def __init__(self, terms: Sequence[Term], limit: int) -> None:
        self.sql = "words @@ $1::text::tsquery"
        self.values: list[object] = [" & ".join(map(_to_tsquery, terms)), limit]

    def add(self, condition: str, value: object) -> None:
        self.values.append(value)
        self.sql += f" AND {condition.format(f'${len(self.values)}')}"


async def search(connection: Connection, query: Query) -> tuple[Hit, ...]:
    terms = parse_query(query.text)
    size = min(clamp_page_size(query.limit), MAX_HITS)
    conditions = Conditions(terms, max(size, CANDIDATES))
    if not await _add_session_condition(connection, query, conditions):
        return ()
    if query.kind:
        conditions.add("kind = {}", query.kind)
    if query.types:
        conditions.add("type = ANY({}::text[])", list(query.types))
    hits: list[Hit] = []
    if query.source != "document":
        rows = await connection.fetch(_SELECT_EVENTS.format(conditions=conditions.sql), *conditions.values)
        hits += to_event_hits(rows, terms)
    if query.source != "event" and not query.types:
        rows = await connection.fetch(_SELECT_DOCUMENTS.format(conditions=conditions.sql), *conditions.values)
        hits += to_document_hits(rows, terms)
    return select_best(hits, size)


async def _add_session_condition(connection: Connection, query: Query, conditions: Conditions) -> bool:
    """Add the conditions on the session; return False if no session can match."""
    if query.session is None:
        if query.relation is not None:
            raise BadQuery("relation needs session.", remedy="Pass the session too.")
        return True
    row = await connection.fetchrow("SELECT parent FROM sessions WHERE id = $1", query.session)
    if row is None:
        raise session_not_found(query.session)
    match query.relation:
        case None:
            conditions.add("session = {}", query.session)
        case "children":
            conditions.add("parent = {}", query.session)
        case "parent":
            conditions.add("session = {}", row["parent"])
        case "siblings":
            conditions.add("parent = {}", row["parent"])
            conditions.add("session <> {}", query.session)
    return query.relation in (None, "children") or row["parent"] is not None


def _to_tsquery(term: Term) -> str:
    """Render a term as tsquery. Its words consist of letters and digits only, so nothing needs escaping."""
    quoted = [f"'{word}'" for word in term.words]
    return f"({' <-> '.join(quoted)}{':*' if term.prefix else ''})"
