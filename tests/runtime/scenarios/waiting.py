"""Scenarios in which the agent waits for the caller, or for a time that it has chosen: a custom tool, a delayed wake."""

from __future__ import annotations

from fidelio.runtime import events as e
from tests.runtime.scenarios.acts import give_result, has_wakes, pass_time, records, says, tell, tells_model
from tests.runtime.scenarios.stage import Scenario, Stage, call_all, list_results, read_block, say

_TOOL = {"name": "tide_table", "description": "The tides of a harbour.", "input_schema": {"type": "object"}}
_LATER = {"reason": "Look at the tide again.", "delaySeconds": 3600, "note": "Pier 4", "dedupeKey": "tide"}


async def _gets_the_result(stage: Stage) -> None:
    (used,) = await stage.events(e.CUSTOM_TOOL_USE)
    (block,) = list_results(stage.own_requests[-1])
    assert block.tool_use_id == used.body["id"]
    assert read_block(block) == {"text": "High at noon."}
    assert (await stage.messages())[0] == "I look it up."


async def _sleeps_in_between(stage: Stage) -> None:
    """An hour lies between the two wakes, and nothing else."""
    first, second = await stage.events(e.STATUS_RUNNING)
    assert second.time - first.time >= _LATER["delaySeconds"] * 1000  # type: ignore[operator]  # it is a number
    (started,) = [event for event in await stage.events(e.SPAN_STARTED) if event.body.get("consumed")]
    (queued,) = await stage.events(e.WAKE_QUEUED)
    assert started.body["consumed"] == [queued.body["id"]]


CUSTOM_TOOLS = (
    Scenario(
        id="ask-the-caller-for-a-tide-table",
        agent={"tools": {"custom": [_TOOL]}},
        does=(tell("When is high tide?"), give_result("High at noon.")),
        model=(call_all(("tide_table", {"harbour": "Husum"}), text="I look it up."), say("At noon.")),
        expects=(
            _gets_the_result,
            records(e.CUSTOM_TOOL_USE, e.CUSTOM_TOOL_REQUESTED, e.STATUS_IDLE, e.USER_TOOL_RESULT, e.AGENT_MESSAGE),
            says("At noon."),
        ),
    ),
)
DELAYED_WAKES = (
    Scenario(
        id="come-back-after-an-hour",
        does=(tell("Look at the tide in an hour again."), pass_time(3590), pass_time(20)),
        model=(say("I will.", queuedWakes=[_LATER]), say("It is high.")),
        expects=(
            _sleeps_in_between,
            tells_model("Look at the tide again."),
            tells_model("Pier 4"),
            says("It is high."),
            has_wakes(2),
        ),
    ),
)
