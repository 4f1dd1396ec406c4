"""A server of the API for scripts in the process of the test, and a client that checks every response against the document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fidelio.app.application import Application
from fidelio.app.runtime import host_runtime
from fidelio.inbox import NewRequest, open_request
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.orchestrator.runs import host_process
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import load_settings
from fidelio.surfaces.http.api.application import create_json_routes
from fidelio.surfaces.http.api.operations import JsonServices
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from tests.surfaces.api.document import check_response
from tests.surfaces.runtime.conftest import CURRENT, FILES, RuntimeApplication

TOKEN = "token-of-scripts"
KEY = {"Authorization": f"Bearer {TOKEN}"}
OPTIONS = ({"id": "allow", "label": "Allow it once"}, {"id": "refuse", "label": "Refuse it"})


class CheckedClient(httpx2.AsyncClient):
    """A client that fails the test where a response is not what the document promises."""

    async def request(self, method: str, url: Any, **options: Any) -> httpx2.Response:
        response = await super().request(method, url, **options)
        check_response(response)
        return response


def ask(key: str, kind: str = "permission", question: str = "", **detail: Any) -> NewRequest:
    options = () if kind in ("question", "custom_tool") else OPTIONS
    return open_request(kind, key, question or f"May I do {key}?", options, detail)


async def open_session(
    application: Application, name: str, *requests: NewRequest, project: str = "/work/shop", said: str = ""
) -> str:
    """A session of an agent that waits for answers to these requests."""
    ledger = (await application.records())._ledger
    session = f"s_{name:0>12}"
    words = (NewEvent(type="agent.said", body={"text": said}, actor="agent"),) if said else ()
    asked = tuple(NewEvent(type="run.waiting", body={"request": request.id}) for request in requests)
    record = {"blueprint": "writer", "project": project}
    create = NewSession(kind="agent", name=name)
    await ledger.commit(
        Change(session=session, create=create, events=(*words, *asked), record=record, status="waiting", requests=requests)
    )
    return session


async def collect(client: httpx2.AsyncClient, path: str, **parameters: Any) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    found: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        page = (await client.get(path, params={**parameters, **after})).json()
        found += page["items"]
        if page["next"] is None:
            return found
        after = {"after": page["next"]}


@pytest.fixture(autouse=True)
def fresh_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(AGENT_MARKER, raising=False)
    # A worker would outlive the test that has left a session of an agent active.
    monkeypatch.setattr(host_process, "spawn_worker", lambda *_, **__: 0)
    FILES.clear()
    CURRENT.clear()
    yield
    CURRENT.clear()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def server_environ() -> dict[str, str]:
    """The environment that the settings of the server are read from."""
    return {}


@pytest.fixture
async def application(tmp_path: Path, server_environ: dict[str, str]) -> AsyncIterator[Application]:
    settings = load_settings(str(tmp_path / "home"), environ=server_environ)
    settings.home.ensure()
    async with RuntimeApplication(settings, with_bundled=True) as opened, host_runtime(await opened.runtime()):
        yield opened


@pytest.fixture
async def services(application: Application, project: Path) -> AsyncIterator[JsonServices]:
    made = JsonServices(application, str(project))
    yield made
    await made.actions.close()


@pytest.fixture
def token() -> str | None:
    """The token of the server; None for `--no-token`."""
    return TOKEN


@pytest.fixture
async def url(services: JsonServices, token: str | None) -> AsyncIterator[str]:
    """The address of a server of the API. Requests go over a socket, so that their senders can be looked up."""
    app = create_app({}, bearer_token=token, routes=create_json_routes(services))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
    try:
        yield await asyncio.wait_for(address, 30)
    finally:
        serving.cancel()
        await asyncio.wait([serving], timeout=30)


@pytest.fixture
async def client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A script with the token of the server."""
    async with CheckedClient(base_url=url, headers=KEY, timeout=60, trust_env=False) as opened:
        yield opened
