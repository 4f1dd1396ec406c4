"""Scenarios in which a command would write, and a person allows or denies it: 4 of each."""

from __future__ import annotations

from typing import Any

from fidelio.providers.model import ModelReply
from fidelio.runtime import events as e
from tests.runtime.scenarios.acts import confirm, has_file, has_wakes, lacks_file, pass_time, records, refuses, says, tell
from tests.runtime.scenarios.stage import Scenario, Stage, StageCheck, call, call_all, say

_FILE = "/workspace/out.txt"
_RUN = "printf 'tide\\n' > out.txt"
_ASKING = (e.TOOL_USE, e.APPROVAL_REQUESTED, e.STATUS_IDLE)
_ALLOWED = (*_ASKING, e.USER_CONFIRMATION, e.APPROVAL_USED, e.SPAN_STARTED, e.COMMAND_STARTED, e.COMMAND_ENDED, e.TOOL_RESULT)
_DENIED = (*_ASKING, e.USER_CONFIRMATION, e.APPROVAL_ENDED, e.TOOL_RESULT, e.AGENT_MESSAGE)
_DAY = 24 * 60 * 60
WORDS = "Not before the tide turns."


async def _names_the_waiting_calls(stage: Stage) -> None:
    """The first idle event names what waits, and the person is asked about exactly the command."""
    first = (await stage.events(e.STATUS_IDLE))[0]
    uses = [event.body["id"] for event in await stage.events(e.TOOL_USE)]
    assert first.body["stop_reason"]["type"] == "requires_action"
    assert first.body["stop_reason"]["event_ids"] == first.body["blockingEventIds"]
    assert set(first.body["blockingEventIds"]) <= set(uses)


def _runs_commands(*commands: str) -> StageCheck:
    """Exactly these commands were started."""

    async def check(stage: Stage) -> None:
        assert [event.body["command"] for event in await stage.events(e.COMMAND_STARTED)] == list(commands)

    return check


def _ends_well(number: int) -> StageCheck:
    async def check(stage: Stage) -> None:
        made = (await stage.calls())[number]
        assert (made.is_error, made.output["output"]["exitCode"]) == (False, 0)

    return check


def _allowed(id_: str, reply: ModelReply) -> Scenario:
    return Scenario(
        id=f"allowed-{id_}",
        does=(tell("Write the tide into a file."), confirm("allow")),
        model=(reply, say("Written.")),
        expects=(
            has_file(_FILE, "tide\n"),
            _names_the_waiting_calls,
            _runs_commands(_RUN),
            _ends_well(0),
            records(*_ALLOWED, e.AGENT_MESSAGE, e.STATUS_IDLE),
            says("Written."),
            has_wakes(2),
        ),
    )


def _denied(id_: str, tool: str, **arguments: Any) -> Scenario:
    return Scenario(
        id=f"denied-{id_}",
        does=(tell("Write the tide into a file."), confirm("deny", message=WORDS)),
        model=(call(tool, **arguments), say("I wait.")),
        expects=(
            lacks_file(_FILE),
            _names_the_waiting_calls,
            _runs_commands(),
            refuses(0, tool, "permission_denied", WORDS),
            records(*_DENIED),
            says("I wait."),
        ),
    )


SHELL_WRITES = (
    _allowed("shell-run", call("shell_run", command=_RUN)),
    _allowed("shell-exec", call("shell_exec", command=_RUN)),
    # An action is the tool that it is, whatever name it is called by.
    _allowed("sandbox-execute", call("sandbox_execute", name="run_shell", input={"command": _RUN})),
    Scenario(
        id="allowed-one-of-two",
        does=(tell("Write two files."), confirm("allow", "deny", message=WORDS)),
        model=(
            call_all(("shell_run", {"command": _RUN}), ("shell_run", {"command": "touch other.txt"}), text="Both."),
            say("One of them."),
        ),
        expects=(
            has_file(_FILE, "tide\n"),
            lacks_file("/workspace/other.txt"),
            _names_the_waiting_calls,
            _runs_commands(_RUN),
            _ends_well(0),
            refuses(1, "shell_run", "permission_denied", WORDS),
        ),
    ),
    _denied("shell-run", "shell_run", command=_RUN),
    _denied("shell-exec", "shell_exec", command=_RUN),
    _denied("sandbox-execute", "sandbox_execute", name="run_shell", input={"command": _RUN}),
    Scenario(
        id="denied-by-silence",
        does=(tell("Write the tide into a file."), pass_time(_DAY + 60)),
        model=(call("shell_run", command=_RUN), say("Nobody answered.")),
        expects=(
            lacks_file(_FILE),
            _runs_commands(),
            refuses(0, "shell_run", "permission_expired", "within 24 hours"),
            says("Nobody answered."),
        ),
    ),
)
