"""Reading the shell: history, outputs, other sessions, and ids that do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import RECENT_COMMANDS
from fidelio.runtime.environments import versions
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.sandbox.model import RUNTIME_LINK
from tests.runtime.shell.double import ShellDouble
from tests.runtime.support import ToolBench, start_session
from tests.support import proves

UNKNOWN_IDS = ["cmd_0000000000000000", "x", "%", "'; drop", "cmd_", "../cmd", "a" * 200]


@proves("runtime.shell-history")
async def test_the_history_goes_beyond_the_record(bench: ToolBench) -> None:
    for each in range(RECENT_COMMANDS + 15):
        await bench.use("bash", command="ls", args=[f"dir{each}"])
    found = await bench.use("shell_history", limit=30)

    names = [command["args"][0] for command in found["commands"]]
    assert names == [f"dir{each}" for each in range(RECENT_COMMANDS + 14, RECENT_COMMANDS - 16, -1)]
    assert found["count"] == 30
    assert all(command["status"] == "completed" for command in found["commands"])


@proves("runtime.shell-history")
async def test_a_short_session_lists_what_it_has(bench: ToolBench) -> None:
    await bench.use("bash", command="pwd")

    assert (await bench.use("shell_history", limit=100))["count"] == 1


@proves("runtime.shell-history")
async def test_a_command_that_left_the_record_is_read_by_its_id(bench: ToolBench) -> None:
    first = await bench.use("shell_exec", command="print first")
    for _ in range(RECENT_COMMANDS + 1):
        await bench.use("bash", command="pwd")
    assert (await bench.record()).shell.find(first["commandId"]) is None

    read = await bench.use("shell_read_command", commandId=first["commandId"])
    waited = await bench.use("shell_wait", commandId=first["commandId"])

    assert read["command"]["stdout"] == "first"
    assert (waited["status"], waited["result"]["stdout"]) == ("completed", "first")


@proves("runtime.shell-history")
@pytest.mark.parametrize("command_id", UNKNOWN_IDS)
async def test_an_unknown_command_is_nothing_to_read_and_nothing_to_wait_for(bench: ToolBench, command_id: str) -> None:
    await bench.use("shell_exec", command="print x")
    read = await bench.use("shell_read_command", commandId=command_id)
    error = await bench.refuse("shell_wait", commandId=command_id)

    assert read["command"] is None
    assert error["code"] == "unknown_command"


@proves("runtime.shell-history")
async def test_the_command_of_another_session_is_unknown_here(bench: ToolBench, tmp_path: Path) -> None:
    other = await start_session(bench.context, tmp_path)
    theirs = await other.use("shell_exec", command="print secret")

    assert (await bench.use("shell_read_command", commandId=theirs["commandId"]))["command"] is None
    assert (await bench.refuse("shell_wait", commandId=theirs["commandId"]))["code"] == "unknown_command"


@proves("runtime.shell-history")
async def test_a_redacted_command_is_left_out_and_breaks_nothing(bench: ToolBench) -> None:
    gone = await bench.use("shell_exec", command="print secret")
    await bench.use("shell_exec", command="print kept")
    seqs = [each.seq for each in await bench.events() if gone["commandId"] in (each.raw or "")]
    await bench.context.ledger.redact(bench.session, seqs, actor="person", reason="secret")

    listed = await bench.use("shell_history", limit=100)
    read = await bench.use("shell_read_command", commandId=gone["commandId"])

    assert [command["command"] for command in listed["commands"]] == ["print kept"]
    assert "secret" not in str(read["command"])


@proves("runtime.shell-describe")
async def test_everything_that_a_tool_promises_is_in_its_result(bench: ToolBench) -> None:
    first = await bench.use("shell_exec", command="print x")
    calls: dict[str, dict[str, Any]] = {
        **{tool: {} for tool in ("shell_describe", "shell_history", "shell_read_last_output", "shell_wait")},
        **{tool: {} for tool in ("shell_open", "shell_restart", "shell_interrupt")},
        "shell_read_command": {"commandId": first["commandId"]},
        "shell_set_cwd": {"path": "/tmp"},
        "shell_set_env": {"key": "COLOUR", "value": "blue"},
        "shell_unset_env": {"key": "COLOUR"},
        "shell_run": {"command": "print x"},
        "shell_exec": {"command": "print x"},
        "bash": {"command": "pwd"},
        "shell_close": {},
    }
    for tool, arguments in calls.items():
        output = await bench.use(tool, **arguments)
        assert set(DEFINITIONS[tool].output) <= output.keys(), tool


@proves("runtime.shell-describe")
async def test_describe_has_the_fields_about_outcomes_and_context(bench: ToolBench) -> None:
    described = await bench.use("shell_describe")

    assert (described["contextPressure"], described["nextOutcomeStep"]) == (None, None)
    assert described["outcomeEvaluation"]["status"] == "missing_outcome"
    assert described["requiresOutcomePass"] is False
    assert described["persistentShell"] is None
    assert described["recoveryPlan"]["tool"] == "shell_open"
    assert all(path.startswith(f"{RUNTIME_LINK}/shell-") for path in described["artifactPaths"].values())
    assert "ls" in described["commandPolicy"]["allowlistedCommands"]


@proves("runtime.shell-describe")
async def test_no_result_names_a_path_of_the_host(bench: ToolBench, tmp_path: Path) -> None:
    await bench.use("shell_set_env", key="COLOUR", value="blue")
    for tool in ("shell_describe", "shell_history", "shell_read_last_output", "shell_open", "shell_close"):
        assert str(tmp_path) not in str(await bench.use(tool))


@proves("runtime.shell-describe")
async def test_the_running_command_is_shown_with_what_it_printed(bench: ToolBench) -> None:
    await bench.use("shell_exec", command="print before")
    await bench.use("shell_exec", command="print half; sleep")
    found = await bench.use("shell_read_last_output")

    assert found["liveCommand"]["stdoutPreview"] == "half"
    assert found["lastCommand"]["stdout"] == "before"
    assert found["nextStep"]["tool"] == "shell_wait"


@proves("runtime.shell-sessions")
async def test_a_session_of_the_same_agent_and_project_can_be_read(bench: ToolBench, tmp_path: Path) -> None:
    other = await start_session(bench.context, tmp_path)
    theirs = await other.use("shell_exec", command="cd /tmp; print theirs")
    before = len(await other.events())
    for tool, more in (
        ("shell_describe", {}),
        ("shell_history", {}),
        ("shell_read_last_output", {}),
        ("shell_read_command", {"commandId": theirs["commandId"]}),
    ):
        found = await bench.use(tool, sessionId=other.session, **more)
        assert (found["sessionId"], found["cwd"]) == (other.session, "/tmp")
        # Neither its files nor a call would be those of that session.
        assert (found["artifactPaths"], found["nextStep"], found["busyPlan"], found["recoveryPlan"]) == ({}, None, None, None)

    assert found["command"]["stdout"] == "theirs"
    assert len(await other.events()) == before
    assert (await bench.record()).shell.commands == ()


@proves("runtime.shell-sessions")
async def test_the_dead_shell_of_another_session_is_not_shown_as_alive(
    bench: ToolBench, tmp_path: Path, sandbox: ShellDouble
) -> None:
    other = await start_session(bench.context, tmp_path)
    await other.use("shell_exec", command="print x")
    alive = await bench.use("shell_describe", sessionId=other.session)
    sandbox.crash(other.session)
    dead = await bench.use("shell_describe", sessionId=other.session)

    assert (alive["persistentShell"]["status"], dead["persistentShell"]["status"]) == ("active", "closed")


@proves("runtime.shell-sessions")
@pytest.mark.parametrize(
    "options", [{"agent": "other"}, {"project": "/elsewhere"}, {"role": "store"}, None], ids=["agent", "project", "store", "no"]
)
async def test_any_other_session_does_not_exist(bench: ToolBench, tmp_path: Path, options: dict[str, str] | None) -> None:
    other = None if options is None else await start_session(bench.context, tmp_path, **options)  # type: ignore[arg-type]  # options of the test
    name = "s_000000000000" if other is None else other.session
    for tool, more in (("shell_describe", {}), ("shell_history", {}), ("shell_read_command", {"commandId": "cmd_x"})):
        error = await bench.refuse(tool, sessionId=name, **more)
        assert error["code"] == "session_not_found"
        assert error["message"].replace(name, "X").startswith("This agent has no session 'X' in this project.")


@proves("runtime.shell-sessions")
@pytest.mark.parametrize("name", ["../x", "s_%", "x" * 200, "s_\0", "DROP TABLE"])
async def test_a_hostile_name_of_a_session_is_refused(bench: ToolBench, name: str) -> None:
    assert (await bench.refuse("shell_describe", sessionId=name))["code"] == "session_not_found"


@proves("runtime.shell-sessions")
async def test_a_session_with_a_network_does_not_read_an_offline_one(bench: ToolBench, tmp_path: Path) -> None:
    online = await start_session(bench.context, tmp_path, network="unrestricted")
    await bench.use("shell_exec", command="print secret")

    error = await online.refuse("shell_read_last_output", sessionId=bench.session)
    own = await online.use("shell_describe", sessionId=online.session)

    assert error["code"] == "network_too_open"
    assert own["sessionId"] == online.session
    assert versions.BUILT_IN_DEFAULT.environment.network == "none"


@proves("runtime.shell-truth")
async def test_reading_commits_what_it_found_with_its_result(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="sleep")
    sandbox.finish("x" * 10_000)
    found = await bench.use("shell_read_last_output")
    sandbox.crash(bench.session)
    again = await bench.use("shell_read_last_output")

    assert found["lastCommand"]["stdout"] == again["lastCommand"]["stdout"] == "x" * 10_000
    assert len(await bench.events(e.COMMAND_ENDED)) == 1
