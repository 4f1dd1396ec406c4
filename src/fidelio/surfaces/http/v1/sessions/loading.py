"""Sessions and threads by their ids on the wire, in the project of the server. All others are unknown."""

from __future__ import annotations

from fidelio.errors import SessionNotFound
from fidelio.runtime.reading import SessionReader
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.surfaces.http.v1.endpoint import ApiRequest
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import NOUNS, to_session


async def load_session(request: ApiRequest, id_: str) -> LoadedRuntime:
    """The session with an id of the wire. Raises 404 for an unknown id, also of another project."""
    return await _load(request, "sesn", id_)


async def load_thread(request: ApiRequest, session: LoadedRuntime, id_: str) -> LoadedRuntime:
    """A thread of a session: the session itself, or a session below it."""
    found = await _load(request, "sthr", id_)
    if found.id == session.id:
        return found
    if (found.record.root or found.id) != (session.record.root or session.id) or not await _is_below(request, found, session):
        raise not_found("Thread", id_)
    return found


async def load_active(request: ApiRequest, id_: str) -> LoadedRuntime:
    """A session that can be changed. Raises 400 if it has ended or is archived."""
    loaded = await load_session(request, id_)
    check_active(loaded.record, id_)
    return loaded


def check_active(record: RuntimeRecord, id_: str) -> None:
    """Raise 400 for a session that has ended or is archived."""
    if record.is_archived:
        raise ApiProblem(f"Session {id_} is archived. An archived session is not changed; begin another one.")
    if record.status == "terminated":
        raise ApiProblem(f"Session {id_} has ended. Begin another one.")


async def _load(request: ApiRequest, prefix: str, id_: str) -> LoadedRuntime:
    session, noun = to_session(prefix, id_), NOUNS[prefix]
    try:
        loaded = await (await request.services.runtime()).load(session)
    except SessionNotFound as error:
        raise not_found(noun, id_) from error
    if not is_served(request, loaded.record):
        raise not_found(noun, id_)
    return loaded


def is_served(request: ApiRequest, record: RuntimeRecord) -> bool:
    """Whether a record is that of a session of an agent of this project."""
    return record.role == "session" and record.project == request.project and record.agent_version > 0


async def _is_below(request: ApiRequest, found: LoadedRuntime, session: LoadedRuntime) -> bool:
    runtime, parent = await request.services.runtime(), found.session.parent
    while parent is not None and parent != session.id:
        parent = (await SessionReader(runtime.context).session(parent)).parent
    return parent is not None
