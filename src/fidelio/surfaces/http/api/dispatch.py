"""Dispatch of the API: reads parameters and body as the table says, checks preconditions, and renders results and errors."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from http import HTTPStatus
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.structs import fields
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from fidelio.clock import format_iso
from fidelio.errors import FidelioError, LedgerBusy, PersonNeeded, RequestClosed
from fidelio.surfaces.http.api.operations import ApiCall, ApiOperation, CreatedReply, HttpProblem, JsonServices, find_sender
from fidelio.surfaces.http.limits import BodyReader, BodyTooLarge, TooManyBodies
from fidelio.surfaces.http.problems import (
    FieldProblem,
    RecordedAnswer,
    find_status,
    locate_field,
    make_problem,
)

MAX_BODY = 1024 * 1024
RETRY_SECONDS = "5"
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_INTEGER = re.compile(r"-?[0-9]+")
_TAG = re.compile(r'(?:W/)?"[^"]*"')
_MISSING = re.compile(r"^Object missing required field `(\w+)`")
_HEADERS = {"cache-control": "private, no-cache", "x-content-type-options": "nosniff"}
_DOCUMENT = "GET /api/openapi.json lists what there is."
_LOG = logging.getLogger(__name__)


def make_routes(operations: Sequence[ApiOperation], services: JsonServices) -> list[Route]:
    """The routes of a table of operations, and a last route, which answers 404 in the form of other errors."""
    by_path: dict[str, dict[str, ApiOperation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        *(Route(path, _Endpoint(offered, services).answer, methods=_METHODS) for path, offered in by_path.items()),
        *(Route(path, _miss, methods=_METHODS) for path in ("/api", "/api/{rest:path}")),
    ]


async def _miss(raw: Request) -> Response:
    return make_problem(404, "api.unknown-path", f"There is nothing at {raw.url.path[:200]}.", _DOCUMENT)


class _Endpoint:
    """The operations of a path. `answer` is the outermost boundary: every error becomes a problem here."""

    def __init__(self, offered: Mapping[str, ApiOperation], services: JsonServices) -> None:
        self._offered, self._services = offered, services
        first = next(iter(offered.values()))
        readable = offered.get("GET")
        self._allowed = sorted([*offered, *(["HEAD"] if readable is not None and readable.has_etag else [])])
        self._path = first.path

    async def answer(self, raw: Request) -> Response:
        reader = BodyReader(raw.receive, self._services.limits.bodies, MAX_BODY)
        try:
            _check_rate(self._services)
            operation = self._choose(raw.method)
            return await _carry_out(operation, raw, self._services, reader)
        except HttpProblem as error:
            return _render_refusal(error)
        except FidelioError as error:
            return await _render_error(error, self._services)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # noqa: BLE001  # outermost boundary: a request that fails must not end the server
            _LOG.exception("A request of the API failed: %s", self._path)
            return make_problem(500, "api.internal", "The request failed.", "The log of the server has the cause.")
        finally:
            reader.release()

    def _choose(self, method: str) -> ApiOperation:
        if method not in self._allowed:
            allowed = ", ".join(self._allowed)
            headers = {"allow": allowed}
            raise HttpProblem(405, "api.method", f"{method} is not offered here.", f"Use {allowed}.", headers=headers)
        return self._offered["GET" if method == "HEAD" else method]


async def _carry_out(operation: ApiOperation, raw: Request, services: JsonServices, reader: BodyReader) -> Response:
    call: ApiCall[Any, Any] = ApiCall(raw, services, read_query(operation.query, raw.query_params.multi_items()), None)
    if operation.is_change:
        call.sender = await find_sender(raw)
        call.body = await _read_body(operation, raw, reader)
        await _check_precondition(operation, call)
    result = await operation.handler(call)
    if isinstance(result, Response):
        return result if operation.is_change or not operation.has_etag else _add_tag(raw, bytes(result.body), result)
    reply = result if isinstance(result, CreatedReply) else CreatedReply(result)
    content = msgspec.json.encode(reply.value)
    response = Response(content, operation.status, {**_HEADERS, **reply.headers}, operation.media_type)
    return response if operation.is_change else _add_tag(raw, content, response)


def _add_tag(raw: Request, content: bytes, response: Response) -> Response:
    """Add the tag; answer without the body if the sender has it already."""
    tag = make_tag(content)
    response.headers["etag"] = tag
    if matches_tag(tag, raw.headers.getlist("if-none-match"), is_weak=True):
        headers = {name: value for name, value in response.headers.items() if name in ("etag", "cache-control")}
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if raw.method == "HEAD":
        response.body = b""
    return response


def make_tag(content: bytes) -> str:
    """The strong entity tag of a representation."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def matches_tag(tag: str, wanted: Iterable[str], *, is_weak: bool) -> bool:
    """Whether a tag is among those of the headers. `is_weak`: a weak tag matches too, as it may where nothing is changed."""
    headers = [header.strip() for header in wanted]
    tags = {found for header in headers for found in _TAG.findall(header)}
    return "*" in headers or tag in tags or (is_weak and f"W/{tag}" in tags)


