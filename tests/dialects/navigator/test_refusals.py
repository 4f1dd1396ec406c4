"""What is refused: with a code, a sentence, what is possible instead, and nothing changed."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.dialects.navigator.conftest import Guide
from tests.support import proves


@proves("navigator.refusals")
@pytest.mark.parametrize(
    ("action", "arguments", "code", "says"),
    [
        ("complete_step", {"step_id": "zzz"}, "STEP_NOT_FOUND", "not found"),
        ("complete_step", {"step_id": "ask"}, "STEP_NOT_NEXT", "'ask'"),
        ("transition", {"activity_id": "zzz"}, "TARGET_ACTIVITY_NOT_FOUND", "not found"),
        ("transition", {"activity_id": "home"}, "ACTIVITY_NOT_COMPLETE", "No valid transition"),
        ("transition", {"activity_id": "pack"}, "INVALID_TRANSITION", "No valid transition from 'pack'"),
        ("advance_loop", {"loop_id": "each"}, "LOOP_NOT_FOUND", "not found"),
        ("respond_to_checkpoint", {"checkpoint_id": "zzz", "option_id": "a"}, "CHECKPOINT_NOT_FOUND", "not found"),
        ("respond_to_checkpoint", {"checkpoint_id": "size", "option_id": "big"}, "CHECKPOINT_NOT_REACHED", "'size'"),
    ],
)
async def test_a_refused_action_says_why_and_changes_nothing(
    memory: Opens, action: str, arguments: dict[str, Any], code: str, says: str
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        before = guide.last
        await guide.do(action, **arguments)

        assert guide.reply is not None
        assert guide.reply.is_error
        assert guide.code == code
        assert says in guide.last["error"]["message"]
        assert guide.last["message"] == f"Action failed: {guide.last['error']['message']}"
        for key in ("state", "position", "availableActions", "checkpoint", "status"):
            assert guide.last[key] == before[key]


@proves("navigator.refusals", "navigator.tools")
@pytest.mark.parametrize(
    ("action", "missing"),
    [
        ("complete_step", "step_id"),
        ("respond_to_checkpoint", "checkpoint_id"),
        ("transition", "activity_id"),
        ("advance_loop", "loop_id"),
        ("get_resource", "index"),
    ],
)
async def test_a_missing_parameter_is_named(memory: Opens, action: str, missing: str) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        reply = await play("nav_action", state=guide.state, action=action)

    assert reply.is_error
    assert missing in reply.text


@proves("navigator.refusals")
async def test_an_answer_is_given_in_exactly_one_way(memory: Opens) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        answer = {"state": guide.state, "action": "respond_to_checkpoint", "checkpoint_id": "size"}
        for more in ({}, {"option_id": "big", "condition_not_met": True}, {"auto_advance": True, "condition_not_met": True}):
            reply = await play("nav_action", **answer, **more)
            assert reply.is_error
            assert "Exactly one" in reply.text


@proves("navigator.tools", "navigator.trace")
async def test_a_call_with_a_bad_form_is_refused_and_on_record(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        unknown = await play("nav_action", state=guide.state, action="jump")
        nothing = await play("nav_start", workflow_id="zzz")
        missing = await play("get_rules")
        await guide.do("complete_step", step_id="zzz")
        await guide.look()
    async with await open_ledger(settings.ledger) as ledger:
        calls = [event.body for event in await ledger.events(types=["tool.called"])]

    assert "action" in unknown.text
    assert "Workflow not found: zzz" in nothing.text
    assert "Tool get_rules not found" in missing.text
    assert [(call["name"], call.get("err", "")) for call in calls] == [
        ("nav_start", ""),
        ("nav_action", "usage"),
        ("nav_action", "STEP_NOT_FOUND"),
        ("nav_situation", ""),
    ]


@proves("navigator.refusals", "navigator.transitions")
async def test_a_variable_that_is_not_declared_is_refused_where_the_server_enforces(memory: Opens) -> None:
    async with memory(fidelity="enforce") as play:
        guide = await Guide(play).start("tour")
        before = guide.state
        await guide.do("complete_step", step_id="list", variables={"colour": "red"})
        assert guide.code == "UNDECLARED"
        assert "colour" in guide.last["message"]
        assert (guide.state, guide.required) == (before, [("complete_step", "list")])
        await guide.step("list", variables={"calm": True}, output="A list.")
        assert (await play("nav_start", workflow_id="tour", initial_variables={"colour": "red"})).is_error


@proves("navigator.end")
async def test_nothing_is_possible_after_the_end_but_looking(play: Player) -> None:
    guide = await Guide(play).start("crossing")
    await guide.step("steer")
    await guide.go("__terminal__")

    for action, arguments in [
        ("transition", {"activity_id": "sail"}),
        ("complete_step", {"step_id": "steer"}),
        ("advance_loop", {"loop_id": "x"}),
    ]:
        assert (await guide.do(action, **arguments)).code == "WORKFLOW_COMPLETED"
    assert (await play("nav_checkpoint", state=guide.state)).json["active"] is False
