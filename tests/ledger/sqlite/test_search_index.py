"""The FTS5 index contains exactly the words of the tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fidelio.ledger.encoding import encode
from fidelio.ledger.model import Query
from fidelio.ledger.search import tokenize
from fidelio.ledger.sqlite import open_sqlite, search
from fidelio.ledger.sqlite.schema import MIGRATIONS, run_script
from fidelio.ledger.sqlite.search_index import FIELD_SEPARATOR, index_step, remove_event
from tests.support import proves
from tests.support.ledgers import say, start

PLAIN = st.text(st.characters(codec="ascii"), max_size=60)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NUMBERS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    for migration in MIGRATIONS:
        run_script(connection, migration)
    run_script(connection, "INSERT INTO sessions VALUES (1, 's_a', 'agent', '', NULL, NULL, '', '', 1, x'', 0, 0, '{}', 0)")
    yield connection
    connection.close()


@proves("ledger.search", "ledger.redaction")
@example(fields=["a/b_c-D", 'quoted " \\ / back\\u0041', 42, -7])
@example(fields=["nul \x00, border \x01 and é", "東京 x", True, None, 2.5])
@example(fields=[])
@example(fields=["\U0001d468 bold"])
@given(fields=st.lists(PLAIN | NUMBERS | st.booleans() | st.none(), max_size=4) | st.lists(ANY, max_size=3))
def test_the_index_holds_the_words_of_the_fields_and_forgets_them_again(
    connection: apsw.Connection, fields: list[str | int | float | None]
) -> None:
    body = encode({"fields": fields}, "body")
    run_script(connection, "DELETE FROM events; UPDATE search_progress SET reached = 0")
    run_script(connection, "INSERT INTO event_words (event_words) VALUES ('delete-all')")
    connection.execute("INSERT INTO events VALUES (1, 's_a', 1, 'e', 'note', 'ada', 0, ?, x'', x'', x'')", (body,))
    index_step(connection, 10)

    searchable = [str(field) for field in fields if isinstance(field, str | int) and not isinstance(field, bool)]
    expected = [word for field in searchable for word in (FIELD_SEPARATOR, *tokenize(field))][1:]
    assert _words(connection) == expected
    remove_event(connection, 1)
    assert _words(connection) == []
    run_script(connection, "INSERT INTO event_words (event_words) VALUES ('integrity-check')")


@proves("ledger.search")
@pytest.mark.parametrize("text", ["x" * 65, "x" * 200, "é" + "x" * 200, "see " + "x" * 64 + " y"])
async def test_a_word_of_any_length_is_found(tmp_path: Path, text: str) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        await say(ledger, "s_a", {"a": text})
        await ledger.update_index()

        (hit,) = await ledger.search(Query(text=f'"{text}"'))
        assert hit.matches[0].field == "a"
        assert len(await ledger.search(Query(text=text[:70] + "*"))) == 1


def _words(connection: apsw.Connection) -> list[object]:
    found = connection.execute("SELECT term FROM event_vocabulary WHERE col = 'words' ORDER BY offset").fetchall()
    return [word for (word,) in found]


@proves("ledger.search-bounded")
async def test_a_phrase_of_common_words_still_stays_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "COMMON_WORD_ROWS", 3)
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        for number in range(6):
            await say(ledger, "s_a", {"text": "phrase fine" if number % 2 else "a fine phrase", "extra": "other"})
        await ledger.update_index()
        together = await ledger.search(Query(text='"fine phrase" other'))
        never = await ledger.search(Query(text='"phrase phrase"'))

    assert [hit.seq for hit in sorted(together, key=lambda hit: hit.seq or 0)] == [2, 4, 6]
    assert never == ()
