"""A server of the page in the process of the test, a browser that is signed in, and workflow sessions that wait."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from fidelio.app.application import Application, open_bundled
from fidelio.settings import load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.demo_agent import DemoAgent, connect_demo_agent
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.dialects import DEFAULT, load_tools
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.surfaces.web.access import make_link
from fidelio.surfaces.web.application import create_pages
from fidelio.surfaces.web.pages import PageServices
from tests.support.parts import require_part

# A loaded machine takes seconds for what a free one shows at once.
expect.set_options(timeout=30_000)
TOKEN = "token-of-programs"
CHROMIUM = "/usr/bin/chromium"
# Without them Chromium asks hosts of the internet at its start; as root it has no sandbox of its own.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
)
_FORM_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


class Site(msgspec.Struct, frozen=True):
    """A server of the page."""

    url: str
    application: Application

    def link(self, target: str = "/") -> str:
        """A one-time link of this server."""
        return make_link(self.application.keys(), self.url, target)

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client with the cookie of a browser that is signed in."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=30, follow_redirects=True) as client:
            assert (await client.get(self.link())).status_code == 200
            yield client


class WaitingAgent(msgspec.Struct, frozen=True):
    """An agent that waits for the answer to `request`."""

    agent: DemoAgent
    session: str
    request: str


async def read_form_token(client: httpx2.AsyncClient) -> str:
    found = _FORM_TOKEN.search((await client.get("/sessions")).text)
    assert found is not None
    return found[1]


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[Application]:
    settings = load_settings(str(tmp_path / "home"), environ={})
    settings.home.ensure()
    async with open_bundled(settings) as opened:
        yield opened


@pytest.fixture
async def site(application: Application, tmp_path: Path) -> AsyncIterator[Site]:
    pages = create_pages(PageServices(application, str(tmp_path)))
    identity, states = make_identity(application.settings), make_request_states(application.settings)
    protocol = Protocol(identity, load_tools(DEFAULT, application), states)
    app = create_app({"/mcp": protocol}, bearer_token=TOKEN, pages=pages)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
    try:
        yield Site(await asyncio.wait_for(address, 30), application)
    finally:
        serving.cancel()
        await asyncio.wait([serving], timeout=30)


@pytest.fixture
async def agent(site: Site) -> AsyncIterator[WaitingAgent]:
    """The agent of the demo, which has stopped at the question of `hello`."""
    async with connect_demo_agent(f"{site.url}/mcp", TOKEN, project="project") as connected:
        session = await connected.start_session()
        yield WaitingAgent(connected, session, await connected.advance_to_question())


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if not os.access(CHROMIUM, os.X_OK):
        require_part("Chromium", "Install it with: sudo apt-get install chromium")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        await started.close()


@pytest.fixture
async def tab(browser: Browser, site: Site) -> AsyncIterator[Page]:
    """A tab that is signed in. Errors of the page and requests to another origin fail the test."""
    page = await browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on(
        "request", lambda request: problems.append(request.url) if not request.url.startswith((site.url, "data:")) else None
    )
    await page.goto(site.link())
    yield page
    assert problems == []
