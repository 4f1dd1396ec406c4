"""Ranked search in SQLite: the rebuilt index of an older file, and what is cached of the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.ledger.model import Change, NewEvent, PutDocument, Query, RankQuery
from fidelio.ledger.sqlite import open_sqlite, schema, search_index
from fidelio.ledger.sqlite.search import MAX_STATISTICS, IndexStatistics
from tests.support import proves
from tests.support.ledgers import say, start

NEEDLE = RankQuery(terms=("needle",), namespaces=("mine",))


@proves("ledger.schema", "ledger.rank-filters")
async def test_the_index_of_an_older_file_is_rebuilt_with_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:3])
    monkeypatch.setattr(schema, "VERSION", 3)
    # That version had no tag for the namespace. A body that is not ASCII is indexed by a statement that takes its tags.
    monkeypatch.setattr(search_index, "_build_tags", lambda session, *_: search_index.encode_tag("s", session))
    monkeypatch.setattr(search_index, "_OTHERS", search_index._OTHERS.replace(" || ' n' || hex(s.namespace)", ""))
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a", namespace="mine")
        await say(ledger, "s_a", {"a": "é needle"})
        await ledger.commit(Change(session="s_a", documents=(PutDocument(space="n", path="p", text="needle"),)))
        await ledger.update_index()
        assert await ledger.rank(NEEDLE) == ()
    monkeypatch.undo()

    async with await open_sqlite(path) as ledger:
        await ledger.update_index()
        assert {hit.source for hit in await ledger.rank(NEEDLE)} == {"document", "event"}
        assert len(await ledger.search(Query(text="needle"))) == 2
        await ledger.redact("s_a", [2], actor="p", reason="r")
        assert [hit.source for hit in await ledger.rank(NEEDLE)] == ["document"]
        await ledger.check()


@proves("ledger.rank")
async def test_a_word_that_becomes_frequent_is_found_with_its_newest_rows(tmp_path: Path) -> None:
    """What is cached of a frequent word must not hide what is added."""
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a", namespace="mine")
        for count in (1, 300, 300):
            await ledger.append("s_a", *(NewEvent(type="note", body={"a": "needle"}) for _ in range(count)))
            await ledger.update_index()
            newest = (await ledger.session("s_a")).last_seq
            assert (await ledger.rank(NEEDLE))[0].seq == newest


@proves("ledger.rank-bounded")
def test_a_statistic_is_used_until_the_ledger_has_grown_by_a_tenth() -> None:
    statistics = IndexStatistics()
    statistics.put("needle", 1_000, "frequent")

    assert statistics.get("needle", 1_000) == statistics.get("needle", 1_099) == "frequent"
    assert statistics.get("needle", 1_100) is statistics.get("other", 1_000) is None
    # An index that was rebuilt from the beginning.
    assert statistics.get("needle", 999) is None


@proves("ledger.rank-bounded")
def test_the_number_of_statistics_is_bounded() -> None:
    statistics = IndexStatistics()
    for number in range(MAX_STATISTICS + 1):
        statistics.put(number, 1, number)

    assert statistics.get(0, 1) is None
    assert statistics.get(MAX_STATISTICS, 1) == MAX_STATISTICS
