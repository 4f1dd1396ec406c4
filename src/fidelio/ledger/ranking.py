"""Ranked search shared by both databases: which rows are scored, their BM25 scores, and the hits.

A database only carries out the steps that `rank` yields: it counts and lists the rows that contain a word, and loads rows. All
else happens here, with the same tokenizer, so both databases give the same order.

The cost does not grow with the ledger. Words are counted up to a bound. The rarest words choose up to 5,000 rows, newest first;
a word in more than 2 % of the rows chooses only if no other word finds anything. The chosen rows are ordered by the weights of
the words that chose them, and the best of them are loaded and scored by BM25 over all words and phrases.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from fidelio.ledger.bm25 import (
    QueryWords,
    RankRow,
    ScoredRow,
    compute_bm25,
    find_words,
    order,
    parse_words,
    read_texts,
    to_hit,
    weigh_word,
)
from fidelio.ledger.model import RankedHit, RankQuery
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.search import MAX_HITS

Source = Literal["event", "document"]

COMMON_SHARE = 50
# In a small ledger a word is not common because of a few rows.
COMMON_FLOOR = 100
# Every word is counted up to the first number, which costs 0.1 ms. More rows are estimated from how densely these lie; if that
# differs between the newest and the oldest, the word is counted up to the second number at most, in 1.2 ms.
SHALLOW = 256
DEEP = 20_000
MAX_DEEP_COUNTS = 8
# Added to the keys of documents, so that they differ from those of events and come first.
_DOCUMENTS = 1 << 62
_RECORDS_AT_ONCE = 32


class Effort(msgspec.Struct, frozen=True):
    """How much a search does at most.

    `rows` are chosen, `visits` are rows with a choosing word, whether the filters accept them or not: each costs about 2 µs in
    FTS5. `batch` rows are loaded and scored at once, and up to `batches` times if the filter by record refuses most of them.
    """

    rows: int
    visits: int
    batch: int
    batches: int


FULL = Effort(rows=5_000, visits=10_000, batch=128, batches=8)
# For a search that nobody waits for. Of a million texts it finds a certain one by eight of its words in 88 of 100 cases, the
# full search in 95, for a third of the CPU.
QUICK = Effort(rows=2_000, visits=4_000, batch=32, batches=2)


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

    `is_deeper`: there may be more rows with the word than `depth`. `is_favoured`: only rows of the favoured sessions.
    """

    source: Source
    word: str
    limit: int
    depth: int
    is_deeper: bool
    is_favoured: bool = False


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


class _Counted(msgspec.Struct, frozen=True):
    """How many rows contain a word, and whether that is only an estimate."""

    word: str
    rows: int
    is_estimate: bool = False
    is_common: bool = False


class _Choice(msgspec.Struct):
    """The chosen rows with the sum of the weights of the words that chose them, and the rows that may still be visited."""

    visits: int
    rows: dict[int, float] = msgspec.field(default_factory=dict)
    favoured: dict[int, float] = msgspec.field(default_factory=dict)

    def list_ordered(self, most_favoured: int) -> list[int]:
        """The keys by weight, newest first, after the best of the favoured ones."""
        best = dict.fromkeys(_sort(self.favoured)[:most_favoured])
        return [*best, *(key for key in _sort(self.rows) if key not in best)]


