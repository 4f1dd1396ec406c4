"""Requests of the API: reading of path, query and body, who sent it, and the dispatch that renders errors."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from fidelio.app.application import Application
from fidelio.errors import FidelioError
from fidelio.ids import new_id
from fidelio.runtime.service import RuntimeService
from fidelio.surfaces.http.limits import MAX_BODY, BodyReader, BodyTooLarge, ProgramLimits, RateLimit, TooManyBodies
from fidelio.surfaces.http.plain import identify_sender
from fidelio.surfaces.http.problems import locate_field
from fidelio.surfaces.http.v1.errors import ApiProblem, make_error, render_error
from fidelio.surfaces.http.v1.events.hub import StreamHub
from fidelio.surfaces.http.v1.ids import name_ids
from fidelio.surfaces.http.v1.paging import DEFAULT_LIMIT, MAX_LIMIT, Cursors, make_page
from fidelio.surfaces.http.v1.values import TimeRange, read_range

T = TypeVar("T")
MAX_UPLOADS = 4
# The actor of what a holder of the key does, and the channel by which it arrives.
API_ACTOR, API_CHANNEL, RELAYED = "api", "api", "relayed"
IDEMPOTENCY_KEY = "idempotency-key"
_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_LOG = logging.getLogger(__name__)


class ApiServices:
    """What the handlers of the API work with. `project`: the directory whose agents and sessions are served."""

    def __init__(self, application: Application, project: str, limits: ProgramLimits | None = None) -> None:
        """`limits`: those of the server, which its other paths for programs share."""
        self.application, self.project = application, project
        self.cursors = Cursors(application.keys())
        self.limits = limits or ProgramLimits.from_settings(application.settings.http)
        # Each upload that is stored takes memory.
        self.uploads = asyncio.Semaphore(MAX_UPLOADS)
        self.streams = StreamHub()

    async def runtime(self) -> RuntimeService:
        return await self.application.runtime()

    def hide(self, text: str) -> str:
        """The text without directories of this machine, which no response may name."""
        return text.replace(str(self.application.settings.home.path), "HOME").replace(self.project, "PROJECT")


class ApiRequest:
    """A request of the API, as handlers see it."""

    def __init__(self, raw: Request, services: ApiServices, request_id: str) -> None:
        self.raw, self.services, self.id = raw, services, request_id
        self._reader = BodyReader(raw.receive, services.limits.bodies)

    @property
    def project(self) -> str:
        return self.services.project

    @property
    def idempotency_key(self) -> str:
        """What makes a creation safe to repeat; empty without the header. Raises 400 for what is no key."""
        key = self.raw.headers.get(IDEMPOTENCY_KEY, "")
        if IDEMPOTENCY_KEY in self.raw.headers and not _KEY.fullmatch(key):
            raise ApiProblem("Idempotency-Key: use 1 to 255 printable ASCII characters.")
        return key

    def present(self, text: str) -> str:
        """A message for the client: no directories of this machine, and ids of the path as the client knows them."""
        return self.services.hide(name_ids(text, map(str, self.raw.path_params.values())))

    def path(self, name: str) -> str:
        return str(self.raw.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return self.raw.query_params.get(name, default)

    def query_values(self, name: str) -> tuple[str, ...]:
        """The values of a repeated parameter, such as `types[]`."""
        return tuple(self.raw.query_params.getlist(name))

    def flag(self, name: str) -> bool:
        value = self.query(name, "false")
        if value not in ("true", "false"):
            raise ApiProblem(f"{name}: {value!r:.80} is neither true nor false.")
        return value == "true"

    def limit(self, default: int = DEFAULT_LIMIT, most: int = MAX_LIMIT) -> int:
        text = self.query("limit") or str(default)
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
            raise ApiProblem(f"limit: {text!r:.80} is not a number from 1 to {most}.")
        return int(text)

    def cursor(self, list_: str) -> Any | None:
        """The position at which the page begins; None for the first. `list_` names the list with its filters."""
        cursor = self.query("page")
        return self.services.cursors.decode(list_, cursor) if cursor else None

    def page(self, list_: str, items: Iterable[Any], position: Any | None) -> dict[str, Any]:
        """A page of a list. `position`: where the next page begins; None if there is none."""
        next_page = None if position is None else self.services.cursors.encode(list_, position)
        return make_page(list(items), next_page)

    def times(self, name: str) -> TimeRange:
        """The range that `name[gte]` and the like describe, such as those of `created_at`."""
        return read_range(name, self.raw.query_params)

    async def body(self, type_: type[T]) -> T:
        """The JSON body, checked. An omitted body is an empty object. Raises 400 with the name of the field, or 413."""
        content = await self._read()
        try:
            return msgspec.json.decode(content or b"{}", type=type_)
        except msgspec.ValidationError as error:
            raise ApiProblem(_name_field(str(error))) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiProblem("The body is not valid JSON.") from error

    async def channel(self) -> str:
        """How what this request says has arrived: as the key holder's own, or relayed by an agent of ours.

        The key is the proof, whatever program sends it, also on another machine. Only an agent of ours is not believed, which
        has found the key on this machine. Every sign of one counts, also one that names no run: an agent could else make its
        signs unreadable and be taken for the holder. So does a process of this machine that hides.
        """
        return RELAYED if (await identify_sender(self.raw.scope)).is_agent else API_CHANNEL

    async def require_key_holder(self) -> None:
        """Refuse what only the holder of the key may do, and not an agent that has found it. Raises 403."""
        if await self.channel() == RELAYED:
            message = "Only the holder of the key may do this, and the sender is an agent. Ask the person who started it."
            raise ApiProblem(message, status=403, type_="permission_error")

    def release(self) -> None:
        """Release the memory of the body."""
        self._reader.release()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read()
        except BodyTooLarge:
            raise ApiProblem(f"The body has more than {MAX_BODY} bytes.", status=413, type_="request_too_large") from None
        except TooManyBodies:
            message = "Too many large requests are in progress. Send it again in a moment."
            raise ApiProblem(message, status=529, type_="overloaded_error", headers={"retry-after": "5"}) from None


Handler = Callable[[ApiRequest], Awaitable[Any]]


class ApiRoute(msgspec.Struct, frozen=True):
    """A path with a handler for each method. A handler returns JSON, or a response of its own."""

    path: str
    handlers: Mapping[str, Handler]


def make_endpoint(route: ApiRoute, services: ApiServices) -> Callable[[Request], Awaitable[Response]]:
    """The Starlette endpoint of a route. This is the outermost boundary: every error becomes a response here."""

    async def answer(raw: Request) -> Response:
        request = ApiRequest(raw, services, new_id("req_", 20))
        handler = route.handlers.get(raw.method)
        try:
            _check_rate(services.limits.rate)
            if handler is None:
                return _refuse_method(route, request)
            result = await handler(request)
        except FidelioError as error:
            return render_error(error, request.id, request.present)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # noqa: BLE001  # outermost boundary: a request that fails must not end the server
            _LOG.exception("Request %s of the API failed", request.id)
            return make_error(500, "api_error", "An internal error occurred. The log of the server has it.", request.id)
        finally:
            request.release()
        response = result if isinstance(result, Response) else JSONResponse(result)
        response.headers.setdefault("request-id", request.id)
        return response

    return answer


def _check_rate(rate: RateLimit) -> None:
    if seconds := rate.count():
        message = "Too many requests. FIDELIO_HTTP_API_RATE of the server is how many it takes in a second."
        headers = {"retry-after": str(math.ceil(seconds))}
        raise ApiProblem(message, status=429, type_="rate_limit_error", headers=headers)


def _refuse_method(route: ApiRoute, request: ApiRequest) -> Response:
    allowed = ", ".join(sorted(route.handlers))
    message = f"{request.raw.method} is not offered at this path. Use {allowed}."
    return make_error(405, "invalid_request_error", message, request.id, {"Allow": allowed})


def _name_field(message: str) -> str:
    """The message of the decoder with the field first, as in `tools.0.name: Expected str`."""
    found = locate_field(message)
    return f"{found.field}: {found.detail}" if found.field else found.detail
