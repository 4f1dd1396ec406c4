"""Operations on sessions: what runs and ran, its report and its proof, and what a person does with it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fidelio.app.acting import LONGEST_MESSAGE, DeletedSessions
from fidelio.app.listing import read_accepted
from fidelio.app.records import ChainVerdict, check_status
from fidelio.app.runtime_reports import load_report
from fidelio.errors import ChainBroken
from fidelio.ledger.model import Session, SessionKind
from fidelio.surfaces.http.api.operations import (
    CHANNEL,
    ApiCall,
    ApiOperation,
    HttpProblem,
    Listed,
    Name,
    NoQuery,
    Paging,
    optional,
)
from fidelio.surfaces.views.agents import run_json
from fidelio.surfaces.views.records import (
    SessionState,
    SessionSummary,
    Verification,
    describe_state,
    session_fields,
    view_verdict,
)
from fidelio.surfaces.views.reports import report_json

_HEAD = Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")]
Message = Annotated[str, Meta(min_length=1, max_length=LONGEST_MESSAGE)]


class SessionQuery(Paging, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which sessions are listed."""

    kind: Annotated[SessionKind, Meta(description="Only sessions of this kind.")] | None = None
    status: Annotated[Name, Meta(description="Only sessions with this status, such as `active` or `completed`.")] | None = None
    parent: Annotated[Name, Meta(description="Only sessions that this session has started.")] | None = None
    name: Annotated[Name, Meta(description="Only sessions whose name begins so.")] | None = None
    all: Annotated[bool, Meta(description="Also stores and objects, which keep what several sessions share.")] = False


class SessionDetail(SessionSummary, frozen=True, kw_only=True):
    """A session. `state`: what it does, in a word.

    A workflow has its variables with who set each; an agent its newest run; an agent of the runtime what it waits for and used.
    """

    state: SessionState
    variables: dict[str, Any] | UnsetType = UNSET
    set_by: dict[str, str] | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    runtime: dict[str, Any] | UnsetType = UNSET


class SentMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to an agent."""

    message: Message


class StopReason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a session is stopped; the record of a workflow keeps it."""

    reason: Annotated[str, Meta(max_length=LONGEST_MESSAGE)] = ""


class Deletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a session is deleted."""

    reason: Annotated[str, Meta(min_length=1, max_length=LONGEST_MESSAGE, description="Why; the record keeps it.")]


class Heads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Heads that the chain must contain."""

    head: Annotated[
        tuple[_HEAD, ...], Meta(max_length=100, description="An earlier head that the chain must contain. Repeatable.")
    ] = ()


async def list_sessions(call: ApiCall[SessionQuery, None]) -> Listed[SessionSummary]:
    wanted, records = call.query, await call.services.records()
    check_status(wanted.kind, wanted.status)
    parent = (await records.find(wanted.parent)).id if wanted.parent else None

    async def accepts(session: Session) -> bool:
        return not wanted.name or (session.name or "").startswith(wanted.name)

    read = partial(records.sessions, kind=wanted.kind, status=wanted.status, parent=parent, stores=wanted.all)
    page = await read_accepted(read, accepts, cursor=wanted.after, limit=wanted.limit)
    return Listed(tuple(SessionSummary(**session_fields(session)) for session in page.items), page.next)


async def read_session(call: ApiCall[Any, Any]) -> SessionDetail:
    session = await call.session()
    record = session.record
    is_workflow = session.kind == "workflow"
    return SessionDetail(
        **session_fields(session),
        state=describe_state(session.status),
        variables=optional(record.get("variables") or {}, when=is_workflow),
        set_by=optional(record.get("set_by") or {}, when=is_workflow),
        run=await _load_run(call, session),
        runtime=await _load_runtime(call, session),
    )


async def _load_run(call: ApiCall[Any, Any], session: Session) -> Any:
    if session.kind != "agent" or not session.has_record:
        return UNSET
    service = await call.services.application.agents(host=False)
    found = await service.find(session.id)
    return {key: value for key, value in run_json(found.run).items() if value is not None}


async def _load_runtime(call: ApiCall[Any, Any], session: Session) -> Any:
    if session.kind != "runtime" or not session.record.get("agent_version"):
        return UNSET
    return await (await call.services.application.runtime()).describe(session.id)


async def read_report(call: ApiCall[NoQuery, None]) -> dict[str, Any]:
    return report_json(await load_report(await call.services.records(), await call.session()))


