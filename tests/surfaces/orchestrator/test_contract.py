"""The seven tools of the contract, over every transport."""

from __future__ import annotations

import json

import pytest

from fidelio.app.application import Application
from fidelio.settings import Settings
from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools
from tests.support import proves
from tests.surfaces.orchestrator.conftest import ToolClient

# What each tool takes, and what a parameter that is left out means.
REQUIRED = object()
PLACE: dict[str, object] = {"project_dir": ""}
NAMED: dict[str, object] = {"session_name": REQUIRED, **PLACE}
TASK: dict[str, object] = {**NAMED, "prompt": REQUIRED, "async": False}
CONTRACT: dict[str, dict[str, object]] = {
    "list_agent_blueprints": {**PLACE, "response_format": "markdown"},
    "list_agent_sessions": {**PLACE, "response_format": "markdown"},
    "start_agent_session": {**TASK, "agent_blueprint_name": ""},
    "resume_agent_session": TASK,
    "delete_all_agent_sessions": PLACE,
    "get_agent_session_status": {**NAMED, "wait_seconds": 0},
    "get_agent_session_result": NAMED,
}
READ_ONLY = {name for name in CONTRACT if name.startswith(("list", "get"))}


@proves("orchestrator-tools.contract", "orchestrator-tools.hints")
def test_the_tools_are_those_that_clients_know(settings: Settings) -> None:
    described = {tool["name"]: tool for tool in open_tools(Application(settings), environ={}).table.describe()}
    assert list(described)[:7] == list(CONTRACT)
    for name, parameters in CONTRACT.items():
        schema = described[name]["inputSchema"]
        taken = {one: schema["properties"][one].get("default", REQUIRED) for one in parameters}
        assert taken == parameters
        assert set(schema.get("required", ())) == {one for one, default in parameters.items() if default is REQUIRED}
        assert described[name]["annotations"]["readOnlyHint"] is (name in READ_ONLY)
    assert described["delete_all_agent_sessions"]["annotations"]["destructiveHint"] is True
    assert all(tool["title"] and tool["description"] for tool in described.values())
    assert described["get_agent_session_status"]["inputSchema"]["properties"]["wait_seconds"]["maximum"] == 300


@proves("orchestrator-tools.contract", "orchestrator-tools.listing", "orchestrator-tools.broken-blueprints")
@pytest.mark.every_transport
async def test_blueprints_are_listed_in_both_formats_and_a_broken_one_apart(client: ToolClient) -> None:
    client.script("singer", [{"result": "La."}])
    (client.project / ".fidelio" / "agents" / "broken.md").write_text("---\nname: broken\n---\n")
    reply = await client("list_agent_blueprints", project_dir=str(client.project), response_format="json")
    body = json.loads(reply.text)
    assert body == reply.structured
    assert {"name": "singer", "description": "Plays singer."} in [
        {key: one[key] for key in ("name", "description")} for one in body["agents"]
    ]
    assert body["total"] == len(body["agents"])
    assert [one["name"] for one in body["broken"]] == ["broken"]
    markdown = (await client("list_agent_blueprints", project_dir=str(client.project))).text
    assert "## singer\n\nPlays singer.\n" in markdown
    assert "broken.md" in markdown


@proves("orchestrator-tools.contract", "orchestrator-tools.synchronous")
@pytest.mark.every_transport
async def test_a_synchronous_start_returns_the_result_and_a_resume_goes_on(client: ToolClient) -> None:
    client.script("counter", [{"result": "One: {prompt}"}], [{"result": "Two: {prompt}"}])
    assert (await client.start("count", "counter", "begin")).text == "One: begin"
    again = await client("resume_agent_session", session_name="count", prompt="go on", project_dir=str(client.project))
    assert again.text == "Two: go on"


@proves("orchestrator-tools.contract", "orchestrator-tools.asynchronous", "orchestrator-tools.status")
@pytest.mark.every_transport
async def test_an_asynchronous_session_is_running_until_it_has_finished_also_when_it_is_resumed(client: ToolClient) -> None:
    gate = client.project / "gate"
    client.script("slow", [{"result": "First."}], [{"pause": {"until": str(gate), "seconds": 30}}, {"result": "Second."}])
    place = {"session_name": "task", "project_dir": str(client.project)}
    begun = (await client.start("task", "slow", **{"async": True})).body
    assert begun["session_name"] == "task"
    assert begun["status"] == "running"
    assert (await client("get_agent_session_status", **place, wait_seconds=30)).body["status"] == "finished"
    assert (await client("get_agent_session_result", **place)).text == "First."
    await client("resume_agent_session", **place, prompt="More.", **{"async": True})
    assert (await client("get_agent_session_status", **place)).body["status"] == "running"
    too_early = await client("get_agent_session_result", **place)
    assert too_early.is_error
    assert "still running" in too_early.text
    gate.write_text("")
    assert (await client("get_agent_session_status", **place, wait_seconds=30)).body["state"] == "succeeded"
    assert (await client("get_agent_session_result", **place)).text == "Second."
    assert (await client("get_agent_session_result", **place, run=1)).text == "First."


