"""The orchestrator's tools beyond the seven of the contract."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from fidelio.app.application import Application
from fidelio.inbox import Inbox
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools
from tests.support import proves
from tests.surfaces.orchestrator.conftest import SECONDS, ToolClient, in_memory
from tests.surfaces.orchestrator.test_questions import ASK

ASYNC: dict[str, Any] = {"async": True}


def until(gate: Path) -> dict[str, object]:
    return {"pause": {"until": str(gate), "seconds": 30}}


@proves("orchestrator-tools.waiting")
async def test_waiting_for_any_returns_with_the_first_and_for_all_with_the_last(client: ToolClient) -> None:
    gate = client.project / "gate"
    client.script("slow", [until(gate), {"result": "Slow."}])
    await client.start("quick", **ASYNC)
    await client.start("slow", "slow", **ASYNC)
    names = ["quick", "slow"]
    some = (await client("wait_for_agent_sessions", session_names=names, mode="any", timeout_seconds=30)).body
    assert (some["finished"], some["running"]) == (["quick"], ["slow"])
    early = (await client("wait_for_agent_sessions", session_names=["slow"], timeout_seconds=0)).body
    assert early["running"] == ["slow"]
    gate.write_text("")
    both = (await client("wait_for_agent_sessions", session_names=names, timeout_seconds=30)).body
    assert both["finished"] == names


@proves("orchestrator-tools.synchronous")
async def test_a_start_that_takes_too_long_returns_that_it_is_running_and_the_work_goes_on(
    tmp_path: Path, project: Path
) -> None:
    settings = load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_SYNC_SECONDS": "0.2"})
    gate = project / "gate"
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("slow", [until(gate), {"result": "At last."}])
        body = (await client.start("task", "slow")).body
        assert body["status"] == "running"
        assert "still running" in body["message"]
        assert "get_agent_session_result" in body["message"]
        gate.write_text("")
        await client("get_agent_session_status", session_name="task", wait_seconds=30, project_dir=str(project))
        assert (await client("get_agent_session_result", session_name="task", project_dir=str(project))).text == "At last."


@proves("orchestrator-tools.messages")
async def test_a_message_to_a_busy_agent_waits_for_its_next_turn(client: ToolClient) -> None:
    gate = client.project / "gate"
    client.script("slow", [until(gate), {"result": "First."}], [{"result": "Heard: {prompt}"}])
    place = {"session_name": "task", "project_dir": str(client.project)}
    await client.start("task", "slow", **ASYNC)
    refused = await client("resume_agent_session", **place, prompt="Now!")
    assert refused.is_error
    assert "send_agent_message" in refused.text
    sent = (await client("send_agent_message", **place, message="Mind the step.")).body
    assert "next turn" in sent["message"]
    gate.write_text("")
    await client("wait_for_agent_sessions", session_names=["task"], project_dir=str(client.project), timeout_seconds=30)
    result = await client("get_agent_session_result", **place)
    assert result.text.startswith("Heard:")
    assert "Mind the step." in result.text


@proves("orchestrator-tools.stopping")
async def test_a_stopped_session_has_finished_and_can_be_resumed(client: ToolClient) -> None:
    client.script("slow", [until(client.project / "never"), {"result": "Never."}], [{"result": "Again."}])
    place = {"session_name": "task", "project_dir": str(client.project)}
    await client.start("task", "slow", **ASYNC)
    stopped = (await client("stop_agent_session", **place)).body
    assert (stopped["status"], stopped["state"]) == ("finished", "stopped")
    result = await client("get_agent_session_result", **place)
    assert result.is_error
    assert "stopped" in result.text
    resumed = (await client("resume_agent_session", **place, prompt="Try again.", **ASYNC)).body
    assert (resumed["status"], resumed["run"]) == ("running", 2)
    gone = (await client("delete_agent_session", **place)).body
    assert gone["status"] == "not_existent"
    assert (await client("get_agent_session_status", **place)).body == {"status": "not_existent"}


@proves("orchestrator-tools.questions", "orchestrator-tools.status")
@pytest.mark.every_transport
async def test_a_question_is_told_and_answered_once(client: ToolClient) -> None:
    ask = {"ask": {"text": "May I?", "kind": "permission", "options": {"yes": "Go on", "no": "Stop"}}}
    client.script("polite", [ask, {"result": "You said {answer.option}."}])
    place = {"session_name": "task", "project_dir": str(client.project)}
    begun = (await client.start("task", "polite")).body
    assert begun["state"] == "waiting"
    assert "answer_agent_question" in begun["message"]
    status = (await client("get_agent_session_status", **place)).body
    assert status["status"] == "running"
    assert "fidelio answer r_" in status["question"]
    wrong = await client("answer_agent_question", **place, option_id="perhaps")
    assert wrong.is_error
    assert "yes" in wrong.text
    assert not (await client("answer_agent_question", **place, option_id="yes")).is_error
    await client("get_agent_session_status", **place, wait_seconds=30)
    assert (await client("get_agent_session_result", **place)).text == "You said yes."


@proves("orchestrator-tools.questions")
async def test_a_question_is_answered_from_the_inbox_too(settings: Settings, project: Path) -> None:
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client, Application(settings) as other:
        client.script("curious", [{"ask": {"text": "Which colour?", "kind": "question"}}, {"result": "{answer.text} it is."}])
        await client.start("task", "curious")
        inbox = Inbox((await other.workflows()).unit.ledger)
        request = await anext(aiter(inbox.follow()))
        await inbox.answer(request.id, text="Green", by="person:tester", channel="cli")
        place = {"session_name": "task", "project_dir": str(project)}
        await client("get_agent_session_status", **place, wait_seconds=30)
        assert (await client("get_agent_session_result", **place)).text == "Green it is."


@proves("orchestrator-tools.results")
async def test_a_long_result_is_given_in_parts_and_a_failed_one_with_what_was_said(client: ToolClient) -> None:
    client.script("chatty", [{"result": "x" * 60_000 + "end"}])
    client.script("clumsy", [{"say": "I tried."}, {"fail": "It broke."}])
    await client.start("long", "chatty", **ASYNC)
    place = {"session_name": "long", "project_dir": str(client.project)}
    await client("get_agent_session_status", **place, wait_seconds=30)
    part = await client("get_agent_session_result", **place)
    assert len(part.text) == 25_000
    assert "offset 25000" in part.texts[1]
    last = await client("get_agent_session_result", **place, offset=50_000)
    assert last.text.endswith("end")
    assert len(last.texts) == 1
    failed = await client.start("short", "clumsy")
    assert failed.is_error
    assert "It broke." in failed.text
    assert "I tried." in failed.text


@proves("orchestrator-tools.events")
@pytest.mark.every_transport
async def test_events_are_read_on_from_a_cursor(client: ToolClient) -> None:
    client.script("chatty", [{"say": "y" * 5_000}, {"result": "Done."}])
    await client.start("task", "chatty")
    place = {"session_name": "task", "project_dir": str(client.project)}
    first = (await client("get_agent_session_events", **place, limit=2)).body
    assert first["more"]
    rest = (await client("get_agent_session_events", **place, after=first["next_after"])).body
    seqs = [event["seq"] for event in (*first["events"], *rest["events"])]
    assert seqs == list(range(1, len(seqs) + 1))
    assert "run.succeeded" in [event["type"] for event in rest["events"]]
    assert len(json.dumps(rest)) < 5_000


@proves("orchestrator-tools.contract")
async def test_input_that_does_not_fit_the_schema_returns_the_schema(client: ToolClient) -> None:
    schema = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
    client.script("strict", [{"result": "{prompt}"}], input_schema=schema)
    refused = await client.start("task", "strict", {"subject": "x"})
    assert refused.is_error
    assert "topic" in refused.text
    assert refused.structured == {"schema": schema}
    assert "brass" in (await client.start("task", "strict", {"topic": "brass"})).text


@proves("orchestrator-tools.children")
async def test_a_session_that_an_agent_starts_is_its_child_and_calls_it_back(settings: Settings, project: Path) -> None:
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("busy", [ASK, {"result": "Asked."}], [{"result": "{prompt}"}])
        parent = (await client.start("parent", "busy")).body["session_id"]
        async with in_memory(settings, project, {"FIDELIO_AGENT": f"{parent}.1"}) as below:
            await below.start("child", prompt="Found it.", callback=True, **ASYNC)
            await below("get_agent_session_status", session_name="child", wait_seconds=30, project_dir=str(project))
        await client("answer_agent_question", session_name=parent, option_id="yes")
        async with Application(settings) as app:
            service = await app.agents()
            (child,) = (await service.list(parent=parent)).items
            assert child.name == "child"
            ledger = service.context.ledger
            async for event in ledger.follow(parent, types=("run.succeeded",)):
                if "Found it." in str(event.body["result"]):
                    break


@proves("orchestrator-tools.synchronous")
async def test_a_client_that_waits_hears_of_progress(
    settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.orchestrator.service.wait.NOTICE_SECONDS", 0.05)
    heard: list[str] = []
    gate = project / "gate"

    async def report(_: float, __: float | None, message: str | None) -> None:
        heard.append(message or "")
        gate.write_text("")

    async with asyncio.timeout(SECONDS), in_memory(settings, project, reporter=report) as client:
        client.script("slow", [until(gate), {"result": "Done."}])
        assert (await client.start("task", "slow")).text == "Done."
    assert "task: " in heard[0]


@proves("orchestrator-tools.hints")
async def test_replies_fit_the_schemas_that_the_tools_declare(memory: ToolClient, settings: Settings) -> None:
    async with Application(settings) as app:
        described = {tool["name"]: tool for tool in open_tools(app, environ={}).table.describe()}
    await memory.start("one")
    calls: dict[str, dict[str, Any]] = {
        "list_agent_blueprints": {},
        "list_agent_sessions": {},
        "get_agent_session_status": {"session_name": "one"},
        "wait_for_agent_sessions": {"session_names": ["one"]},
        "stop_agent_session": {"session_name": "one"},
        "send_agent_message": {"session_name": "one", "message": "x"},
        "get_agent_session_events": {"session_name": "one"},
        "delete_agent_session": {"session_name": "one"},
        "delete_all_agent_sessions": {},
    }
    for name, arguments in calls.items():
        reply = await memory(name, **arguments)
        validate(reply.body, described[name]["outputSchema"])
