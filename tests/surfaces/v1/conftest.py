"""A server of the API in the process of the test, and the official SDK as its client.

The server is real: requests go over a socket. Models are scripted (`scripted:test` calls what `model` holds), and
sandboxes are files in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from anthropic import AsyncAnthropic

from fidelio.app.application import Application
from fidelio.app.runtime import host_runtime
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.settings import load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.http.v1.application import create_routes
from fidelio.surfaces.http.v1.endpoint import ApiServices
from tests.surfaces.runtime.conftest import CURRENT, FILES, RuntimeApplication

ModelBehaviour = Callable[[ModelRequest], ModelReply | Awaitable[ModelReply]]
TOKEN = "test-key-of-the-api"
KEY = {"x-api-key": TOKEN}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def fresh_model() -> Iterator[None]:
    FILES.clear()
    CURRENT.clear()
    yield
    CURRENT.clear()


@pytest.fixture
def script() -> Callable[[ModelBehaviour], None]:
    """Let the model `scripted:test` reply by a function."""

    def use(function: ModelBehaviour) -> None:
        CURRENT[:] = [function]

    return use


@pytest.fixture
def environ() -> dict[str, str]:
    """The environment that the settings of the server are read from."""
    return {}


@pytest.fixture
async def application(tmp_path: Path, project: Path, environ: dict[str, str]) -> AsyncIterator[Application]:
    settings = load_settings(str(tmp_path / "home"), environ=environ)
    async with RuntimeApplication(settings) as opened, host_runtime(await opened.runtime()):
        yield opened


@pytest.fixture
async def url(application: Application, project: Path) -> AsyncIterator[str]:
    """The address of a server of the API. It carries out wakes too."""
    routes = create_routes(ApiServices(application, str(project)))
    app = create_app({}, bearer_token=TOKEN, routes=routes)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
    try:
        yield await asyncio.wait_for(address, 30)
    finally:
        serving.cancel()
        await asyncio.wait([serving], timeout=30)


@pytest.fixture
async def sdk(url: str) -> AsyncIterator[AsyncAnthropic]:
    """The official SDK, without retries of its own: a test sees every error."""
    async with AsyncAnthropic(base_url=url, api_key=TOKEN, max_retries=0) as client:
        yield client
