"""Loops, blank outputs and required variables through the tools of all dialects, and what the report says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import Report, report_session
from tests.dialects.conftest import Player, ToolReply, playing
from tests.support import proves

PARADE = """
id: parade
version: 1.0.0
title: Parade
initialActivity: gather
variables:
  - {name: floats, type: array}
  - {name: again, type: boolean}
activities:
  - id: gather
    version: 1.0.0
    name: Gather
    transitions: [{to: march, isDefault: true}]
  - id: march
    version: 1.0.0
    name: March
    loops:
      - id: each
        name: Each
        type: forEach
        over: floats
        variable: float
        maxIterations: 3
        steps: [{id: paint, name: Paint}, {id: push, name: Push}]
    transitions:
      - {to: march, condition: {type: simple, variable: again, operator: "==", value: true}}
      - {to: rest, isDefault: true}
  - id: rest
    version: 1.0.0
    name: Rest
"""
TWO = {"floats": ["swan", "dragon"]}


@pytest.fixture(autouse=True)
def parading(library: Path) -> None:
    (library / "parade.yaml").write_text(PARADE)


async def march(play: Player, **variables: Any) -> str:
    token = await play.start("parade")
    token = (await play("next_activity", session_token=token, activity_id="gather")).token
    return (
        await play("next_activity", session_token=token, activity_id="march", variables={"again": False, **variables})
    ).token


async def rest(play: Player, token: str, manifest: list[dict[str, Any]], **more: Any) -> ToolReply:
    move = {"session_token": token, "activity_id": "rest", "step_manifest": manifest, **more}
    return await play("next_activity", **move)


def done(*iterations: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"step_id": step, "output": "done", "iteration": number, **more} for number in iterations for step in ("paint", "push")
    ]


async def report_of(settings: Settings) -> Report:
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = (await ledger.sessions()).items
        return await report_session(ledger, session.id)


@proves("workflows.loops-are-work")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_loop_is_not_left_before_all_its_iterations_are_reported(
    settings: Settings, library: Path, dialect: str
) -> None:
    async with playing(settings, library, dialect=dialect, fidelity="enforce") as play:
        token = await march(play, **TWO)
        nothing = await rest(play, token, [])
        half = await rest(play, token, [*done(1), done(2)[0]])
        emptied = await rest(play, token, [], variables={"floats": []})
        moved = await rest(play, token, done(1, 2))
    report = await report_of(settings)

    assert "loop 'each' in manifest: [1-2: paint, push]" in nothing.text
    assert "[2: push]" in half.text
    assert '"iteration": 2}' in half.text
    assert "[1-2: paint, push]" in emptied.text
    assert [nothing.is_error, half.is_error, emptied.is_error, moved.is_error] == [True, True, True, False]
    assert report.differences == []


@proves("workflows.loops-are-work")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_where_it_is_only_advised_there_is_one_warning_and_a_difference_for_each_iteration(
    settings: Settings, library: Path, dialect: str
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        token = await march(play, **TWO)
        moved = await rest(play, token, done(1)[:1])
    report = await report_of(settings)

    (warning,) = moved.warnings
    assert "[1: push; 2: paint, push]" in warning
    assert "ondition" not in warning
    assert report.differences == [
        "march: Iteration 1 of loop 'each' was not reported: [push]",
        "march: Iteration 2 of loop 'each' was not reported: [paint, push]",
    ]


@proves("workflows.loops-are-work")
@pytest.mark.parametrize("times", [0, 1, 2])
async def test_an_agent_that_knows_no_iterations_gets_at_most_one_warning(
    settings: Settings, library: Path, times: int
) -> None:
    untagged = [{"step_id": step, "output": "done"} for _ in range(times) for step in ("paint", "push")]
    async with playing(settings, library) as play:
        moved = await rest(play, await march(play, **TWO), untagged)

    assert len(moved.warnings) == (times < 2)


@proves("workflows.loops-are-work")
@pytest.mark.parametrize("wrong", [0, -1, "2", True, 1.5, [1]])
async def test_an_iteration_that_is_no_positive_number_is_refused(settings: Settings, library: Path, wrong: Any) -> None:
    async with playing(settings, library) as play:
        token = await march(play, **TWO)
        moved = await rest(play, token, [{"step_id": "paint", "output": "x", "iteration": wrong}])

    assert moved.is_error
    assert "iteration" in moved.text


@proves("workflows.loops-are-work")
async def test_a_new_visit_does_not_leave_the_loop_of_the_old_one_behind(settings: Settings, library: Path) -> None:
    async with playing(settings, library, fidelity="enforce") as play:
        token = await march(play, **TWO)
        again = {"session_token": token, "activity_id": "march", "variables": {"floats": [], "again": True}}
        skipped = await play("next_activity", **again, transition_condition="again == true")
        repeated = await play("next_activity", **again, step_manifest=done(1, 2))

    assert "[1-2: paint, push]" in skipped.text
    assert not repeated.is_error


@proves("workflows.loops-are-work")
async def test_items_beyond_the_maximum_are_a_difference(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        moved = await rest(play, await march(play, floats=["a", "b", "c", "d", "e"]), done(1, 2, 3))
    report = await report_of(settings)

    assert moved.warnings == []
    assert report.differences == ["march: Loop 'each' has taken no more than its maximum: 2 of its items were left out."]


@proves("workflows.loops-are-work")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_iterations_that_another_dialect_began_are_completed_there(
    settings: Settings, library: Path, dialect: str
) -> None:
    async with playing(settings, library, dialect="navigator", fidelity="enforce") as play:
        state = (await play("nav_start", workflow_id="parade", initial_variables={"again": False, **TWO})).json["state"]
        acts: list[dict[str, Any]] = [
            {"action": "transition", "activity_id": "march"},
            {"action": "advance_loop", "loop_id": "each", "variables": {"floats": []}},
            {"action": "complete_step", "step_id": "paint", "output": "x"},
        ]
        for act in acts:
            state = (await play("nav_action", state=state, **act)).json["state"]
        early = await play("nav_action", state=state, action="transition", activity_id="rest")
    async with playing(settings, library, dialect=dialect, fidelity="enforce") as play:
        nothing = await rest(play, state, [])
        moved = await rest(play, state, [done(1)[1], *done(2)])
    report = await report_of(settings)

    assert early.is_error
    assert "[1: push; 2: paint, push]" in nothing.text
    assert not moved.is_error, moved.text
    assert report.differences == []


TOUR = """
id: tour
version: 1.0.0
title: Tour
initialActivity: plan
variables: [{name: towns, type: array, defaultValue: [Oslo, Rome]}]
activities:
  - id: plan
    version: 1.0.0
    name: Plan
    loops:
      - {id: each, name: Each, type: forEach, over: towns, activities: [travel, play], steps: [{id: pack, name: Pack}]}
    transitions: [{to: rest, isDefault: true}]
  - {id: travel, version: 1.0.0, name: Travel}
  - {id: play, version: 1.0.0, name: Play}
  - {id: rest, version: 1.0.0, name: Rest}
