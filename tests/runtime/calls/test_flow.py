"""How a call is carried out and recorded, and how sessions are opened and ended."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import SandboxLost, SessionNotFound, UsageProblem
from fidelio.ledger.audit import verify_session
from fidelio.runtime import events as e
from fidelio.runtime.calls import WaitingForPerson
from fidelio.runtime.environments.versions import Environment
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.service import SessionRequest
from fidelio.runtime.stores import find_store, open_store
from fidelio.sandbox.actions import ACTIONS
from fidelio.sandbox.model import ConnectionEntry, Ending
from tests.runtime.calls.conftest import DONE, ServiceSession
from tests.support import proves


@proves("runtime.intent")
async def test_a_call_that_only_reads_is_one_commit_and_one_with_an_effect_is_two(session: ServiceSession) -> None:
    await session.finish("read", path="a")
    await session.finish("write", path="a", content="x")

    calls = [kind for kind in await session.types() if kind.startswith("agent.")]
    assert calls == [e.TOOL_USE, e.TOOL_RESULT] * 2
    assert (await verify_session(session.ledger, session.id)).problems == ()


@proves("runtime.intent")
async def test_a_sandbox_that_ends_during_the_effect_leaves_the_call_on_record_with_an_unknown_end(
    session: ServiceSession,
) -> None:
    def lose(_: dict[str, Any]) -> dict[str, Any]:
        raise SandboxLost("The sandbox ended before it replied.")

    session.sandboxes.replies["write_text"] = lose
    failed = await session.finish("write", path="a", content="x")

    assert failed.output["error"]["code"] == "sandbox.lost"
    assert [kind for kind in await session.types() if kind.startswith("agent.")] == [e.TOOL_USE, e.TOOL_RESULT]
    assert [action for action in session.sandboxes.actions if action == "write_text"] == ["write_text"]


@proves("runtime.arguments")
@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("read", {}, "path"),
        ("read", {"path": 5}, "path"),
        ("read", {"path": "a", "lines": 3}, "lines"),
        ("read", {"path": "a", "lineCount": 0}, "lineCount"),
        ("glob", {"path": "a", "pattern": "*", "kind": "link"}, "kind"),
        ("shell_run", {"command": ""}, "command"),
        ("shell_run", {"command": "x", "timeoutMs": 10**9}, "timeoutMs"),
        ("write", {"path": "a", "content": None}, "content"),
        ("sandbox_execute", {"name": "run_shell", "input": {"command": 5}}, "command"),
        ("sandbox_execute", {"name": "stat", "input": {"path": ["a"]}}, "path"),
        ("permissions_check", {"toolName": "x", "toolArgs": []}, "toolArgs"),
    ],
    ids=str,
)
async def test_wrong_arguments_are_refused_by_name_and_recorded(
    session: ServiceSession, tool: str, arguments: dict[str, Any], named: str
) -> None:
    refused = await session.finish(tool, **arguments)

    assert refused.is_error
    assert named in refused.output["error"]["message"]
    assert (await session.types())[-2:] == [e.TOOL_USE, e.TOOL_RESULT]
    assert session.sandboxes.calls == []


@proves("runtime.arguments")
@pytest.mark.parametrize("tool", ["nothing", "", "read\n", "../read", "x" * 5_000])
async def test_an_unknown_tool_is_refused_with_those_that_exist(session: ServiceSession, tool: str) -> None:
    refused = await session.finish(tool)

    assert refused.output["error"]["code"] == "unknown_tool"
    assert "shell_describe" in refused.output["error"]["message"]


@proves("runtime.arguments")
async def test_a_tool_that_the_caller_does_not_have_is_unknown_to_it(session: ServiceSession) -> None:
    refused = await session.service.call(session.id, "write", {"path": "a", "content": "x"}, tools=frozenset({"read"}))

    assert refused.output["error"]["code"] == "unknown_tool"
    assert session.sandboxes.calls == []


@proves("runtime.actions", "runtime.policy")
async def test_an_action_asks_exactly_as_its_tool_does_and_shares_its_approval(session: ServiceSession) -> None:
    request = await session.ask("sandbox_execute", name="run_shell", input={"command": "make"})
    assert await session.ask("shell_run", command="make") == request

    await session.answer(request, "allow")
    await session.finish("sandbox_execute", name="run_shell", input={"command": "make"})

    assert session.ran == ["make"]
    assert (await session.service.load(session.id)).record.shell.commands[0].command == "make"


@proves("runtime.actions", "runtime.policy")
async def test_the_record_has_the_call_as_it_was_made(session: ServiceSession) -> None:
    """The name of the action is not lost, and a projected command is not recorded as a call of another tool."""
    await session.finish("sandbox_execute", name="stat", input={"path": "/workspace"})
    await session.service.set_policy(session.id, "shell_run", "auto", by="person:ada")
    await session.finish("shell_run", command="cat a")

    calls = [event.body for event in await session.ledger.events(session.id, types=(e.TOOL_USE,))]
    recorded = [(body["name"], json.loads(body["input"]["text"])) for body in calls]
    assert recorded[0] == ("sandbox_execute", {"name": "stat", "input": {"path": "/workspace"}})
    assert (recorded[1][0], recorded[1][1]["command"]) == ("shell_run", "cat a")


@proves("runtime.actions")
async def test_the_description_names_the_input_of_every_action(session: ServiceSession) -> None:
    described = (await session.finish("sandbox_describe")).output["actions"]

    inputs = {action["name"]: action["input"] for action in described}
    assert inputs.keys() == ACTIONS.keys()
    assert inputs["append_text"] == ["path", "content"]
    assert inputs["mkdir"] == ["path", "recursive?"]
    assert inputs["inspect"] == []


@proves("runtime.actions")
async def test_an_action_without_a_tool_runs_as_it_is(session: ServiceSession) -> None:
    done = await session.finish("sandbox_execute", name="stat", input={"path": "/workspace"})

    assert done.output == {
        "ok": True,
        "name": "stat",
        "text": "stat",
        "output": {"path": "/workspace", "kind": "directory"},
    }


@proves("runtime.actions")
@pytest.mark.parametrize("name", ["read_bytes", "write_bytes", "remove", "digest", "list_tree", "configure", "x"])
async def test_what_only_the_host_may_do_is_no_action(session: ServiceSession, name: str) -> None:
    refused = await session.finish("sandbox_execute", name=name, input={"path": "/workspace"})

    assert refused.output["error"]["code"] == "unknown_action"


@proves("runtime.policy")
async def test_auto_runs_the_projection_of_a_reading_command_and_asks_for_others(session: ServiceSession) -> None:
    await session.service.set_policy(session.id, "shell_run", "auto", by="person:ada")

    done = await session.finish("shell_run", command="cat notes.md")
    await session.ask("shell_run", command="cat notes.md > copy")

    assert done.output["name"] == "read_text"
    assert session.sandboxes.actions == ["read_text"]
    assert session.ran == []


@proves("runtime.patterns")
async def test_an_allowed_pattern_lets_commands_run_until_it_ends(session: ServiceSession) -> None:
    await session.service.allow_pattern(session.id, "pytest *", by="person:ada", seconds=60)

    await session.finish("shell_run", command="pytest -q")
    await session.ask("shell_run", command="pytest -q; rm x")
    session.clock.now += 60_000
    await session.ask("shell_run", command="pytest -q")

    assert session.ran == ["pytest -q"]


@proves("runtime.policy")
async def test_a_policy_can_be_that_of_an_action(session: ServiceSession) -> None:
    append = {"name": "append_text", "input": {"path": "a", "content": "x"}}
    session.sandboxes.replies["append_text"] = lambda _: {"path": "a", "bytes": 1}
    await session.service.set_policy(session.id, "append_text", "always_ask", by="person:ada")

    request = await session.ask("sandbox_execute", **append)
    await session.finish("write", path="a", content="x")
    checked = await session.finish("permissions_check", toolName="sandbox_execute", toolArgs=append)

    assert session.sandboxes.actions == ["write_text"]
    assert (checked.output["permissionPolicy"], checked.output["requiresConfirmation"]) == ("always_ask", True)
    assert request


@proves("runtime.policy")
async def test_a_policy_of_an_action_that_is_a_tool_holds_for_both_names(session: ServiceSession) -> None:
    await session.service.set_policy(session.id, "run_shell", "always_allow", by="person:ada")

    await session.finish("shell_run", command="make")

    assert session.ran == ["make"]


@proves("runtime.policy")
async def test_a_policy_of_an_agent_holds_for_its_later_sessions_in_the_project(
    session: ServiceSession, tmp_path: Path
) -> None:
    project = str(tmp_path)
    await session.service.set_agent_policy(project, "default", "shell_run", "always_allow", by="person:ada")
    later = await session.service.open_session(SessionRequest(project=project, name="later"))
    other = await session.service.open_session(SessionRequest(project=project, name="other", agent="writer"))

    done = await session.service.call(later, "shell_run", {"command": "make"})

    assert not isinstance(done, WaitingForPerson)
    assert isinstance(await session.service.call(other, "shell_run", {"command": "make"}), WaitingForPerson)
    assert isinstance(await session.call("shell_run", command="make"), WaitingForPerson)


@proves("runtime.policy")
@pytest.mark.parametrize(("tool", "policy"), [("nothing", "auto"), ("read", "sometimes"), ("", "")])
async def test_a_policy_that_makes_no_sense_is_refused(session: ServiceSession, tool: str, policy: str) -> None:
    with pytest.raises(UsageProblem, match="Use one of"):
        await session.service.set_policy(session.id, tool, policy, by="person:ada")


@proves("runtime.arguments")
async def test_the_value_of_a_variable_is_in_no_event_and_no_request(session: ServiceSession) -> None:
    await session.finish("shell_set_env", key="TOKEN", value="hunter2-secret")
    await session.finish("shell_set_env", key="TOKEN", value="hunter2-secret", more="x")
    await session.service.set_policy(session.id, "shell_set_env", "always_ask", by="person:ada")
    request = await session.ask("shell_set_env", key="OTHER", value="hunter2-secret")
    assert await session.ask("shell_set_env", key="OTHER", value="another") != request

    stored = [repr(event) for event in await session.ledger.events()]
    assert not [text for text in stored if "hunter2" in text]
    assert "hunter2" not in repr(await session.ledger.request(request))


@proves("runtime.sessions")
async def test_a_session_is_found_again_by_its_name(session: ServiceSession, tmp_path: Path) -> None:
    again = await session.service.open_session(SessionRequest(project=str(tmp_path)))
    other = await session.service.open_session(SessionRequest(project=str(tmp_path), name="other"))

    assert again == session.id
    assert other != session.id


@proves("runtime.sessions")
async def test_processes_that_open_a_session_at_once_get_the_same_one(session: ServiceSession, tmp_path: Path) -> None:
    request = SessionRequest(project=str(tmp_path), name="raced")

    opened = await asyncio.gather(*(session.service.open_session(request) for _ in range(8)))

    assert len(set(opened)) == 1
    directories = {path.name for path in (tmp_path / "home" / "sandboxes").iterdir()}
    assert (await session.service.load(opened[0])).record.directory in directories


@proves("runtime.sessions")
async def test_a_session_is_not_changed_silently_by_opening_it(session: ServiceSession, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="another agent"):
        await session.service.open_session(SessionRequest(project=str(tmp_path), agent="writer"))


@proves("runtime.sessions")
@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 61, "ü", "a\n"])
async def test_a_name_that_is_none_is_refused(session: ServiceSession, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageProblem, match="is not a name"):
        await session.service.open_session(SessionRequest(project=str(tmp_path), name=name))


@proves("runtime.sessions")
async def test_ending_a_session_ends_its_sandbox_and_what_it_asks_for(session: ServiceSession) -> None:
    await session.finish("read", path="a")
    request = await session.ask("shell_run", command="make")

    await session.service.end_session(session.id, by="person:ada")

    assert await session.sandboxes.state(session.id) is None
    assert (await session.ledger.request(request)).state == "dismissed"
    with pytest.raises(SessionNotFound, match="ended"):
        await session.call("read", path="a")


@proves("runtime.artifacts")
async def test_the_files_of_a_session_follow_its_record(session: ServiceSession, tmp_path: Path) -> None:
    record = (await session.service.load(session.id)).record
    files = tmp_path / "home" / "sandboxes" / record.directory / "runtime"
    await session.finish("read", path="a")
    unchanged = (files / "managed-tools.json").stat().st_mtime_ns

    request = await session.ask("shell_run", command="make")
    posture = json.loads((files / "permission-posture.json").read_text())

    assert posture["pendingToolConfirmationRequest"]["requestId"] == request
    assert request in (files / "permission-posture.md").read_text()
    assert (files / "managed-tools.json").stat().st_mtime_ns == unchanged
    assert {path.name for path in files.iterdir()} >= {
        *("session-runtime.json", "session-runtime.md", "managed-tools.json", "permissions.json", "permissions.md"),
        *("permission-posture.json", "permission-posture.md", "environment.json", "vaults.json", "staged-substrate.json"),
        *("shell-state.json", "shell-history.json", "shell-history.md", "shell-last-output.json", "shell-last-output.md"),
    }


@proves("runtime.artifacts")
async def test_no_file_of_a_session_names_a_path_of_the_host_or_a_value(session: ServiceSession, tmp_path: Path) -> None:
    await session.finish("shell_set_env", key="TOKEN", value="hunter2-secret")
    await session.answer(await session.ask("shell_run", command="make"), "allow")
    await session.finish("shell_run", command="make")

    record = (await session.service.load(session.id)).record
    files = tmp_path / "home" / "sandboxes" / record.directory / "runtime"
    for file in files.iterdir():
        assert str(tmp_path) not in file.read_text(), file
        assert "hunter2" not in file.read_text(), file
        assert file.stat().st_mode & 0o777 == 0o644, file


def print_text(text: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {**DONE, "commandId": arguments["commandId"], "stdout": text}


@proves("runtime.artifacts")
async def test_a_long_output_and_a_short_one_after_it_are_written_whole(session: ServiceSession, tmp_path: Path) -> None:
    record = (await session.service.load(session.id)).record
    file = tmp_path / "home" / "sandboxes" / record.directory / "runtime" / "shell-last-output.json"
    await session.service.set_policy(session.id, "shell_run", "always_allow", by="person:ada")
    for size in (9_000, 3, 3_000, 9_001):
        session.sandboxes.replies["run_shell"] = partial(print_text, "x" * size)
        await session.finish("shell_run", command="make")

        assert len(json.loads(file.read_text())["lastCommand"]["stdout"]) == size


@proves("runtime.sessions")
async def test_a_store_takes_no_calls_and_is_not_ended_as_if_it_were_a_session(session: ServiceSession) -> None:
    store = await open_store(session.service.context, "vaults")

    for refused in (
        session.service.call(store.id, "read", {"path": "a"}),
        session.service.end_session(store.id, by="person:ada"),
        session.service.set_policy(store.id, "shell_run", "always_allow", by="person:ada"),
    ):
        with pytest.raises(UsageProblem, match="is a store"):
            await refused

    assert [event.type for event in await session.ledger.events(store.id)] == [e.STARTED]
    await session.service.delete_session(store.id, by="person:ada", reason="nobody needs it")
    assert await find_store(session.service.context, "vaults") is None


@proves("runtime.record")
async def test_the_record_is_verified_against_the_events(session: ServiceSession) -> None:
    session.ledger.record_type = lambda _: RuntimeRecords()
    await session.answer(await session.ask("shell_run", command="make"), "allow")
    await session.finish("shell_run", command="make")

    verdict = await verify_session(session.ledger, session.id)

    assert verdict.problems == ()
    assert verdict.events == len(await session.types())


def connect(number: int, host: str = "pypi.org") -> ConnectionEntry:
    return ConnectionEntry(number=number, at=1, host=host, port=443, verdict="allowed", reason="", sent=10, received=20)


@proves("runtime.network")
async def test_every_connection_through_the_proxy_is_an_event_once(session: ServiceSession, tmp_path: Path) -> None:
    environment = Environment(network="limited", hosts=("pypi.org",))
    await session.service.environments.define("online", environment, by="person:ada")
    online = await session.service.open_session(SessionRequest(project=str(tmp_path), name="online", environment="online"))
    session.sandboxes.used = [connect(1), connect(2, "evil.example")]
    await session.service.call(online, "read", {"path": "a"})
    session.sandboxes.used.append(connect(3))
    await session.service.call(online, "read", {"path": "a"})

    events = await session.ledger.events(online, types=(e.NETWORK_USED,))
    recorded = [(event.body["number"], event.body["host"]) for event in events]
    assert recorded == [(1, "pypi.org"), (2, "evil.example"), (3, "pypi.org")]


@proves("runtime.network")
async def test_why_a_sandbox_ended_is_on_record_with_its_next_start(session: ServiceSession) -> None:
    await session.finish("read", path="a")
    ended = (await session.service.load(session.id)).record.sandbox.incarnation
    session.sandboxes.end(session.id, Ending(session.id, ended, "disk_bytes", "It used too much.", 1))

    await session.finish("read", path="a")

    (event,) = await session.ledger.events(session.id, types=(e.SANDBOX_CLOSED,))
    assert (event.body["reason"], event.body["message"]) == ("disk_bytes", "It used too much.")