async def verify_session(call: ApiCall[Heads, None]) -> Verification:
    records, session = await call.services.records(), await call.session()
    verdict: ChainVerdict | ChainBroken
    try:
        verdict = await records.verify(session.id, heads=[bytes.fromhex(head) for head in call.query.head])
    except ChainBroken as broken:
        verdict = broken
    return view_verdict(verdict)


async def send_message(call: ApiCall[NoQuery, SentMessage]) -> SessionDetail:
    sender, session = call.sender, await call.session()
    _require_kind(session, "agent", "runtime")
    await call.services.actions.send(session, call.body.message, by=sender.person, channel=CHANNEL)
    return await read_session(call)


async def resume_session(call: ApiCall[NoQuery, SentMessage]) -> SessionDetail:
    sender, session = call.sender, await call.session()
    _require_kind(session, "agent")
    await call.services.actions.resume(session, call.body.message, by=sender.person)
    return await read_session(call)


async def stop_session(call: ApiCall[NoQuery, StopReason]) -> SessionDetail:
    sender, session = call.sender, await call.session()
    reason = call.body.reason or "Ended over the API."
    await call.services.actions.stop(session, by=sender.person, channel=CHANNEL, reason=reason)
    return await read_session(call)


async def delete_session(call: ApiCall[Deletion, None]) -> DeletedSessions:
    sender, session = call.sender, await call.session()
    return await call.services.actions.delete(session, by=sender.person, reason=call.query.reason)


def _require_kind(session: Session, *kinds: Literal["agent", "runtime"]) -> None:
    if session.kind not in kinds:
        remedy = "Answer its requests, or stop it. A message goes to the session of an agent."
        raise HttpProblem(409, "api.kind", f"Session {session.id} is of the kind {session.kind}.", remedy)


_SESSION = "/api/sessions/{session}"
_GROUP = "Sessions"
_CHANGED = (404, 409, 412)
OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/api/sessions",
        name="listSessions",
        group=_GROUP,
        summary="List sessions, newest first.",
        handler=list_sessions,
        query=SessionQuery,
        result=Listed[SessionSummary],
        failures=(404,),
    ),
    ApiOperation(
        method="GET",
        path=_SESSION,
        name="readSession",
        group=_GROUP,
        summary="Read a session, by its id, its name, or the beginning of its id.",
        handler=read_session,
        result=SessionDetail,
        failures=(404,),
    ),
    ApiOperation(
        method="DELETE",
        path=_SESSION,
        name="deleteSession",
        group=_GROUP,
        summary="Erase a session that has ended, and those that it has started. Its chain can still be verified.",
        handler=delete_session,
        query=Deletion,
        result=DeletedSessions,
        current=read_session,
        failures=_CHANGED,
    ),
    ApiOperation(
        method="GET",
        path=f"{_SESSION}/report",
        name="readReport",
        group=_GROUP,
        summary="Compare a session with its definition: the same keys as in a report of the command line.",
        handler=read_report,
        result=dict[str, Any],
        failures=(404, 409),
    ),
    ApiOperation(
        method="GET",
        path=f"{_SESSION}/verification",
        name="verifySession",
        group=_GROUP,
        summary="Verify now that no event of a session was changed or removed.",
        handler=verify_session,
        query=Heads,
        result=Verification,
        failures=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{_SESSION}/messages",
        name="sendMessage",
        group=_GROUP,
        summary="Send a message to an agent. One that is at work reads it afterwards.",
        handler=send_message,
        body=SentMessage,
        result=SessionDetail,
        current=read_session,
        failures=_CHANGED,
    ),
    ApiOperation(
        method="POST",
        path=f"{_SESSION}/resume",
        name="resumeSession",
        group=_GROUP,
        summary="Go on in the conversation of an agent whose run has ended.",
        handler=resume_session,
        body=SentMessage,
        result=SessionDetail,
        current=read_session,
        failures=_CHANGED,
    ),
    ApiOperation(
        method="POST",
        path=f"{_SESSION}/stop",
        name="stopSession",
        group=_GROUP,
        summary="Stop the run of an agent, the turn of an agent of the runtime, or a whole run of a workflow.",
        handler=stop_session,
        body=StopReason,
        result=SessionDetail,
        current=read_session,
        failures=_CHANGED,
    ),
)
