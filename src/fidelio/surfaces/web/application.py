"""The routes of the web page; signing in, search, health and static files."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus
from itertools import chain

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from fidelio.app.watching import MAX_STREAMS, Watcher
from fidelio.surfaces.web.access import SIGN_IN_PATH, VISIT_MS, choose_target
from fidelio.surfaces.web.agents import ROUTES as AGENT_ROUTES
from fidelio.surfaces.web.health import HealthPage
from fidelio.surfaces.web.inbox import ROUTES as INBOX_ROUTES
from fidelio.surfaces.web.pages import (
    PageContent,
    PageRequest,
    PageRoute,
    PageServices,
    Redirect,
    Result,
    cookie_name,
    make_route,
)
from fidelio.surfaces.web.passkeys import ROUTES as PASSKEY_ROUTES
from fidelio.surfaces.web.rendering import STATIC_FILES, read_static
from fidelio.surfaces.web.runs import ROUTES as RUN_ROUTES
from fidelio.surfaces.web.search import ROUTES as SEARCH_ROUTES
from fidelio.surfaces.web.sessions import ROUTES as SESSION_ROUTES
from fidelio.surfaces.web.states import ROUTES as STATE_ROUTES
from fidelio.surfaces.web.webhooks import ROUTES as WEBHOOK_ROUTES
from fidelio.surfaces.web.work import ROUTES as WORK_ROUTES
from fidelio.surfaces.web.workflows import ROUTES as WORKFLOW_ROUTES

_YEAR = 365 * 24 * 60 * 60
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/_.-]{1,200}")
_GROUPS = (
    *(INBOX_ROUTES, WEBHOOK_ROUTES, STATE_ROUTES, SESSION_ROUTES, RUN_ROUTES, WORK_ROUTES, WORKFLOW_ROUTES, AGENT_ROUTES),
    *(PASSKEY_ROUTES, SEARCH_ROUTES),
)


def create_pages(services: PageServices) -> Starlette:
    """The ASGI application of the page. The caller checks Host and Origin before it, and adds the headers."""
    own = (
        PageRoute(path="/", show=_begin),
        PageRoute(path="/live", show=_stream),
        PageRoute(path="/health-check", show=HealthPage(services.application).show),
        PageRoute(path="/sign-out", change=_sign_out),
    )
    return Starlette(
        routes=[
            Route(SIGN_IN_PATH, _make_sign_in(services), methods=["GET", "POST"]),
            Route("/static/{name:path}", _serve_static),
            *(make_route(route, services) for route in chain(own, *_GROUPS)),
            make_route(PageRoute(path="/{rest:path}", show=_miss), services),
        ],
    )


def _make_sign_in(services: PageServices) -> Callable[[Request], Awaitable[Response]]:
    async def sign_in(raw: Request) -> Response:
        target = choose_target(raw.query_params.get("next", "/"))
        # Programs that preview a link ask for its headers first, which must not use it up.
        key = raw.query_params.get("key", "") if raw.method != "HEAD" else ""
        cookie = services.sign_in.redeem(key) if key else None
        # Browsers send a strict cookie with nothing that a click on another site leads to, only with what this page asks for.
        from_elsewhere = raw.headers.get("sec-fetch-site") == "cross-site"
        if cookie is not None and not from_elsewhere:
            return _set_cookie(RedirectResponse(target, status_code=HTTPStatus.SEE_OTHER), raw, cookie)
        if not key and services.sign_in.read_cookie(raw.cookies.get(cookie_name(raw), "")) is not None:
            return RedirectResponse(target, status_code=HTTPStatus.SEE_OTHER)
        values = {
            "goes_on": from_elsewhere and (cookie is not None or not key),
            "was_refused": bool(key) and cookie is None,
            "target": target,
            "command": f"{services.application.program} open{_format_argument(target)}",
        }
        status = HTTPStatus.OK if cookie else HTTPStatus.FORBIDDEN if key else HTTPStatus.UNAUTHORIZED
        response = HTMLResponse(services.renderer.render("sign_in.html", values), status_code=status)
        return _set_cookie(response, raw, cookie) if cookie else response

    return sign_in


def _format_argument(target: str) -> str:
    """The page that `open` should lead to. Anybody may have made up the link, so only plain paths get into a command."""
    return f" {target}" if target != "/" and _PLAIN_PATH.fullmatch(target) else ""


def _set_cookie(response: Response, raw: Request, value: str) -> Response:
    response.set_cookie(
        cookie_name(raw),
        value,
        max_age=VISIT_MS // 1000,
        path="/",
        secure=raw.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def _sign_out(request: PageRequest) -> Result:
    request.services.sign_in.end_visit(request.visitor)
    response = RedirectResponse(SIGN_IN_PATH, status_code=HTTPStatus.SEE_OTHER)
    response.delete_cookie(cookie_name(request.raw), path="/")
    return response


async def _begin(request: PageRequest) -> Result:
    """The inbox while something waits, else what runs."""
    waiting = (await (await request.services.inbox()).list_requests(limit=1)).items
    return Redirect("/inbox" if waiting else "/sessions")


async def _stream(request: PageRequest) -> Result:
    text = request.raw.headers.get("last-event-id") or request.query("after", "0")
    after = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    if not request.services.watcher.has_room:
        return PlainTextResponse(f"More than {MAX_STREAMS} pages are open.", status_code=503, headers={"Retry-After": "30"})
    messages = stream_changes(request.services.watcher, after)
    return StreamingResponse(messages, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def stream_changes(watcher: Watcher, after: int) -> AsyncGenerator[bytes, None]:
    """Server-sent messages for a page that shows the state at `after`. Each says only that something has changed."""
    async with aclosing(watcher.follow(after)) as positions:
        yield b"retry: 500\n\n"
        async for position in positions:
            message = f"id: {position}\nevent: changed\ndata: {position}\n\n".encode()
            yield b": still here\n\n" if position == after else message
            after = position


async def _miss(request: PageRequest) -> Result:
    address = request.raw.url.path[:200]
    values = {"sentence": f"There is no page {address}.", "remedy": "The menu lists what there is.", "code": "not-found"}
    return PageContent("error.html", values, HTTPStatus.NOT_FOUND)


async def _serve_static(raw: Request) -> Response:
    name = raw.path_params["name"]
    content = read_static(name)
    if content is None:
        return PlainTextResponse("Not found.", status_code=HTTPStatus.NOT_FOUND)
    headers = {"Cache-Control": f"public, max-age={_YEAR}, immutable"}
    return Response(content, media_type=STATIC_FILES[name], headers=headers)
