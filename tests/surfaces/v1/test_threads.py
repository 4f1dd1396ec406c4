"""Threads over the API, with the official SDK: delegated sessions, what they wait for, and the answers that reach them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError
from anthropic.types.beta.sessions import BetaManagedAgentsSessionEvent, BetaManagedAgentsSessionThread

from fidelio.providers.model import ModelReply, ModelRequest, TextBlock
from tests.runtime.wakes.support import results_of, say, use
from tests.support import proves
from tests.surfaces.v1.conftest import ModelBehaviour
from tests.surfaces.v1.strict import check_json, check_object
from tests.surfaces.v1.support import collect, converse, create_session, list_events, message, only, send, types_of
from tests.surfaces.v1.test_events import read_raw

Script = Callable[[ModelBehaviour], None]
ALL = {"tools": [{"type": "fidelio_toolset", "all_tools": True}]}


def delegating(request: ModelRequest) -> ModelReply:
    """The parent delegates and sleeps; its child runs a command that asks."""
    # The first block is what was sent; recalled texts of the other session may follow.
    (sent, *_) = (block.text for block in request.messages[0].content if isinstance(block, TextBlock))
    if "The child's task" in sent:
        return say("The child is done.") if results_of(request) else use(("shell_run", {"command": "make"}))
    if results_of(request):
        return say("Delegated.", {"outcome": "sleep"})
    return use(("session_delegate", {"message": "The child's task"}))


async def delegate(sdk: AsyncAnthropic) -> tuple[str, list[Any]]:
    session = await create_session(sdk, definition=ALL)
    async with await sdk.beta.sessions.events.stream(session.id) as stream:
        await send(sdk, session.id, message("Delegate"))
        return session.id, await collect(stream, "session.thread_status_idle")


@proves("v1.threads", "v1.threads-posted")
async def test_what_a_child_waits_for_is_shown_and_answered_in_its_session(
    sdk: AsyncAnthropic, url: str, script: Script
) -> None:
    script(delegating)
    session, events = await delegate(sdk)
    (created,), (idle,) = only(events, "session.thread_created"), only(events, "session.thread_status_idle")
    (asking,) = [event for event in only(events, "agent.tool_use") if event.session_thread_id]

    async with await sdk.beta.sessions.events.stream(session) as stream:
        (answer,) = await send(sdk, session, {"type": "user.tool_confirmation", "tool_use_id": asking.id, "result": "allow"})
        rest = await collect(stream, "session.thread_status_idle")

    assert created.session_thread_id == idle.session_thread_id == asking.session_thread_id == answer.session_thread_id
    assert (asking.name, asking.evaluated_permission) == ("shell_run", "ask")
    assert (idle.stop_reason.type, idle.stop_reason.event_ids) == ("requires_action", [asking.id])
    assert rest[-1].stop_reason.type == "end_turn"
    for item in (await read_raw(url, f"{session}/events", limit=1000))["data"]:
        check_json(BetaManagedAgentsSessionEvent, item)
    whole = [event.id for event in await list_events(sdk, session, limit=1000)]
    assert len(set(whole)) == len(whole)
    assert [event.id for event in await list_events(sdk, session, limit=3)] == whole
    assert [event.id for event in await list_events(sdk, session, limit=3, order="desc")] == whole[::-1]
    for id_ in whole[:-1]:
        after = await list_events(sdk, session, extra_query={"after": id_})
        assert [event.id for event in after] == whole[whole.index(id_) + 1 :]


@proves("v1.threads")
async def test_threads_have_objects_events_and_streams_of_their_own(sdk: AsyncAnthropic, url: str, script: Script) -> None:
    script(delegating)
    session, events = await delegate(sdk)
    child = only(events, "session.thread_created")[0].session_thread_id

    threads = [thread async for thread in sdk.beta.sessions.threads.list(session)]
    paged = [thread.id async for thread in sdk.beta.sessions.threads.list(session, limit=1)]
    found = await sdk.beta.sessions.threads.retrieve(child, session_id=session)
    own = [event async for event in sdk.beta.sessions.threads.events.list(child, session_id=session)]
    for thread in (await read_raw(url, f"{session}/threads"))["data"]:
        # The SDK knows no other toolset than its own.
        check_json(BetaManagedAgentsSessionThread, {**thread, "agent": {**thread["agent"], "tools": []}})
    for item in (await read_raw(url, f"{session}/threads/{child}/events"))["data"]:
        check_json(BetaManagedAgentsSessionEvent, item)

    assert [thread.id for thread in threads] == paged
    assert (threads[0].parent_thread_id, threads[1].parent_thread_id) == (None, threads[0].id)
    assert (found.id, found.session_id, found.status) == (child, session, "idle")
    assert own[0].type == "agent.thread_message_received"
    assert own[0].from_session_thread_id == threads[0].id
    assert own[0].content[0].to_dict() == {"type": "text", "text": "The child's task"}
    assert types_of(own)[-1] == "session.thread_status_idle"
    sessions = [item.id async for item in sdk.beta.sessions.list()]
    assert sessions == [session]


@proves("v1.threads")
async def test_a_stream_of_a_thread_shows_only_its_events(sdk: AsyncAnthropic, script: Script) -> None:
    script(delegating)
    session, events = await delegate(sdk)
    child = only(events, "session.thread_created")[0].session_thread_id
    (asking,) = [event for event in only(events, "agent.tool_use") if event.session_thread_id]

    async with await sdk.beta.sessions.threads.events.stream(child, session_id=session) as stream:
        await send(sdk, session, {"type": "user.tool_confirmation", "tool_use_id": asking.id, "result": "deny"})
        rest = await collect(stream, "session.thread_status_idle")

    assert rest[0].type == "user.tool_confirmation"
    assert {event.session_thread_id for event in only(rest, "session.thread_status_running")} == {child}
    assert "session.status_idle" not in types_of(rest)


@proves("v1.interrupt", "runtime.sent-together")
async def test_an_interrupt_reaches_the_threads(sdk: AsyncAnthropic, script: Script) -> None:
    script(delegating)
    session, events = await delegate(sdk)
    child = only(events, "session.thread_created")[0].session_thread_id

    async with await sdk.beta.sessions.events.stream(session) as stream:
        sent = await send(sdk, session, {"type": "user.interrupt"})
        rest = await collect(stream, "session.thread_status_idle")

    with pytest.raises(BadRequestError, match="thread"):
        await send(sdk, session, {"type": "user.interrupt", "session_thread_id": "sthr_000000000000"})
    assert types_of(sent) == ["user.interrupt"]
    assert (rest[-1].session_thread_id, rest[-1].stop_reason.type) == (child, "end_turn")


@proves("v1.threads")
async def test_the_primary_thread_cannot_be_archived_and_a_foreign_thread_is_unknown(
    sdk: AsyncAnthropic, script: Script
) -> None:
    script(delegating)
    session, events = await delegate(sdk)
    child = only(events, "session.thread_created")[0].session_thread_id
    other = await create_session(sdk)
    primary = f"sthr_{session.removeprefix('sesn_')}"

    with pytest.raises(BadRequestError, match="primary thread"):
        await sdk.beta.sessions.threads.archive(primary, session_id=session)
    archived = await sdk.beta.sessions.threads.archive(child, session_id=session)

    assert archived.archived_at is not None
    for thread in (child, primary, "sthr_000000000000", "nothing"):
        with pytest.raises(NotFoundError):
            await sdk.beta.sessions.threads.retrieve(thread, session_id=other.id)


@proves("v1.session")
async def test_deleting_a_session_deletes_its_threads(sdk: AsyncAnthropic, script: Script) -> None:
    script(delegating)
    session, events = await delegate(sdk)
    child = only(events, "session.thread_created")[0].session_thread_id
    await converse(sdk, session, {"type": "user.interrupt"}, last="session.thread_status_idle")

    deleted = check_object(await sdk.beta.sessions.delete(session))

    assert deleted.id == session
    for id_ in (session, child.replace("sthr_", "sesn_")):
        with pytest.raises(NotFoundError):
            await sdk.beta.sessions.retrieve(id_)
