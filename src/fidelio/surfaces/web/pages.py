"""Requests for pages: who is signed in, whether a change was really made by them, and the dispatch that renders errors.

Every change is a POST with the form token of the browser, from a page of this server. What agents wrote is only ever text, so
nothing of theirs can make a browser send one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from fidelio.app.acting import PersonActions
from fidelio.app.application import Application
from fidelio.app.records import Records
from fidelio.app.watching import Watcher
from fidelio.errors import FidelioError, UsageProblem
from fidelio.inbox import Inbox, require_person
from fidelio.processes.caller import Caller
from fidelio.surfaces.http.plain import identify_sender
from fidelio.surfaces.http.problems import find_status
from fidelio.surfaces.web.access import SIGN_IN_PATH, SignIn, Visitor, choose_target, is_own_origin
from fidelio.surfaces.web.rendering import Renderer

MAX_FORM = 256 * 1024
# How old the finding about a browser may be for what a page says beforehand. A change looks again.
SHOWN_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


class PageServices:
    """What the handlers of pages work with. `project`: the directory in which new runs begin."""

    def __init__(self, application: Application, project: str, hosts: Iterable[str] = ()) -> None:
        """The API of the same server shares `actions` and `watcher`. `hosts` are the names of proxies before it."""
        self.application, self.project = application, project
        self.hosts = frozenset(hosts)
        home = application.settings.home.ensure()
        self.sign_in = SignIn(application.keys(), home.ended_visits, home.used_links)
        self.actions = PersonActions(application, project)
        self.watcher = Watcher(application.records)
        self.renderer = Renderer()

    async def records(self) -> Records:
        return await self.application.records()

    async def inbox(self) -> Inbox:
        return await self.application.inbox()


class PageContent(msgspec.Struct, frozen=True):
    """A page to render: the template and its values."""

    template: str
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)
    status: int = 200


class Redirect(msgspec.Struct, frozen=True):
    """What the browser should show after a change."""

    target: str


class PageRequest:
    """A request of a browser that is signed in."""

    def __init__(self, raw: Request, services: PageServices, visitor: Visitor) -> None:
        self.raw, self.services, self.visitor = raw, services, visitor
        # The newest event before the values of the page were read: what comes later makes the page read itself again.
        self.position = 0
        self.fields: dict[str, str] = {}
        self._sender: Caller | None = None

    def path(self, name: str) -> str:
        return str(self.raw.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return self.raw.query_params.get(name, default)

    async def read_form(self) -> dict[str, str]:
        """The fields of a form, up to a limit of bytes."""
        content = b""
        async for chunk in self.raw.stream():
            content += chunk
            if len(content) > MAX_FORM:
                raise UsageProblem(f"The form has more than {MAX_FORM:,} bytes.", remedy="Shorten the text.")
        try:
            fields = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=200)
        except ValueError as error:
            raise UsageProblem("The form cannot be read.", remedy="Load the page again.") from error
        # Browsers send every line end of a text as CRLF.
        return {name: value.replace("\r\n", "\n") for name, value in fields}

    async def is_seen(self) -> bool:
        """Whether the program at the other end was looked at and is no agent. Only then a person is known to be there."""
        return (await self._identify_sender()).kind == "person"

    async def _identify_sender(self) -> Caller:
        # Once: a lookup takes 8 ms, and a page asks for each of its questions.
        if self._sender is None:
            seconds = None if self.raw.method == "POST" else SHOWN_SECONDS
            self._sender = await identify_sender(self.raw.scope, seconds=seconds)
        return self._sender

    async def require_person(self, *, is_signed: bool = False) -> str:
        """The name of the person who seems to be at the browser. Raises if an agent sent the request, or runs this server.

        `is_signed`: the caller checks a signature of the person, which counts whatever program brings it.
        """
        if not is_signed and (await self._identify_sender()).is_agent:
            raise UsageProblem(
                "An agent sent this request, or its program could not be told from one, and only a person may do this.",
                remedy="Open the page in your own browser.",
            )
        return require_person()


Result: TypeAlias = PageContent | Redirect | Response
Handler = Callable[[PageRequest], Awaitable[Result]]


class PageRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A path with the handler that shows it, and the handler of its form."""

    path: str
    show: Handler | None = None
    change: Handler | None = None


