"""Scenarios in which the agent goes on where it was: in the next wake, in another process, in another session."""

from __future__ import annotations

from fidelio.providers.model import ModelReply
from fidelio.runtime import events as e
from tests.runtime.scenarios.acts import (
    begin_session,
    change_process,
    define_outcome,
    has_wakes,
    records,
    returns,
    says,
    stop_sandbox,
    tell,
)
from tests.runtime.scenarios.stage import Scenario, Stage, StageTurn, call, call_all, list_texts, say

_LEARNING = {"kind": "lesson", "title": "Tides", "detail": "The harbour is dry at low tide."}


def _repeat_first_message(turn: StageTurn) -> ModelReply:
    return say(list_texts(turn.request).splitlines()[0])


async def _goes_on_with_the_same_conversation(stage: Stage) -> None:
    earlier, later = stage.own_requests[:2]
    assert later.messages[: len(earlier.messages)] == earlier.messages
    assert (later.system, later.tools) == (earlier.system, earlier.tools)


async def _has_two_incarnations(stage: Stage) -> None:
    first, second = await stage.events(e.SANDBOX_STARTED)
    assert first.body["incarnation"] != second.body["incarnation"]


async def _reads_checkpoint(stage: Stage) -> None:
    (made,) = await stage.calls()
    content = made.output["content"]
    assert content["lastSummary"] == "Counted the boats."
    assert content["lastWakeId"] == (await stage.events(e.SPAN_STARTED))[0].body["wake_id"]


async def _knows_the_variable_only_by_name(stage: Stage) -> None:
    *_, described = await stage.calls()
    assert described.output["cwd"] == "/workspace/agent"
    assert described.output["env"] == {"count": 1, "keys": ["COLOUR"]}


async def _knows_what_another_session_learned(stage: Stage) -> None:
    (made,) = await stage.calls()
    (learning,) = made.output["learnings"]
    assert (learning["learning"]["title"], learning["sessionId"]) == ("Tides", stage.sessions[0])


async def _is_judged_again(stage: Stage) -> None:
    _, _, made = await stage.calls()
    verdicts = [entry["evaluation"] for entry in made.output["evaluations"]]
    assert [(verdict["status"], verdict["trend"]) for verdict in verdicts] == [
        ("fail", "first_iteration"),
        ("pass", "improving"),
    ]


CONTINUITY = (
    Scenario(
        id="remember-the-conversation",
        does=(tell("The boat is called Ida."), tell("What did I say first?")),
        model=(say("I see."), _repeat_first_message),
        expects=(says("The boat is called Ida."), _goes_on_with_the_same_conversation, has_wakes(2)),
    ),
    Scenario(
        id="remember-the-session-state",
        does=(tell("Note the name of the boat."), tell("Which note do you have?")),
        model=(
            call("memory_write", target="session_state", content="The boat is called Ida."),
            say("Noted."),
            call("memory_read", target="session_state"),
            lambda turn: say(turn.last["content"]),
        ),
        expects=(says("The boat is called Ida."), returns(1, "memory_read", versionId="session_state.1")),
    ),
    Scenario(
        id="extend-the-working-buffer",
        does=(tell("Begin a list."), tell("Add something to it."), tell("Read the list.")),
        model=(
            call("memory_write", target="working_buffer", content="one"),
            say("Begun."),
            call("memory_write", target="working_buffer", content="two", mode="append", expectedVersionId="working_buffer.1"),
            say("Added."),
            call("memory_read", target="working_buffer"),
            say("Read."),
        ),
        expects=(returns(2, "memory_read", content="one\ntwo", versionId="working_buffer.2"), has_wakes(3)),
    ),
    Scenario(
        id="find-a-file-again",
        does=(tell("Write a file."), tell("Read it.")),
        model=(
            call("write", path="boats.txt", content="Ida\n"),
            say("Written."),
            call("read", path="boats.txt"),
            lambda turn: say(turn.last["output"]["content"]),
        ),
        expects=(says("Ida"), has_wakes(2)),
    ),
    Scenario(
        id="find-a-file-in-a-new-sandbox",
        does=(tell("Write a file."), stop_sandbox, tell("Read it.")),
        model=(
            call("write", path="boats.txt", content="Ida\n"),
            say("Written."),
            call("read", path="boats.txt"),
            lambda turn: say(turn.last["output"]["content"]),
        ),
        expects=(says("Ida"), _has_two_incarnations),
    ),
    Scenario(
        id="keep-the-directory-and-the-variables",
        does=(tell("Set a variable and the directory."), stop_sandbox, tell("Which do you have?")),
        model=(
            call_all(("shell_set_env", {"key": "COLOUR", "value": "blue"}), ("shell_set_cwd", {"path": "/workspace/agent"})),
            say("Set."),
            call("shell_describe"),
            say("One."),
        ),
        expects=(_knows_the_variable_only_by_name, says("One.")),
    ),
    Scenario(
        id="go-on-in-another-process",
        does=(tell("The boat is called Ida."), change_process, tell("What did I say first?")),
        model=(say("I see."), _repeat_first_message),
        expects=(says("The boat is called Ida."), _goes_on_with_the_same_conversation),
    ),
    Scenario(
        id="read-the-checkpoint",
        does=(tell("Count the boats."), tell("What did you do last?")),
        model=(
            say("Seven boats.", summary="Counted the boats."),
            call("memory_read", target="checkpoint"),
            lambda turn: say(turn.last["content"]["lastSummary"]),
        ),
        expects=(says("Counted the boats."), _reads_checkpoint),
    ),
    Scenario(
        id="learn-for-all-sessions",
        does=(
            tell("What did you learn?"),
            begin_session(call("learning_list"), lambda turn: say(turn.last["learnings"][0]["learning"]["detail"])),
            tell("What do you know of the harbour?"),
        ),
        model=(say("About tides.", learnings=[_LEARNING]),),
        expects=(_knows_what_another_session_learned, says("The harbour is dry at low tide.")),
    ),
    Scenario(
        id="work-until-the-outcome-is-reached",
        does=(
            define_outcome("Boats are listed", {"text": "It exists.", "check": {"type": "file_exists", "path": "boats.txt"}}),
            tell("How did it go?"),
        ),
        model=(
            call("glob", path="/workspace", pattern="*.txt"),
            say("Nothing is there yet."),
            # The runtime wakes it again, because the outcome of the person is not reached.
            call("write", path="boats.txt", content="Ida\n"),
            say("Written."),
            call("outcome_history"),
            say("It is reached."),
        ),
        expects=(
            _is_judged_again,
            records(e.OUTCOME_DEFINED, e.WAKE_QUEUED, e.EVALUATION_ENDED, e.EVALUATION_ENDED, e.STATUS_IDLE),
        ),
    ),
)