"""


@proves("workflows.loops-are-work")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_loop_is_not_left_through_its_activities(settings: Settings, library: Path, dialect: str) -> None:
    (library / "tour.yaml").write_text(TOUR)
    async with playing(settings, library, dialect=dialect, fidelity="enforce") as play:
        token = await play.start("tour")

        async def go(target: str, *steps: str) -> ToolReply:
            nonlocal token
            manifest = [{"step_id": step, "output": "done"} for step in steps]
            reply = await play("next_activity", session_token=token, activity_id=target, step_manifest=manifest)
            token = token if reply.is_error else reply.token
            return reply

        await go("plan")
        unpacked = await go("travel")
        await go("travel", "pack")
        early = [await go("__terminal__"), await go("plan"), await go("rest")]
        walked = [await go("play"), await go("plan")]
        half = await go("rest")
        walked += [await go("travel", "pack"), await go("play"), await go("plan"), await go("rest")]
    report = await report_of(settings)

    assert "[1: pack]" in unpacked.text
    assert all(reply.is_error for reply in early)
    assert "[2: pack, travel, play]" in half.text
    assert [reply.text for reply in walked if reply.is_error] == []
    assert report.differences == []


@proves("workflows.loops-are-work")
async def test_a_loop_through_activities_that_nobody_walks_is_a_difference(settings: Settings, library: Path) -> None:
    (library / "tour.yaml").write_text(TOUR)
    async with playing(settings, library) as play:
        token = await play.start("tour")
        token = (await play("next_activity", session_token=token, activity_id="plan")).token
        moved = await play("next_activity", session_token=token, activity_id="rest", step_manifest=[])
    report = await report_of(settings)

    assert len(moved.warnings) == 1
    assert [text.partition(": ")[2][:11] for text in report.differences] == ["Iteration 1", "Iteration 2"]


@proves("workflows.blank-outputs")
@pytest.mark.parametrize(
    "blank",
    [
        "",
        "  \n",
        "\u200b",
        "\u2060\ufeff",
        "\u00ad",
        "\u2800\u2800",
        "\u3164",
        "\u115f\uffa0",
        "\u0301",
        "\u200e\u180e \u00a0",
        "\ufe0f",
    ],
)
async def test_an_output_that_nobody_can_see_is_none(settings: Settings, library: Path, blank: str) -> None:
    async with playing(settings, library, fidelity="enforce") as play:
        token = await march(play, floats=["swan"])
        moved = await rest(play, token, [{**entry, "output": blank} for entry in done(1)])
        seen = await rest(play, token, [{**entry, "output": f"{blank}ö✓"} for entry in done(1)])
    async with playing(settings, library, dialect="navigator", fidelity="enforce") as play:
        state = (await play("nav_start", workflow_id="parade", initial_variables={"again": False, **TWO})).json["state"]
        for act in ({"action": "transition", "activity_id": "march"}, {"action": "advance_loop", "loop_id": "each"}):
            state = (await play("nav_action", state=state, **act)).json["state"]
        step = await play("nav_action", state=state, action="complete_step", step_id="paint", output=blank)

    assert "Steps with empty output in manifest: [paint, push]" in moved.text
    assert not seen.is_error
    assert "no output" in step.text


HOUSE = """
id: house
version: 1.0.0
title: House
initialActivity: build
variables:
  - {name: owner, type: string, required: true}
  - {name: floors, type: number, required: true, defaultValue: 1}
