"""Ranked search: any word may match, the order is that of BM25, and the filters hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fidelio.errors import BadQuery, BadRecord
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, PutDocument, RankedHit, RankQuery
from fidelio.ledger.search import RANKED_EXCERPT_LENGTH
from tests.support import proves
from tests.support.ledgers import MovingClock, say, start

WORDS = ("red", "green", "apple", "pear", "stone")


async def ranked(ledger: Ledger, *terms: str, **more: object) -> tuple[RankedHit, ...]:
    await ledger.update_index()
    return await ledger.rank(RankQuery(terms=terms, **more))  # type: ignore[arg-type]  # filters as plain values


async def places(ledger: Ledger, *terms: str, **more: object) -> list[tuple[str | None, int | None]]:
    return [(hit.session, hit.seq) for hit in await ranked(ledger, *terms, **more)]


async def put(ledger: Ledger, session: str, path: str, text: str, space: str = "notes") -> None:
    await ledger.commit(Change(session=session, documents=(PutDocument(space=space, path=path, text=text),)))


@proves("ledger.rank")
async def test_any_of_the_words_may_match_and_more_and_rarer_words_come_first(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    for text in ("red stone", "green stone", "red green stone", "blue"):
        await say(ledger, "s_a", {"a": text})
    await say(ledger, "s_a", {"a": "red pear"})

    hits = await ranked(ledger, "Red", "GREEN", "nowhere")

    assert hits[0].seq == 4
    assert {hit.seq for hit in hits} == {2, 3, 4, 6}
    assert [set(hit.words) for hit in hits[:2]] == [{"red", "green"}, {"green"}]


@proves("ledger.rank")
async def test_a_hit_says_where_it_is_and_what_matched(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    event = await say(ledger, "s_a", {"tool": "grep", "lines": ["nothing", "The Quick brown fox"]}, "tool.called")
    await put(ledger, "s_a", "plan.md", "quick plans")

    by_source = {hit.source: hit for hit in await ranked(ledger, "quick", phrases=("brown fox",))}

    found, document = by_source["event"], by_source["document"]
    assert (found.session, found.seq, found.event, found.type, found.time) == ("s_a", 2, event.id, "tool.called", clock.now)
    assert (found.words, found.phrases, found.excerpt) == (("quick",), ("brown fox",), "The Quick brown fox")
    assert found.body == {"tool": "grep", "lines": ["nothing", "The Quick brown fox"]}
    assert (document.space, document.path, document.version, document.session) == ("notes", "plan.md", 1, "s_a")
    assert (document.type, document.raw, document.body) == ("document", "quick plans", {})
    assert found.relevance > document.relevance > 0


@proves("ledger.rank")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=1, max_size=6),
    st.sets(st.sampled_from(WORDS), min_size=1),
)
async def test_the_scores_are_those_of_bm25(ledger: Ledger, texts: list[list[str]], terms: set[str]) -> None:
    """Compares with the formula over all texts: in 90 rows no word is common."""
    session = f"s_{(await ledger.wait(after=0, timeout=0))}"
    await start(ledger, session, namespace=session)
    await ledger.append(session, *(NewEvent(type="note", body={"text": " ".join(text)}) for text in texts))
    total = await ledger.update_index()
    everything = [event.body["text"].split() for event in await ledger.events(types=("note",))]
    matching = [text for text in texts if terms & set(text)]

    hits = await ranked(ledger, *sorted(terms), namespaces=(session,), limit=100)

    expected = [_bm25(text, terms, matching, everything, total) for text in matching]
    assert [hit.relevance for hit in hits] == pytest.approx(sorted(expected, reverse=True), abs=1e-4)
    for hit in hits:
        assert hit.relevance == pytest.approx(_bm25(hit.body["text"].split(), terms, matching, everything, total), abs=1e-4)


def _bm25(text: list[str], terms: set[str], scored: Sequence[list[str]], everything: Sequence[list[str]], total: int) -> float:
    average = sum(map(len, scored)) / len(scored)
    score = 0.0
    for term in terms:
        rows = min(total, sum(term in each for each in everything))
        weight = math.log(1 + (total - rows + 0.5) / (rows + 0.5))
        count = text.count(term)
        score += weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(text) / average))
    return score


@proves("ledger.rank")
async def test_of_equal_hits_the_newest_comes_first(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    for _ in range(4):
        clock.now += 1
        await say(ledger, "s_a", {"a": "needle"})

    assert await places(ledger, "needle", limit=3) == [("s_a", 5), ("s_a", 4), ("s_a", 3)]


@proves("ledger.rank")
async def test_a_phrase_matches_only_as_a_whole_and_inside_one_field(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "the red apple pie"})
    await say(ledger, "s_a", {"a": "apple red"})
    await say(ledger, "s_a", {"a": "red", "b": "apple"})

    assert await places(ledger, phrases=("red apple",)) == [("s_a", 2)]
    first, *rest = await ranked(ledger, "red", phrases=("red apple",))
    assert (first.seq, first.phrases, {hit.seq for hit in rest}) == (2, ("red apple",), {3, 4})
    assert all(first.relevance > hit.relevance for hit in rest)


@proves("ledger.rank")
async def test_an_excerpt_begins_forty_characters_before_the_first_match(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "x" * 100 + " needle " + "y " * 300})
    await say(ledger, "s_a", {"a": "é" * 100 + " Nadel " + "y " * 300})
    await say(ledger, "s_a", {"a": "short needles and one needle"})

    excerpts = {hit.seq: hit.excerpt for hit in await ranked(ledger, "needle", "nadel")}
    plain, accented, short = excerpts[2], excerpts[3], excerpts[4]

    assert plain.startswith("…" + "x" * 39 + " needle y")
    assert accented.startswith("…" + "é" * 39 + " Nadel y")
    assert short == "short needles and one needle"
    assert all(len(excerpt) == RANKED_EXCERPT_LENGTH and excerpt.endswith("…") for excerpt in (plain, accented))


@proves("ledger.rank")
async def test_texts_of_the_caller_are_ranked_with_what_is_stored(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "needle and some more words"})

    hits = await ranked(ledger, "needle", texts={"MEMORY.md": "needle", "other": "nothing"})

    assert (hits[0].path, hits[0].session, hits[0].raw) == ("MEMORY.md", None, "needle")
    assert [hit.source for hit in hits] == ["text", "event"]


@proves("ledger.rank-filters")
async def test_sessions_and_children_limit_a_query_together(ledger: Ledger) -> None:
    await start(ledger, "s_top")
    await start(ledger, "s_one", parent="s_top")
    await start(ledger, "s_two", parent="s_top")
    await start(ledger, "s_else")
    for session in ("s_top", "s_one", "s_two", "s_else"):
        await say(ledger, session, {"a": "needle"})
        await put(ledger, session, session, "needle")

    async def found(**filters: object) -> set[str | None]:
        hits = await ranked(ledger, "needle", **filters)
        assert {(hit.session, hit.source) for hit in hits} == {
            (session, source) for session in {hit.session for hit in hits} for source in ("event", "document")
        }
        return {hit.session for hit in hits}

    assert await found() == {"s_top", "s_one", "s_two", "s_else"}
    assert await found(sessions=("s_one",)) == {"s_one"}
    assert await found(parents=("s_top",)) == {"s_one", "s_two"}
    assert await found(sessions=("s_top",), parents=("s_top",)) == {"s_top", "s_one", "s_two"}
    assert await found(parents=("s_top",), without=("s_two",)) == {"s_one"}
    assert await found(sessions=()) == set()
    assert await found(without=("s_top", "s_one", "s_unknown")) == {"s_two", "s_else"}


@proves("ledger.rank-filters")
@pytest.mark.parametrize("rest", [0, 1_300])
async def test_only_sessions_of_the_namespaces_are_found(ledger: Ledger, rest: int) -> None:
    """With many rows the index is not asked for a namespace that most rows have."""
    for session, namespace in (("s_a", "mine"), ("s_b", "theirs"), ("s_c", "")):
        await start(ledger, session, namespace=namespace)
    await ledger.append("s_a", *(NewEvent(type="note", body={"a": f"filler {number}"}) for number in range(rest)))
    for session in ("s_a", "s_b", "s_c"):
        await say(ledger, session, {"a": "needle"})

    assert [hit.session for hit in await ranked(ledger, "needle", namespaces=("mine",))] == ["s_a"]
    assert {hit.session for hit in await ranked(ledger, "needle", namespaces=("theirs", "mine"))} == {"s_a", "s_b"}
    assert await ranked(ledger, "needle", namespaces=("nobody's",)) == ()


@proves("ledger.rank-filters")
async def test_values_of_the_record_limit_a_query_however_many_others_match_better(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await ledger.commit(Change(session="s_a", record={"agent": "a", "n": 1}))
    await ledger.commit(Change(session="s_b", record={"agent": "b"}))
    await say(ledger, "s_a", {"a": "needle and more words"})
    await ledger.append("s_b", *(NewEvent(type="note", body={"a": "needle"}) for _ in range(300)))

    assert [hit.session for hit in await ranked(ledger, "needle", record={"agent": "a"})] == ["s_a"]
    assert await ranked(ledger, "needle", record={"agent": "c"}) == ()
    assert await ranked(ledger, "needle", record={"missing": ""}) == ()


@proves("ledger.rank")
async def test_the_best_events_of_a_favoured_session_are_hits_however_many_others_are_better(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await say(ledger, "s_a", {"a": "needle and many more words that make it worse"})
    await say(ledger, "s_a", {"a": "nothing"})
    await ledger.append("s_b", *(NewEvent(type="note", body={"a": "needle"}) for _ in range(300)))

    hits = await ranked(ledger, "needle", favoured=("s_a",), limit=5)

    assert [(hit.session, hit.seq) for hit in hits[5:]] == [("s_a", 2)]
    assert await places(ledger, "needle", favoured=("s_unknown",), limit=5) == [(hit.session, hit.seq) for hit in hits[:5]]


@proves("ledger.rank-filters")
@pytest.mark.parametrize("types", [("one",), ("one", "a", "b", "c", "d")])
async def test_types_and_source_limit_a_query(ledger: Ledger, types: tuple[str, ...]) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "needle"}, "one")
    await say(ledger, "s_a", {"a": "needle"}, "other")
    await put(ledger, "s_a", "p", "needle")

    assert await places(ledger, "needle", types=types) == [("s_a", 2)]
    assert await places(ledger, "needle", source="document") == [("s_a", None)]
    assert set(await places(ledger, "needle", source="event")) == {("s_a", 2), ("s_a", 3)}
    assert await places(ledger, "needle", source="document", types=types) == []
    assert set(await places(ledger, "needle", types=(*types, "document"))) == {("s_a", 2), ("s_a", None)}
    assert await places(ledger, "needle", types=("document",)) == [("s_a", None)]


@proves("ledger.rank")
async def test_a_redacted_event_and_a_replaced_document_are_not_found(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"a": "needle"})
    for text in ("needle", "thread"):
        await put(ledger, "s_a", "p", text)
        await ledger.update_index()
    await ledger.redact("s_a", [2], actor="p", reason="r")

    assert await ranked(ledger, "needle") == ()
    assert [hit.version for hit in await ranked(ledger, "thread")] == [2]


@proves("ledger.rank-bounded")
async def test_a_word_in_many_rows_finds_rows_only_if_no_other_word_does(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.append("s_a", *(NewEvent(type="note", body={"a": f"always {number % 2}"}) for number in range(200)))
    await say(ledger, "s_a", {"a": "always a needle"})
    await say(ledger, "s_a", {"a": "a needle"})

    together = await ranked(ledger, "always", "needle", limit=100)
    alone = await ranked(ledger, "always", "nothing", limit=100)

    assert {hit.seq: set(hit.words) for hit in together} == {202: {"always", "needle"}, 203: {"needle"}}
    assert len(alone) == 100


@proves("ledger.rank-hostile")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example('"')
@example("\x00")
@example('a" OR "b')
@example("tags : s* NOT words")
@example("'; DROP TABLE sessions; --")
@example("\ud800")
@example("a & b | !c <-> d:*")
@given(text=st.text(max_size=40))
async def test_no_query_upsets_the_database(ledger: Ledger, text: str) -> None:
    if not (await ledger.sessions()).items:
        await start(ledger, "s_a")
        await say(ledger, "s_a", {"a": "a b AND near"})
    try:
        hits = await ranked(ledger, text, phrases=(text,), texts={"t": text})
    except BadQuery:
        return

    assert all(hit.words or hit.phrases for hit in hits)


@proves("ledger.rank-hostile")
async def test_a_query_without_words_or_with_too_many_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BadQuery, match="no word"):
        await ledger.rank(RankQuery(terms=(" ... ",)))
    with pytest.raises(BadQuery, match="65 different words"):
        await ledger.rank(RankQuery(terms=tuple(f"w{number}" for number in range(65))))
    with pytest.raises(BadRecord):
        await ledger.rank(RankQuery(terms=("x",), limit=0))
