"""Scenarios in which workers watch the ledger beside everything else, and carry out what arrives and what falls due."""

from __future__ import annotations

import asyncio
from collections import Counter

from fidelio.providers.model import ModelReply
from fidelio.runtime import events as e
from tests.runtime.scenarios.acts import (
    confirm,
    define_outcome,
    give_result,
    has_file,
    has_wakes,
    records,
    says,
    tell,
)
from tests.runtime.scenarios.stage import TIMEOUT_SECONDS, Scenario, Stage, StageAction, StageTurn, call, say

_TOOL = {"name": "tide_table", "description": "The tides of a harbour.", "input_schema": {"type": "object"}}
_EXISTS = {"text": "It exists.", "check": {"type": "file_exists", "path": "boats.txt"}}
SESSIONS = 3


async def _tell_more(turn: StageTurn) -> ModelReply:
    """A message arrives while the model still works."""
    await turn.stage.send({"type": e.USER_MESSAGE, "content": "And the second boat?"})
    return say("The first boat is Ida.")


async def _never_reply(_: StageTurn) -> ModelReply:
    await asyncio.Event().wait()
    return say("Too late.")


async def _interrupt_the_model(stage: Stage) -> None:
    """Send a message, and interrupt as soon as a wake works on it."""
    await stage.send({"type": e.USER_MESSAGE, "content": "Count all waves."})
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for _ in stage.context.ledger.follow(stage.session, types=(e.STATUS_RUNNING,)):
            break
    await stage.send({"type": e.USER_INTERRUPT})
    await stage.send({"type": e.USER_MESSAGE, "content": "Stop. What is the time?"})


def _tell_all(count: int) -> StageAction:
    """Send a message to several sessions at once."""

    async def act(stage: Stage) -> None:
        for number in range(1, count):
            await stage.begin([say(f"Answer {number}.")])
        messages = [{"type": e.USER_MESSAGE, "content": f"Question {number}."} for number in range(count)]
        await asyncio.gather(*(stage.send(m, session) for m, session in zip(messages, stage.sessions, strict=True)))

    return act


async def _answers_each_once(stage: Stage) -> None:
    asked = Counter(request.conversation for request in stage.requests)
    assert asked == Counter(stage.sessions)
    for number, session in enumerate(stage.sessions):
        assert await stage.messages(session) == [f"Answer {number}."]


async def _is_not_answered_twice(stage: Stage) -> None:
    assert await stage.messages() == ["The first boat is Ida.", "The second boat is Eva."]


async def _never_answers_what_was_interrupted(stage: Stage) -> None:
    assert await stage.messages() == ["Noon."]
    assert (await stage.record()).wakes.stop_reason == "end_turn"


async def _waits_for_its_queued_wake(stage: Stage) -> None:
    """The wake falls due while nothing else happens. The scenario must not end before it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in stage.context.ledger.follow(stage.session, types=(e.AGENT_MESSAGE,)):
            if event.body["content"][0]["text"] == "I am back.":
                return


async def _takes_a_child(stage: Stage) -> None:
    _, ran, _ = await stage.calls()
    assert (ran.output["response"], ran.output["loopStopReason"]) == ("Done.", "idle")


WATCH = (
    Scenario(
        id="watch-a-message",
        workers=1,
        does=(tell("Hello!"), tell("Still there?")),
        model=(say("Hello."), say("Yes.")),
        expects=(says("Yes."), has_wakes(2), records(e.USER_MESSAGE, e.STATUS_RUNNING, e.AGENT_MESSAGE, e.STATUS_IDLE)),
    ),
    Scenario(
        id="watch-a-message-during-a-wake",
        workers=1,
        does=(tell("What is the first boat called?"),),
        model=(_tell_more, say("The second boat is Eva.")),
        expects=(_is_not_answered_twice, has_wakes(2)),
    ),
    Scenario(
        id="watch-several-sessions-with-two-workers",
        workers=2,
        does=(_tell_all(SESSIONS),),
        model=(say("Answer 0."),),
        expects=(_answers_each_once,),
    ),
    Scenario(
        id="watch-an-approval",
        workers=1,
        does=(tell("List the boats."), confirm("allow")),
        model=(call("shell_run", command="echo Ida > boats.txt"), say("Listed.")),
        expects=(has_file("/workspace/boats.txt", "Ida\n"), says("Listed."), has_wakes(2)),
    ),
    Scenario(
        id="watch-a-result-of-the-caller",
        workers=1,
        agent={"tools": {"custom": [_TOOL]}},
        does=(tell("When is high tide?"), give_result("At noon.")),
        model=(call("tide_table", harbour="Husum"), say("At noon.")),
        expects=(says("At noon."), records(e.CUSTOM_TOOL_USE, e.STATUS_IDLE, e.USER_TOOL_RESULT, e.STATUS_IDLE)),
    ),
    Scenario(
        id="watch-an-interrupt",
        workers=1,
        does=(_interrupt_the_model,),
        model=(_never_reply, say("Noon.")),
        expects=(_never_answers_what_was_interrupted,),
    ),
    Scenario(
        id="watch-a-queued-wake",
        workers=1,
        does=(tell("Come back in a second."), _waits_for_its_queued_wake),
        model=(say("I will.", queuedWakes=[{"reason": "come back", "delaySeconds": 1}]), say("I am back.")),
        expects=(says("I am back."), has_wakes(2)),
    ),
    Scenario(
        id="watch-a-child",
        workers=2,
        does=(tell("Let somebody else count, and wait."), define_outcome("Boats are listed", _EXISTS)),
        model=(
            call("session_delegate", message="Count the boats."),
            lambda turn: call("session_run_child", sessionId=turn.last["childSession"]["sessionId"]),
            say("Counted."),
            call("write", path="boats.txt", content="Ida\n"),
            say("Listed."),
        ),
        expects=(
            _takes_a_child,
            says("Listed."),
            records(e.CHILD_CREATED, e.CHILD_IDLE, e.EVALUATION_ENDED),
        ),
    ),
)
