"""Learnings: validated, stored once per agent, seen within the network of the reader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.engine.variables import is_blank
from fidelio.ledger.model import Change, NewEvent, Query
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.memory.learnings import (
    KINDS,
    CapturedLearnings,
    capture_learnings,
    list_learnings,
    parse_learnings,
    plan_learnings,
)
from fidelio.runtime.memory.record import MAX_WAITING
from tests.runtime.memory.support import MemoryBench
from tests.support import proves


def lesson(title: str = "Use the cache", detail: str = "Cold runs take a minute.", **more: Any) -> dict[str, Any]:
    return {"kind": "lesson", "title": title, "detail": detail, **more}


async def titles(bench: MemoryBench, session: str, limit: int = 20) -> list[str]:
    found = await bench.call(session, "learning_list", limit=limit)
    return [each["learning"]["title"] for each in found["learnings"]]


@proves("runtime.learnings")
async def test_a_learning_is_an_event_of_the_agent_with_its_source(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.append(session, e.USER_MESSAGE, content=[])
    message = (await bench.events(session, e.USER_MESSAGE))[0]
    await bench.append(session, e.SPAN_STARTED, span_kind="wake", wake_id="wake_1", processed_seq=message.seq)
    plan = await bench.learn(session, lesson(dedupeKey="cache"))
    (learning,) = plan.accepted
    other = await bench.start("other")
    found = await bench.call(other, "learning_list")
    assert found["learnings"] == [
        {
            "id": learning.id,
            "agentId": "default",
            "createdAt": "2027-01-15T08:00:00.000Z",
            "sessionId": session,
            "wakeId": "wake_1",
            "sourceEventId": message.id,
            "sourceReason": e.USER_MESSAGE,
            "learning": {
                "kind": "lesson",
                "title": "Use the cache",
                "detail": "Cold runs take a minute.",
                "promoteToMemory": False,
                "dedupeKey": "cache",
            },
        }
    ]
    assert await bench.events(session, e.LEARNING_CAPTURED) == ()


@proves("runtime.learnings")
async def test_a_learning_stays_when_its_session_is_deleted(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.learn(session, lesson())
    await bench.ledger.erase([session], actor="anna", reason="done")
    assert await titles(bench, await bench.start("later")) == ["Use the cache"]


@proves("runtime.learnings")
async def test_a_search_finds_a_learning(bench: MemoryBench) -> None:
    await bench.learn(await bench.start(), lesson("Prefer ripgrep", "It honours ignore files."))
    await bench.ledger.update_index()
    (hit,) = await bench.ledger.search(Query(text="ripgrep", types=(e.LEARNING_CAPTURED,)))
    assert hit.type == e.LEARNING_CAPTURED


@proves("runtime.learnings")
@pytest.mark.parametrize(
    ("item", "word"),
    [
        ("text", "object"),
        (None, "object"),
        ({"title": "x"}, "detail"),
        ({"title": "\u200b", "detail": "y"}, "title"),
        ({"title": "x", "detail": 3}, "detail"),
        (lesson(kind="obey"), "kind"),
        (lesson(kind=["lesson"]), "kind"),
        (lesson(dedupeKey=""), "dedupeKey"),
        (lesson(dedupeKey=7), "dedupeKey"),
    ],
)
def test_what_cannot_be_used_is_named_and_the_others_are_taken(item: Any, word: str) -> None:
    parsed = parse_learnings([item, lesson()])
    assert [learning.title for learning in parsed.accepted] == ["Use the cache"]
    (sentence,) = parsed.rejected
    assert sentence.startswith("learnings 1: ")
    assert word in sentence


@proves("runtime.learnings")
def test_only_three_learnings_are_taken() -> None:
    parsed = parse_learnings([lesson(f"t{number}") for number in range(5)])
    assert [learning.title for learning in parsed.accepted] == ["t0", "t1", "t2"]
    assert parsed.rejected == ("learnings: only the first 3 of 5 were read.",)


@proves("runtime.learnings")
def test_long_texts_are_cut_with_an_ellipsis_and_become_single_lines() -> None:
    (learning,) = parse_learnings([lesson("a\nb" * 100, "d" * 401)]).accepted
    assert (len(learning.title), len(learning.detail)) == (120, 400)
    assert learning.title.endswith("…")
    assert learning.detail == "d" * 399 + "…"
    assert "\n" not in learning.title


@proves("runtime.learnings")
def test_a_learning_without_a_kind_is_a_lesson_and_only_true_promotes() -> None:
    parsed = parse_learnings([{"title": "x", "detail": "y", "promoteToMemory": value} for value in (True, "true", 1)])
    assert [(learning.kind, learning.promotes) for learning in parsed.accepted] == [
        ("lesson", True),
        ("lesson", False),
        ("lesson", False),
    ]


visible = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=150).filter(
    lambda text: not is_blank(text)
)
items = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS), "title": visible, "detail": visible},
    optional={"dedupeKey": visible, "promoteToMemory": st.booleans()},
)


@proves("runtime.learnings")
@given(st.lists(items, max_size=3))
def test_what_was_captured_once_is_known_whatever_its_case(found: list[dict[str, Any]]) -> None:
    parsed = parse_learnings(found)
    first = capture_learnings(parsed, (), waiting=0)
    known = {learning.fingerprint for learning in first.accepted}
    assert len(known) == len(first.accepted) == len({learning.fingerprint for learning in parsed.accepted})
    again = capture_learnings(parsed, known, waiting=0)
    assert again.accepted == ()
    # Some characters are another character in upper and lower case again; only simple ones show the promise.
    upper = [{**item, "title": item["title"].upper(), "detail": item["detail"].upper()} for item in found if _is_simple(item)]
    assert capture_learnings(parse_learnings(upper), known, waiting=0).accepted == ()


def _is_simple(item: dict[str, Any]) -> bool:
    return all(
        item[key].upper().lower() == item[key].lower() and len(item[key].upper()) == len(item[key])
        for key in ("title", "detail")
    )


@proves("runtime.learnings")
@given(items, items)
def test_different_learnings_are_never_taken_for_the_same(one: dict[str, Any], two: dict[str, Any]) -> None:
    first, second = (parse_learnings([item]).accepted[0] for item in (one, two))
    if first.fingerprint == second.fingerprint:
        same_text = (first.kind, first.title.lower(), first.detail.lower()) == (
            second.kind,
            second.title.lower(),
            second.detail.lower(),
        )
        assert (first.key and first.key == second.key) or (not first.key and not second.key and same_text)


@proves("runtime.learnings")
def test_a_learning_that_is_named_twice_in_a_directive_is_taken_once() -> None:
    captured = capture_learnings(parse_learnings([lesson(), lesson("USE THE CACHE")]), (), waiting=0)
    assert [learning.title for learning in captured.accepted] == ["Use the cache"]
    assert captured.rejected == ("learnings: 'USE THE CACHE' is known already and was not stored again.",)


@proves("runtime.learnings")
async def test_an_equal_learning_of_any_session_of_the_agent_is_stored_once(bench: MemoryBench) -> None:
    await bench.learn(await bench.start("a"), lesson(), lesson("Other", dedupeKey="k"))
    plan = await bench.learn(await bench.start("b"), lesson("USE the cache"), lesson("New words", dedupeKey="k"), lesson("New"))
    assert [learning.content.title for learning in plan.accepted] == ["New"]
    assert len(plan.rejected) == 2
    assert await titles(bench, await bench.start("c")) == ["Use the cache", "Other", "New"]


@proves("runtime.learnings")
async def test_two_sessions_that_learn_the_same_at_once_both_succeed_and_it_is_listed_once(bench: MemoryBench) -> None:
    sessions = [await bench.load(await bench.start(name)) for name in ("a", "b")]
    plans = [await plan_learnings(bench.context, session, [lesson()], wake="w") for session in sessions]
    for session, plan in zip(sessions, plans, strict=True):
        await bench.context.unit.commit(session, SessionDecision(None, events=plan.events, linked=plan.linked))
    assert await titles(bench, sessions[0].id) == ["Use the cache"]


@proves("runtime.learnings")
async def test_another_agent_and_another_project_learn_for_themselves(bench: MemoryBench) -> None:
    await bench.learn(await bench.start("a"), lesson())
    assert (await bench.learn(await bench.start("b", agent="other"), lesson())).accepted
    assert (await bench.learn(await bench.start("c", project="/elsewhere"), lesson())).accepted
    assert await titles(bench, await bench.start("d", agent="third")) == []


@proves("runtime.learnings")
async def test_the_list_has_the_newest_oldest_first_however_many_events_the_store_has(bench: MemoryBench) -> None:
    session = await bench.start()
    for start in range(0, 12, 3):
        await bench.learn(session, *(lesson(f"t{number}") for number in range(start, start + 3)))
    store = (await bench.substrate()).store
    noise = tuple(NewEvent(type="resource.directory_rebuilt") for _ in range(1_500))
    await bench.ledger.commit(Change(session=store.id, events=noise))
    await bench.learn(session, lesson("last"))
    assert await titles(bench, session, limit=4) == ["t9", "t10", "t11", "last"]
    assert len(await titles(bench, session, limit=200)) == 13


@proves("runtime.learnings")
async def test_a_redacted_learning_is_not_listed_and_does_not_come_back(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.learn(session, lesson("secret"), lesson("fine"))
    store = (await bench.substrate()).store
    (secret, _) = await bench.events(store.id, e.LEARNING_CAPTURED)
    await bench.ledger.redact(store.id, [secret.seq], actor="anna", reason="secret")
    assert await titles(bench, session) == ["fine"]
    assert not (await bench.learn(session, lesson("secret"))).accepted


@proves("runtime.learning-network")
async def test_what_an_offline_session_learned_is_not_seen_by_one_with_a_network(bench: MemoryBench) -> None:
    offline, online = await bench.start_in("none", "off"), await bench.start_in("unrestricted", "on")
    await bench.learn(offline, lesson("from inside"))
    await bench.learn(online, lesson("from outside"))
    assert await titles(bench, online) == ["from outside"]
    assert await titles(bench, offline) == ["from inside", "from outside"]
    everything = await list_learnings(bench.context, bench.project, "default", 20)
    assert len(everything) == 2


@proves("runtime.learning-network")
async def test_a_learning_that_a_session_cannot_see_does_not_count_as_known_to_it(bench: MemoryBench) -> None:
    offline, online = await bench.start_in("none", "off"), await bench.start_in("unrestricted", "on")
    await bench.learn(offline, lesson())
    assert (await bench.learn(online, lesson())).accepted
    assert await titles(bench, online) == ["Use the cache"]
    assert not (await bench.learn(offline, lesson())).accepted


@proves("runtime.learning-network")
async def test_a_session_whose_environment_is_unknown_sees_nothing_of_offline_ones(bench: MemoryBench) -> None:
    await bench.learn(await bench.start("a"), lesson())
    lost = await bench.start("b", environment="deleted", environment_version=9)
    assert await titles(bench, lost) == []


@proves("runtime.learning-promotion")
def test_at_most_ten_learnings_wait_for_a_person() -> None:
    (learning,) = parse_learnings([lesson(promoteToMemory=True)]).accepted
    captured = capture_learnings(CapturedLearnings((learning,)), (), waiting=MAX_WAITING)
    assert [each.promotes for each in captured.accepted] == [False]
    assert "wait for a person already" in captured.rejected[0]
