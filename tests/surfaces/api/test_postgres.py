"""The API over a ledger on PostgreSQL: lists, answers, events and streams, and names that a database refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from fidelio.app.application import Application
from fidelio.surfaces.http.api.application import OPERATIONS
from tests.ledger.postgres.fixtures import postgres_database, postgres_server
from tests.support import proves
from tests.surfaces.api.conftest import ask, collect, open_session
from tests.surfaces.api.test_contract import request_hostile_names
from tests.surfaces.api.test_events import append, read_stream

__all__ = ["postgres_database", "postgres_server"]


@pytest.fixture
def server_environ(postgres_database: str, tmp_path: Path) -> dict[str, str]:
    return {"FIDELIO_LEDGER": postgres_database}


@proves("api.answer", "api.paging", "api.etag")
async def test_requests_are_listed_and_answered_once_over_postgres(
    client: httpx2.AsyncClient, application: Application
) -> None:
    requests = [ask(f"thing {number}") for number in range(7)]
    await open_session(application, "one", *requests)
    path = f"/api/requests/{requests[0].id}"
    tag = (await client.get(path)).headers["etag"]
    options = ("allow", "refuse")
    answers = await asyncio.gather(*(client.post(f"{path}/answer", json={"option": option}) for option in options))

    assert len(await collect(client, "/api/requests", limit="3")) == 6
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert (await client.post(f"{path}/answer", json={"option": "allow"}, headers={"If-Match": tag})).status_code == 412
    assert [found["id"] for found in await collect(client, "/api/sessions", name="on")] == ["s_000000000one"]


@proves("api.events", "api.streams")
async def test_events_are_read_and_followed_over_postgres(
    client: httpx2.AsyncClient, url: str, application: Application
) -> None:
    await append(application, "first", "second")
    reading = asyncio.create_task(read_stream(url, "/api/events/stream?after=0", 3))
    await append(application, "third")

    assert [event["body"]["text"] for event in await reading] == ["first", "second", "third"]
    assert len(await collect(client, "/api/events", limit="1")) == 3


@proves("api.hostile")
async def test_no_name_is_an_error_of_the_server_over_postgres(client: httpx2.AsyncClient) -> None:
    for operation in OPERATIONS:
        if "{" in operation.path:
            await request_hostile_names(client, operation)
    for path in (
        "/api/requests?session=%00",
        "/api/sessions?name=%00&status=%00",
        "/api/search?text=%00",
        "/api/events?type=%00",
    ):
        assert (await client.get(path)).status_code < 500, path
