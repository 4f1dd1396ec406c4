"""The group `/v1/environments/{id}/work`: the queue from which workers of self-hosted environments get their sessions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import JSONResponse

from fidelio.clock import format_iso
from fidelio.runtime.reading import SessionReader
from fidelio.runtime.work.queue import NO_HEARTBEAT, StaleHeartbeat, WorkQueue, WorkStopped
from fidelio.runtime.work.rules import MAX_TTL, MIN_TTL, RECLAIM_MS, TTL_SECONDS, SelfHostedWork
from fidelio.surfaces.http.v1.endpoint import ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.environments import find_environment
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.ids import to_wire
from fidelio.surfaces.http.v1.values import patch_metadata

MAX_BLOCK_MS, MAX_RECLAIM_MS = 999, 86_400_000
_LIST = "work"


class StopWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a stop."""

    force: bool = False


class UpdateWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an update."""

    metadata: dict[str, Annotated[str, msgspec.Meta(max_length=512)] | None] | UnsetType | None = UNSET


async def _poll(request: ApiRequest) -> Any:
    queue = await _open(request)
    block_ms = _number(request, "block_ms", 0, least=1, most=MAX_BLOCK_MS)
    reclaim_ms = _number(request, "reclaim_older_than_ms", RECLAIM_MS, least=0, most=MAX_RECLAIM_MS)
    log = SessionReader((await request.services.runtime()).context)
    position = await log.wait(after=0, timeout=0)
    item = await queue.poll(reclaim_ms=reclaim_ms)
    if item is None and block_ms:
        # Whatever is committed meanwhile may be new work.
        await log.wait(after=position, timeout=block_ms / 1000)
        item = await queue.poll(reclaim_ms=reclaim_ms)
    return JSONResponse(None if item is None else _render(request, item))


async def _acknowledge(request: ApiRequest) -> Any:
    queue = await _open(request)
    try:
        return _render(request, await queue.acknowledge(request.path("work_id")))
    except WorkStopped as stopped:
        raise _conflict(stopped) from stopped


async def _heartbeat(request: ApiRequest) -> Any:
    queue = await _open(request)
    expected = request.query("expected_last_heartbeat")
    ttl = _number(request, "desired_ttl_seconds", TTL_SECONDS, least=0, most=1 << 31) or TTL_SECONDS
    ttl = min(MAX_TTL, max(MIN_TTL, ttl))

    def is_expected(item: SelfHostedWork) -> bool:
        return expected in ("", _last_heartbeat(item) or NO_HEARTBEAT)

    try:
        item, is_extended = await queue.heartbeat(request.path("work_id"), expected=is_expected, ttl_seconds=ttl)
    except StaleHeartbeat as stale:
        return _refuse_heartbeat(request, stale.item)
    return {
        "type": "work_heartbeat",
        "last_heartbeat": _last_heartbeat(item) or "",
        "lease_extended": is_extended,
        "state": item.state,
        "ttl_seconds": item.ttl_seconds,
    }


def _refuse_heartbeat(request: ApiRequest, item: SelfHostedWork) -> JSONResponse:
    """The refusal has the lease as it is, so that a worker knows whether it has lost it."""
    state = {
        "last_heartbeat": _last_heartbeat(item),
        "lease_extended": False,
        "state": item.state,
        "ttl_seconds": item.ttl_seconds,
    }
    error = {
        "type": "invalid_request_error",
        "message": "expected_last_heartbeat is not the last heartbeat: another worker may have this work.",
        "details": {"error_code": "heartbeat_precondition_failed", "current_state": state},
    }
    body = {"type": "error", "error": error, "request_id": request.id}
    return JSONResponse(body, status_code=HTTPStatus.PRECONDITION_FAILED)


async def _stop(request: ApiRequest) -> Any:
    queue, body = await _open(request), await request.body(StopWork)
    try:
        return _render(request, await queue.stop(request.path("work_id"), force=body.force))
    except WorkStopped as stopped:
        raise _conflict(stopped) from stopped


async def _retrieve(request: ApiRequest) -> Any:
    queue = await _open(request)
    return _render(request, await queue.load(request.path("work_id")))


async def _update(request: ApiRequest) -> Any:
    queue, body = await _open(request), await request.body(UpdateWork)
    item = await queue.update(request.path("work_id"), lambda former: patch_metadata(former, body.metadata))
    return _render(request, item)


async def _list(request: ApiRequest) -> Any:
    queue, name = await _open(request), f"{_LIST}:{request.path('environment_id')}"
    page = await queue.list_items(cursor=request.cursor(name), limit=request.limit())
    return request.page(name, [_render(request, item) for item in page.items], page.next)


async def _stats(request: ApiRequest) -> Any:
    state = await (await _open(request)).describe()
    return {
        "type": "work_queue_stats",
        "depth": state.waiting,
        "pending": state.polled,
        "oldest_queued_at": None if state.oldest is None else format_iso(state.oldest),
        # Nobody counts who polls.
        "workers_polling": None,
    }


async def _open(request: ApiRequest) -> WorkQueue:
    """The queue of the environment. An agent that has found the key is no worker."""
    environment = await find_environment(request, request.path("environment_id"))
    await request.require_key_holder()
    return WorkQueue((await request.services.runtime()).context, request.project, environment)


def _number(request: ApiRequest, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise ApiProblem(f"{name}: {text!r:.80} is not a number from {least} to {most}.")
    return int(text)


def _conflict(stopped: WorkStopped) -> ApiProblem:
    return ApiProblem(f"The work {stopped} has stopped.", status=HTTPStatus.CONFLICT, type_="conflict_error")


def _render(request: ApiRequest, item: SelfHostedWork) -> dict[str, Any]:
    return {
        "id": item.id,
        "type": "work",
        "state": item.state,
        "data": {"type": "session", "id": to_wire("sesn", item.session)},
        "environment_id": request.path("environment_id"),
        "metadata": item.metadata,
        "secret": None,
        "created_at": format_iso(item.created_at),
        "acknowledged_at": _time(item.acknowledged_at),
        "started_at": _time(item.started_at),
        "latest_heartbeat_at": _last_heartbeat(item),
        "stop_requested_at": _time(item.stop_requested_at),
        "stopped_at": _time(item.stopped_at),
    }


def _last_heartbeat(item: SelfHostedWork) -> str | None:
    return _time(item.heartbeat_at)


def _time(moment: int) -> str | None:
    return format_iso(moment) if moment else None


_ROOT = "/v1/environments/{environment_id}/work"
ROUTES = (
    ApiRoute(_ROOT, {"GET": _list}),
    ApiRoute(f"{_ROOT}/poll", {"GET": _poll}),
    ApiRoute(f"{_ROOT}/stats", {"GET": _stats}),
    ApiRoute(f"{_ROOT}/{{work_id}}", {"GET": _retrieve, "POST": _update}),
    ApiRoute(f"{_ROOT}/{{work_id}}/ack", {"POST": _acknowledge}),
    ApiRoute(f"{_ROOT}/{{work_id}}/heartbeat", {"POST": _heartbeat}),
    ApiRoute(f"{_ROOT}/{{work_id}}/stop", {"POST": _stop}),
)
