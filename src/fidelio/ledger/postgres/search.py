"""Finding: the newest matches from the index, then the best of them first."""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import BadQuery
from fidelio.ledger.codec import decode
from fidelio.ledger.model import Hit, Query
from fidelio.ledger.paging import page_size
from fidelio.ledger.postgres.apply import session_not_found
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.search import Term, explain, leaves, parse, score

LARGEST_ANSWER = 100
CANDIDATES = 40

_EVENTS = """
SELECT e.session, e.seq, e.type, e.time, e.raw FROM (
    SELECT position, number FROM search WHERE source = 'event' AND {tests} ORDER BY number DESC LIMIT $2
) AS found JOIN events AS e USING (position) ORDER BY found.number DESC
"""
_DOCUMENTS = """
SELECT v.session, v.space, v.path, v.version, v.time, b.content FROM (
    SELECT space, path, number FROM search WHERE source = 'document' AND {tests} ORDER BY number DESC LIMIT $2
) AS found JOIN documents AS d USING (space, path) JOIN document_versions AS v USING (space, path, version)
JOIN blobs AS b USING (digest) ORDER BY found.number DESC
"""


class Tests:
    """What a row must fulfil, as SQL and the values it speaks of. `$2` is the number of candidates."""

    def __init__(self, terms: Sequence[Term], most: int) -> None:
        self.sql = "words @@ $1::text::tsquery"
        self.given: list[object] = [" & ".join(map(_asked, terms)), most]

    def add(self, test: str, value: object) -> None:
        self.given.append(value)
        self.sql += f" AND {test.format(f'${len(self.given)}')}"


async def search(link: Link, query: Query) -> tuple[Hit, ...]:
    terms = parse(query.text)
    size = min(page_size(query.limit), LARGEST_ANSWER)
    tests = Tests(terms, max(size, CANDIDATES))
    if not await _only_lineage(link, query, tests):
        return ()
    if query.kind:
        tests.add("kind = {}", query.kind)
    if query.types:
        tests.add("type = ANY({}::text[])", list(query.types))
    hits: list[Hit] = []
    if query.source != "document":
        hits += await _events(link, tests, terms)
    if query.source != "event" and not query.types:
        hits += await _documents(link, tests, terms)
    hits.sort(key=lambda hit: (-hit.score, -hit.time))
    return tuple(hits[:size])


async def _only_lineage(link: Link, query: Query, tests: Tests) -> bool:
    """Adds which sessions are meant; False when that is nobody."""
    if query.session is None:
        if query.relation is not None:
            raise BadQuery("A relation was asked for, but not whose.", remedy="Name the session too.")
        return True
    row = await link.fetchrow("SELECT parent FROM sessions WHERE id = $1", query.session)
    if row is None:
        raise session_not_found(query.session)
    match query.relation:
        case None:
            tests.add("session = {}", query.session)
        case "children":
            tests.add("parent = {}", query.session)
        case "parent":
            tests.add("session = {}", row["parent"])
        case "siblings":
            tests.add("parent = {}", row["parent"])
            tests.add("session <> {}", query.session)
    return query.relation in (None, "children") or row["parent"] is not None


def _asked(term: Term) -> str:
    """A term in the server's language. Words are made of letters and digits, so nothing needs escaping."""
    quoted = [f"'{word}'" for word in term.words]
    return f"({' <-> '.join(quoted)}{':*' if term.prefix else ''})"


async def _events(link: Link, tests: Tests, terms: Sequence[Term]) -> list[Hit]:
    found = []
    for row in await link.fetch(_EVENTS.format(tests=tests.sql), *tests.given):
        if row["raw"] is not None:
            matches = explain(leaves(decode(row["raw"])), terms)
            about = (row["session"], row["seq"], row["type"])
            found.append(Hit("event", *about, None, None, None, row["time"], score(matches), matches))
    return found


async def _documents(link: Link, tests: Tests, terms: Sequence[Term]) -> list[Hit]:
    found = []
    for row in await link.fetch(_DOCUMENTS.format(tests=tests.sql), *tests.given):
        matches = explain((("path", row["path"]), ("text", row["content"].decode())), terms)
        about = (row["space"], row["path"], row["version"])
        found.append(Hit("document", row["session"], None, "document", *about, row["time"], score(matches), matches))
    return found
