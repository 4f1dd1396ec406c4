"""Sessions that are led and have lost their definition: nothing but the end is offered, and what comes after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.tokens.packed import PREFIX
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.dialects.test_deleted_definitions import BROKEN, GONE, UNCHECKED, WAY_OUT, Takes, deleted, events, requests, spoilt
from tests.support import proves

END = ("transition", "__terminal__")
ASKING = """
id: asking
version: 1.0.0
title: One question
initialActivity: ask
activities:
  - id: ask
    version: 1.0.0
    name: Ask
    checkpoints: [{id: go, name: Go, message: Go?, options: [{id: yes_, label: Yes}]}]
"""


async def crossing(guide: Guide) -> Guide:
    await guide.start("ferry", port="Kiel")
    return await guide.step("queue", "cross")


@proves("gone.end", "gone.moves")
@pytest.mark.parametrize("takes", [deleted, spoilt])
async def test_only_the_end_of_a_lost_child_is_offered_and_leads_back(
    memory: Opens, library: Path, settings: Settings, takes: Takes
) -> None:
    async with memory() as play:
        guide = await crossing(Guide(play))
        takes(library, "crossing")
        await guide.look()
        assert (guide.place(), guide.required) == (("crossing", None, None), [END])
        (warning,) = guide.last["warnings"]
        assert warning.startswith(f"{GONE}crossing." if takes is deleted else BROKEN)
        assert warning.endswith(WAY_OUT)
        await guide.go("__terminal__")

        assert guide.last["warnings"][0].endswith(UNCHECKED)
        assert guide.last["message"] == "Workflow 'crossing' is completed. Back in workflow 'ferry'."
        assert guide.place() == ("ferry", "board", "land")
        assert guide.required == [("respond_to_checkpoint", "wave")]
        await guide.say("wave", "yes")
    (finished,) = await events(settings, "child.finished")

    assert (finished.body["outcome"], finished.body["variables"]) == ("without-definition", {"port": "Kiel"})


@proves("gone.moves")
@pytest.mark.parametrize(
    "action",
    [
        {"action": "complete_step", "step_id": "steer"},
        {"action": "transition", "activity_id": "sail"},
        {"action": "transition", "activity_id": "workflow-end"},
        {"action": "get_resource", "index": "01"},
        {"action": "respond_to_checkpoint", "checkpoint_id": "wave", "option_id": "yes"},
    ],
)
async def test_every_other_move_says_that_the_definition_is_gone(memory: Opens, library: Path, action: dict[str, Any]) -> None:
    async with memory() as play:
        guide = await Guide(play).start("crossing")
        deleted(library, "crossing")
        refused = await play("nav_action", state=guide.state, **action)

    assert refused.is_error
    assert refused.text == f"{GONE}crossing. {WAY_OUT}"


@proves("gone.moves", "gone.end")
async def test_a_state_of_the_parent_ends_nothing_but_leads_to_the_child(memory: Opens, library: Path) -> None:
    async with memory() as play:
        guide = await Guide(play).start("ferry")
        await guide.step("queue")
        before = guide.state
        await guide.step("cross")
        deleted(library, "crossing")
        guide.state = before
        refused = await guide.do("transition", activity_id="__terminal__")
        assert refused.code == "STALE_STATE"
        assert (guide.place()[0], guide.required) == ("crossing", [END])
        await guide.go("__terminal__")

    assert guide.place()[0] == "ferry"


@proves("gone.end")
async def test_a_child_ends_also_when_its_parent_has_lost_its_definition(memory: Opens, library: Path) -> None:
    kept = (library / "ferry.yaml").read_text()
    async with memory() as play:
        guide = await crossing(Guide(play))
        deleted(library, "ferry")
        await guide.step("steer")
        await guide.go("__terminal__")
        assert (guide.place()[0], guide.required) == ("ferry", [END])
        (library / "ferry.yaml").write_text(kept)
        await guide.look()

    assert guide.place() == ("ferry", "board", "land")
    assert guide.required == [("respond_to_checkpoint", "wave")]


@proves("gone.end")
async def test_what_has_ended_without_its_definition_is_shown_as_completed(memory: Opens, library: Path) -> None:
    async with memory() as play:
        guide = await Guide(play).start("crossing")
        deleted(library, "crossing")
        await guide.go("__terminal__")
        assert (guide.last["status"], guide.required) == ("completed", [])
        again = await guide.do("transition", activity_id="__terminal__")
        assert again.code == "SESSION_COMPLETED"
        await guide.look()

    assert guide.last["status"] == "completed"


@proves("gone.enforce")
async def test_where_moves_are_enforced_the_end_is_blocked_and_says_who_can(
    memory: Opens, library: Path, settings: Settings
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("crossing")
    async with memory(fidelity="enforce") as play:
        guide.play = play
        deleted(library, "crossing")
        await guide.look()
        refused = await play("nav_action", state=guide.state, action="transition", activity_id="__terminal__")
    (begun,) = await events(settings, "session.started")

    how = f"unless a person ends it: fidelio sessions --end {begun.session}."
    assert guide.required == []
    assert guide.blocked[END].endswith(how)
    assert refused.is_error
    assert refused.text.endswith(how)


@proves("gone.questions")
@pytest.mark.parametrize("person", [True, False])
async def test_the_end_is_blocked_while_a_question_waits(
    memory: Opens, library: Path, settings: Settings, person: bool
) -> None:
    (library / "asking.yaml").write_text(ASKING)
    async with memory(person=person) as play:
        guide = await Guide(play).start("asking")
        deleted(library, "asking")
        await guide.look()
        (request,) = await requests(settings)
        assert f"fidelio answer {request.id} OPTION" in guide.blocked[END]
        refused = await guide.do("transition", activity_id="__terminal__")
        assert refused.code == "CHECKPOINT_UNRESOLVED"
        async with await open_ledger(settings.ledger) as ledger:
            await Inbox(ledger).answer(request.id, "yes_", by="person:test", channel="cli")
        await guide.look()
        assert guide.required == [END]
        await guide.go("__terminal__")

    assert (await requests(settings))[0].state == "answered"


@proves("gone.repeats")
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("whose", ["parent", "child"])
async def test_an_end_that_is_repeated_with_a_short_handle_does_not_end_the_parent(
    memory: Opens, library: Path, settings: Settings, lost: bool, whose: str
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("relay")
        parent, child = (event.session for event in await events(settings, "session.started"))
        await guide.step("steer")
        for workflow in ("relay", "crossing") if lost else ():
            deleted(library, workflow)
        handle = Guide(play, child if whose == "child" else parent)
        for _ in range(2):
            handle.state = child if whose == "child" else parent
            await handle.do("transition", activity_id="__terminal__")
            assert handle.state.startswith(PREFIX)
    ended = [event.session for event in await events(settings, "session.completed")]

    assert handle.code == "STALE_STATE"
    assert ended == ([child] if whose == "child" else [])


async def at_a_lost_place(guide: Guide, library: Path) -> Guide:
    """In the second of two activities, which is gone then."""
    folder = library / "walk/activities"
    folder.mkdir(parents=True)
    (library / "walk/workflow.yaml").write_text("id: walk\nversion: 1.0.0\ntitle: Walk\ninitialActivity: out\n")
    (folder / "01-out.yaml").write_text("id: out\nversion: 1.0.0\nname: Out\ntransitions: [{to: back}]\n")
    (folder / "02-back.yaml").write_text("id: back\nversion: 1.0.0\nname: Back\nsteps: [{id: rest, name: Rest}]\n")
    await (await guide.start("walk")).go("back")
    (folder / "02-back.yaml").unlink()
    return await guide.look()


@proves("gone.place", "gone.end")
@pytest.mark.usefixtures("settled")
async def test_where_the_activity_is_gone_its_end_is_offered_beside_the_beginning(
    memory: Opens, library: Path, settings: Settings
) -> None:
    async with memory() as play:
        guide = await at_a_lost_place(Guide(play), library)
        (warning,) = guide.last["warnings"]
        await guide.look()
        assert guide.required == [("transition", "out"), END]
        await guide.go("__terminal__")
    (completed,) = await events(settings, "session.completed")

    assert warning.startswith("The current activity 'back' was deleted from the definition")
    assert guide.last["warnings"][0].endswith(UNCHECKED)
    assert completed.body["without_definition"]["by"] == "agent:orchestrator"


@proves("gone.place", "gone.enforce")
async def test_where_the_activity_is_gone_and_moves_are_enforced_only_the_beginning_is_offered(
    memory: Opens, library: Path
) -> None:
    async with memory(fidelity="enforce") as play:
        guide = await at_a_lost_place(Guide(play), library)
        assert "unless a person ends it: fidelio sessions --end" in guide.blocked[END]
        assert guide.required == [("transition", "out")]
        await guide.go("out")

    assert guide.place() == ("walk", "out", None)
