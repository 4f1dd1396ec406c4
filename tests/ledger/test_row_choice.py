"""Which rows a ranked search looks at, with a double of the index that counts what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from fidelio.ledger.bm25 import RankRow
from fidelio.ledger.model import RankedHit, RankQuery
from fidelio.ledger.ranking import (
    DEEP,
    FULL,
    QUICK,
    SHALLOW,
    CountRows,
    FindRows,
    LoadRecords,
    LoadRows,
    RowCount,
    Step,
    is_dense,
    rank,
)
from tests.support import proves

TOTAL = 1_000_000


class FakeIndex:
    """An index of events: for each word its rows, newest first. A loaded row contains the words that have it."""

    def __init__(self, rows: Mapping[str, Sequence[int]], *, total: int = TOTAL) -> None:
        self.rows, self.total = rows, total
        self.counted = self.visited = self.loaded = 0
        self.asked_for: list[str] = []
        self.chosen: set[int] = set()

    def rank(self, *terms: str, **more: Any) -> tuple[RankedHit, ...]:
        steps = rank(RankQuery(terms=terms, source="event", **more), self.total)
        answer: object = None
        while True:
            try:
                answer = self._carry_out(steps.send(answer))
            except StopIteration as finished:
                hits: tuple[RankedHit, ...] = finished.value
                return hits

    def _carry_out(self, step: Step) -> object:
        match step:
            case CountRows():
                return self._count(self.rows.get(step.word, ()), step.depth)
            case FindRows():
                self.asked_for.append(step.word)
                found = self.rows.get(step.word, ())[: min(step.limit, step.depth)]
                self.visited += len(found)
                self.chosen.update(found)
                return found
            case LoadRows():
                self.loaded += len(step.keys)
                return [self._load(key) for key in step.keys]
            case LoadRecords():
                return dict.fromkeys(step.sessions, '{"agent":"other"}')

    def _count(self, rows: Sequence[int], depth: int) -> RowCount:
        newest = rows[:depth]
        self.counted += len(newest)
        span = self.total - newest[-1] + 1 if newest else 0
        if len(newest) < depth or not is_dense(len(newest), span):
            return RowCount(len(newest), span)
        return RowCount(len(newest), span, rows[-depth])

    def _load(self, key: int) -> RankRow:
        words = [word for word, rows in self.rows.items() if key in rows]
        return RankRow(key, "s_a", "note", key, msgspec.json.encode({"text": " ".join(words)}).decode(), key, f"e_{key}")


def every(step: int, *, first: int = 1, last: int = TOTAL) -> range:
    """Every n-th row, newest first."""
    return range(last, first - 1, -step)


@proves("ledger.rank-bounded")
def test_at_most_5000_rows_are_chosen_by_the_rarest_words_newest_first() -> None:
    index = FakeIndex({"rare": every(500), "rarer": every(5_000), "rarest": [17], "frequent": every(100)})

    index.rank("frequent", "rare", "rarest", "rarer", limit=100)

    assert index.asked_for == ["rarest", "rarer", "rare", "frequent"]
    assert FULL.rows * 0.8 < len(index.chosen) <= FULL.rows
    assert 17 in index.chosen
    # Of the last word only the newest rows are chosen.
    assert min(index.chosen - {17}) == 500
    assert min(key for key in index.chosen if key % 500 and key != 17) > TOTAL - 100 * FULL.rows


@proves("ledger.rank-bounded")
def test_a_common_word_chooses_only_if_no_other_word_finds_anything() -> None:
    index = FakeIndex({"common": every(10), "rare": [3, 2]})

    assert [hit.seq for hit in index.rank("common", "rare")] == [3, 2]
    assert index.asked_for == ["rare"]
    assert [hit.seq for hit in index.rank("common", "missing", limit=2)] == [TOTAL, TOTAL - 10]
    assert index.loaded <= 2 + FULL.batch


@proves("ledger.rank-bounded")
def test_a_word_that_somebody_works_on_now_is_not_taken_for_a_common_one() -> None:
    """The newest 3,000 rows are full of it, and no other row has it."""
    index = FakeIndex({"topic": every(1, first=TOTAL - 3_000), "common": every(20)})

    hits = index.rank("common", "topic", limit=5)

    assert index.asked_for == ["topic"]
    assert all("topic" in hit.words for hit in hits)


@proves("ledger.rank-bounded")
def test_a_word_that_became_common_later_is_common() -> None:
    index = FakeIndex({"newer": every(2, first=TOTAL // 2), "rare": [5]})

    assert [hit.seq for hit in index.rank("newer", "rare")] == [5]


@proves("ledger.rank-bounded")
@pytest.mark.parametrize("words", [1, 64])
def test_the_work_is_bounded_however_common_and_many_the_words_are(words: int) -> None:
    index = FakeIndex({f"w{number}": every(2, first=TOTAL // 2 + number) for number in range(words)})

    index.rank(*index.rows, limit=100)

    assert index.counted <= words * SHALLOW + 8 * (DEEP + 1)
    assert index.visited <= FULL.visits
    assert index.loaded <= FULL.batch


@proves("ledger.rank-bounded")
def test_rows_of_other_agents_are_loaded_up_to_a_bound() -> None:
    index = FakeIndex({"rare": every(500)})

    assert index.rank("rare", record={"agent": "mine"}) == ()
    assert index.loaded == FULL.batch * FULL.batches


@proves("ledger.rank-bounded")
def test_a_quick_search_looks_at_fewer_rows_and_finds_the_same_best_hit() -> None:
    index = FakeIndex({"rare": every(500), "rarer": every(5_000), "rarest": [TOTAL - 10_000, 4]})

    first, *_ = index.rank(*index.rows)
    loaded, visited = index.loaded, index.visited
    quick, *_ = index.rank(*index.rows, is_quick=True)

    assert quick.seq == first.seq == TOTAL - 10_000
    assert index.loaded - loaded <= QUICK.batch
    assert index.visited - visited <= QUICK.visits
    assert (loaded, visited > QUICK.rows) == (FULL.batch, True)
