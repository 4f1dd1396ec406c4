"""Workflows, agents, search, health and webhooks over the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from fidelio.app.application import Application
from fidelio.surfaces.http.api.operations import JsonServices
from tests.support import proves
from tests.surfaces.api.conftest import ask, collect, open_session
from tests.surfaces.api.test_sessions import wait_for

SECRET = "a secret of some length"


@proves("api.workflows")
async def test_the_library_is_listed_with_its_findings_and_drawn(client: httpx2.AsyncClient, application: Application) -> None:
    entries = await collect(client, "/api/workflows", limit="1")
    drawing = await client.get("/api/workflows/hello/drawing")
    again = await client.get("/api/workflows/hello/drawing", headers={"If-None-Match": drawing.headers["etag"]})

    assert "hello" in {entry["id"] for entry in entries}
    assert {(entry["errors"], entry["broken"]) for entry in entries} == {(0, False)}
    assert (await client.get("/api/workflows/hello")).json()["hash"]
    assert await collect(client, "/api/workflows/hello/findings") == []
    assert drawing.text.startswith("<svg")
    assert "script" not in drawing.headers["content-security-policy"]
    assert again.status_code == 304
    assert (await client.get("/api/workflows/nothing")).json()["code"] == "definition.workflow-not-found"


@proves("api.runs")
async def test_inputs_that_do_not_fit_the_variables_are_named_and_nothing_is_started(client: httpx2.AsyncClient) -> None:
    wrong = await client.post("/api/workflows/hello/runs", json={"inputs": {"project_name": 3, "nme": "Ada"}})
    missing = await client.post("/api/workflows/work-package/runs", json={})
    elsewhere = await client.post("/api/workflows/hello/runs", json={"project": "/nowhere/at/all", "agent": "echo"})

    assert (wrong.status_code, missing.status_code, elsewhere.status_code) == (422, 422, 400)
    assert {each["field"] for each in wrong.json()["errors"]} == {"inputs.project_name", "inputs.nme"}
    assert "cannot begin without it" in missing.json()["detail"]
    assert await collect(client, "/api/sessions") == []


@proves("api.runs")
async def test_a_run_begins_with_its_inputs_and_goes_on_in_the_server(
    client: httpx2.AsyncClient, application: Application
) -> None:
    body = {"inputs": {"project_name": "Aria", "write_note": False}, "agent": "echo"}
    started = await client.post("/api/workflows/hello/runs", json=body)
    session = started.json()["session"]
    await wait_for(application, session, "activity.entered")
    found = (await client.get(started.headers["location"])).json()
    stopped = await client.post(f"/api/sessions/{session}/stop", json={"reason": "Enough."})
    report = (await client.get(f"/api/sessions/{session}/report")).json()

    assert (found["id"], found["variables"]["write_note"]) == (session, False)
    assert found["set_by"]["project_name"].startswith("person:")
    assert stopped.json()["status"] == "cancelled"
    assert (report["workflow"], report["cancelled"]["reason"]) == ("hello", "Enough.")


@proves("api.agents")
async def test_agents_are_listed_with_the_errors_of_blueprints(client: httpx2.AsyncClient, services: JsonServices) -> None:
    folder = services.application.settings.home.path / "agents"
    folder.mkdir(exist_ok=True)
    (folder / "broken.md").write_text("---\nnonsense: [\n---\n")

    found = {(entry["kind"], entry["name"]): entry for entry in await collect(client, "/api/agents", limit="1")}

    assert "permissions" in found["blueprint", "echo"]
    assert found["blueprint", "broken"]["error"]


@proves("api.agents")
async def test_a_name_that_is_taken_and_an_unknown_blueprint_are_refused(
    client: httpx2.AsyncClient, application: Application
) -> None:
    body = {"message": "Say hello.", "name": "first"}
    session = (await client.post("/api/agents/echo/sessions", json=body)).json()["session"]
    await wait_for(application, session, "run.succeeded")

    taken = await client.post("/api/agents/echo/sessions", json=body)
    unknown = await client.post("/api/agents/nobody/sessions", json={"message": "Say hello."})

    assert (taken.status_code, taken.json()["code"]) == (409, "agent.session-exists")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "agent.blueprint-not-found")


@proves("api.search")
async def test_a_hit_says_which_words_matched_where(client: httpx2.AsyncClient, application: Application) -> None:
    session = await open_session(application, "one", said="The marmalade is on the violin.")

    (hit,) = (await client.get("/api/search", params={"text": "marmalade violin", "session": "one"})).json()["items"]
    missing = await client.get("/api/search")

    assert (hit["session"], hit["type"]) == (session, "agent.said")
    assert {term for match in hit["matches"] for term in match["terms"]} == {"marmalade", "violin"}
    assert (missing.status_code, missing.json()["errors"][0]["field"]) == (400, "text")
    assert (await client.get("/api/search", params={"text": '"'})).status_code in (200, 400)
    assert (await client.get("/api/search", params={"text": "x", "relation": "children"})).status_code in (200, 400)


@proves("api.health")
async def test_health_says_what_works_for_the_home_and_what_is_queued(
    client: httpx2.AsyncClient, application: Application
) -> None:
    await open_session(application, "one", ask("x"))

    health = (await client.get("/api/health")).json()

    assert health["healthy"] is True
    assert {"python", "home"} <= {check["name"] for check in health["checks"]}
    assert health["hosts"][0]["process"]
    assert health["streams"] == 0 < health["max_streams"]


@asynccontextmanager
async def receive(status: int) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A receiver that answers with a status, and what it got."""
    got: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", got


@proves("api.webhooks")
async def test_a_webhook_is_added_tested_and_removed_without_showing_its_secret(client: httpx2.AsyncClient) -> None:
    async with receive(204) as (address, got):
        added = await client.post("/api/webhooks", json={"url": address, "secret": SECRET})
        path = added.headers["location"]
        tested = await client.post(f"{path}/test")
    listed = await client.get("/api/webhooks")
    removed = await client.delete(path)

    assert added.status_code == 201
    assert tested.json() == {"webhook": added.json()["id"], "status": 204}
    assert b"Fidelio-Signature" in got[0]
    assert "this machine" in added.json()["remark"]
    assert [each["url"] for each in listed.json()["items"]] == [address]
    assert SECRET not in added.text + listed.text + removed.text
    assert (await client.get(path)).json()["code"] == "api.unknown-webhook"
    assert (await client.get("/api/webhooks/deliveries")).json() == {"items": [], "next": None}


@proves("api.webhooks")
async def test_a_receiver_that_refuses_a_test_is_named(client: httpx2.AsyncClient) -> None:
    async with receive(500) as (address, _):
        added = (await client.post("/api/webhooks", json={"url": address, "secret": SECRET})).json()
        refused = await client.post(f"/api/webhooks/{added['id']}/test")

    assert (refused.status_code, refused.json()["code"]) == (502, "webhook.refused")
    assert "500" in refused.json()["detail"]


@proves("api.webhooks")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"url": "https://x.example", "secret": "short"}, 422),
        ({"url": "ftp://x.example", "secret": SECRET}, 400),
        ({"url": "https://u:p@x.example", "secret": SECRET}, 400),
        ({"secret": SECRET}, 422),
    ],
)
async def test_an_address_or_a_secret_that_cannot_be_used_is_refused(
    client: httpx2.AsyncClient, body: dict[str, str], status: int
) -> None:
    assert (await client.post("/api/webhooks", json=body)).status_code == status
