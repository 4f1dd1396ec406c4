"""What a person does on the page: start, write to, stop, run, delete, search; and what it refuses."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent, read_form_token


async def post(client: httpx2.AsyncClient, path: str, **fields: str) -> httpx2.Response:
    return await client.post(path, data={"form_token": await read_form_token(client), **fields})


async def wait_for(site: Site, session: str, type_: str, count: int = 1) -> None:
    """Wait until a session has so many events of a type."""
    async with asyncio.timeout(60):
        async for _ in (await site.application.records()).follow(session, types=(type_,)):
            count -= 1
            if not count:
                return


@proves("web.agents")
async def test_an_agent_of_the_runtime_is_started_and_answered_on_the_page(site: Site) -> None:
    await site.application.host_runtime()
    async with site.visit() as client:
        shown = await post(client, "/agents", kind="runtime", agent="default", message="Good morning.")
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "session.status_idle")
        await post(client, f"/sessions/{session}/act", act="send", message="And good night.")
        await wait_for(site, session, "session.status_idle", 2)
        page = (await client.get(f"/sessions/{session}")).text

    assert page.count("And good night.") >= 2
    assert "finished its turn" in page
    assert "scripted:echo" in page


@proves("web.agents")
async def test_an_agent_of_a_blueprint_is_started_on_the_page(site: Site) -> None:
    async with site.visit() as client:
        shown = await post(client, "/agents", kind="blueprint", agent="echo", name="first", message="Say hello.")
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "run.succeeded")
        page = (await client.get(f"/sessions/{session}")).text

    assert "succeeded" in page


@proves("web.agents")
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "runtime", "agent": "default", "message": " "}, "The message is empty."),
        ({"kind": "runtime", "agent": "nobody", "message": "x"}, "There is no agent nobody."),
        ({"kind": "runtime", "agent": "../x", "message": "x"}, "is not a name of an agent"),
        ({"kind": "blueprint", "agent": "nobody", "message": "x"}, "nobody"),
        ({"kind": "blueprint", "agent": "echo", "name": "--help x", "message": "x"}, "--help x"),
    ],
)
async def test_what_cannot_be_started_is_refused_with_the_reason(site: Site, fields: dict[str, str], sentence: str) -> None:
    async with site.visit() as client:
        answered = await post(client, "/agents", **fields)

    assert (answered.status_code, sentence in answered.text) == (400, True)


@proves("web.agents", "web.person")
@pytest.mark.parametrize("path", ["/agents", "/workflows/hello", "/sessions/{session}/act"])
async def test_an_agent_starts_and_ends_nothing_on_the_page(site: Site, agent: WaitingAgent, path: str) -> None:
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "act": "stop", "message": "x", "kind": "runtime"}
        headers = {AGENT_HEADER: "s_000000000000.1"}
        answered = await client.post(path.format(session=agent.session), data=fields, headers=headers)

    assert (answered.status_code, "An agent sent this request" in answered.text) == (400, True)
    assert (await (await site.application.records()).find(agent.session)).status == "blocked"


@proves("web.end")
async def test_a_session_is_ended_and_then_deleted_after_a_question(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        await post(client, f"/sessions/{agent.session}/act", act="stop")
        ended = (await (await site.application.records()).find(agent.session)).status
        confirm = await client.get(f"/sessions/{agent.session}/delete")
        await post(client, f"/sessions/{agent.session}/act", act="delete")
        proof = await client.get(f"/sessions/{agent.session}/proof")

    assert ended == "cancelled"
    assert "Delete this session for good?" in confirm.text
    assert "The record holds" in proof.text
    assert (await (await site.application.inbox()).list_requests()).items == ()


@proves("web.run")
async def test_a_workflow_is_run_from_its_form_until_it_asks(site: Site) -> None:
    async with site.visit() as client:
        form = (await client.get("/workflows/hello")).text
        shown = await post(client, "/workflows/hello", agent="echo")
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "activity.entered")

    assert 'name="input-project_name"' in form
    assert (await (await site.application.records()).find(session)).kind == "workflow"


@proves("web.search")
async def test_search_finds_events_and_says_why(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        found = (await client.get("/search", params={"q": "greet"})).text
        nothing = (await client.get("/search", params={"q": "zyzzyva"})).text
        hostile = await client.get("/search", params={"q": '"' * 600 + "*<b>"})

    assert f"/sessions/{agent.session}" in found
    assert "contains" in found
    assert "Nothing found" in nothing
    assert hostile.status_code in (200, 400)
    assert "<b>" not in hostile.text


@proves("web.health")
async def test_health_shows_what_doctor_says(site: Site) -> None:
    async with site.visit() as client:
        quick = (await client.get("/health-check")).text
        page = (await client.get("/health-check?all=yes")).text

    assert 'name="all" value="yes"' in quick
    assert "Tokens are sealed with key" in quick
    assert "SQLite ledger is sound" in page
    assert "Agent claude" in page
    # It is not read again with every event.
    assert ("/live?after=" in quick, "/live?after=" in page) == (True, False)
