"""Full-text search with tsvector: the newest matches with all words, and the best matches with any word."""

from __future__ import annotations

from fidelio.errors import BadQuery
from fidelio.ledger.bm25 import RankRow
from fidelio.ledger.checks import session_not_found
from fidelio.ledger.model import Hit, Query, RankedHit, RankQuery
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.postgres.reads import read_newest_position
from fidelio.ledger.ranking import CountRows, FindRows, LoadRecords, LoadRows, RowCount, Step, is_dense
from fidelio.ledger.ranking import rank as rank_by_steps
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
    """SQL conditions on search rows and the values of the statement."""

    def __init__(self, sql: str, values: list[object]) -> None:
        self.sql, self.values = sql, values

    def add(self, condition: str, *values: object) -> None:
        numbers = [f"${len(self.values) + offset}" for offset in range(1, len(values) + 1)]
        self.values += values
        self.sql += f" AND {condition.format(*numbers)}"


async def search(connection: Connection, query: Query) -> tuple[Hit, ...]:
    terms = parse_query(query.text)
    size = min(clamp_page_size(query.limit), MAX_HITS)
    # `$2` is the maximum number of candidates.
    values: list[object] = [" & ".join(map(_to_tsquery, terms)), max(size, CANDIDATES)]
    conditions = Conditions("words @@ $1::text::tsquery", values)
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


# Ranked search

_COUNT = """
SELECT count(*) AS rows, min(number) AS oldest, coalesce((SELECT max(number) FROM search), 0) AS newest
FROM (SELECT number FROM search WHERE words @@ $1::text::tsquery AND source = $2 ORDER BY number DESC LIMIT $3) AS found
"""
_FIND_NTH_OLDEST = """
SELECT max(number) FROM (
    SELECT number FROM search WHERE words @@ $1::text::tsquery AND source = $2 ORDER BY number LIMIT $3
) AS found
"""
_FIND = """
SELECT number FROM (
    SELECT number, session, parent, type FROM search WHERE words @@ $1::text::tsquery AND source = $2
    ORDER BY number DESC LIMIT $3
) AS found WHERE {conditions} ORDER BY number DESC LIMIT $4
"""
_LOAD = {
    "event": """
SELECT s.number, e.session, e.type, e.time, e.raw, e.seq, e.id FROM search AS s JOIN events AS e USING (position)
WHERE s.number = ANY($1::bigint[]) AND e.raw IS NOT NULL
""",
    "document": """
SELECT s.number, v.session, 'document', v.time, convert_from(b.content, 'UTF8'), NULL::bigint, NULL, v.space, v.path, v.version
FROM search AS s JOIN documents AS d USING (space, path) JOIN document_versions AS v USING (space, path, version)
JOIN blobs AS b USING (digest) WHERE s.number = ANY($1::bigint[])
""",
}


async def rank(connection: Connection, query: RankQuery) -> tuple[RankedHit, ...]:
    """Carry out the steps of a ranked search."""
    steps = rank_by_steps(query, await read_newest_position(connection))
    answer: object = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as finished:
            hits: tuple[RankedHit, ...] = finished.value
            return hits
        answer = await _carry_out(connection, step, query)


async def _carry_out(connection: Connection, step: Step, query: RankQuery) -> object:
    match step:
        case CountRows():
            return await _count(connection, step)
        case FindRows():
            scope = RankQuery(sessions=query.favoured) if step.is_favoured else query
            conditions = _build_conditions(scope, [f"'{step.word}'", step.source, step.depth, step.limit])
            rows = await connection.fetch(_FIND.format(conditions=conditions.sql), *conditions.values)
            return [row["number"] for row in rows]
        case LoadRows():
            return [RankRow(*row) for row in await connection.fetch(_LOAD[step.source], list(step.keys))]
        case LoadRecords():
            rows = await connection.fetch("SELECT id, record FROM sessions WHERE id = ANY($1::text[])", list(step.sessions))
            return {row["id"]: row["record"] for row in rows}


async def _count(connection: Connection, step: CountRows) -> RowCount:
    values = (f"'{step.word}'", step.source, step.depth)
    row = await connection.fetchrow(_COUNT, *values)
    assert row is not None
    rows, span = row["rows"], row["newest"] - (row["oldest"] or 0) + 1
    if rows < step.depth or not is_dense(rows, span):
        return RowCount(rows, span)
    return RowCount(rows, span, await connection.fetchval(_FIND_NTH_OLDEST, *values))


def _build_conditions(query: RankQuery, values: list[object]) -> Conditions:
    conditions = Conditions("TRUE", values)
    if query.sessions is not None or query.parents is not None:
        conditions.add(
            "(session = ANY({}::text[]) OR parent = ANY({}::text[]))", list(query.sessions or ()), list(query.parents or ())
        )
    if query.namespaces:
        known = "session IN (SELECT id FROM sessions WHERE namespace = ANY({}::text[]))"
        conditions.add(known, list(query.namespaces))
    if query.types:
        conditions.add("type = ANY({}::text[])", list(query.types))
    if query.without:
        conditions.add("session <> ALL({}::text[])", list(query.without))
    return conditions
