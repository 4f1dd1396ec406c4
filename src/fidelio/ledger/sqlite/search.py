"""Full-text search with FTS5: the newest matches, ranked.

FTS5 returns matches in descending order and stops at a limit, so a common word costs no more than a rare word. Ranking all
matches would read every posting list to its end; only the newest few dozen are ranked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw

from fidelio.errors import BadQuery
from fidelio.ledger.checks import session_not_found
from fidelio.ledger.model import FieldMatch, Hit, Query
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.search import (
    CANDIDATES,
    MAX_HITS,
    MAX_WORD_LENGTH,
    Term,
    parse_query,
    select_best,
    to_document_hits,
    to_event_hits,
)
from fidelio.ledger.sqlite.search_index import Source, encode_tag

SplitPhrases = frozenset[Term]

PREFIXES_INDEXED = 2
MAX_PREFIX_WORDS = 24
COMMON_WORD_ROWS = 8_192
WORDS_PROBED = 4

_SELECT_EVENTS = """
SELECT e.session, e.seq, e.type, e.time, e.body
FROM (SELECT rowid FROM event_words WHERE event_words MATCH ? ORDER BY rowid DESC LIMIT ?) AS found
JOIN events AS e ON e.position = found.rowid
"""
_SELECT_DOCUMENTS = """
SELECT v.session, v.space, v.path, v.version, v.time, b.content
FROM (SELECT rowid FROM document_words WHERE document_words MATCH ? ORDER BY rowid DESC LIMIT ?) AS found
JOIN document_versions AS v ON v.key = found.rowid JOIN blobs AS b ON b.digest = v.digest
"""
_SELECT_NTH: dict[Source, str] = {
    "event": "SELECT rowid FROM event_words WHERE event_words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?",
    "document": "SELECT rowid FROM document_words WHERE document_words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?",
}
_SELECT_NEXT_WORD: dict[Source, str] = {
    "event": "SELECT term FROM event_vocabulary WHERE term >= ? LIMIT 1",
    "document": "SELECT term FROM document_vocabulary WHERE term >= ? LIMIT 1",
}


def search(connection: apsw.Connection, query: Query) -> tuple[Hit, ...]:
    terms = parse_query(query.text)
    size = min(clamp_page_size(query.limit), MAX_HITS)
    filters = _build_filter(connection, query)
    if filters is None:
        return ()
    limit = max(size, CANDIDATES)
    hits: list[Hit] = []
    if query.source != "document":
        hits += _find(connection, "event", terms, filters, limit)
    if query.source != "event" and not query.types:
        hits += _find(connection, "document", terms, filters, limit)
    return select_best(hits, size)


def _find(connection: apsw.Connection, source: Source, terms: Sequence[Term], filters: str, limit: int) -> Iterator[Hit]:
    split_phrases = _find_common_phrases(connection, source, terms)
    match = _build_match(connection, source, terms, split_phrases, filters)
    select, to_hits = (_SELECT_EVENTS, to_event_hits) if source == "event" else (_SELECT_DOCUMENTS, to_document_hits)
    for hit in to_hits(connection.execute(select, (match, limit)), terms):
        if hit.matches and _contain_phrases(hit.matches, split_phrases):
            yield hit


def _build_match(
    connection: apsw.Connection, source: Source, terms: Sequence[Term], split_phrases: SplitPhrases, filters: str
) -> str:
    """Build the FTS5 query. Its words consist of letters and digits only, so nothing needs escaping."""
    expression = " AND ".join(
        _match_words(term) if term in split_phrases else _match_term(connection, source, term) for term in terms
    )
    return f"(words : ({expression})){filters}"


def _match_term(connection: apsw.Connection, source: Source, term: Term) -> str:
    if term.prefix and len(term.words) == 1 and len(term.words[0]) > PREFIXES_INDEXED:
        words = _expand_prefix(connection, source, term.words[0])
        if words:
            return f"({' OR '.join(words)})"
    star = " *" if term.prefix else ""
    # `tokenize` splits very long words, but bodies that SQLite tokenizes itself keep them whole.
    spellings = dict.fromkeys((" ".join(term.words), _join_cut_words(term.words)))
    return "(" + " OR ".join(f'"{words}"{star}' for words in spellings) + ")"


def _find_common_phrases(connection: apsw.Connection, source: Source, terms: Sequence[Term]) -> SplitPhrases:
    """Find the phrases whose words are all very common.

    For a phrase FTS5 compares the positions of its words in every text that contains all of them. If common words rarely form
    the phrase, that reads nearly the whole index. Such a phrase is matched as separate words, and the phrase itself is checked
    in the newest of these matches.
    """
    phrases = [term for term in terms if len(term.words) > 1]
    return frozenset(
        term for term in phrases if all(_is_common(connection, source, word) for word in term.words[:WORDS_PROBED])
    )


def _is_common(connection: apsw.Connection, source: Source, word: str) -> bool:
    return connection.execute(_SELECT_NTH[source], (f'words : "{word}"', COMMON_WORD_ROWS)).get is not None


def _match_words(term: Term) -> str:
    return "(" + " AND ".join(f'"{word}"' for word in term.words) + ")"


def _contain_phrases(matches: Sequence[FieldMatch], split_phrases: SplitPhrases) -> bool:
    """Whether every phrase that was matched as separate words occurs as a phrase in some field."""
    return all(any(str(term) in match.terms for match in matches) for term in split_phrases)


def _join_cut_words(words: Sequence[str]) -> str:
    return "".join(word if len(word) == MAX_WORD_LENGTH and word.isascii() else f"{word} " for word in words).rstrip()


def _expand_prefix(connection: apsw.Connection, source: Source, prefix: str) -> list[str]:
    """List the indexed words with this prefix if they are few, otherwise none.

    For a prefix FTS5 reads the posting lists of all its words to their ends before it returns the first match. For a list of
    words it returns the newest matches and stops.
    """
    found: list[str] = []
    word = _read_next_word(connection, source, prefix)
    while word.startswith(prefix):
        if len(found) == MAX_PREFIX_WORDS:
            return []
        found.append(f'"{word}"')
        # The smallest string greater than the word, which skips all other occurrences of the word.
        word = _read_next_word(connection, source, word + "\x01")
    return found


def _read_next_word(connection: apsw.Connection, source: Source, start: str) -> str:
    word: str | None = connection.execute(_SELECT_NEXT_WORD[source], (start,)).get
    return word or ""


def _build_filter(connection: apsw.Connection, query: Query) -> str | None:
    """Build the FTS5 conditions on tags; None if no row can match."""
    tests = _build_session_filter(connection, query)
    if tests is None:
        return None
    if query.kind:
        tests.append(f"tags : {encode_tag('k', query.kind)}")
    if query.types:
        tests.append(f"tags : ({' OR '.join(encode_tag('t', type_) for type_ in query.types)})")
    excluded = f" NOT (tags : {encode_tag('s', query.session)})" if query.relation == "siblings" and query.session else ""
    return "".join(f" AND ({test})" for test in tests) + excluded


def _build_session_filter(connection: apsw.Connection, query: Query) -> list[str] | None:
    """Build the conditions on the session: an empty list for all sessions, None if no session can match."""
    if query.session is None:
        if query.relation is not None:
            raise BadQuery("relation needs session.", remedy="Pass the session too.")
        return []
    row = connection.execute("SELECT id, parent FROM sessions WHERE id = ?", (query.session,)).get
    if row is None:
        raise session_not_found(query.session)
    session, parent = row
    match query.relation:
        case None:
            return [f"tags : {encode_tag('s', session)}"]
        case "children":
            return [f"tags : {encode_tag('p', session)}"]
    if parent is None:
        return None
    return [f"tags : {encode_tag('s' if query.relation == 'parent' else 'p', parent)}"]
