"""JSON codec, cursors and validation of values, without a database."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.errors import BadRecord
from fidelio.ledger.checks import check_change, check_path
from fidelio.ledger.encoding import build_deletions, decode, encode, encode_event
from fidelio.ledger.model import Change, CloseRequest, NewEvent, NewJob, NewSession, OpenRequest, PutDocument
from fidelio.ledger.paging import clamp_page_size, decode_number_cursor, decode_text_cursor, encode_cursor
from tests.support import proves


@proves("ledger.plain-json")
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-5, 5), max_size=6), st.randoms())
def test_the_order_of_keys_does_not_change_the_text(value: dict[str, int], chance: Any) -> None:
    keys = list(value)
    chance.shuffle(keys)

    assert encode({key: value[key] for key in keys}, "value") == encode(value, "value")
    assert decode(encode(value, "value")) == value


@proves("ledger.plain-json")
def test_the_error_names_what_cannot_be_kept_and_the_way_out() -> None:
    with pytest.raises(BadRecord, match=r"The body of note holds nan, .* Use only text"):
        encode({"x": [float("nan")]}, "body of note")
    with pytest.raises(BadRecord, match="the key 1"):
        encode({1: "x"}, "value")  # type: ignore[dict-item]  # the wrong type is what is tested


@proves("ledger.plain-json")
def test_a_tuple_is_a_list() -> None:
    assert encode({"x": (1, 2)}, "value") == '{"x":[1,2]}'


@proves("ledger.cursors")
@given(st.integers(0, 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_gives_back_its_key_to_its_own_list_only(number: int, text: str) -> None:
    assert decode_number_cursor(encode_cursor("sessions", number), "sessions") == number
    assert decode_text_cursor(encode_cursor("documents", text), "documents") == text
    with pytest.raises(BadRecord):
        decode_number_cursor(encode_cursor("sessions", number), "requests")
    with pytest.raises(BadRecord):
        decode_text_cursor(encode_cursor("documents", number), "documents")
    with pytest.raises(BadRecord):
        decode_number_cursor(encode_cursor("sessions", text), "sessions")


@proves("ledger.cursors")
@given(st.text())
def test_no_text_upsets_a_cursor(text: str) -> None:
    with pytest.raises(BadRecord, match="not a cursor"):
        decode_number_cursor(text, "sessions")


@proves("ledger.limits")
def test_a_page_is_bounded_and_never_empty_by_request() -> None:
    assert clamp_page_size(5) == 5
    assert clamp_page_size(10**9) == 10_000
    with pytest.raises(BadRecord):
        clamp_page_size(0)


@proves("ledger.limits")
@pytest.mark.parametrize("path", ["", "/", "a/", "/a", "a//b", ".", "a/../b", "a\nb", "x" * 1001])
def test_a_path_that_could_mean_another_place_is_refused(path: str) -> None:
    with pytest.raises(BadRecord, match="document path"):
        check_path(path)


@proves("ledger.limits")
def test_one_change_holds_a_bounded_number_of_parts() -> None:
    with pytest.raises(BadRecord, match="10000"):
        check_change(Change(session="s_a", events=(NewEvent(type="note"),) * 10_001))


NUL = "a\0b"
EVENT = NewEvent(type="note")
ASKED = OpenRequest(id="r_a", kind="checkpoint", key="k", question="Why?")
CLOSED = CloseRequest(id="r_a")
NOTE = PutDocument(space="notes", path="plan.md", text="")
JOB = NewJob(kind="work", session="s_a")
CHANGE = Change(
    session="s_a", create=NewSession(kind="workflow"), events=(EVENT,), requests=(ASKED, CLOSED), documents=(NOTE,), jobs=(JOB,)
)


@proves("ledger.limits")
@pytest.mark.parametrize(
    "change",
    [
        Change(session=NUL),
        *(
            Change(session="s_a", create=replace(NewSession(kind="workflow"), **{key: NUL}))
            for key in ("namespace", "name", "parent")
        ),
        *(Change(session="s_a", events=(replace(EVENT, **{key: NUL}),)) for key in ("type", "actor", "id")),
        *(
            Change(session="s_a", requests=(replace(ASKED, **{key: NUL}),))
            for key in ("id", "kind", "key", "question", "subject")
        ),
        *(Change(session="s_a", requests=(replace(CLOSED, **{key: NUL}),)) for key in ("id", "by", "channel", "assurance")),
        *(Change(session="s_a", documents=(replace(NOTE, **{key: NUL}),)) for key in ("space", "path", "author")),
        *(Change(session="s_a", jobs=(replace(JOB, **{key: NUL}),)) for key in ("kind", "session", "key", "id")),
    ],
)
def test_no_name_with_a_control_character_is_stored(change: Change) -> None:
    check_change(CHANGE)
    with pytest.raises(BadRecord):
        check_change(change)


@proves("ledger.limits")
@pytest.mark.parametrize("bad", [{"actor": NUL}, {"reason": NUL}, {"sessions": [NUL]}])
def test_nothing_is_erased_with_an_actor_a_reason_or_an_id_that_cannot_be_stored(bad: dict[str, Any]) -> None:
    with pytest.raises(BadRecord):
        build_deletions(**{"sessions": ["s_a"], "actor": "ada", "reason": "asked for", "expect": None} | bad)


@proves("ledger.events")
def test_an_event_without_an_id_gets_one_of_twelve_random_bytes() -> None:
    one, other = (encode_event(EVENT, now=1).id for _ in range(2))

    assert re.fullmatch("e_[0-9a-f]{24}", one)
    assert one != other
