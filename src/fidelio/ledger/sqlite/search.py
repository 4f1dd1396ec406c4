"""Full-text search with FTS5: the newest matches with all words, and the best matches with any word.

FTS5 returns matches in descending order and stops at a limit, so a common word costs no more than a rare word. Ranking all
matches would read every posting list to its end; only the newest few dozen are ranked by `search`, and `rank` chooses rows as
`fidelio.ledger.ranking` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec

from fidelio.errors import BadQuery
from fidelio.ledger.bm25 import RankRow
from fidelio.ledger.checks import session_not_found
from fidelio.ledger.model import FieldMatch, Hit, Query, RankedHit, RankQuery
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.ranking import CountRows, FindRows, LoadRecords, LoadRows, RowCount, Step, is_dense
from fidelio.ledger.ranking import rank as rank_by_steps
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
from fidelio.ledger.sqlite.schema import fetch, read_newest_position
from fidelio.ledger.sqlite.search_index import Source, encode_tag, read_progress

SplitPhrases = frozenset[Term]

# A longer list of types is not matched in the index, because each type costs as much as the word; loaded rows are filtered.
MAX_TYPE_TAGS = 4
# No row has it.
_NO_TAG = "none"

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


# Ranked search

_NEWEST: dict[Source, str] = {
    "event": "SELECT rowid FROM event_words WHERE event_words MATCH ? AND rowid > ? ORDER BY rowid DESC LIMIT ?",
    "document": "SELECT rowid FROM document_words WHERE document_words MATCH ? AND rowid > ? ORDER BY rowid DESC LIMIT ?",
}
_COUNT_NEWEST: dict[Source, str] = {
    "event": """
SELECT count(*), min(rowid) FROM (SELECT rowid FROM event_words WHERE event_words MATCH ? ORDER BY rowid DESC LIMIT ?)
""",
    "document": """
SELECT count(*), min(rowid) FROM (SELECT rowid FROM document_words WHERE document_words MATCH ? ORDER BY rowid DESC LIMIT ?)
""",
}
_FIND_NTH_OLDEST: dict[Source, str] = {
    "event": "SELECT rowid FROM event_words WHERE event_words MATCH ? ORDER BY rowid LIMIT 1 OFFSET ?",
    "document": "SELECT rowid FROM document_words WHERE document_words MATCH ? ORDER BY rowid LIMIT 1 OFFSET ?",
}
_LOAD: dict[Source, str] = {
    "event": """
SELECT e.position, e.session, e.type, e.time, e.body, e.seq, e.id FROM events AS e JOIN sessions AS s ON s.id = e.session
WHERE e.position IN (SELECT value FROM json_each(?1)) AND e.body IS NOT NULL
AND (?2 = '[]' OR s.namespace IN (SELECT value FROM json_each(?2)))
""",
    "document": """
