"""Finding: the newest matches from the index, then the best of them first.

The index answers in descending order and stops at a bound, so a common word costs no more than a rare one. Ranking by relevance
over all matches would read every list of positions to its end; inside the newest matches it is a matter of a few dozen texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw

from fidelio.errors import BadQuery
from fidelio.ledger.codec import decode
from fidelio.ledger.cursors import page_size
from fidelio.ledger.model import Hit, Query
from fidelio.ledger.sqlite.apply import session_not_found
from fidelio.ledger.sqlite.index import document_fields, tag
from fidelio.ledger.terms import Term, explain, leaves, parse, score

LARGEST_ANSWER = 100
CANDIDATES = 40

_EVENTS = """
SELECT e.session, e.seq, e.type, e.time, e.body
FROM (SELECT rowid FROM event_words WHERE event_words MATCH ? ORDER BY rowid DESC LIMIT ?) AS found
JOIN events AS e ON e.position = found.rowid
"""
_DOCUMENTS = """
SELECT v.session, v.space, v.path, v.version, v.time, b.content
FROM (SELECT rowid FROM document_words WHERE document_words MATCH ? ORDER BY rowid DESC LIMIT ?) AS found
JOIN document_versions AS v ON v.key = found.rowid JOIN blobs AS b ON b.digest = v.digest
"""


def search(connection: apsw.Connection, query: Query) -> tuple[Hit, ...]:
    terms = parse(query.text)
    size = min(page_size(query.limit), LARGEST_ANSWER)
    match = _match(connection, query, terms)
    if match is None:
        return ()
    most = max(size, CANDIDATES)
    hits: list[Hit] = []
    if query.source != "document":
        hits += _events(connection, match, terms, most)
    if query.source != "event" and not query.types:
        hits += _documents(connection, match, terms, most)
    hits.sort(key=lambda hit: (-hit.score, -hit.time))
    return tuple(hits[:size])


def _match(connection: apsw.Connection, query: Query, terms: Sequence[Term]) -> str | None:
    """The search in the index's language. Every word in it is made of letters and digits, so nothing needs escaping."""
    lineage = _lineage(connection, query)
    if lineage is None:
        return None
    tests = [f"words : ({' AND '.join(map(_quoted, terms))})", *lineage]
    if query.kind:
        tests.append(f"tags : {tag('k', query.kind)}")
    if query.types:
        tests.append(f"tags : ({' OR '.join(tag('t', type_) for type_ in query.types)})")
    excluded = f" NOT (tags : {tag('s', query.session)})" if query.relation == "siblings" and query.session else ""
    return f"({' AND '.join(f'({test})' for test in tests)}){excluded}"


def _lineage(connection: apsw.Connection, query: Query) -> list[str] | None:
    """Which sessions are meant: a test of the tags, none for all of them, None for nobody."""
    if query.session is None:
        if query.relation is not None:
            raise BadQuery("A relation was asked for, but not whose.", remedy="Name the session too.")
        return []
    row = connection.execute("SELECT id, parent FROM sessions WHERE id = ?", (query.session,)).get
    if row is None:
        raise session_not_found(query.session)
    session, parent = row
    match query.relation:
        case None:
            return [f"tags : {tag('s', session)}"]
        case "children":
            return [f"tags : {tag('p', session)}"]
    if parent is None:
        return None
    return [f"tags : {tag('s' if query.relation == 'parent' else 'p', parent)}"]


def _quoted(term: Term) -> str:
    return f'"{" ".join(term.words)}"' + (" *" if term.prefix else "")


def _events(connection: apsw.Connection, match: str, terms: Sequence[Term], most: int) -> Iterator[Hit]:
    for session, seq, type_, time, body in connection.execute(_EVENTS, (match, most)):
        if body is not None:
            matches = explain(leaves(decode(body)), terms)
            yield Hit("event", session, seq, type_, None, None, None, time, score(matches), matches)


def _documents(connection: apsw.Connection, match: str, terms: Sequence[Term], most: int) -> Iterator[Hit]:
    for session, space, path, version, time, content in connection.execute(_DOCUMENTS, (match, most)):
        matches = explain(document_fields(path, content), terms)
        yield Hit("document", session, None, "document", space, path, version, time, score(matches), matches)
