"""Search: matches, explanations and filters."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from fidelio.errors import BadQuery, BadRecord, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, FieldMatch, Hit, NewEvent, PutDocument, Query
from tests.support import proves
from tests.support.ledgers import MovingClock, say, start


async def found(ledger: Ledger, text: str, **filters: object) -> list[tuple[str | None, int | None]]:
    """Session and seq of the hits, sorted, because several tests ask only which they are."""
    await ledger.update_index()
    hits = await ledger.search(Query(text=text, **filters))  # type: ignore[arg-type]  # filters as plain text
    return sorted((hit.session, hit.seq) for hit in hits)


@proves("ledger.search")
async def test_a_hit_says_in_which_field_by_which_terms_and_shows_the_place(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"tool": "grep", "result": [{"line": "The Quick brown fox"}, {"line": "nothing"}]}, "tool.called")
    await ledger.update_index()

    (hit,) = await ledger.search(Query(text="quick GREP"))
    assert (hit.source, hit.session, hit.seq, hit.type, hit.time) == ("event", "s_a", 2, "tool.called", clock.now)
    assert set(hit.matches) == {
        FieldMatch("tool", ("grep",), "grep"),
        FieldMatch("result.0.line", ("quick",), "The Quick brown fox"),
    }
    assert hit.rank > 0
    assert to_builtins(hit)["score"] == hit.rank  # the key in the JSON of `fidelio search`


@proves("ledger.search")
async def test_all_words_are_required_in_any_field(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "red apple", "b": "green"})
    await say(ledger, "s_a", {"a": "red"})
    await say(ledger, "s_a", {"a": "green"})

    assert await found(ledger, "red") == [("s_a", 2), ("s_a", 3)]
    assert await found(ledger, "green red") == [("s_a", 2)]
    assert await found(ledger, "red blue") == []


@proves("ledger.search")
async def test_a_phrase_stays_together_and_inside_one_field(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "the red apple"})
    await say(ledger, "s_a", {"a": "apple red"})
    await say(ledger, "s_a", {"a": "red", "b": "apple"})

    assert await found(ledger, '"red apple"') == [("s_a", 2)]
    assert await found(ledger, "red-apple") == [("s_a", 2)]
    assert await found(ledger, '"red app"*') == [("s_a", 2)]


@proves("ledger.search")
async def test_a_phrase_is_neither_one_word_nor_its_first_word(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "redapple pie"})
    await say(ledger, "s_a", {"a": "red pie"})

    assert await found(ledger, '"red apple" pie') == []
    assert await found(ledger, '"red app"* pie') == []


@proves("ledger.search")
async def test_a_star_finds_beginnings_of_every_length(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "permission denied"})
    await say(ledger, "s_a", {"a": "permit"})
    await say(ledger, "s_a", {"a": "per"})

    assert await found(ledger, "p*") == [("s_a", 2), ("s_a", 3), ("s_a", 4)]
    assert await found(ledger, "perm*") == [("s_a", 2), ("s_a", 3)]
    assert await found(ledger, "permiss*") == [("s_a", 2)]
    assert await found(ledger, "permission*") == [("s_a", 2)]
    assert await found(ledger, "permissions*") == []
    assert await found(ledger, "per") == [("s_a", 4)]


@proves("ledger.search")
async def test_a_beginning_shared_by_very_many_words_finds_all_of_them(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.append("s_a", *(NewEvent(type="note", body={"a": f"word{number}"}) for number in range(60)))

    assert len(await found(ledger, "word*", limit=100)) == 60


@proves("ledger.search")
async def test_case_accents_and_scripts_do_not_matter(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "Crème BRÛLÉE, 42 Straße"})
    await say(ledger, "s_a", {"a": "東京都に行く"})

    for text in ("creme", "brulee", "CRÈME", "strasse", "42", "stra*"):
        assert await found(ledger, text) == [("s_a", 2)], text
    for text in ("東京", "京都", "行"):
        assert await found(ledger, text) == [("s_a", 3)], text
    assert await found(ledger, "京東") == []


@proves("ledger.search")
async def test_the_newest_version_of_a_document_is_found_by_text_and_path(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    for text in ("old lemma", "new theorem"):
        await ledger.commit(Change(session="s_a", documents=(PutDocument(space="notes", path="maths/plan.md", text=text),)))
        await ledger.update_index()

    (hit,) = await ledger.search(Query(text="theorem"))
    assert (hit.source, hit.space, hit.path, hit.version, hit.session) == ("document", "notes", "maths/plan.md", 2, "s_a")
    assert hit.matches == (FieldMatch("text", ("theorem",), "new theorem"),)
    assert [hit.matches[0].field for hit in await ledger.search(Query(text="maths"))] == ["path"]
    assert await ledger.search(Query(text="lemma")) == ()
    await ledger.commit(Change(session="s_a", documents=(PutDocument(space="notes", path="maths/plan.md", text=None),)))
    await ledger.update_index()
    assert await ledger.search(Query(text="theorem")) == ()


@proves("ledger.search-filters")
async def test_a_search_is_limited_to_a_session_or_its_relatives(ledger: Ledger) -> None:
    await start(ledger, "s_top")
    await start(ledger, "s_one", parent="s_top", kind="agent")
    await start(ledger, "s_two", parent="s_top", kind="runtime")
    await start(ledger, "s_else")
    for session in ("s_top", "s_one", "s_two", "s_else"):
        await say(ledger, session, {"a": "needle"})

    assert len(await found(ledger, "needle")) == 4
    assert await found(ledger, "needle", session="s_one") == [("s_one", 2)]
    assert await found(ledger, "needle", session="s_one", relation="parent") == [("s_top", 2)]
    assert await found(ledger, "needle", session="s_top", relation="children") == [("s_one", 2), ("s_two", 2)]
    assert await found(ledger, "needle", session="s_one", relation="siblings") == [("s_two", 2)]
    assert await found(ledger, "needle", session="s_else", relation="parent") == []
    assert await found(ledger, "needle", session="s_else", relation="siblings") == []
    assert await found(ledger, "needle", kind="workflow") == [("s_else", 2), ("s_top", 2)]
    assert await found(ledger, "needle", session="s_top", relation="children", kind="agent") == [("s_one", 2)]


@proves("ledger.search-filters")
async def test_a_search_is_limited_to_types_and_to_events_or_documents(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "needle"}, "one.type")
    await say(ledger, "s_a", {"a": "needle"}, "other.type")
    await ledger.commit(Change(session="s_a", documents=(PutDocument(space="n", path="p", text="needle"),)))

    assert await found(ledger, "needle", types=("one.type",)) == [("s_a", 2)]
    assert await found(ledger, "needle", types=("one.type", "other.type")) == [("s_a", 2), ("s_a", 3)]
    assert await found(ledger, "needle", source="event") == [("s_a", 2), ("s_a", 3)]
    assert await found(ledger, "needle", source="document") == [("s_a", None)]
    assert await found(ledger, "needle", source="document", types=("one.type",)) == []


@proves("ledger.search-filters")
async def test_filters_that_make_no_sense_are_refused(ledger: Ledger) -> None:
    await start(ledger, "s_a")

    with pytest.raises(BadQuery, match="relation needs session"):
        await ledger.search(Query(text="x", relation="children"))
    with pytest.raises(SessionNotFound):
        await ledger.search(Query(text="x", session="s_nobody"))
    with pytest.raises(BadRecord):
        await ledger.search(Query(text="x", limit=0))


@proves("ledger.search")
async def test_of_many_matches_the_newest_are_taken_and_the_best_come_first(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    for number in range(60):
        clock.now += 1
        await say(ledger, "s_a", {"a": f"common word {number}"})
    clock.now += 1
    await say(ledger, "s_a", {"a": "common", "b": "far away from the other, which is a word"})
    await ledger.update_index()

    hits = await ledger.search(Query(text="common word", limit=5))
    assert [hit.seq for hit in hits] == [61, 60, 59, 58, 57]


@proves("ledger.search-hostile")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example('"')
@example("\x00")
@example('a" OR "b')
@example("NEAR(a b)")
@example("tags : s* NOT words")
@example("'; DROP TABLE sessions; --")
@example("*")
@example("a AND")
@example("-a ^b (c {d} : &|!<->")
@example("\ud800")
@example("%s ? ?1 :x $1")
@given(text=st.text(max_size=40))
async def test_no_search_text_upsets_the_database(ledger: Ledger, text: str) -> None:
    if not (await ledger.sessions()).items:
        await start(ledger, "s_a")
        await say(ledger, "s_a", {"a": "a b AND near"})
        await ledger.update_index()
    hits: tuple[Hit, ...] = ()
    with contextlib.suppress(BadQuery):
        hits = await ledger.search(Query(text=text))

    assert all(hit.matches for hit in hits)


@proves("ledger.search-hostile")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no word"),
        ("  ...  ", "no word"),
        ("x" * 1_000_000, "1000000 characters"),
        (" ".join(f"w{number}" for number in range(17)), "more than 16 words"),
    ],
)
async def test_a_text_that_cannot_be_searched_for_is_refused_with_the_reason(ledger: Ledger, text: str, reason: str) -> None:
    with pytest.raises(BadQuery, match=reason):
        await ledger.search(Query(text=text))


@proves("ledger.search")
async def test_what_the_ledger_adds_to_a_body_is_not_found(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    (event,) = await ledger.events("s_a")

    assert '"kind":"workflow"' in (event.raw or "")
    assert await found(ledger, "workflow") == []
