"""Lists of sessions: filters, order, lifted fields, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import blank_session
from fidelio.runtime import events as e
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.navigation import listing
from fidelio.runtime.navigation.parameters import FindSessions
from fidelio.runtime.navigation.summaries import MAX_SUMMARY, ListedSession, describe_listed, render_summary
from fidelio.runtime.navigation.verdicts import PendingAction
from fidelio.runtime.outcomes.record import Outcome, OutcomesRecord
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.runtime.wakes.record import WakeRecord
from fidelio.toolkit import read_arguments
from tests.runtime.navigation.support import ALL, World, make, message, suggestions, wake
from tests.support import proves

LIFTED = {
    *("requiresAction", "pendingActionKind", "pendingActionToolName", "setupMatchesCurrent", "outcomeMatchesCurrent"),
    *("relationToCurrent", "childCount", "outcomeStatus", "promotionReady", "outcomeTrend", "nextOutcomeStep"),
}


def outcome(title: str, *criteria: str) -> NewEvent:
    items = [{"text": text, "check": {"type": "command", "command": "true"}} for text in criteria or ("it works",)]
    return make(e.OUTCOME_DEFINED, {"outcome_id": f"out_{title}", "title": title, "criteria": items, "author": "person"})


def evaluated(title: str, status: str, trend: str, iteration: int = 0) -> NewEvent:
    verdict = "met" if status == "pass" else "not_met"
    body = {"outcome_id": f"out_{title}", "iteration": iteration, "status": status, "trend": trend, "wake_id": f"w{iteration}"}
    return make(e.EVALUATION_ENDED, {**body, "results": [{"verdict": verdict, "by": "check"}]})


def approval(world: World, tool: str = "shell_run") -> NewEvent:
    body = {"request": "req_1", "digest": "d", "tool": tool, "expires": world.context.clock() + 9_999_999}
    return make(e.APPROVAL_REQUESTED, body)


def ids(found: dict[str, Any]) -> list[str]:
    return [summary["sessionId"] for summary in found["sessions"]]


@proves("navigation.list")
async def test_an_entry_has_the_lifted_fields_and_the_id_first(world: World) -> None:
    own = await world.start(*wake("w", setup="same"), outcome("Ship it"))
    other = await world.start(*wake("w", summary="Did it.", setup="same"), outcome("ship IT"), parent=own)
    await world.append(other, evaluated("ship IT", "fail", "first_iteration"), approval(world))

    (found,) = (await world.use(own, "session_list", includeCurrent=False))["sessions"]

    assert next(iter(found)) == "sessionId"
    assert found.keys() >= LIFTED
    expected = {
        "sessionId": other,
        "status": "idle",
        "requiresAction": True,
        "pendingActionKind": "tool_confirmation",
        "pendingActionToolName": "shell_run",
        "setupMatchesCurrent": True,
        "outcomeMatchesCurrent": True,
        "relationToCurrent": "child",
        "childCount": 0,
        "outcomeStatus": "blocked",
        "promotionReady": False,
        "outcomeTrend": "first_iteration",
        "latestSummary": "Did it.",
        "turns": 1,
    }
    assert {name: found[name] for name in expected} == expected


@proves("navigation.list")
async def test_the_current_session_is_listed_unless_it_is_left_out(world: World) -> None:
    own = await world.start()

    (found,) = (await world.use(own, "session_list"))["sessions"]

    assert (found["sessionId"], found["relationToCurrent"], found["setupMatchesCurrent"]) == (own, "self", None)
    assert ids(await world.use(own, "session_list", includeCurrent=False)) == []


async def start_family(world: World) -> dict[str, str]:
    parent = await world.start()
    own = await world.start(parent=parent)
    names = {"parent": parent, "own": own, "sibling": await world.start(parent=parent), "child": await world.start(parent=own)}
    return {**names, "grandchild": await world.start(parent=names["child"]), "stranger": await world.start()}


@proves("navigation.list")
@pytest.mark.parametrize(
    ("lineage", "expected"),
    [
        ("related", {"parent", "child", "sibling"}),
        ("parent", {"parent"}),
        ("children", {"child"}),
        ("siblings", {"sibling"}),
        (None, {"parent", "own", "sibling", "child", "grandchild", "stranger"}),
    ],
)
async def test_lineage_really_filters(world: World, lineage: str | None, expected: set[str]) -> None:
    family = await start_family(world)

    filters: dict[str, Any] = {"lineage": lineage} if lineage else {}
    found = await world.use(family["own"], "session_list", limit=50, **filters)

    assert set(ids(found)) == {family[name] for name in expected}


@proves("navigation.list")
async def test_filters_of_status_and_outcome(world: World) -> None:
    own = await world.start()
    failing = await world.start(outcome("a"), evaluated("a", "fail", "regressing"))
    passing = await world.start(outcome("b"), evaluated("b", "pass", "improving"))
    waiting = await world.start(approval(world))
    custom = {"id": "ctu_1", "name": "ask_crm", "input": {}, "wake_id": "w"}
    calling = await world.start(make(e.CUSTOM_TOOL_USE, custom))
    ended = await world.start(make(e.ENDED, {}))
    pending = await world.start(message("hello"))

    async def found(**filters: Any) -> set[str]:
        return set(ids(await world.use(own, "session_list", limit=50, **filters))) - {own}

    assert await found(status="requires_action") == {waiting, calling}
    assert await found(status="terminated") == {ended}
    assert await found(status="rescheduling") == {pending}
    assert await found(status="idle") == {failing, passing, waiting, calling}
    assert await found(hasOutcome=True) == {failing, passing}
    assert await found(hasOutcome=False) == {waiting, calling, ended, pending}
    assert await found(promotionReady=True) == {passing}
    assert await found(outcomeStatus="fail") == {failing}
    assert await found(outcomeTrend="improving") == {passing}


@proves("navigation.list")
async def test_a_custom_tool_is_named_as_what_a_session_waits_for(world: World) -> None:
    custom = {"id": "ctu_1", "name": "ask_crm", "input": {}, "wake_id": "w"}
    session = await world.start(make(e.CUSTOM_TOOL_USE, custom))

    (found,) = (await world.use(session, "session_list"))["sessions"]

    assert (found["pendingActionKind"], found["pendingActionToolName"]) == ("custom_tool", "ask_crm")


@proves("navigation.list")
async def test_sessions_without_activity_are_filtered_by_minutes(world: World) -> None:
    old, own = await world.start(), await world.start()
    row = (await world.load(old)).session
    listed = describe_listed(await world.load(own), row, RuntimeRecord(), now=0)
    filters = FindSessions(activeMinutes=5)

    assert listing.matches(listed, filters, now=row.updated_at + 5 * 60_000 + 59_999)
    assert not listing.matches(listed, filters, now=row.updated_at + 6 * 60_000)


def listed(**changes: Any) -> ListedSession:
    own = LoadedRuntime(blank_session("s_own", "runtime"), RuntimeRecord())
    base = describe_listed(own, blank_session("s_other", "runtime"), RuntimeRecord(), now=0)
    standing = replace(base.standing, trend=changes.pop("trend", None), pending=changes.pop("pending", None))
    session = replace(base.session, updated_at=changes.pop("updated_at", 0))
    return replace(base, standing=standing, session=session, **changes)


@proves("navigation.list")
def test_the_order_is_setup_outcome_action_trend_relation_and_activity() -> None:
    waiting = PendingAction("custom_tool", "x")
    best_first = [
        listed(setup_matches=True),
        listed(outcome_matches=True),
        listed(pending=waiting),
        listed(trend="improving"),
        listed(trend="first_iteration"),
        listed(trend="stable"),
        listed(trend="regressing"),
        listed(relation="child", updated_at=1),
        listed(relation="parent"),
        listed(relation="sibling"),
        listed(setup_matches=False, updated_at=9),
        listed(updated_at=3),
        listed(),
    ]

    assert all(listing.rank(better) > listing.rank(worse) for better, worse in pairwise(best_first))


@proves("navigation.list")
async def test_children_are_those_of_the_named_session(world: World) -> None:
    family = await start_family(world)
    own = await world.use(family["own"], "session_list_children")
    others = await world.use(family["own"], "session_list_children", sessionId=family["child"])

    assert (own["parentSessionId"], ids(own)) == (family["own"], [family["child"]])
    assert own["sessions"][0]["childCount"] == 1
    assert ids(others) == [family["grandchild"]]
    # Seen from here it is nobody's child.
    assert others["sessions"][0]["relationToCurrent"] is None


@proves("navigation.visible", "navigation.list")
async def test_sessions_that_may_not_be_read_are_not_listed(world: World) -> None:
    version = await define(world.context, "online", Environment(network="unrestricted"), by="test")
    online: dict[str, Any] = {"environment": "online", "environment_version": version.version}
    own = await world.start(**online)
    child = await world.start(parent=own, **online)
    await world.start(parent=own)
    await world.start(agent="other", **online)

    found = await world.use(own, "session_list")

    assert set(ids(found)) == {own, child}
    assert ids(await world.use(own, "session_list_children")) == [child]


@proves("navigation.list-bounded")
async def test_a_list_considers_a_bounded_number_of_sessions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_SESSIONS", 6), ("MAX_ROWS", 12), ("_PAGE", 4)):
        monkeypatch.setattr(listing, name, value)
    old = await world.start()
    own = await world.start(parent=old)
    newest = [await world.start() for _ in range(10)]

    found = await world.use(own, "session_list", limit=50)

    # The parent is old, and listed all the same.
    assert set(ids(found)) == {own, old, *newest[-6:]}
    assert found["considered"] == 8


@proves("navigation.list-bounded")
async def test_other_agents_of_the_project_do_not_push_sessions_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_SESSIONS", 4), ("MAX_ROWS", 20), ("_PAGE", 4)):
        monkeypatch.setattr(listing, name, value)
    mine = await world.start()
    own = await world.start()
    for _ in range(8):
        await world.start(agent="other")

    assert set(ids(await world.use(own, "session_list"))) == {own, mine}


@proves("navigation.list-bounded")
@given(
    texts=st.lists(st.text(max_size=600) | st.sampled_from(["\x01" * 500, '"\\' * 300, "ü" * 600]), min_size=3, max_size=3),
    next_step=st.booleans(),
)
def test_an_entry_has_at_most_2400_characters(texts: Sequence[str], next_step: bool) -> None:
    title, summary, goal = texts
    own = LoadedRuntime(blank_session("s_own", "runtime"), RuntimeRecord())
    outcomes = OutcomesRecord((Outcome("o", goal, (), "person"),))
    record = RuntimeRecord(agent="a" * 60, title=title, wakes=WakeRecord(summary=summary), outcomes=outcomes)
    found = describe_listed(own, blank_session("s_other", "runtime"), record, now=0)
    step = {"tool": "outcome_define", "args": {"title": goal * 3}} if next_step else None

    shown = render_summary(found, 3, ALL, next_outcome_step=step)

    assert len(msgspec.json.encode(shown).decode()) <= MAX_SUMMARY
    assert shown.keys() >= LIFTED | {"sessionId"}


@proves("navigation.suggestions")
async def test_the_steps_of_a_list_are_accepted_by_their_tools(world: World) -> None:
    family = await start_family(world)
    await world.append(family["child"], outcome("a"), evaluated("a", "fail", "stable"), evaluated("a", "fail", "stable", 1))
    await world.append(family["sibling"], approval(world))

    steps = suggestions(await world.use(family["own"], "session_list"))

    assert {step["tool"] for step in steps} >= {"session_get_snapshot"}
    for step in steps:
        read_arguments(step["tool"], DEFINITIONS[step["tool"]].parameters, step["args"])
    assert suggestions(await world.use(family["own"], "session_list", tools=frozenset())) == []
