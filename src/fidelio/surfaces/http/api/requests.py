"""Operations on requests: what waits for a person, and its answer."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fidelio.app.listing import is_of_project, read_accepted
from fidelio.errors import SessionNotFound
from fidelio.inbox import LONGEST_TEXT
from fidelio.ledger.model import Request, RequestState
from fidelio.surfaces.http.api.operations import CHANNEL, ApiCall, ApiOperation, Listed, Name, NoQuery, Paging
from fidelio.surfaces.views.requests import AnsweredView, InboxEntry, RequestKind, view_answered, view_entry


class RequestQuery(Paging, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which requests are listed."""

    state: Annotated[
        Literal["open", "answered", "dismissed", "expired", "all"], Meta(description="Only requests in this state.")
    ] = "open"
    kind: Annotated[RequestKind, Meta(description="Only requests of this kind.")] | None = None
    session: Annotated[Name, Meta(description="Only requests of this session: its id or its name.")] | None = None
    workflow: Annotated[Name, Meta(description="Only requests of this workflow.")] | None = None
    project: Annotated[Name, Meta(description="Only requests of this project: a directory or its last part.")] | None = None


class AnswerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer: an option, with a comment as its text if you like, or a text where there are no options."""

    option: Annotated[str, Meta(max_length=LONGEST_TEXT)] = ""
    text: Annotated[str, Meta(max_length=LONGEST_TEXT)] = ""


async def list_requests(call: ApiCall[RequestQuery, None]) -> Listed[InboxEntry]:
    wanted, inbox, records = call.query, await call.services.inbox(), await call.services.records()
    state: RequestState | None = None if wanted.state == "all" else wanted.state
    session = (await records.find(wanted.session)).id if wanted.session else None

    async def accepts(request: Request) -> bool:
        is_wanted = wanted.kind in (None, request.kind) and wanted.workflow in (None, request.detail.get("workflow"))
        return is_wanted and (not wanted.project or await is_of_project(records, request, wanted.project))

    read = partial(inbox.list_requests, session=session, state=state)
    page = await read_accepted(read, accepts, cursor=wanted.after, limit=wanted.limit)
    return Listed(tuple([await _view(call, request) for request in page.items]), page.next)


async def read_request(call: ApiCall[NoQuery, None]) -> InboxEntry:
    return await _view(call, await (await call.services.inbox()).find(call.path("request")))


async def answer_request(call: ApiCall[NoQuery, AnswerBody]) -> AnsweredView:
    sender, inbox = call.sender, await call.services.inbox()
    done = await inbox.answer(
        call.path("request"),
        call.body.option,
        text=call.body.text.strip(),
        by=sender.person,
        channel=CHANNEL,
        is_seen=sender.is_seen,
    )
    if done.request.detail.get("job"):
        await call.services.application.start_runtime_worker()
    return view_answered(done.request, repeated=done.repeated)


async def _view(call: ApiCall[NoQuery, None] | ApiCall[RequestQuery, None], request: Request) -> InboxEntry:
    records, inbox, session = await call.services.records(), await call.services.inbox(), None
    # A request without a session was not written by Fidelio; the mismatch says so.
    with suppress(SessionNotFound):
        session = await records.find(request.session)
    return view_entry(request, session, await inbox.find_mismatch(request))


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/api/requests",
        name="listRequests",
        group="Requests",
        summary="List what waits for a person, oldest first.",
        handler=list_requests,
        query=RequestQuery,
        result=Listed[InboxEntry],
        failures=(404,),
    ),
    ApiOperation(
        method="GET",
        path="/api/requests/{request}",
        name="readRequest",
        group="Requests",
        summary="Read a request.",
        handler=read_request,
        result=InboxEntry,
        failures=(404,),
    ),
    ApiOperation(
        method="POST",
        path="/api/requests/{request}/answer",
        name="answerRequest",
        group="Requests",
        summary="Answer a request, once. The same answer again is confirmed; another one is refused with 409.",
        handler=answer_request,
        body=AnswerBody,
        result=AnsweredView,
        current=read_request,
        failures=(404, 409, 412),
    ),
)
