"""Ranked search shared by both databases: which rows are scored, their BM25 scores, and the hits.

A database only carries out the steps that `rank` yields: it counts and lists the rows that contain a word, and loads rows. All
else happens here, with the same tokenizer, so both databases give the same order.

The cost does not grow with the ledger. Words are counted up to a bound. The rarest words choose up to 5,000 rows, newest first;
a word in more than 2 % of the rows chooses only if no other word finds anything. The chosen rows are ordered by the weights of
the words that chose them, and the best of them are loaded and scored by BM25 over all words and phrases.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from fidelio.errors import BadQuery
from fidelio.ledger.model import RankedHit, RankQuery, decode_body
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.search import MAX_HITS, cut_excerpt, tokenize

Source = Literal["event", "document"]

MAX_WORDS = 64
MAX_ROWS = 5_000
# Rows with a chosen word that are looked at, whether they pass the filters or not: each costs about 2 µs in FTS5.
MAX_VISITS = 10_000
COMMON_SHARE = 50
# In a small ledger a word is not common because of a few rows.
COMMON_FLOOR = 100
# Every word is counted up to the first number, which costs 0.1 ms. More rows are estimated from how densely these lie; if that
# differs between the newest and the oldest, the word is counted up to the second number at most, in 1.2 ms.
SHALLOW = 256
DEEP = 20_000
MAX_DEEP_COUNTS = 8
# Chosen rows that are loaded and scored at once, and how often if the filter by record refuses most of them.
BATCH = 128
MAX_BATCHES = 8
# Added to the keys of documents, so that they differ from those of events and come first.
_DOCUMENTS = 1 << 62
_RECORDS_AT_ONCE = 32
K1, B = 1.2, 0.75


class CountRows(msgspec.Struct, frozen=True):
    """Step: count the rows with a word, up to `depth`. Answered by a `RowCount`."""

    source: Source
    word: str
    depth: int


class RowCount(msgspec.Struct, frozen=True):
    """The counted rows are the newest, spread over the `newest_span` last rows of the index.

    If there may be more and they are dense (`is_dense`), `oldest_span` is that of the oldest as many, at the other end.
    """

    rows: int
    newest_span: int
    oldest_span: int = 0


def is_dense(rows: int, span: int) -> bool:
    """Whether a word with so many rows in a span would be common everywhere."""
    return rows * COMMON_SHARE > span


class FindRows(msgspec.Struct, frozen=True):
    """Step: list the keys of the newest rows with a word that the filters accept, among the `depth` newest with the word.

    `is_deeper`: there may be more rows with the word than `depth`.
    """

    source: Source
    word: str
    limit: int
    depth: int
    is_deeper: bool


class LoadRows(msgspec.Struct, frozen=True):
    """Step: load rows of events or documents. Answered by a list of `RankRow`, in any order, without those that are erased.

    Rows of other namespaces than those of the query are left out here if they were not left out by `FindRows`.
    """

    source: Source
    keys: tuple[int, ...]


class LoadRecords(msgspec.Struct, frozen=True):
    """Step: load the records of sessions. Answered by a mapping of ids to JSON texts."""

    sessions: tuple[str, ...]


Step: TypeAlias = CountRows | FindRows | LoadRows | LoadRecords
Steps: TypeAlias = Generator[Step, Any, tuple[RankedHit, ...]]


class RankRow(msgspec.Struct, frozen=True):
    """A loaded row. An event has `seq` and `event`, its id; a document has `space`, `path` and `version`."""

    key: int
    session: str | None
    type: str
    time: int
    raw: str
    seq: int | None = None
    event: str | None = None
    space: str | None = None
    path: str | None = None
    version: int | None = None


class _Words(msgspec.Struct, frozen=True):
    """The words of a query. `wanted` are those of its terms; the others belong to phrases only."""

    wanted: frozenset[str]
    phrases: tuple[tuple[str, ...], ...]
    every: tuple[str, ...]


class _Counted(msgspec.Struct, frozen=True):
    """How many rows contain a word, and whether that is only an estimate."""

    word: str
    rows: int
    is_estimate: bool = False
    is_common: bool = False


class _Scored(msgspec.Struct, frozen=True):
    """A row, what of the query it contains, and its length in words."""

    source: Literal["event", "document", "text"]
    row: RankRow
    frequencies: dict[str, int]
    phrases: dict[tuple[str, ...], int]
    length: int


def rank(query: RankQuery, total: int) -> Steps:
    """Rank what a query finds in a ledger with `total` events. Yields steps for the database; returns the hits."""
    words = parse_words(query)
    limit = min(clamp_page_size(query.limit), MAX_HITS)
    counts = yield from _count(words.every, _list_sources(query), total)
    chosen = yield from _choose(query, counts, total)
    weights = dict.fromkeys(words.every, _weigh(0, total)) | {each.word: _weigh(each.rows, total) for each in counts}
    # The second sort keeps the order of equal weights: newest first.
    ordered = sorted(sorted(chosen, reverse=True), key=chosen.__getitem__, reverse=True)
    found: list[tuple[float, _Scored]] = []
    average = 0.0
    for number in range(MAX_BATCHES):
        batch = ordered[number * BATCH : (number + 1) * BATCH]
        rows = yield from _load(query, words, batch)
        rows += _read_texts(query, words) if number == 0 else []
        average = average or sum(row.length for row in rows) / max(1, len(rows))
        best = sorted(((_compute_bm25(row, weights, average), row) for row in rows), key=_order)
        found += yield from _keep_sessions(query, best, limit - len(found))
        if len(found) >= limit or len(batch) < BATCH:
            break
    return tuple(_to_hit(relevance, row) for relevance, row in sorted(found, key=_order))


def parse_words(query: RankQuery) -> _Words:
    """Split the terms and phrases of a query into words; raise `BadQuery` if there are none or too many."""
    wanted = dict.fromkeys(word for term in query.terms for word in tokenize(term))
    phrases = dict.fromkeys(tuple(tokenize(phrase)) for phrase in query.phrases)
    wanted |= dict.fromkeys(phrase[0] for phrase in phrases if len(phrase) == 1)
    longer = tuple(phrase for phrase in phrases if len(phrase) > 1)
    every = tuple(wanted | dict.fromkeys(word for phrase in longer for word in phrase))
    if not every:
        raise BadQuery("The query has no word in it.", remedy="Use at least one word of letters or digits.")
    if len(every) > MAX_WORDS:
        raise BadQuery(f"The query has {len(every)} different words.", remedy=f"Use up to {MAX_WORDS}.")
    return _Words(frozenset(wanted), longer, every)


# Choosing rows


def _list_sources(query: RankQuery) -> tuple[Source, ...]:
    """What is searched. The type of a document is `document`."""
    only_documents = query.types == ("document",)
    wanted: dict[Source, bool] = {
        "document": query.source != "event" and (not query.types or "document" in query.types),
        "event": query.source != "document" and not only_documents,
    }
    return tuple(source for source, is_wanted in wanted.items() if is_wanted)


def _count(words: Iterable[str], sources: Sequence[Source], total: int) -> Generator[Step, Any, list[_Counted]]:
    """Count the rows of every word, rarest first.

    A word of which the newest rows are full may be common, or somebody works on it now: only the latter is rare at the other
    end. Documents are few beside events, so a word is counted in documents only if nothing else is searched.
    """
    bound = max(total // COMMON_SHARE, COMMON_FLOOR)
    counts, deep_counts = [], 0
    for word in words if sources else ():
        found: RowCount = yield CountRows(sources[-1], word, SHALLOW)
        highest, lowest = _estimate(found, found.newest_span, total), _estimate(found, found.oldest_span, total)
        is_estimate = found.rows >= SHALLOW
        if is_estimate and lowest <= bound < highest and deep_counts < MAX_DEEP_COUNTS:
            deep_counts += 1
            depth = min(bound, DEEP) + 1
            found = yield CountRows(sources[-1], word, depth)
            is_estimate = found.rows >= depth
            highest = highest if is_estimate else found.rows
        rows = highest if is_estimate else found.rows
        counts.append(_Counted(word, rows, is_estimate, is_common=rows > bound))
    return sorted(counts, key=lambda counted: counted.rows)


def _estimate(count: RowCount, span: int, total: int) -> int:
    """How many rows contain a word, if they are as dense everywhere as in a span."""
    return max(count.rows, count.rows * total // span) if span else count.rows


def _choose(query: RankQuery, counts: Sequence[_Counted], total: int) -> Generator[Step, Any, dict[int, float]]:
    """Let the rarest words choose rows. Returns the rows with the sum of the weights of the words that chose them."""
    chosen: dict[int, float] = {}
    visits = MAX_VISITS
    for is_common in (False, True):
        for counted in counts if not chosen else ():
            if counted.is_common == is_common:
                visits = yield from _choose_by(query, counted, total, chosen, visits)
    return chosen


def _choose_by(
    query: RankQuery, counted: _Counted, total: int, chosen: dict[int, float], visits: int
) -> Generator[Step, Any, int]:
    """Add the newest rows with a word to the chosen ones. Returns how many rows may still be visited."""
    weight = _weigh(counted.rows, total)
    for source in _list_sources(query):
        room = MAX_ROWS - len(chosen)
        if visits <= 0 or room <= 0:
            return visits
        is_deeper = counted.is_estimate or counted.rows > visits
        keys: Sequence[int] = yield FindRows(source, counted.word, room, visits, is_deeper)
        offset = 0 if source == "event" else _DOCUMENTS
        for key in keys:
            chosen[key + offset] = chosen.get(key + offset, 0.0) + weight
        visits -= min(visits, counted.rows if source == "event" else len(keys))
    return visits


# Scoring


def _weigh(rows: int, total: int) -> float:
    """The inverse document frequency of a word."""
    rows = min(rows, total)
    return math.log(1 + (total - rows + 0.5) / (rows + 0.5))


def _compute_bm25(row: _Scored, weights: dict[str, float], average: float) -> float:
    """Compute the BM25 value of a row. A phrase has the weight of its rarest word: it is in no more rows than that."""
    damping = K1 * (1 - B + B * row.length / (average or 1))
    terms = [(weights[word], count) for word, count in row.frequencies.items()]
    terms += [(max(weights[word] for word in phrase), count) for phrase, count in row.phrases.items()]
    return round(sum(weight * count * (K1 + 1) / (count + damping) for weight, count in terms), 6)


def _order(scored: tuple[float, _Scored]) -> tuple[float, int, str, int]:
    relevance, found = scored
    return -relevance, -found.row.time, found.source, -found.row.key


def _load(query: RankQuery, words: _Words, keys: Sequence[int]) -> Generator[Step, Any, list[_Scored]]:
    """Load rows and find the words in them. A row that contains only single words of phrases is no hit."""
    scored = []
    of_events = tuple(key for key in keys if key < _DOCUMENTS)
    of_documents = tuple(key - _DOCUMENTS for key in keys if key >= _DOCUMENTS)
    both: tuple[tuple[Source, tuple[int, ...]], ...] = (("event", of_events), ("document", of_documents))
    for source, wanted in both:
        rows: Iterable[RankRow] = (yield LoadRows(source, wanted)) if wanted else ()
        found = (_find_words(source, row, words) for row in rows if not query.types or row.type in query.types)
        scored += [row for row in found if row.frequencies or row.phrases]
    return scored


def _read_texts(query: RankQuery, words: _Words) -> list[_Scored]:
    rows = [RankRow(0, None, "text", 0, text, path=name) for name, text in query.texts.items()]
    found = (_find_words("text", row, words) for row in rows)
    return [row for row in found if row.frequencies or row.phrases]


def _find_words(source: Literal["event", "document", "text"], row: RankRow, words: _Words) -> _Scored:
    texts = _list_texts(source, row)
    tokens = tokenize("\n".join(texts))
    frequencies: dict[str, int] = {}
    for token in [token for token in tokens if token in words.wanted]:
        frequencies[token] = frequencies.get(token, 0) + 1
    found = [phrase for phrase in words.phrases if _count_phrase(phrase, tokens)]
    # A phrase does not reach from one text into the next.
    by_text = [tokenize(text) for text in texts] if found else []
    phrases = {phrase: sum(_count_phrase(phrase, each) for each in by_text) for phrase in found}
    return _Scored(source, row, frequencies, {phrase: count for phrase, count in phrases.items() if count}, len(tokens))


def _list_texts(source: str, row: RankRow) -> list[str]:
    if source == "event":
        return list(_iter_texts(decode_body(row.raw)))
    return [row.path or "", row.raw] if source == "document" else [row.raw]


def _iter_texts(value: Any) -> Iterator[str]:
    """The values of `iter_fields` without their paths, which are half of its cost."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _iter_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _iter_texts(inner)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