activities:
  - id: build
    version: 1.0.0
    name: Build
    steps: [{id: dig, name: Dig, triggers: {workflow: annex, passContext: [owner]}}]
"""
ANNEX = HOUSE.replace("id: house", "id: annex").replace(", triggers: {workflow: annex, passContext: [owner]}", "")


@pytest.fixture
def housing(library: Path) -> None:
    (library / "house.yaml").write_text(HOUSE)
    (library / "annex.yaml").write_text(ANNEX)


@proves("workflows.required-variables")
@pytest.mark.usefixtures("housing")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_required_variable_is_asked_for_at_the_start_and_demanded_where_it_is_enforced(
    settings: Settings, library: Path, dialect: str
) -> None:
    move = {"activity_id": "build"}
    async with playing(settings, library, dialect=dialect) as play:
        begun = await play("start_session", workflow_id="house")
        advised = await play("next_activity", session_token=begun.token, **move)
    async with playing(settings, library, dialect=dialect, fidelity="enforce") as play:
        token = await play.start("house")
        without = await play("next_activity", session_token=token, **move)
        null = await play("next_activity", session_token=token, variables={"owner": None}, **move)
        blank = await play("next_activity", session_token=token, variables={"owner": " \u200b"}, **move)
        with_it = await play("next_activity", session_token=token, variables={"owner": "Ada"}, **move)

    assert begun.warnings == [
        "Workflow 'house' cannot work without values for [owner]. Report owner in `variables`.",
    ]
    assert advised.warnings == []
    assert "[owner]" in without.text
    assert [without.is_error, null.is_error, blank.is_error, with_it.is_error] == [True, True, True, False]


@proves("workflows.required-variables")
@pytest.mark.usefixtures("housing")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize("owner", ["Ada", "", None])
async def test_a_missing_required_variable_is_a_difference_in_the_report(
    settings: Settings, library: Path, dialect: str, owner: str | None
) -> None:
    given = {} if owner is None else {"variables": {"owner": owner}}
    async with playing(settings, library, dialect=dialect) as play:
        token = await play.start("house")
        assert not (await play("next_activity", session_token=token, activity_id="build", **given)).is_error
    async with await open_ledger(settings.ledger) as ledger:
        differences = (await report_session(ledger, (await ledger.sessions()).items[0].id)).differences

    assert differences == ([] if owner else ["(start): Workflow 'house' cannot work without values for [owner]."])


@proves("workflows.required-variables")
@pytest.mark.usefixtures("housing")
@pytest.mark.parametrize("fidelity", ["advise", "enforce"])
async def test_the_navigator_does_not_start_without_a_required_variable(
    settings: Settings, library: Path, fidelity: str
) -> None:
    async with playing(settings, library, dialect="navigator", fidelity=fidelity) as play:
        without = await play("nav_start", workflow_id="house")
        with_it = await play("nav_start", workflow_id="house", initial_variables={"owner": "Ada"})
    async with await open_ledger(settings.ledger) as ledger:
        sessions = (await ledger.sessions()).items

    assert without.is_error
    assert "Give owner in `initial_variables`." in without.text
    assert not with_it.is_error
    assert len(sessions) == 1


@proves("workflows.required-variables")
@pytest.mark.usefixtures("housing")
async def test_what_a_parent_passes_counts_in_its_child(settings: Settings, library: Path) -> None:
    async with playing(settings, library, fidelity="enforce") as play:
        token = await play.start("house")
        owner = {"owner": "Ada"}
        token = (await play("next_activity", session_token=token, activity_id="build", variables=owner)).token
        child = await play("start_session", workflow_id="annex", parent_session_token=token)
        moved = await play("next_activity", session_token=child.token, activity_id="build")
        other = await play("start_session", workflow_id="house", parent_session_token=token)

    assert child.warnings == []
    assert not moved.is_error, moved.text
    assert "[owner]" in other.warnings[0]


@proves("workflows.required-variables")
@pytest.mark.usefixtures("housing")
async def test_a_child_of_the_navigator_waits_for_what_nobody_has_passed(settings: Settings, library: Path) -> None:
    (library / "house.yaml").write_text(HOUSE.replace(", passContext: [owner]", ""))
    async with playing(settings, library, dialect="navigator", fidelity="enforce") as play:
        state = (await play("nav_start", workflow_id="house", initial_variables={"owner": "Ada"})).json["state"]
        step = {"action": "complete_step", "step_id": "dig", "output": "Dug."}
        child = (await play("nav_action", state=state, **step)).json
        enter = {"state": child["state"], "action": "transition", "activity_id": "build"}
        without = await play("nav_action", **enter)
        with_it = await play("nav_action", **enter, variables={"owner": "Ada"})

    assert child["position"]["workflow"] == "annex"
    assert "Report owner in `variables`." in child["availableActions"]["blocked"][0]["reason"]
    assert without.is_error
    assert not with_it.is_error, with_it.text
