"""Sessions over the API: lists, one in words, report and proof, and what a person does with it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import msgspec
import pytest

from fidelio.app.application import Application
from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves
from tests.surfaces.api.conftest import ask, collect, open_session
from tests.surfaces.conftest import Fidelio


async def wait_for(application: Application, session: str, type_: str, count: int = 1) -> None:
    """Wait until a session has so many events of a type."""
    async with asyncio.timeout(60):
        async for _ in (await application.records()).follow(session, types=(type_,)):
            count -= 1
            if not count:
                return


async def start_echo(client: httpx2.AsyncClient, application: Application, name: str = "first") -> str:
    started = await client.post("/api/agents/echo/sessions", json={"message": "Say hello.", "name": name})
    session: str = started.json()["session"]
    assert (started.status_code, started.headers["location"]) == (201, f"/api/sessions/{session}")
    await wait_for(application, session, "run.succeeded")
    return session


@proves("api.sessions")
async def test_sessions_are_filtered_by_kind_status_parent_and_the_beginning_of_the_name(
    client: httpx2.AsyncClient, application: Application
) -> None:
    first = await open_session(application, "ship-one")
    second = await open_session(application, "ship-two")
    ledger = (await application.records())._ledger
    child = NewSession(kind="workflow", parent=first)
    await ledger.commit(Change(session="s_00000000000c", create=child, events=(NewEvent(type="x"),), status="active"))

    async def find(**filters: str) -> set[str]:
        return {found["id"] for found in await collect(client, "/api/sessions", **filters)}

    assert await find() == {first, second, "s_00000000000c"}
    assert await find(kind="agent") == await find(status="waiting") == {first, second}
    assert await find(parent="ship-one") == {"s_00000000000c"}
    assert await find(name="ship-t") == {second}
    assert await find(name="ship", limit="1") == {first, second}
    assert (await client.get("/api/sessions?parent=nobody")).status_code == 404
    misspelt = await client.get("/api/sessions?kind=workflow&status=complete")
    assert (misspelt.status_code, "completed" in misspelt.json()["remedy"]) == (400, True)


@proves("api.sessions")
async def test_a_workflow_has_its_state_in_a_word_and_its_variables_with_who_set_them(
    client: httpx2.AsyncClient, application: Application
) -> None:
    ledger = (await application.records())._ledger
    record = {"workflow": "hello", "here": {"activity": "greet"}, "variables": {"tone": "warm"}, "set_by": {"tone": "agent:a"}}
    create = NewSession(kind="workflow", name="greeting")
    event = NewEvent(type="session.started")
    await ledger.commit(Change(session="s_00000000000a", create=create, events=(event,), status="blocked", record=record))

    found = (await client.get("/api/sessions/greeting")).json()

    assert (found["state"], found["about"], found["events"]) == ("waiting", "hello, greet", 1)
    assert (found["variables"], found["set_by"]) == ({"tone": "warm"}, {"tone": "agent:a"})
    assert "run" not in found


@proves("api.actions")
async def test_an_agent_is_started_resumed_and_deleted(client: httpx2.AsyncClient, application: Application) -> None:
    session = await start_echo(client, application)
    done = (await client.get(f"/api/sessions/{session}")).json()
    resumed = await client.post(f"/api/sessions/{session}/resume", json={"message": "Say goodbye."})
    await wait_for(application, session, "run.succeeded", 2)
    texts = str(await collect(client, f"/api/sessions/{session}/events"))
    deleted = await client.delete(f"/api/sessions/{session}", params={"reason": "A test."})

    assert (done["state"], done["run"]["state"]) == ("done", "succeeded")
    assert resumed.json()["id"] == session
    assert "Say goodbye." in texts
    assert deleted.json() == {"deleted": [session], "retained_worktrees": []}
    # Its chain stays, and verifies.
    assert (await client.get(f"/api/sessions/{session}/verification")).json()["holds"] is True


@proves("api.actions")
async def test_an_agent_of_the_runtime_is_started_and_answered(client: httpx2.AsyncClient, application: Application) -> None:
    started = await client.post("/api/agents/default/sessions", json={"message": "Good morning.", "kind": "runtime"})
    session = started.json()["session"]
    await wait_for(application, session, "session.status_idle")
    sent = await client.post(f"/api/sessions/{session}/messages", json={"message": "And good night."})
    await wait_for(application, session, "session.status_idle", 2)
    events = await collect(client, f"/api/sessions/{session}/events")
    found = (await client.get(f"/api/sessions/{session}")).json()
    stopped = await client.post(f"/api/sessions/{session}/stop", json={})
    report = (await client.get(f"/api/sessions/{session}/report")).json()

    assert sent.status_code == stopped.status_code == 200
    assert "And good night." in str(events)
    assert found["runtime"]["usage"]["requests"] == 2
    assert (report["kind"], report["chain"]["holds"]) == ("runtime", True)


@proves("api.actions")
async def test_what_a_session_cannot_do_is_refused(client: httpx2.AsyncClient, application: Application) -> None:
    session = await open_session(application, "one", ask("x"))
    ledger = (await application.records())._ledger
    event = NewEvent(type="session.started")
    await ledger.commit(Change(session="s_00000000000a", create=NewSession(kind="workflow"), events=(event,)))

    to_workflow = await client.post("/api/sessions/s_00000000000a/messages", json={"message": "Hello"})
    waiting = await client.delete(f"/api/sessions/{session}", params={"reason": "A test."})
    without_reason = await client.delete(f"/api/sessions/{session}")
    no_report = await client.get(f"/api/sessions/{session}/report")

    assert (to_workflow.status_code, to_workflow.json()["code"]) == (409, "api.kind")
    assert (waiting.status_code, without_reason.status_code, no_report.status_code) == (400, 400, 400)
    assert without_reason.json()["errors"][0]["field"] == "reason"
    assert (await client.get("/api/sessions/s_000000000xyz")).json()["code"] == "ledger.session-not-found"


@proves("api.proof")
async def test_a_session_is_verified_with_earlier_heads(client: httpx2.AsyncClient, application: Application) -> None:
    session = await start_echo(client, application)
    path = f"/api/sessions/{session}/verification"
    found = (await client.get(path)).json()
    earlier = (await collect(client, f"/api/sessions/{session}/events"))[0]["hash"]

    with_head = (await client.get(path, params={"head": [earlier, found["head"]]})).json()
    foreign = (await client.get(path, params={"head": "ab" * 32})).json()

    assert with_head == found
    assert (found["holds"], found["problems"]) == (True, [])
    assert foreign["holds"] is False
    assert (await client.get(path, params={"head": "xyz"})).status_code == 400


@proves("api.same-keys")
async def test_lists_have_the_keys_of_the_command_line(
    client: httpx2.AsyncClient, application: Application, fidelio_process: Fidelio
) -> None:
    request = ask("x")
    session = await open_session(application, "one", request, said="Hello, marmalade.")

    async def run(*words: str) -> Any:
        home = str(application.settings.home.path)
        printed = await asyncio.to_thread(fidelio_process, *words, "--json", FIDELIO_HOME=home)
        return msgspec.json.decode(printed.stdout)

    pairs = (("/api/requests", "inbox"), ("/api/sessions", "sessions"), ("/api/search?text=marmalade", "search marmalade"))
    for path, words in pairs:
        assert (await client.get(path)).json() == await run(*words.split()), path
    verified = (await run("verify", session))["sessions"]
    assert [(await client.get(f"/api/sessions/{session}/verification")).json()] == verified


@proves("api.paging")
async def test_no_session_is_lost_while_others_begin(client: httpx2.AsyncClient, application: Application) -> None:
    names = [f"n{number}" for number in range(25)]
    before = {await open_session(application, name) for name in names}
    page = (await client.get("/api/sessions?limit=10")).json()
    await open_session(application, "later")
    rest = await collect(client, "/api/sessions", limit="10", after=page["next"])

    assert {found["id"] for found in (*page["items"], *rest)} == before


@pytest.mark.parametrize("path", ["/api/sessions?after=x", "/api/requests?after=x", "/api/workflows/hello/findings?after=x"])
@proves("api.paging")
async def test_a_cursor_that_was_never_issued_is_refused(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 400
