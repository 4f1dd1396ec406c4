"""Being led through a workflow: steps, questions, ways, the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.dialects.navigator.conftest import Guide
from tests.support import proves

KEYS = ["success", "position", "message", "status", "availableActions", "checkpoint", "state"]


@proves("navigator.reply", "navigator.steps", "navigator.checkpoints", "navigator.transitions", "navigator.end")
@pytest.mark.every_transport
async def test_a_walk_from_the_first_step_to_the_end(guide: Guide) -> None:
    await guide.start("tour")
    assert list(guide.last) == KEYS
    assert guide.last["position"] == {
        "workflow": "tour",
        "activity": {"id": "pack", "name": "Pack"},
        "step": {"id": "list", "index": 1, "name": "Write a list"},
        "loop": None,
    }
    assert guide.required == [("complete_step", "list")]
    assert ("transition", "home") in guide.blocked

    await guide.step("list")
    assert guide.last["message"] == "Completed step 'list'"
    assert (guide.required, guide.optional[0]) == ([("respond_to_checkpoint", "size")], ("complete_step", "shine"))

    await guide.say("size", "small")
    await guide.step("ask")
    assert guide.place() == ("tour", "pack", None)
    assert guide.required == [("transition", "home")]
    assert guide.blocked == {("transition", "visit"): "'calm == true' does not hold."}

    await guide.go("home")
    assert guide.last["message"] == "Entered activity 'home'"
    await guide.step("rest")
    assert guide.required == [("transition", "workflow-end")]
    await guide.go("workflow-end")
    assert (guide.last["status"], guide.last["message"]) == ("completed", "Workflow 'tour' is completed.")
    assert guide.place() == ("tour", None, None)
    assert guide.last["availableActions"] == {"required": [], "optional": [], "blocked": []}
    assert "completed" in (await guide.look()).last["message"]
    assert (await guide.do("complete_step", step_id="rest")).code == "WORKFLOW_COMPLETED"


@proves("navigator.steps", "navigator.reply")
async def test_a_step_comes_with_what_to_do_and_a_false_condition_takes_it_away(guide: Guide) -> None:
    await guide.start("tour", place="the sea")
    (move,) = guide.last["availableActions"]["required"]
    assert move == {
        "action": "complete_step",
        "step": "list",
        "name": "Write a list",
        "description": "What to take to the sea",
        "skill": "packing",
    }

    await guide.step("list", "shine")
    await guide.say("size", "big")
    await guide.step("ask")
    assert guide.required == [("complete_step", "fold")]
    assert guide.last["position"]["step"]["index"] == 4
    await guide.step("fold")
    assert guide.required == [("transition", "visit")]


@proves("navigator.checkpoints")
async def test_a_checkpoint_blocks_until_it_is_answered(guide: Guide) -> None:
    await guide.start("tour")
    await guide.step("list", "shine")
    assert guide.last["status"] == "blocked"
    assert guide.last["checkpoint"]["message"] == "Which bag for nowhere?"
    assert guide.optional == []
    assert guide.blocked[("complete_step", "ask")] == "Checkpoint 'size' is to be answered first."

    asked = (await guide.play("nav_checkpoint", state=guide.state)).json
    assert asked["active"] is True
    assert [option["id"] for option in asked["checkpoint"]["options"]] == ["big", "small", "stay"]
    assert "effect" not in asked["checkpoint"]["options"][0]

    assert (await guide.do("complete_step", step_id="ask")).code == "CHECKPOINT_BLOCKING"
    assert (await guide.do("respond_to_checkpoint", checkpoint_id="size", option_id="huge")).code == "OPTION_NOT_FOUND"
    await guide.say("size", "big")
    assert (await guide.play("nav_checkpoint", state=guide.state)).json["active"] is False
    again = await guide.do("respond_to_checkpoint", checkpoint_id="size", option_id="big")
    assert again.code == "CHECKPOINT_ALREADY_RESPONDED"


@proves("navigator.checkpoints", "navigator.transitions")
async def test_an_answer_that_leads_elsewhere_leaves_what_is_left(guide: Guide) -> None:
    await guide.start("tour")
    await guide.step("list")
    await guide.say("size", "stay")

    assert guide.required == [("transition", "home")]
    assert guide.blocked[("transition", "visit")]
    await guide.go("home")
    assert guide.place() == ("tour", "home", "rest")
    diary = {"id": "diary", "name": "nowhere.md", "directory": "diaries", "action": "create"}
    assert guide.last["position"]["activity"] == {"id": "home", "name": "Home", "artifacts": [diary]}
    await guide.step("rest")
    assert guide.last["position"]["activity"] == {"id": "home", "name": "Home"}


@proves("navigator.transitions")
async def test_what_is_reported_with_an_action_counts_for_it_and_is_recorded_with_its_author(
    memory: Opens, settings: Settings
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        await guide.step("list")
        await guide.say("size", "small")
        await guide.step("ask")
        assert (await guide.do("transition", activity_id="visit", variables={"calm": False})).code == "INVALID_TRANSITION"
        assert "No valid transition" in guide.last["error"]["message"]
        assert guide.required == [("transition", "home")]

        await guide.go("home", variables={"place": "home", "colour": "red"})
        assert "colour" in guide.last["warnings"][0]
    async with await open_ledger(settings.ledger) as ledger:
        (event,) = await ledger.events(types=["variables.set"])
    assert event.body == {"variables": {"place": "home", "colour": "red"}, "by": "agent:orchestrator"}


@proves("navigator.independent")
@pytest.mark.parametrize(
    ("workflow", "first", "phrases"),
    [("camp", "swim", ["Go swimming"]), ("meta", "start-workflow", ["Start a workflow"])],
)
async def test_independent_activities_are_offered_side_by_side(
    play: Player, workflow: str, first: str, phrases: list[str]
) -> None:
    guide = await Guide(play).start(workflow)
    offered = guide.last["availableActions"]["required"]

    assert guide.place() == (workflow, None, None)
    assert {named["action"] for named in offered} == {"transition"}
    assert len(offered) == 2
    assert offered[0]["recognition"] == phrases
    await guide.go(first)
    if workflow == "camp":
        await guide.step("dive")
    assert ("transition", "__terminal__") in guide.required
    await guide.go("__terminal__")
    assert guide.last["status"] == "completed"


@proves("navigator.offers")
async def test_a_resource_can_be_read_where_it_is_offered(guide: Guide) -> None:
    await guide.start("tour")
    assert guide.last["availableActions"]["optional"][-1] == {"action": "get_resource", "resources": ["01", "02"]}

    await guide.do("get_resource", index="1")
    assert guide.last["resource"]["title"] == "The map"
    assert guide.last["resource"]["content"].strip() == "# The map\n\nNorth is up."
    assert guide.place() == ("tour", "pack", "list")
    assert (await guide.do("get_resource", index="7")).code == "RESOURCE_NOT_FOUND"
    assert "not found" in guide.last["message"]

    await guide.step("list", "shine")
    assert ("get_resource", "") not in guide.optional
    assert (await guide.do("get_resource", index="1")).code == "CHECKPOINT_BLOCKING"


@proves("navigator.offers")
@pytest.mark.usefixtures("settled")
async def test_looking_again_shows_the_definition_as_it_is_now(guide: Guide, library: Path) -> None:
    file = library / "tour/workflow.yaml"
    await guide.start("tour")
    assert (await guide.look()).required == [("complete_step", "list")]
    file.write_text(file.read_text().replace("id: list", "id: enumerate"))

    assert (await guide.look()).required == [("complete_step", "enumerate")]