def rank(query: RankQuery, total: int) -> Steps:
    """Rank what a query finds in a ledger with `total` events. Yields steps for the database; returns the hits."""
    words, effort = parse_words(query), QUICK if query.is_quick else FULL
    limit = min(clamp_page_size(query.limit), MAX_HITS)
    counts = yield from _count(words.every, _list_sources(query), total)
    keys = (yield from _choose(query, counts, effort, total)).list_ordered(effort.batch // 4)
    weights = dict.fromkeys(words.every, weigh_word(0, total)) | {each.word: weigh_word(each.rows, total) for each in counts}
    found: list[tuple[float, ScoredRow]] = []
    average = 0.0
    for number in range(effort.batches):
        batch = keys[number * effort.batch : (number + 1) * effort.batch]
        rows = yield from _load(query, words, batch)
        rows += read_texts(query, words) if number == 0 else []
        average = average or sum(row.length for row in rows) / max(1, len(rows))
        best = sorted(((compute_bm25(row, weights, average), row) for row in rows), key=order)
        found += yield from _filter_sessions(query, best, limit - len(found))
        if len(found) >= limit or len(batch) < effort.batch:
            break
    return tuple(to_hit(relevance, row) for relevance, row in sorted(found, key=order))


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


def _choose(query: RankQuery, counts: Sequence[_Counted], effort: Effort, total: int) -> Generator[Step, Any, _Choice]:
    """Let the rarest words choose rows, and common words if these find nothing."""
    choice = _Choice(effort.visits)
    for is_common in (False, True):
        for counted in counts if not choice.rows and not choice.favoured else ():
            if counted.is_common == is_common:
                yield from _choose_by(query, counted, weigh_word(counted.rows, total), choice, effort)
    return choice


def _choose_by(
    query: RankQuery, counted: _Counted, weight: float, choice: _Choice, effort: Effort
) -> Generator[Step, Any, None]:
    """Add the newest rows with a word to the chosen ones."""
    is_deeper = counted.is_estimate or counted.rows > choice.visits
    keys: Sequence[int]
    for source in _list_sources(query):
        room = effort.rows - len(choice.rows)
        is_possible = counted.rows > 0 or source == "document"
        if choice.visits > 0 and room > 0 and is_possible:
            keys = yield FindRows(source, counted.word, room, choice.visits, is_deeper)
            _add_weight(choice.rows, source, keys, weight)
            choice.visits -= min(choice.visits, counted.rows if source == "event" else len(keys))
        if query.favoured and source == "event" and is_possible:
            keys = yield FindRows(source, counted.word, effort.batch, effort.visits, is_deeper, is_favoured=True)
            _add_weight(choice.favoured, source, keys, weight)


def _add_weight(rows: dict[int, float], source: Source, keys: Sequence[int], weight: float) -> None:
    found = dict.fromkeys(keys if source == "event" else [key + _DOCUMENTS for key in keys], weight)
    # Few rows have several of the words, so only these are added up one by one.
    for key in rows.keys() & found.keys():
        found[key] += rows[key]
    rows.update(found)


def _sort(rows: dict[int, float]) -> list[int]:
    """The keys by weight; the second sort keeps the order of equal weights, which is newest first."""
    return sorted(sorted(rows, reverse=True), key=rows.__getitem__, reverse=True)


# Loading rows


def _load(query: RankQuery, words: QueryWords, keys: Sequence[int]) -> Generator[Step, Any, list[ScoredRow]]:
    """Load rows and find the words in them. A row that contains only single words of phrases is no hit."""
    scored = []
    of_events = tuple(key for key in keys if key < _DOCUMENTS)
    of_documents = tuple(key - _DOCUMENTS for key in keys if key >= _DOCUMENTS)
    both: tuple[tuple[Source, tuple[int, ...]], ...] = (("event", of_events), ("document", of_documents))
    for source, wanted in both:
        rows: Iterable[RankRow] = (yield LoadRows(source, wanted)) if wanted else ()
        found = (find_words(source, row, words) for row in rows if not query.types or row.type in query.types)
        scored += [row for row in found if row.frequencies or row.phrases]
    return scored


def _filter_sessions(
    query: RankQuery, scored: Sequence[tuple[float, ScoredRow]], limit: int
) -> Generator[Step, Any, list[tuple[float, ScoredRow]]]:
    """The first `limit` whose session has the values of the query in its record, and those of the favoured sessions."""
    accepted: list[tuple[float, ScoredRow]] = []
    known: dict[str | None, bool] = {None: True}
    for start in range(0, len(scored), _RECORDS_AT_ONCE):
        batch = scored[start : start + _RECORDS_AT_ONCE]
        unknown = tuple({row.row.session: None for _, row in batch if row.row.session not in known}) if query.record else ()
        records = (yield LoadRecords(tuple(filter(None, unknown)))) if unknown else {}
        known |= {session: _has_values(records.get(session, "{}"), query) for session in unknown}
        accepted += [(relevance, row) for relevance, row in batch if known.get(row.row.session, not query.record)]
        if len(accepted) >= limit and not query.favoured:
            break
    return accepted[:limit] + [each for each in accepted[limit:] if each[1].row.session in query.favoured]


def _has_values(record: str, query: RankQuery) -> bool:
    # Only the values that are compared are decoded: a record can be long.
    values = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
    return all(name in values and msgspec.json.decode(values[name]) == value for name, value in query.record.items())