def make_route(route: PageRoute, services: PageServices) -> Route:
    """The Starlette route. This is the outermost boundary: every error becomes a page here."""
    shown = {method: route.show for method in ("GET", "HEAD") if route.show is not None}
    handlers = {**shown, **({"POST": route.change} if route.change is not None else {})}

    async def answer(raw: Request) -> Response:
        visitor = services.sign_in.read_cookie(raw.cookies.get(cookie_name(raw), ""))
        if visitor is None:
            return _ask_to_sign_in(raw)
        request = PageRequest(raw, services, visitor)
        try:
            handler = handlers[raw.method]
            request.position = await (await services.records()).wait(after=0, timeout=0)
            if raw.method == "POST":
                await _check_change(request)
            return await _render(await handler(request), request)
        except FidelioError as error:
            return await _render(_describe_error(error), request)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # noqa: BLE001  # outermost boundary: a page that fails must not end the server
            _LOG.exception("A page failed: %s", route.path)
            return await _render(_INTERNAL, request)

    return Route(route.path, answer, methods=list(handlers))


def cookie_name(raw: Request) -> str:
    """Browsers share cookies between ports, and another server of this machine has other keys."""
    return f"fidelio-{raw.url.port or raw.url.scheme}"


def _ask_to_sign_in(raw: Request) -> Response:
    if raw.method == "POST" or raw.headers.get("hx-request"):
        return Response("Sign in again.", status_code=HTTPStatus.UNAUTHORIZED)
    target = raw.url.path + (f"?{raw.url.query}" if raw.url.query else "")
    return RedirectResponse(f"{SIGN_IN_PATH}?{urlencode({'next': target})}", status_code=HTTPStatus.SEE_OTHER)


async def _check_change(request: PageRequest) -> None:
    """Refuse a change that did not come from a form of this server, in this browser."""
    headers = request.raw.headers
    site, origin = headers.get("sec-fetch-site", "same-origin"), headers.get("origin")
    services, address = request.services, f"{request.raw.url.scheme}://{headers.get('host', '')}"
    is_own = origin is None or is_own_origin(origin, address, services.hosts, services.application.settings.public_url)
    if site not in ("same-origin", "none") or not is_own:
        raise Forbidden("This change was sent by a page of another origin.", remedy="Make it here, on a page of Fidelio.")
    fields = await request.read_form()
    if not request.services.sign_in.accepts_form(request.visitor, fields.get("form_token", "")):
        raise Forbidden("This form is not one of yours, or it is too old.", remedy="Load the page again, then send it again.")
    request.fields = fields


class Forbidden(FidelioError):
    """A change that is not taken from this browser."""

    code = "web.forbidden"


def _describe_error(error: FidelioError) -> PageContent:
    status = find_status(error)
    if isinstance(error, Forbidden):
        status = HTTPStatus.FORBIDDEN
    return PageContent("error.html", {"sentence": error.sentence, "remedy": str(error.remedy), "code": error.code}, status)


_INTERNAL = PageContent(
    "error.html",
    {"sentence": "This page failed.", "remedy": "The log of the server has the cause.", "code": "internal"},
    HTTPStatus.INTERNAL_SERVER_ERROR,
)


async def _render(result: Result, request: PageRequest) -> Response:
    if isinstance(result, Response):
        return result
    if isinstance(result, Redirect):
        return RedirectResponse(result.target, status_code=HTTPStatus.SEE_OTHER)
    services = request.services
    shared = {
        "form_token": request.visitor.form_token,
        "path": request.raw.url.path,
        # A path that begins with two slashes would lead to another host.
        "address": choose_target(request.raw.url.path + (f"?{request.raw.url.query}" if request.raw.url.query else "")),
        "position": request.position,
        # What a form has brought would be gone if the page read itself again.
        "is_live": request.raw.method == "GET" and result.status == HTTPStatus.OK,
        "waiting": await (await services.inbox()).count_requests(),
    }
    content = services.renderer.render(result.template, {**shared, **result.values})
    return HTMLResponse(content, status_code=result.status)
