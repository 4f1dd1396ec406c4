"""Texts of any length in events: short ones inside, long ones as blobs."""

from __future__ import annotations

import pytest

from fidelio.ledger import Ledger
from fidelio.ledger.checks import MAX_BLOB
from fidelio.ledger.long_text import BEGINNING, INLINE, json_text, load_text, shorten_to_line, store_text
from fidelio.ledger.model import Change, NewEvent
from tests.support import proves
from tests.support.ledgers import start


async def keep(ledger: Ledger, text: str) -> dict[str, object]:
    """Commit an event with the text, and return its body."""
    stored = store_text(text)
    event = NewEvent(type="note", body=stored.body, blobs=stored.digests)
    await ledger.commit(Change(session="s_a", events=(event,), blobs=stored.blobs))
    return stored.body


@proves("ledger.blobs")
@pytest.mark.parametrize("length", [0, INLINE, INLINE + 1, 100_000])
async def test_a_text_of_any_length_is_loaded_as_it_was_stored(ledger: Ledger, length: int) -> None:
    await start(ledger, "s_a")
    text = "ü" * length

    body = await keep(ledger, text)

    assert await load_text(ledger, body) == text
    assert body["size"] == length
    assert len(str(body["text"])) == (length if length <= INLINE else BEGINNING)


@proves("ledger.blobs", "ledger.erased")
async def test_a_long_text_is_empty_once_its_event_was_redacted(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    body = await keep(ledger, "x" * (INLINE + 1))

    await ledger.redact("s_a", [2], actor="ada", reason="asked for")

    assert await load_text(ledger, body) == ""
    assert await load_text(ledger, None) == ""


@proves("ledger.blobs")
def test_a_text_that_is_longer_than_a_blob_is_cut_between_two_characters() -> None:
    (whole,) = store_text("x" + "ü" * (MAX_BLOB // 2)).blobs

    assert len(whole) == MAX_BLOB - 1
    assert whole.decode().endswith("ü")
    assert store_text("x" * MAX_BLOB).blobs == (b"x" * MAX_BLOB,)


@proves("ledger.plain-json")
def test_what_a_program_printed_can_always_be_stored() -> None:
    assert store_text("a\0b\udc80").body["text"] == "a\ufffdb?"
    assert json_text({"a": {1}, "b": "\udc80"}) == '{"a": "{1}", "b": "?"}'
    assert json_text({"a": {1}}) in ('{"a":[1]}', '{"a":"{1}"}')


@proves("ledger.limits")
def test_a_line_is_as_long_as_allowed_and_shows_that_it_was_cut() -> None:
    assert shorten_to_line("a\n  b\0") == "a b\ufffd"
    assert shorten_to_line("x" * 10, 10) == "x" * 10
    assert shorten_to_line("x" * 11, 10) == "x" * 9 + "…"
