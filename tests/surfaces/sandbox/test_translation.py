"""The handler of the toolset: sessions by name, results, errors and questions, with a service that a test scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import RuntimeProblem, SessionNotFound, ToolRefused
from fidelio.inbox.inbox import LONGEST_IN_FORM
from fidelio.processes.caller import Caller, read_claim
from fidelio.runtime.calls import Finished, WaitingForPerson
from fidelio.surfaces.mcp.dialects import SandboxSession
from fidelio.surfaces.mcp.endpoint import Client
from fidelio.surfaces.mcp.protocol import RequestContext
from tests.support import proves
from tests.surfaces.sandbox.fakes import FakeApplication, FakeRuntime, serve

WAITING = WaitingForPerson("r_1", {"status": "waiting", "requestId": "r_1"})
DONE = Finished({"ok": True, "output": {"exitCode": 1}})
AGENT = read_claim("s_000000000000.1")
ELICITS = Client("2025-11-25", "editor", can_elicit=True)


def body(result: dict[str, Any]) -> dict[str, Any]:
    (block,) = [block["text"] for block in result["content"]][:1]
    found = json.loads(block)
    assert isinstance(found, dict)
    return found


@proves("sandbox-tools.session")
async def test_the_first_call_opens_the_session_and_later_calls_use_it() -> None:
    runtime = FakeRuntime()
    call = serve(FakeApplication(runtime), SandboxSession("work", "anna", "python", ".:copy"))

    await call("read", {"path": "a"})
    await call("glob", {"pattern": "*"})

    (opened,) = runtime.opened
    assert (opened.name, opened.agent, opened.environment, opened.mount) == ("work", "anna", "python", ".:copy")
    assert [(session, tool) for session, tool, _, _ in runtime.calls] == [("s_work", "read"), ("s_work", "glob")]


@proves("sandbox-tools.session")
async def test_the_address_of_a_request_names_another_session_without_a_mount() -> None:
    runtime = FakeRuntime()
    call = serve(FakeApplication(runtime), SandboxSession(mount=".:rw"))

    await call("read", {"path": "a"}, RequestContext(session="other"))

    assert [(opened.name, opened.mount) for opened in runtime.opened] == [("other", None)]


@proves("sandbox-tools.session")
async def test_a_session_that_was_deleted_is_looked_up_again() -> None:
    runtime = FakeRuntime(SessionNotFound("Session s_default was deleted."), DONE)
    call = serve(FakeApplication(runtime))

    refused = await call("read", {"path": "a"})
    await call("read", {"path": "a"})

    assert refused["isError"]
    assert len(runtime.opened) == 2


@proves("sandbox-tools.errors")
async def test_arguments_reach_the_service_as_they_are_so_that_it_records_refused_calls() -> None:
    runtime = FakeRuntime()

    await serve(FakeApplication(runtime))("read", {"pth": ["\x00", None]})

    assert runtime.calls[0][2] == {"pth": ["\x00", None]}


@proves("sandbox-tools.errors")
async def test_a_command_that_fails_is_a_result_and_no_error() -> None:
    result = await serve(FakeApplication(FakeRuntime(DONE)))("shell_run", {"command": "false"})

    assert result["isError"] is False
    assert body(result) == DONE.output


@proves("sandbox-tools.errors")
async def test_a_refused_call_is_an_error_with_code_message_and_retryable() -> None:
    refused = Finished({"ok": False, "error": {"code": "x", "message": "No.", "retryable": False}}, is_error=True)
    raised = ToolRefused("All are busy.", remedy="Wait.", reason="busy", retryable=True)
    call = serve(FakeApplication(FakeRuntime(refused, raised)))

    first, second = await call("read", {"path": "a"}), await call("read", {"path": "a"})
    unknown = await call("format_disk", {})

    assert first["isError"]
    assert body(first) == refused.output
    assert second["isError"]
    assert body(second)["error"] == {"code": "busy", "message": "All are busy. Wait.", "retryable": True}
    assert unknown["isError"]
    assert body(unknown)["error"]["code"] == "usage"


@proves("sandbox-tools.errors")
async def test_every_problem_of_the_runtime_says_whether_to_try_again() -> None:
    call = serve(FakeApplication(FakeRuntime(RuntimeProblem("It is locked.", retryable=True))))

    assert body(await call("read", {"path": "a"}))["error"]["retryable"] is True


@proves("sandbox-tools.waiting")
async def test_a_client_that_cannot_ask_gets_the_request_and_the_command_that_answers_it() -> None:
    app = FakeApplication(FakeRuntime(WAITING))

    result = await serve(app)("shell_run", {"command": "make"})

    assert result["isError"] is False
    assert body(result) == {**WAITING.output, "answerWith": "fidelio --home /h answer r_1 allow"}
    # The same call again waits in the service for the answer.
    assert [waits for *_, waits in app._runtime.calls] == [True]


@proves("sandbox-tools.elicitation")
async def test_a_client_that_can_ask_is_asked_at_once_and_the_call_goes_on() -> None:
    app = FakeApplication(FakeRuntime(WAITING, DONE))
    shown: list[dict[str, Any]] = []

    async def elicit(params: dict[str, Any]) -> object:
        shown.append(params)
        return {"action": "accept", "content": {"answer": "allow"}}

    result = await serve(app)("shell_run", {"command": "make"}, RequestContext(ELICITS, elicit))

    assert "May the agent run this?" in shown[0]["message"]
    assert body(result) == DONE.output
    assert app.answers == [("allow", "user of editor")]
    # The service did not wait for the inbox in between: the person was asked.
    assert [waits for *_, waits in app._runtime.calls] == [False, False]


@proves("sandbox-tools.elicitation")
async def test_a_question_that_a_form_would_cut_is_left_to_the_command_line() -> None:
    app = FakeApplication(FakeRuntime(WAITING))
    app.question = "x" * (LONGEST_IN_FORM + 1)

    async def elicit(_: dict[str, Any]) -> object:
        raise AssertionError("The client was asked.")

    call = serve(app)
    results = [await call("shell_run", {"command": "make"}, RequestContext(ELICITS, elicit)) for _ in range(2)]

    for result in results:
        assert result["isError"] is False
        assert body(result) == {**WAITING.output, "answerWith": "fidelio --home /h answer r_1 allow"}
    # The second call repeats the first, so it waits for the answer.
    assert [waits for *_, waits in app._runtime.calls] == [False, False, True]


@proves("sandbox-tools.proven")
async def test_what_must_be_signed_is_asked_on_the_page_and_never_at_the_client() -> None:
    app = FakeApplication(FakeRuntime(WAITING))
    app.needs_proof = True

    async def elicit(_: dict[str, Any]) -> object:
        raise AssertionError("The client was asked.")

    call = serve(app)
    results = [await call("shell_run", {"command": "make"}, RequestContext(ELICITS, elicit)) for _ in range(2)]

    assert [body(result)["answerWith"] for result in results] == ["fidelio --home /h open"] * 2
    assert [waits for *_, waits in app._runtime.calls] == [False, False, True]
    assert app.answers == []


@proves("sandbox-tools.elicitation")
async def test_an_agent_is_never_asked_for_a_person() -> None:
    app = FakeApplication(FakeRuntime(WAITING), own=AGENT)

    async def elicit(_: dict[str, Any]) -> object:
        raise AssertionError("An agent was asked.")

    result = await serve(app)("shell_run", {"command": "make"}, RequestContext(ELICITS, elicit))

    assert body(result)["status"] == "waiting"
    assert "not asked on behalf of a person" in result["content"][1]["text"]


@proves("sandbox-tools.elicitation")
async def test_an_agent_of_unknown_run_only_reads() -> None:
    runtime = FakeRuntime()
    app = FakeApplication(runtime, own=read_claim("nonsense"))

    async def identify() -> Caller:
        return read_claim("nonsense")

    refused = [await serve(app)(tool, {}) for tool in ("write", "shell_run", "sandbox_execute")]
    over_http = await serve(FakeApplication(runtime))("write", {}, RequestContext(identify_peer=identify))

    assert all(result["isError"] for result in (*refused, over_http))
    assert "It may only read." in body(over_http)["error"]["message"]
    assert runtime.calls == []
    assert not (await serve(app)("read", {"path": "a"}))["isError"]


@proves("sandbox-tools.options")
@pytest.mark.parametrize(("mount", "is_refused"), [(".:rw", True), (".:copy", False), (".:ro", False)])
async def test_an_agent_mounts_nothing_for_writing(
    mount: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if os.getuid() == 0:
        # A directory of root is not mounted for writing, whoever asks.
        os.chown(tmp_path, 12_345, 12_345)
    runtime = FakeRuntime()
    agent, person = (serve(FakeApplication(runtime, own=own), SandboxSession(mount=mount)) for own in (AGENT, Caller("person")))

    assert (await agent("read", {"path": "a"}))["isError"] is is_refused
    assert not (await person("read", {"path": "a"}))["isError"]


@proves("sandbox-tools.options")
@pytest.mark.parametrize("mode", ["", ":copy", ":ro", ":sideways"])
async def test_a_mount_that_is_wrong_is_refused_without_its_path(tmp_path: Path, mode: str) -> None:
    runtime = FakeRuntime()
    call = serve(FakeApplication(runtime), SandboxSession(mount=f"{tmp_path}/secret-name{mode}"))

    refused = await call("read", {"path": "a"})

    assert refused["isError"]
    assert "--mount" in body(refused)["error"]["message"]
    assert "secret-name" not in str(refused)
    assert runtime.opened == []


@proves("sandbox-tools.options")
@pytest.mark.parametrize(("mode", "is_refused"), [("copy", False), ("ro", True)])
async def test_a_mounted_directory_that_has_vanished_is_named_by_its_option(
    tmp_path: Path, mode: str, is_refused: bool
) -> None:
    (tmp_path / "secret-name").mkdir()
    call = serve(FakeApplication(FakeRuntime()), SandboxSession(mount=f"{tmp_path}/secret-name:{mode}"))
    await call("read", {"path": "a"})

    (tmp_path / "secret-name").rmdir()
    result = await call("read", {"path": "a"})

    assert result["isError"] is is_refused
    assert "secret-name" not in str(result)
