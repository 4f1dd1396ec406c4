"""Finding: the newest matches from the index, then the best of them first.

The index answers in descending order and stops at a bound, so a common word costs no more than a rare one. Ranking by relevance
over all matches would read every list of positions to its end; inside the newest matches it is a matter of a few dozen texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw

from fidelio.errors import BadQuery
from fidelio.ledger.codec import decode
from fidelio.ledger.model import FieldMatch, Hit, Query
from fidelio.ledger.paging import page_size
from fidelio.ledger.search import LONGEST_WORD, Term, explain, leaves, parse, score
from fidelio.ledger.sqlite.apply import session_not_found
from fidelio.ledger.sqlite.search_index import Source, document_fields, tag

Loose = frozenset[Term]

LARGEST_ANSWER = 100
CANDIDATES = 40
PREFIXES_INDEXED = 2
MOST_WORDS = 24
COMMON = 8_192
WORDS_PROBED = 4

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
_COMMON: dict[Source, str] = {
    "event": "SELECT rowid FROM event_words WHERE event_words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?",
    "document": "SELECT rowid FROM document_words WHERE document_words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?",
}
_NEXT_WORD: dict[Source, str] = {
    "event": "SELECT term FROM event_vocabulary WHERE term >= ? LIMIT 1",
    "document": "SELECT term FROM document_vocabulary WHERE term >= ? LIMIT 1",
}


def search(connection: apsw.Connection, query: Query) -> tuple[Hit, ...]:
    terms = parse(query.text)
    size = min(page_size(query.limit), LARGEST_ANSWER)
    filters = _filters(connection, query)
    if filters is None:
        return ()
    most = max(size, CANDIDATES)
    hits: list[Hit] = []
    if query.source != "document":
        loose = _too_common(connection, "event", terms)
        hits += _events(connection, _match(connection, "event", terms, loose, filters), terms, loose, most)
    if query.source != "event" and not query.types:
        loose = _too_common(connection, "document", terms)
        hits += _documents(connection, _match(connection, "document", terms, loose, filters), terms, loose, most)
    hits.sort(key=lambda hit: (-hit.score, -hit.time))
    return tuple(hits[:size])


def _match(connection: apsw.Connection, source: Source, terms: Sequence[Term], loose: Loose, filters: str) -> str:
    """The search in the index's language. Every word in it is made of letters and digits, so nothing needs escaping."""
    wanted = " AND ".join(_apart(term) if term in loose else _wanted(connection, source, term) for term in terms)
    return f"(words : ({wanted})){filters}"


def _wanted(connection: apsw.Connection, source: Source, term: Term) -> str:
    if term.prefix and len(term.words) == 1 and len(term.words[0]) > PREFIXES_INDEXED:
        words = _beginning_with(connection, source, term.words[0])
        if words:
            return f"({' OR '.join(words)})"
    star = " *" if term.prefix else ""
    # `terms.words` cuts words that are too long for some databases; in a plain body this index keeps them whole.
    spellings = dict.fromkeys((" ".join(term.words), _uncut(term.words)))
    return "(" + " OR ".join(f'"{words}"{star}' for words in spellings) + ")"


def _too_common(connection: apsw.Connection, source: Source, terms: Sequence[Term]) -> Loose:
    """The phrases of which every word is in very many texts.

    For a phrase the index compares the places of its words in every text that has them all, before it knows whether there is a
    match; two words that are everywhere but never together would cost a look at everything. Such a phrase is looked for as
    separate words and found among the newest texts that have them.
    """
    phrases = [term for term in terms if len(term.words) > 1]
    return frozenset(
        term for term in phrases if all(_is_common(connection, source, word) for word in term.words[:WORDS_PROBED])
    )


def _is_common(connection: apsw.Connection, source: Source, word: str) -> bool:
    return connection.execute(_COMMON[source], (f'words : "{word}"', COMMON)).get is not None


def _apart(term: Term) -> str:
    return "(" + " AND ".join(f'"{word}"' for word in term.words) + ")"


def _together(matches: Sequence[FieldMatch], loose: Loose) -> bool:
    """Whether every phrase that was looked for as separate words does stand together in some field."""
    return all(any(str(term) in match.terms for match in matches) for term in loose)


def _uncut(words: Sequence[str]) -> str:
    return "".join(word if len(word) == LONGEST_WORD and word.isascii() else f"{word} " for word in words).rstrip()


def _beginning_with(connection: apsw.Connection, source: Source, prefix: str) -> list[str]:
    """The words with this beginning if they are few, else none.

    For a beginning the index reads the lists of all its words to their ends before it gives the first match. Asked for the
    words themselves, one of which is perhaps in every event, it gives the newest matches and stops.
    """
    found: list[str] = []
    word = _next_word(connection, source, prefix)
    while word.startswith(prefix):
        if len(found) == MOST_WORDS:
            return []
        found.append(f'"{word}"')
        # The smallest text that is greater than the word: asking for it skips all the places where the word stands.
        word = _next_word(connection, source, word + "\x01")
    return found


def _next_word(connection: apsw.Connection, source: Source, start: str) -> str:
    word: str | None = connection.execute(_NEXT_WORD[source], (start,)).get
    return word or ""


def _filters(connection: apsw.Connection, query: Query) -> str | None:
    """Tests of the tags, each an index lookup like any word; None when nothing could pass them."""
    tests = _lineage(connection, query)
    if tests is None:
        return None
    if query.kind:
        tests.append(f"tags : {tag('k', query.kind)}")
    if query.types:
        tests.append(f"tags : ({' OR '.join(tag('t', type_) for type_ in query.types)})")
    excluded = f" NOT (tags : {tag('s', query.session)})" if query.relation == "siblings" and query.session else ""
    return "".join(f" AND ({test})" for test in tests) + excluded


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


def _events(connection: apsw.Connection, match: str, terms: Sequence[Term], loose: Loose, most: int) -> Iterator[Hit]:
    for session, seq, type_, time, body in connection.execute(_EVENTS, (match, most)):
        if body is not None:
            matches = explain(leaves(decode(body)), terms)
            if matches and _together(matches, loose):
                yield Hit("event", session, seq, type_, None, None, None, time, score(matches), matches)


def _documents(connection: apsw.Connection, match: str, terms: Sequence[Term], loose: Loose, most: int) -> Iterator[Hit]:
    for session, space, path, version, time, content in connection.execute(_DOCUMENTS, (match, most)):
        matches = explain(document_fields(path, content), terms)
        if _together(matches, loose):
            yield Hit("document", session, None, "document", space, path, version, time, score(matches), matches)
