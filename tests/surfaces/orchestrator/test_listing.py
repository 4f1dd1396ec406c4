"""Lists of sessions and blueprints: total count, paging, and permissions of agents."""

from __future__ import annotations

from typing import Any

from tests.support import proves
from tests.surfaces.orchestrator.conftest import ToolClient


@proves("orchestrator-tools.listing")
async def test_a_page_of_sessions_says_how_many_there_are_in_all(client: ToolClient) -> None:
    client.script("polite", [{"ask": {"text": "May I?", "kind": "question"}}, {"result": "Thanks."}])
    for name in ("one", "two", "three"):
        await client.start(name)
    await client.start("asks", "polite")
    first = (await client("list_agent_sessions", response_format="json", limit=2)).body
    rest = (await client("list_agent_sessions", response_format="json", limit=2, cursor=first["next_cursor"])).body
    assert [one["name"] for one in (*first["sessions"], *rest["sessions"])] == ["asks", "three", "two", "one"]
    assert (first["total"], rest["total"]) == (4, 4)
    assert "Total: 4" in (await client("list_agent_sessions", limit=2)).text
    of_state = {state: (await client("list_agent_sessions", state=state, limit=1)).body["total"] for state in STATES}
    assert of_state == STATES
    assert (await client("list_agent_sessions", project_dir="/elsewhere", limit=1)).body["total"] == 0


STATES = {"succeeded": 3, "waiting": 1, "running": 1, "failed": 0}


@proves("orchestrator-tools.listing", "orchestrator-tools.broken-blueprints")
async def test_blueprints_are_paged_by_name_with_the_broken_ones_in_their_places(memory: ToolClient) -> None:
    for name in ("aa1", "aa3", "aa4"):
        memory.script(name, [{"result": "La."}])
    (memory.project / ".fidelio" / "agents" / "aa2.md").write_text("---\nname: aa2\n---\n")
    whole = (await memory("list_agent_blueprints", project_dir=str(memory.project))).body
    pages: list[dict[str, Any]] = []
    cursor = ""
    while not pages or cursor:
        page = (await memory("list_agent_blueprints", project_dir=str(memory.project), limit=2, cursor=cursor)).body
        pages.append(page)
        cursor = page.get("next_cursor", "")
    assert "next_cursor" not in whole
    assert [one for page in pages for one in page["agents"]] == whole["agents"]
    assert [one for page in pages for one in page.get("broken", ())] == whole["broken"]
    assert {page["total"] for page in pages} == {len(whole["agents"])}
    assert [one["name"] for one in pages[0]["broken"]] == ["aa2"]
    assert "cursor aa2" in (await memory("list_agent_blueprints", project_dir=str(memory.project), limit=2)).text


@proves("orchestrator-tools.permissions")
async def test_what_an_agent_may_do_is_seen_before_it_is_started(client: ToolClient) -> None:
    client.script("bold", [{"result": "La."}], permissions={"mode": "full"})
    client.script("shy", [{"result": "La."}])
    client.script("program", executor="command", options={"command": ["true"]}, permissions={"mode": "read"})
    place = {"project_dir": str(client.project)}
    listed = {one["name"]: one for one in (await client("list_agent_blueprints", **place)).body["agents"]}
    assert (listed["bold"]["permissions"], listed["shy"]["permissions"]) == ("full", "ask")
    assert listed["program"]["permissions"] == "full"  # no mode restrains a program
    assert "- Permissions: full" in (await client("list_agent_blueprints", **place)).text


@proves("orchestrator.why-queued")
async def test_the_list_and_the_status_say_why_a_session_waits(client: ToolClient) -> None:
    client.script("polite", [{"ask": {"text": "May I?", "kind": "question"}}, {"result": "Thanks."}])
    await client.start("asks", "polite")
    await client("send_agent_message", session_name="asks", message="And then this.")
    listed = (await client("list_agent_sessions", response_format="json")).body["sessions"]
    text = (await client("list_agent_sessions")).text
    status = (await client("get_agent_session_status", session_name="asks")).body
    why = "Its messages wait until the running turn has ended."
    assert [listed[0]["waits_because"], status["waits_because"]] == [why, why]
    assert f"- Waits: {why}" in text