SELECT v.key, v.session, 'document', v.time, CAST(b.content AS TEXT), NULL, NULL, v.space, v.path, v.version
FROM document_versions AS v JOIN blobs AS b ON b.digest = v.digest JOIN sessions AS s ON s.id = v.session
WHERE v.key IN (SELECT value FROM json_each(?1)) AND (?2 = '[]' OR s.namespace IN (SELECT value FROM json_each(?2)))
""",
}
_RECORDS = "SELECT id, record FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
_COUNT_BETWEEN = "SELECT count(*) FROM event_words WHERE event_words MATCH ? AND rowid > ? AND rowid <= ?"
# A namespace is looked for in this many windows of the index with this many rows.
_WINDOWS = 3
_WINDOW_ROWS = 400
MAX_STATISTICS = 4_096


class IndexStatistics:
    """Cache of what is frequent in the index, which hardly changes while the ledger grows by a tenth.

    Half of the words of a text are frequent. Counting them, and looking how frequent a namespace is, takes a third of the CPU
    of an automatic recall with a million events: 5 of 15 ms on a busy machine. A rare word is counted every time, because a few
    new rows change what it finds.
    """

    def __init__(self) -> None:
        self._values: dict[object, tuple[int, Any]] = {}

    def get(self, key: object, reached: int) -> Any:
        """A value that was stored when the index had reached nearly the same position; else None."""
        stored_at, value = self._values.get(key, (0, None))
        return value if stored_at <= reached < stored_at * 1.1 else None

    def put(self, key: object, reached: int, value: object) -> None:
        if len(self._values) >= MAX_STATISTICS:
            self._values.clear()
        self._values[key] = reached, value


def rank(connection: apsw.Connection, query: RankQuery, statistics: IndexStatistics) -> tuple[RankedHit, ...]:
    """Carry out the steps of a ranked search."""
    driver = _RankDriver(connection, query, statistics)
    steps = rank_by_steps(query, read_newest_position(connection))
    answer: object = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as finished:
            hits: tuple[RankedHit, ...] = finished.value
            return hits
        answer = driver.carry_out(step)


class _RankDriver:
    """Carries out the steps of a ranked search on a connection."""

    def __init__(self, connection: apsw.Connection, query: RankQuery, statistics: IndexStatistics) -> None:
        self._connection, self._statistics = connection, statistics
        self._reached: dict[Source, int] = {
            "event": read_progress(connection, "event"),
            "document": read_progress(connection, "document"),
        }
        self._namespaces = msgspec.json.encode(query.namespaces).decode()
        self._favoured = f" AND {_match_tags([encode_tag('s', session) for session in query.favoured or (_NO_TAG,)])}"
        by_namespace = not self._is_everywhere(query.namespaces)
        self._filters: dict[Source, str] = {
            "event": _build_tag_filter(query, "event", by_namespace=by_namespace),
            "document": _build_tag_filter(query, "document", by_namespace=by_namespace),
        }

    def carry_out(self, step: Step) -> object:
        connection = self._connection
        match step:
            case CountRows():
                return self._count(step)
            case FindRows():
                oldest = _find_oldest(connection, step) if step.is_deeper else 0
                filters = self._favoured if step.is_favoured else self._filters[step.source]
                match_ = f"{_match_word(step.word)}{filters}"
                return [key for (key,) in fetch(connection, _NEWEST[step.source], (match_, oldest, step.limit))]
            case LoadRows():
                values = (msgspec.json.encode(step.keys).decode(), self._namespaces)
                return [RankRow(*row) for row in fetch(connection, _LOAD[step.source], values)]
            case LoadRecords():
                return dict(fetch(connection, _RECORDS, (msgspec.json.encode(step.sessions).decode(),)))

    def _count(self, step: CountRows) -> RowCount:
        reached = self._reached[step.source]
        count: RowCount | None = self._statistics.get(step, reached)
        if count is None:
            count = self._count_now(step, reached)
            if count.rows == step.depth:
                self._statistics.put(step, reached, count)
        return count

    def _count_now(self, step: CountRows, reached: int) -> RowCount:
        values = (_match_word(step.word), step.depth)
        rows, oldest = self._connection.execute(_COUNT_NEWEST[step.source], values).get
        span = reached - (oldest or 0) + 1
        if rows < step.depth or not is_dense(rows, span):
            return RowCount(rows, span)
        return RowCount(rows, span, self._connection.execute(_FIND_NTH_OLDEST[step.source], (values[0], rows - 1)).get or 0)

    def _is_everywhere(self, namespaces: tuple[str, ...]) -> bool:
        """Whether most rows belong to the namespaces. Then filtering the loaded rows is cheaper than matching the tag.

        FTS5 looks up every row of a word in the list of the tag, which costs more than finding the row.
        """
        reached = self._reached["event"]
        step = reached // _WINDOWS
        if not namespaces or step < _WINDOW_ROWS:
            return False
        known: bool | None = self._statistics.get(namespaces, reached)
        if known is None:
            match_ = _match_tags([encode_tag("n", namespace) for namespace in namespaces])
            ends = [step * number for number in range(1, _WINDOWS + 1)]
            counts = [self._connection.execute(_COUNT_BETWEEN, (match_, end - _WINDOW_ROWS, end)).get for end in ends]
            known = min(counts) * 2 > _WINDOW_ROWS
            self._statistics.put(namespaces, reached, known)
        return known


def _find_oldest(connection: apsw.Connection, step: FindRows) -> int:
    """The key before the oldest row that may be visited; 0 if there are fewer rows."""
    return connection.execute(_SELECT_NTH[step.source], (_match_word(step.word), step.depth)).get or 0


def _match_word(word: str) -> str:
    return f'(words : "{word}")'


def _match_tags(tags: Sequence[str]) -> str:
    return f"(tags : ({' OR '.join(tags)}))"


def _build_tag_filter(query: RankQuery, source: Source, *, by_namespace: bool) -> str:
    """Build the FTS5 conditions of a ranked search. Documents have no tag for their type."""
    allowed = []
    if query.sessions is not None or query.parents is not None:
        family = [encode_tag("s", session) for session in query.sessions or ()]
        family += [encode_tag("p", parent) for parent in query.parents or ()]
        allowed.append(family or [_NO_TAG])
    if query.namespaces and by_namespace:
        allowed.append([encode_tag("n", namespace) for namespace in query.namespaces])
    if source == "event" and 0 < len(query.types) <= MAX_TYPE_TAGS:
        allowed.append([encode_tag("t", type_) for type_ in query.types])
    without = [encode_tag("s", session) for session in query.without]
    excluded = f" NOT {_match_tags(without)}" if without else ""
    return "".join(f" AND {_match_tags(tags)}" for tags in allowed) + excluded
