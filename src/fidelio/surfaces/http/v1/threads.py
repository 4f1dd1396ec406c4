"""Threads of a session: the session itself, which is the primary thread, and the sessions that it has delegated to."""

from __future__ import annotations

from typing import Any

from fidelio.runtime.reading import list_descendants
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.sessions.loading import load_session, load_thread
from fidelio.surfaces.http.v1.sessions.objects import render_thread

MAX_LIMIT = 1000
_STATUSES = ("running", "idle", "rescheduling", "terminated")


async def _list(request: ApiRequest) -> dict[str, Any]:
    """The threads, the primary thread first, then in the order in which they were created."""
    session = await load_session(request, request.path("session_id"))
    limit, statuses = request.limit(MAX_LIMIT, MAX_LIMIT), _read_statuses(request)
    list_ = f"threads:{session.id}:{','.join(sorted(statuses))}"
    children = await list_descendants((await request.services.runtime()).context, session.id)
    # A thread that was created meanwhile comes last, so a number of threads is a position.
    threads = [thread for thread in (session, *children) if not statuses or thread.record.status in statuses]
    first = request.cursor(list_) or 0
    shown = threads[first : first + limit]
    position = first + limit if first + limit < len(threads) else None
    return request.page(list_, [await render_thread(request, session, thread) for thread in shown], position)


def _read_statuses(request: ApiRequest) -> frozenset[str]:
    statuses = frozenset((*request.query_values("statuses[]"), *request.query_values("statuses")))
    if unknown := sorted(statuses - set(_STATUSES)):
        raise ApiProblem(f"statuses: {unknown[0]!r:.80} is not a status. Use one of {', '.join(_STATUSES)}.")
    return statuses


async def _retrieve(request: ApiRequest) -> dict[str, Any]:
    session, thread = await _find(request)
    return await render_thread(request, session, thread)


async def _archive(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    session, thread = await _find(request)
    if thread.id == session.id:
        raise ApiProblem("The primary thread cannot be archived. Archive the session.")
    runtime = await request.services.runtime()
    await runtime.archive_session(thread.id, by=API_ACTOR)
    return await render_thread(request, session, await runtime.load(thread.id))


async def _find(request: ApiRequest) -> tuple[LoadedRuntime, LoadedRuntime]:
    session = await load_session(request, request.path("session_id"))
    return session, await load_thread(request, session, request.path("thread_id"))


ROUTES = (
    ApiRoute("/v1/sessions/{session_id}/threads", {"GET": _list}),
    ApiRoute("/v1/sessions/{session_id}/threads/{thread_id}", {"GET": _retrieve}),
    ApiRoute("/v1/sessions/{session_id}/threads/{thread_id}/archive", {"POST": _archive}),
)
