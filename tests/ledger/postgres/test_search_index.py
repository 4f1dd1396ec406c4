"""Limits of the tsvector index."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, PutDocument, Query
from fidelio.ledger.postgres.search_index import build_vector
from tests.support import proves
from tests.support.ledgers import start

LEXEME = re.compile(r"'([^'\\\s]+)':(\d+(?:,\d+)*)")


@proves("postgres.search")
@given(st.lists(st.text(max_size=200), max_size=5))
def test_a_row_of_words_can_always_be_read_by_the_server(texts: list[str]) -> None:
    written = build_vector(texts)

    assert " ".join(match.group() for match in LEXEME.finditer(written)) == written


@proves("postgres.search")
def test_a_row_of_words_stays_inside_the_bounds_of_the_server() -> None:
    written = build_vector([" ".join(f"word{number}" for number in range(200_000)), "the " * 1000])

    assert len(written) < 1_000_000
    assert all(int(place) <= 16_383 for match in LEXEME.finditer(written) for place in match[2].split(","))
    assert build_vector(["the " * 1000]).count(",") == 254


@proves("postgres.search")
@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"word{number}" for number in range(150_000)) + " rescue",
        "囚人 " * 50_000 + " rescue",
        "é" * 300_000 + " rescue",
        "NUL \0 and a 'quote' and a back\\slash: rescue",
    ],
    ids=["many words", "many signs", "one endless word", "odd signs"],
)
async def test_a_text_of_any_size_and_script_can_be_kept_and_found(postgres_database: str, text: str) -> None:
    async with await open_ledger(postgres_database) as ledger:
        await start(ledger, "s_a")
        await ledger.commit(Change(session="s_a", documents=(PutDocument(space="acts", path="rescue.md", text=text),)))

        (hit,) = await ledger.search(Query(text="rescue"))
        assert hit.path == "rescue.md"


@proves("postgres.search")
async def test_a_phrase_does_not_reach_from_one_field_into_the_next(postgres_database: str) -> None:
    async with await open_ledger(postgres_database) as ledger:
        await start(ledger, "s_a")
        await ledger.append("s_a", NewEvent(type="note", body={"a": "the trumpet", "b": "sounds twice"}))

        assert await ledger.search(Query(text='"trumpet sounds"')) == ()
        assert len(await ledger.search(Query(text='"the trumpet" "sounds twi"*'))) == 1
