"""Scenarios in which the agent finds out about itself: setup, context, permissions, wakes, relatives, files."""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.providers.model import ModelReply
from fidelio.runtime import events as e
from tests.runtime.scenarios.acts import begin_session, has_wakes, returns, says, tell
from tests.runtime.scenarios.stage import AGENT, Scenario, Stage, StageTurn, call, say

_FIRST = say("Hello.", summary="Greeted the person.")


async def _knows_its_setup(stage: Stage) -> None:
    (made,) = await stage.calls()
    setup = made.output["agentSetup"]
    assert setup["fingerprint"] == (await stage.record()).wakes.setup
    assert setup["sections"].keys() >= {"provider_model", "tools", "skills", "environment", "mounts", "permissions"}


async def _has_an_equal_sibling(stage: Stage) -> None:
    earlier, _ = stage.sessions
    (made,) = await stage.calls()
    assert (made.output["targetSessionId"], made.output["sameSetup"]) == (earlier, True)
    assert made.output["changedSections"] == []


async def _knows_its_window(stage: Stage) -> None:
    (made,) = await stage.calls()
    assert made.output["available"] is True
    assert made.output["pressure"]["level"] == "low"
    used, requests = made.output["pressure"]["usedTokens"], await stage.events(e.MODEL_REQUEST_ENDED)
    assert used in [event.body["context_tokens"] for event in requests]


async def _stands_where_it_stands(stage: Stage) -> None:
    (made,) = await stage.calls()
    first, second = [event.body["wake_id"] for event in await stage.events(e.STATUS_RUNNING)]
    shown = {name: made.output[name] for name in ("status", "turns", "lastWakeId", "latestSummary", "requiresAction")}
    expected: dict[str, Any] = {"status": "running", "turns": 2, "lastWakeId": second, "requiresAction": False}
    assert shown == {**expected, "latestSummary": "Greeted the person."}
    assert first != second


async def _lists_its_wakes(stage: Stage) -> None:
    (made,) = await stage.calls()
    wakes = [event.body["wake_id"] for event in await stage.events(e.STATUS_RUNNING)]
    assert [trace["wakeId"] for trace in made.output["traces"]] == wakes[::-1]


async def _reads_its_first_wake(stage: Stage) -> None:
    _, made = await stage.calls()
    seen = [event["seq"] for event in made.output["events"]]
    _, second = await stage.events(e.STATUS_RUNNING)
    assert seen == sorted(seen)
    assert seen[-1] < second.seq
    assert made.output["events"][0]["type"] == e.SPAN_STARTED
    assert e.AGENT_MESSAGE in [event["type"] for event in made.output["events"]]


def _read_first_wake(turn: StageTurn) -> ModelReply:
    return call("session_get_trace", wakeId=turn.last["traces"][-1]["wakeId"])


async def _knows_its_child(stage: Stage) -> None:
    delegated, listed = await stage.calls()
    (child,) = listed.output["sessions"]
    assert child["sessionId"] == delegated.output["childSession"]["sessionId"]
    assert child["relationToCurrent"] == "child"


async def _knows_that_nothing_is_judged(stage: Stage) -> None:
    (made,) = await stage.calls()
    assert (made.output["activeOutcome"], made.output["grade"]["status"]) == (None, "missing_outcome")
    assert made.output["grade"]["nextSuggestedTool"]["tool"] == "outcome_define"


async def _reads_the_file_about_its_setup(stage: Stage) -> None:
    (made,) = await stage.calls()
    setup = msgspec.json.decode(made.output["output"]["content"])
    assert (setup["agentId"], setup["fingerprint"]) == (AGENT, (await stage.record()).wakes.setup)


async def _reads_no_host_path(stage: Stage) -> None:
    (made,) = await stage.calls()
    assert made.output["name"] == "default"
    assert made.output["sandbox"]["network"] == "none"
    assert {mount["mountPath"] for mount in made.output["mountedResources"]} >= {"/workspace", "/workspace/agent"}


INTROSPECTION = (
    Scenario(
        id="describe-own-setup",
        does=(tell("How are you set up?"),),
        model=(call("agent_describe_setup"), say("As described.")),
        expects=(returns(0, "agent_describe_setup", available=True), _knows_its_setup),
    ),
    Scenario(
        id="compare-setup-with-an-earlier-session",
        does=(
            tell("Hello!"),
            begin_session(lambda turn: call("agent_compare_setup", sessionId=turn.stage.sessions[0]), say("The same.")),
            tell("Do you work as before?"),
        ),
        model=(_FIRST,),
        expects=(_has_an_equal_sibling, says("The same.")),
    ),
    Scenario(
        id="describe-own-context",
        does=(tell("Hello!"), tell("How full is your window?")),
        model=(_FIRST, call("session_describe_context"), say("Nearly empty.")),
        expects=(_knows_its_window, says("Nearly empty.")),
    ),
    Scenario(
        id="take-a-snapshot-of-itself",
        does=(tell("Hello!"), tell("Where do you stand?")),
        model=(_FIRST, call("session_get_snapshot"), say("Here.")),
        expects=(_stands_where_it_stands, has_wakes(2)),
    ),
    Scenario(
        id="list-own-wakes",
        does=(tell("Hello!"), tell("When were you awake?")),
        model=(_FIRST, call("session_list_traces"), say("Twice.")),
        expects=(_lists_its_wakes, says("Twice.")),
    ),
    Scenario(
        id="read-an-earlier-wake",
        does=(tell("Hello!"), tell("What did you do first?")),
        model=(_FIRST, call("session_list_traces"), _read_first_wake, say("I greeted you.")),
        expects=(_reads_its_first_wake, says("I greeted you.")),
    ),
    Scenario(
        id="list-own-children",
        does=(tell("Delegate something, then list your children."),),
        model=(call("session_delegate", message="Say hello."), call("session_list_children"), say("One child.")),
        expects=(_knows_its_child, says("One child.")),
    ),
    Scenario(
        id="grade-itself-without-an-outcome",
        does=(tell("Are you done?"),),
        model=(call("outcome_grade"), say("There is no outcome.")),
        expects=(_knows_that_nothing_is_judged, says("There is no outcome.")),
    ),
    Scenario(
        id="read-the-file-about-its-setup",
        does=(tell("Read the file about your setup."),),
        model=(call("read", path="/runtime/agent-setup.json", maxChars=100_000), say("I have read it.")),
        expects=(_reads_the_file_about_its_setup, says("I have read it.")),
    ),
    Scenario(
        id="describe-own-environment",
        does=(tell("Where do you work?"),),
        model=(call("environment_describe"), say("In a sandbox without network.")),
        expects=(_reads_no_host_path, says("In a sandbox without network.")),
    ),
)