@proves("orchestrator-tools.contract", "orchestrator-tools.listing")
@pytest.mark.every_transport
async def test_sessions_are_listed_in_both_formats_and_all_are_removed(client: ToolClient) -> None:
    assert (await client("list_agent_sessions")).text == "No sessions found"
    assert (await client("delete_all_agent_sessions")).text == "No sessions to remove"
    await client.start("one")
    await client.start("two")
    reply = await client("list_agent_sessions", response_format="json", project_dir=str(client.project))
    body = json.loads(reply.text)
    assert body == reply.structured
    assert body["total"] == 2
    assert [one["name"] for one in body["sessions"]] == ["two", "one"]
    assert {"name", "session_id", "project_dir"} <= set(body["sessions"][0])
    first = (await client("list_agent_sessions", response_format="json", limit=1)).body
    rest = (await client("list_agent_sessions", response_format="json", limit=1, cursor=first["next_cursor"])).body
    assert [one["name"] for one in (*first["sessions"], *rest["sessions"])] == ["two", "one"]
    assert "## one" in (await client("list_agent_sessions")).text
    assert (await client("delete_all_agent_sessions")).text == "All sessions removed"
    assert (await client("get_agent_session_status", session_name="one")).body == {"status": "not_existent"}
    assert (await client.start("one")).text == "Hello."


@proves("orchestrator-tools.contract")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"session_name": "a b"}, "name"),
        ({"session_name": "x" * 61}, "60"),
        ({"session_name": "one\n"}, "name"),
        ({"session_name": ""}, "name"),
        ({"session_name": "one", "agent_blueprint_name": "nobody"}, "list_agent_blueprints"),
        ({"session_name": "one", "project_dir": "relative/place"}, "absolute"),
        ({"session_name": "one", "project_dir": "/no/such/place"}, "/no/such/place"),
        ({"session_name": "one", "prompt": ""}, "prompt"),
        ({"session_name": "one", "async": "yes"}, "async"),
    ],
)
async def test_a_start_that_cannot_work_is_an_error_at_once(
    memory: ToolClient, arguments: dict[str, object], said: str
) -> None:
    given = {"prompt": "Hello.", "agent_blueprint_name": "echo", "project_dir": str(memory.project), **arguments}
    reply = await memory("start_agent_session", **given)
    assert reply.is_error
    assert said in reply.text
    assert (await memory("list_agent_sessions", response_format="json")).body["total"] == 0


@proves("orchestrator-tools.contract")
async def test_a_name_that_is_taken_says_what_to_do(client: ToolClient) -> None:
    await client.start("one")
    reply = await client.start("one")
    assert reply.is_error
    assert "already exists" in reply.text
    assert "resume_agent_session" in reply.text


@proves("orchestrator-tools.contract")
@pytest.mark.every_transport
async def test_a_name_that_nobody_has_says_what_to_do(client: ToolClient) -> None:
    for tool, more in (("resume_agent_session", {"prompt": "x"}), ("get_agent_session_result", {})):
        reply = await client(tool, session_name="ghost", **more)
        assert reply.is_error
        assert "does not exist" in reply.text
        assert "start_agent_session" in reply.text


@proves("orchestrator-tools.ambiguous-names")
async def test_a_name_that_several_projects_have_is_never_taken_for_none(client: ToolClient) -> None:
    projects = [client.project.parent / name for name in ("left", "right")]
    for project in projects:
        project.mkdir()
        await client.start("twin", project_dir=str(project))
    for tool in ("get_agent_session_status", "get_agent_session_result", "stop_agent_session"):
        reply = await client(tool, session_name="twin")
        assert reply.is_error
        assert all(str(project) in reply.text for project in projects)
    one = await client("get_agent_session_status", session_name="twin", project_dir=str(projects[0]))
    assert one.body["status"] == "finished"
