"""Every response of the server carries the headers that keep other pages and foreign text from doing anything with it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from fidelio.app.application import open_bundled
from fidelio.settings import HttpLimits, load_settings
from fidelio.surfaces.http.api.application import create_json_routes
from fidelio.surfaces.http.api.operations import JsonServices
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.http.v1.application import create_routes
from fidelio.surfaces.http.v1.endpoint import ApiServices
from fidelio.surfaces.mcp.dialects import DEFAULT, load_tools
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.surfaces.web.access import make_link
from fidelio.surfaces.web.application import create_pages
from fidelio.surfaces.web.pages import PageServices
from tests.support import proves

TOKEN = "token-of-programs"
HTML = {"Accept": "text/html,application/xhtml+xml"}
_PARAMETER = re.compile(r"\{[^}]*\}")
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
# Streams, which never end.
_ENDLESS = ("/live", "/api/events/stream", "/v1/sessions/x/events/stream", "/v1/sessions/x/threads/x/stream")


class WholeServer(msgspec.Struct, frozen=True):
    """A server with everything that `fidelio up` serves. `paths` are those of all its routes, each with its parameters."""

    url: str
    link: str
    paths: tuple[str, ...]


async def _break(_: Request) -> None:
    raise RuntimeError("as planned")


def list_paths(*apps: Starlette) -> tuple[str, ...]:
    routes = [route for app in apps for route in app.routes if isinstance(route, Route)]
    return tuple(dict.fromkeys(_PARAMETER.sub("x", route.path) for route in routes if route.path != "/broken"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[WholeServer]:
    settings = load_settings(str(tmp_path / "home"), environ={})
    settings.home.ensure()
    async with open_bundled(settings) as application:
        services = PageServices(application, str(tmp_path))
        pages = create_pages(services)
        shared = JsonServices(application, str(tmp_path), actions=services.actions, watcher=services.watcher)
        routes = [*create_routes(ApiServices(application, str(tmp_path))), *create_json_routes(shared)]
        protocol = Protocol(make_identity(settings), load_tools(DEFAULT, application), make_request_states(settings))
        more = [*routes, Route("/v1/broken/route", _break)]
        app = create_app({"/mcp": protocol}, bearer_token=TOKEN, routes=[*more[-1:], *routes], pages=pages)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        limits = HttpLimits(read_seconds=1.0)
        serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result, limits=limits))
        try:
            url = await asyncio.wait_for(address, 30)
            yield WholeServer(url, make_link(application.keys(), url), list_paths(app, pages))
        finally:
            serving.cancel()
            await asyncio.wait([serving], timeout=30)


def check(answered: httpx2.Response, where: object) -> None:
    headers = answered.headers
    assert "default-src 'none'" in headers.get("content-security-policy", ""), where
    assert "frame-ancestors 'none'" in headers["content-security-policy"], where
    assert headers.get_list("x-content-type-options") == ["nosniff"], where
    assert headers.get_list("x-frame-options") == ["DENY"], where
    assert len(headers.get_list("content-security-policy")) == 1, where


@proves("web.headers")
@pytest.mark.parametrize("who", ["nobody", "a program", "a browser"])
async def test_every_route_answers_with_the_headers(server: WholeServer, who: str) -> None:
    paths = (*server.paths, "/nowhere", "/v1/nowhere", "/api/nowhere", "/static/style.css", "/static/nothing", "/mcp/", "//x")
    headers = {"x-api-key": TOKEN} if who == "a program" else {}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=30) as client:
        if who == "a browser":
            check(await client.get(server.link), "the link")
        for path in paths:
            for method in _METHODS:
                # Signing out would make a stranger of the browser.
                if (path in _ENDLESS and method in ("GET", "HEAD")) or path == "/sign-out":
                    continue
                request = client.build_request(method, "/")
                request.url = request.url.copy_with(raw_path=path.encode())
                check(await client.send(request), (who, method, path))

    assert len(paths) > 90


REFUSED: tuple[tuple[str, dict[str, str], int], ...] = (
    ("/inbox", {"Host": "evil.example"}, 421),
    ("/inbox", {"Origin": "http://evil.example"}, 403),
    ("/.well-known/x", {}, 404),
    ("/mcp", {}, 401),
    ("/mcp", {"Host": "evil.example"}, 421),
    ("/v1/agents", {}, 401),
    ("/v1/agents", {"Host": "evil.example"}, 421),
    ("/api/sessions", {"Origin": "http://evil.example"}, 403),
    ("/health", {"Host": "evil.example"}, 421),
)


@proves("web.headers")
@pytest.mark.parametrize(("path", "headers", "status"), REFUSED)
async def test_every_refusal_of_the_guard_has_the_headers(
    server: WholeServer, path: str, headers: dict[str, str], status: int
) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        refused = await client.get(path, headers=headers)

    assert refused.status_code == status
    check(refused, path)


@proves("web.headers")
async def test_an_error_of_the_server_has_the_headers_and_says_nothing_of_its_inside(server: WholeServer) -> None:
    async with httpx2.AsyncClient(base_url=server.url, headers={"x-api-key": TOKEN}) as client:
        failed = await client.get("/v1/broken/route")

    assert (failed.status_code, "planned" in failed.text) == (500, False)
    check(failed, "500")


@proves("web.headers")
@pytest.mark.parametrize(("sent", "status"), [(b"no http\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: x", 408)])
async def test_what_is_no_request_is_refused_with_the_headers(server: WholeServer, sent: bytes, status: int) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        received = await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    head, _, _ = received.partition(b"\r\n\r\n")
    fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    check(httpx2.Response(status, headers=[(name, value.strip()) for name, _, value in fields]), head)
    assert head.startswith(b"HTTP/1.1 %d " % status)


@proves("web.refusals")
@pytest.mark.parametrize(("path", "headers", "status"), [each for each in REFUSED if not each[0].startswith(("/v1", "/api"))])
async def test_a_browser_that_is_refused_gets_a_page_and_a_program_json_with_the_same_words(
    server: WholeServer, path: str, headers: dict[str, str], status: int
) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        page = await client.get(path, headers={**headers, **HTML})
        plain = await client.get(path, headers=headers)

    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert plain.headers["content-type"] == "application/json"
    words = plain.json()["error"].replace("`", "").split(".")[0]
    assert words in page.text.replace("`", "")