async def _check_precondition(operation: ApiOperation, call: ApiCall[Any, Any]) -> None:
    """Refuse a change of something that has changed since the sender read it."""
    wanted = call.raw.headers.getlist("if-match")
    if not wanted:
        return
    if operation.current is None:
        sentence = "This operation changes no object that has an entity tag."
        raise HttpProblem(400, "api.precondition", sentence, "Leave If-Match out.")
    tag = make_tag(msgspec.json.encode(await operation.current(call)))
    if not matches_tag(tag, wanted, is_weak=False):
        remedy = "Read it again, and decide again. The header ETag of this response is that of its present state."
        raise HttpProblem(412, "api.changed", "It has changed since you read it.", remedy, headers={"etag": tag})


def read_query(type_: type[msgspec.Struct], pairs: Sequence[tuple[str, str]]) -> Any:
    """The parameters of a query. Raises 400 with the name of each that is unknown, repeated or wrong."""
    known = {field.encode_name: field for field in fields(type_)}
    _refuse_unknown([name for name, _ in pairs], known, "parameter", 400)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if _is_list(known[name].type):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise _refuse_fields(400, "parameter", [FieldProblem(name, "It is given more than once.")])
        else:
            values[name] = value
    try:
        query = msgspec.convert(values, type_, strict=False)
    except msgspec.ValidationError as error:
        raise _refuse_fields(400, "parameter", [_locate(error)]) from error
    # The decoder also reads `1e2` and `1.0` as integers.
    for name, value in values.items():
        if type(getattr(query, name)) is int and not _INTEGER.fullmatch(value):
            raise _refuse_fields(400, "parameter", [FieldProblem(name, "Expected `int`, got `str`")])
    return query


def _is_list(type_: Any) -> bool:
    plain = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    return get_origin(plain) is tuple