def _count_phrase(phrase: tuple[str, ...], tokens: list[str]) -> int:
    """How often the words stand in a row."""
    if phrase[0] not in tokens or phrase[-1] not in tokens:
        return 0
    whole, size = list(phrase), len(phrase)
    return sum(tokens[at : at + size] == whole for at in range(len(tokens) - size + 1) if tokens[at] == phrase[0])


# Hits


def _keep_sessions(
    query: RankQuery, scored: Sequence[tuple[float, _Scored]], limit: int
) -> Generator[Step, Any, list[tuple[float, _Scored]]]:
    """Keep the first `limit` whose session has the values of the query in its record."""
    accepted: list[tuple[float, _Scored]] = []
    known: dict[str | None, bool] = {None: True}
    for start in range(0, len(scored), _RECORDS_AT_ONCE):
        part = scored[start : start + _RECORDS_AT_ONCE]
        unknown = tuple({row.row.session: None for _, row in part if row.row.session not in known}) if query.record else ()
        records = (yield LoadRecords(tuple(filter(None, unknown)))) if unknown else {}
        known |= {session: _has_values(records.get(session, "{}"), query) for session in unknown}
        accepted += [(relevance, row) for relevance, row in part if known.get(row.row.session, not query.record)]
        if len(accepted) >= limit:
            break
    return accepted[:limit]


def _has_values(record: str, query: RankQuery) -> bool:
    # Only the values that are compared are decoded: a record can be long.
    values = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
    return all(name in values and msgspec.json.decode(values[name]) == value for name, value in query.record.items())


def _to_hit(relevance: float, scored: _Scored) -> RankedHit:
    row = scored.row
    phrases = tuple(" ".join(phrase) for phrase in scored.phrases)
    present = frozenset((*scored.frequencies, *(word for phrase in scored.phrases for word in phrase)))
    return RankedHit(
        source=scored.source,
        relevance=relevance,
        words=tuple(scored.frequencies),
        phrases=phrases,
        excerpt=cut_excerpt(_list_texts(scored.source, row), present),
        raw=row.raw,
        type=row.type,
        session=row.session,
        seq=row.seq,
        event=row.event,
        time=row.time,
        space=row.space,
        path=row.path,
        version=row.version,
    )
