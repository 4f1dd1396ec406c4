"""Events over the API: pages with whole texts, and streams that go on where a program was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from fidelio.app.application import Application
from fidelio.app.watching import Watcher
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.surfaces.http.api import events
from fidelio.surfaces.http.api.operations import JsonServices
from tests.support import proves
from tests.surfaces.api.conftest import KEY, ask, collect, open_session
from tests.surfaces.api.document import check_value, load_document

SESSION = "s_000000000001"


async def append(application: Application, *texts: str, session: str = SESSION) -> None:
    ledger = (await application.records())._ledger
    said = tuple(NewEvent(type="agent.said", body={"text": text}, actor="agent") for text in texts)
    known = [found.id for found in (await ledger.sessions()).items]
    create = None if session in known else NewSession(kind="agent")
    await ledger.commit(Change(session=session, create=create, events=said))


async def read_stream(url: str, path: str, count: int, **headers: str) -> list[dict[str, Any]]:
    """The first events of a stream, with their ids."""
    async with (
        asyncio.timeout(30),
        httpx2.AsyncClient(base_url=url, headers={**KEY, **headers}, trust_env=False) as client,
        client.stream("GET", path) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        return [event async for _, event in _take(response, count)]


async def _take(response: httpx2.Response, count: int) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    number = ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        number = value if name == "id" else number
        if name == "data":
            event = msgspec.json.decode(value)
            check_value(event, load_document()["components"]["schemas"]["EventDetail"])
            yield int(number), {**event, "stream_id": int(number)}
            count -= 1
            if not count:
                return


@proves("api.events")
async def test_events_are_paged_by_their_numbers_and_filtered_by_type(
    client: httpx2.AsyncClient, application: Application
) -> None:
    await append(application, *map(str, range(25)))
    await append(application, "elsewhere", session="s_000000000002")

    paged = await collect(client, f"/api/sessions/{SESSION}/events", limit="10")
    everywhere = await collect(client, "/api/events", limit="10")

    assert [event["body"]["text"] for event in paged] == list(map(str, range(25)))
    assert [event["seq"] for event in paged] == list(range(1, 26))
    assert {event["session"] for event in everywhere} == {SESSION, "s_000000000002"}
    assert await collect(client, f"/api/sessions/{SESSION}/events", type="run.queued") == []
    assert (await client.get(f"/api/sessions/{SESSION}/events/7")).json() == paged[6]
    for number in ("0", "26", "x", "9" * 30):
        assert (await client.get(f"/api/sessions/{SESSION}/events/{number}")).status_code == 404


@proves("api.events")
async def test_a_text_that_is_stored_apart_is_whole(client: httpx2.AsyncClient, application: Application) -> None:
    await application.host_runtime()
    started = await client.post("/api/agents/default/sessions", json={"message": "word " * 15_000, "kind": "runtime"})
    session = started.json()["session"]

    (event,) = await collect(client, f"/api/sessions/{session}/events", type="user.message")

    assert "word " * 14_000 in str(event["body"])


@proves("api.events")
async def test_a_page_of_long_events_ends_early_and_goes_on(
    client: httpx2.AsyncClient, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_BYTES", 1_000)
    await append(application, *("x" * 400 for _ in range(7)))

    page = (await client.get(f"/api/sessions/{SESSION}/events")).json()

    assert (len(page["items"]), page["next"]) == (1, "1")
    assert len(await collect(client, f"/api/sessions/{SESSION}/events")) == 7


@proves("api.streams")
async def test_a_stream_begins_after_a_number_and_goes_on_with_what_is_appended(url: str, application: Application) -> None:
    await append(application, "first", "second")
    reading = asyncio.create_task(read_stream(url, f"/api/sessions/{SESSION}/events/stream?after=1", 2))
    await append(application, "elsewhere", session="s_000000000002")
    await append(application, "third")

    found = await reading

    assert [event["body"]["text"] for event in found] == ["second", "third"]
    assert [event["stream_id"] for event in found] == [event["seq"] for event in found] == [2, 3]


@proves("api.streams")
async def test_a_stream_goes_on_after_the_last_event_without_loss_or_repetition(url: str, application: Application) -> None:
    await append(application, "first", "second")
    (first,) = await read_stream(url, "/api/events/stream?after=0", 1)
    await append(application, "third", session="s_000000000002")

    rest = await read_stream(url, "/api/events/stream?after=0", 2, **{"Last-Event-ID": str(first["stream_id"])})

    assert [event["body"]["text"] for event in (first, *rest)] == ["first", "second", "third"]
    assert rest[-1]["stream_id"] == rest[-1]["position"]


@proves("api.streams")
async def test_many_events_at_once_reach_a_stream_in_order(url: str, application: Application) -> None:
    await append(application, "first")
    reading = asyncio.create_task(read_stream(url, f"/api/sessions/{SESSION}/events/stream?after=0&type=agent.said", 251))
    await append(application, *map(str, range(250)))

    assert [event["seq"] for event in await reading] == list(range(1, 252))


@proves("api.streams")
async def test_streams_share_the_bound_of_the_page_and_release_their_place(
    client: httpx2.AsyncClient, url: str, services: JsonServices, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(application, "first")
    await read_stream(url, "/api/events/stream?after=0", 1)
    async with asyncio.timeout(30):
        # The server notices by itself that its client has left.
        while services.watcher.streams:
            await append(application, "more")
    monkeypatch.setattr(Watcher, "has_room", False)

    refused = await client.get("/api/events/stream")

    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "api.streams", "30")


@proves("api.streams")
async def test_what_is_no_id_of_an_event_is_refused(client: httpx2.AsyncClient, application: Application) -> None:
    await open_session(application, "one", ask("x"))
    for path in ("/api/events/stream", "/api/sessions/one/events/stream"):
        refused = await client.get(path, headers={"Last-Event-ID": "abc"})
        assert (refused.status_code, refused.json()["code"]) == (400, "api.last-event-id")
    assert (await client.get("/api/events/stream?after=-1")).status_code == 400
