"""Which rows a ranked search looks at, with a double of the index that counts what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from fidelio.ledger.model import RankedHit, RankQuery
from fidelio.ledger.ranking import (
    BATCH,
    DEEP,
    MAX_BATCHES,
    MAX_ROWS,
    MAX_VISITS,
    SHALLOW,
    CountRows,
    FindRows,
    LoadRecords,
    LoadRows,
    RankRow,
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

    def rank(self, *terms: str, limit: int = 20, record: Mapping[str, str] | None = None) -> tuple[RankedHit, ...]:
        steps = rank(RankQuery(terms=terms, source="event", limit=limit, record=record or {}), self.total)
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
    assert MAX_ROWS * 0.8 < len(index.chosen) <= MAX_ROWS
    assert 17 in index.chosen
    # Of the last word only the newest rows are chosen.
    assert min(index.chosen - {17}) == 500
    assert min(key for key in index.chosen if key % 500 and key != 17) > TOTAL - 100 * MAX_ROWS


@proves("ledger.rank-bounded")
def test_a_common_word_chooses_only_if_no_other_word_finds_anything() -> None:
    index = FakeIndex({"common": every(10), "rare": [3, 2]})

    assert [hit.seq for hit in index.rank("common", "rare")] == [3, 2]
    assert index.asked_for == ["rare"]
    assert [hit.seq for hit in index.rank("common", "missing", limit=2)] == [TOTAL, TOTAL - 10]
    assert index.loaded <= 2 + BATCH


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
    assert index.visited <= MAX_VISITS
    assert index.loaded <= BATCH


@proves("ledger.rank-bounded")
def test_rows_of_other_agents_are_loaded_up_to_a_bound() -> None:
    index = FakeIndex({"rare": every(500)})

    assert index.rank("rare", record={"agent": "mine"}) == ()
    assert index.loaded == BATCH * MAX_BATCHES