async def _read_body(operation: ApiOperation, raw: Request, reader: BodyReader) -> Any:
    content = await _read_content(reader)
    if operation.body is None:
        if content:
            raise HttpProblem(400, "api.body", "This operation takes no body.", "Leave it out.")
        return None
    media_type = raw.headers.get("content-type", "").partition(";")[0].strip().lower()
    # `curl -X POST` alone is an empty object.
    if media_type != "application/json" and (content or media_type):
        sentence = f"The body is {media_type[:80]!r}." if media_type else "The header Content-Type is missing."
        raise HttpProblem(415, "api.media-type", sentence, "Send JSON with Content-Type: application/json.")
    try:
        value = msgspec.json.decode(content or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(400, "api.body", "The body is not valid JSON.", "Send an object.") from error
    return _convert_body(operation.body, value)


async def _read_content(reader: BodyReader) -> bytes:
    try:
        return await reader.read()
    except BodyTooLarge:
        raise HttpProblem(413, "api.too-large", f"The body has more than {MAX_BODY:,} bytes.", "Shorten it.") from None
    except TooManyBodies:
        headers = {"retry-after": RETRY_SECONDS}
        sentence = "Too many large requests are in progress."
        raise HttpProblem(503, "api.busy", sentence, "Send it again in a moment.", headers=headers) from None


def _convert_body(type_: Any, value: Any) -> Any:
    if isinstance(value, dict):
        _refuse_unknown(value, {field.encode_name for field in fields(type_)}, "field", 422)
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _refuse_fields(422, "field", [_locate(error)]) from error


def _locate(error: msgspec.ValidationError) -> FieldProblem:
    """The field that an error of the decoder is about; also if it is missing."""
    found = locate_field(str(error))
    missing = _MISSING.search(found.detail)
    return FieldProblem(".".join(filter(None, (found.field, missing[1]))), "It is required.") if missing else found


def _refuse_unknown(names: Iterable[str], known: Iterable[str], what: str, status: int) -> None:
    offered = sorted(known)
    unknown = [name for name in dict.fromkeys(names) if name not in offered]
    if unknown:
        raise _refuse_fields(status, what, [FieldProblem(name[:80], _suggest(name, offered, what)) for name in unknown[:10]])


def _suggest(name: str, offered: Sequence[str], what: str) -> str:
    """That a name is not known, and the nearest known name, or all of them."""
    near = get_close_matches(name[:80], offered, n=1, cutoff=0.5)
    if near:
        return f"There is no such {what}. Did you mean {near[0]}?"
    listed = ", ".join(offered)
    return f"There is no such {what}. Use {listed}." if offered else f"There is no such {what}. None is taken here."


def _refuse_fields(status: int, what: str, problems: Sequence[FieldProblem]) -> HttpProblem:
    sentences = "; ".join(f"{each.field}: {each.detail}" if each.field else each.detail for each in problems)
    code = "api.parameter" if what == "parameter" else "api.field"
    return HttpProblem(status, code, sentences, f"Correct each {what} that is named.", more={"errors": tuple(problems)})


def refuse_fields(problems: Mapping[str, str]) -> HttpProblem:
    """The problem of a body whose fields are wrong, by their names."""
    return _refuse_fields(422, "field", [FieldProblem(name, detail) for name, detail in problems.items()])


def _check_rate(services: JsonServices) -> None:
    if seconds := services.limits.rate.count():
        remedy = "FIDELIO_HTTP_API_RATE of the server is how many it takes in a second."
        headers = {"retry-after": str(math.ceil(seconds))}
        raise HttpProblem(429, "api.rate", "Too many requests.", remedy, headers=headers)


def _render_refusal(error: HttpProblem) -> Response:
    return make_problem(error.status, error.problem, error.sentence, str(error.remedy), headers=error.headers, **error.more)


async def _render_error(error: FidelioError, services: JsonServices) -> Response:
    more: dict[str, Any] = {}
    if isinstance(error, RequestClosed):
        # Its session may have been deleted in the meantime.
        with suppress(FidelioError):
            more = {"recorded": await _load_answer(error.request, services)}
    elif isinstance(error, PersonNeeded) and (page := services.page_of(error.request)):
        more = {"url": page}
    headers = {"retry-after": RETRY_SECONDS} if isinstance(error, LedgerBusy) else {}
    return make_problem(find_status(error), error.code, error.sentence, str(error.remedy), headers=headers, **more)


async def _load_answer(request: str, services: JsonServices) -> RecordedAnswer:
    """Who was faster."""
    found = await (await services.inbox()).find(request)
    return RecordedAnswer(
        state=found.state,
        answer=found.answer,
        answered_by=found.answered_by,
        channel=found.channel,
        assurance=found.assurance,
        closed_at=None if found.closed_at is None else format_iso(found.closed_at),
    )
