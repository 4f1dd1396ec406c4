"""Streams of events, with the official SDK over a socket: several clients, cut and resumed, previews, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic, BadRequestError, RateLimitError

from fidelio.app.application import Application
from fidelio.app.runtime import host_runtime
from fidelio.runtime.previews import MAX_WAITING, PreviewWatcher
from fidelio.settings import load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.http.v1.application import create_routes
from fidelio.surfaces.http.v1.endpoint import ApiServices
from fidelio.surfaces.http.v1.events import streaming
from tests.runtime.wakes.support import replies, say
from tests.support import proves
from tests.surfaces.runtime.conftest import RuntimeApplication
from tests.surfaces.v1.conftest import KEY, TOKEN, ModelBehaviour
from tests.surfaces.v1.support import SECONDS, collect, converse, create_session, list_events, message, only, send, types_of

Script = Callable[[ModelBehaviour], None]


@proves("v1.stream")
async def test_two_clients_get_the_same_events_once_and_in_order(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    session = await create_session(sdk)
    async with (
        await sdk.beta.sessions.events.stream(session.id) as first,
        await sdk.beta.sessions.events.stream(session.id) as second,
    ):
        await send(sdk, session.id, message("Hello"))
        seen = await asyncio.gather(collect(first), collect(second))

    listed = [event.id for event in await list_events(sdk, session.id)]
    assert [[event.id for event in events] for events in seen] == [listed, listed]


@proves("v1.stream")
async def test_a_stream_shows_nothing_of_before_and_ends_with_the_session(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    session = await create_session(sdk)
    await converse(sdk, session.id, message("Before"))

    async with await sdk.beta.sessions.events.stream(session.id) as stream:
        await sdk.beta.sessions.delete(session.id)
        async with asyncio.timeout(SECONDS):
            events = [event async for event in stream]

    assert types_of(events)[-1] == "session.deleted"
    assert "user.message" not in types_of(events)


@proves("v1.stream-resume")
async def test_a_cut_stream_goes_on_exactly_behind_the_last_event(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    session = await create_session(sdk)
    events = await converse(sdk, session.id, message("Hello"))
    ids = [event.id for event in events]

    for number in range(len(ids) - 1):
        resume: Any = (
            {"extra_headers": {"Last-Event-ID": ids[number]}} if number % 2 else {"extra_query": {"after": ids[number]}}
        )
        async with await sdk.beta.sessions.events.stream(session.id, **resume) as stream:
            rest = await collect(stream)
        assert [event.id for event in rest] == ids[number + 1 :]
    with pytest.raises(BadRequestError, match="Last-Event-ID"):
        await sdk.beta.sessions.events.stream(session.id, extra_headers={"Last-Event-ID": "sevt_nothing"})


@asynccontextmanager
async def serve(home: Path, project: Path) -> AsyncIterator[tuple[AsyncAnthropic, Application]]:
    """A server of its own over a home."""
    settings = load_settings(str(home), environ={})
    async with RuntimeApplication(settings) as opened, host_runtime(await opened.runtime()):
        app = create_app({}, bearer_token=TOKEN, routes=create_routes(ApiServices(opened, str(project))))
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
        try:
            async with AsyncAnthropic(base_url=await address, api_key=TOKEN, max_retries=0) as client:
                yield client, opened
        finally:
            serving.cancel()
            await asyncio.wait([serving], timeout=30)


@proves("v1.stream-resume")
async def test_a_stream_goes_on_after_a_restart_of_the_server(tmp_path: Path, project: Path, script: Script) -> None:
    script(replies())
    async with serve(tmp_path / "home", project) as (sdk, _):
        session = await create_session(sdk)
        events = await converse(sdk, session.id, message("Hello"))
    seen = events[3]

    async with serve(tmp_path / "home", project) as (sdk, _):
        stream = await sdk.beta.sessions.events.stream(session.id, extra_headers={"Last-Event-ID": seen.id})
        async with stream:
            await send(sdk, session.id, message("Again"))
            rest = await collect(stream, count=2)
        listed = await list_events(sdk, session.id)

    assert [event.id for event in (*events[:4], *rest)] == [event.id for event in listed]


@proves("v1.previews")
async def test_text_is_previewed_under_the_id_of_its_message_without_the_directive(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(say("One two three four five.", {"outcome": "sleep", "summary": "Hidden."})))
    session = await create_session(sdk)

    stream = await sdk.beta.sessions.events.stream(session.id, event_deltas=["agent.message"])
    async with stream:
        await send(sdk, session.id, message("Count"))
        events = await collect(stream)
    plain = await converse(sdk, session.id, message("Again"))

    (sent,) = only(events, "agent.message")
    starts, deltas = only(events, "event_start"), only(events, "event_delta")
    text = "".join(delta.delta.content.text for delta in deltas)
    assert [start.event.id for start in starts] == [sent.id]
    assert {delta.event_id for delta in deltas} == {sent.id}
    assert text.strip() == sent.content[0].text == "One two three four five."
    assert not {"event_start", "event_delta"} & set(types_of(plain))
    assert not {"event_start", "event_delta"} & set(types_of(await list_events(sdk, session.id)))


@proves("v1.previews")
def test_a_slow_watcher_keeps_a_bounded_part_of_a_preview() -> None:
    watcher = PreviewWatcher("s_a", lambda: None)

    for _ in range(100):
        watcher.add("evt_a", "x" * 1_000)
    (taken,) = watcher.read()
    watcher.add("evt_a", "after the gap")
    rest = watcher.read()
    watcher.add("evt_b", "another message")

    assert len(taken.text) <= MAX_WAITING
    assert rest == []
    assert [item.text for item in watcher.read()] == ["another message"]


@proves("v1.stream-limits")
async def test_too_many_streams_are_refused_with_the_reason(
    sdk: AsyncAnthropic, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.surfaces.http.v1.events.hub.StreamHub.most", 1)
    session = await create_session(sdk)

    async with await sdk.beta.sessions.events.stream(session.id):
        with pytest.raises(RateLimitError, match="event streams are open"):
            await sdk.beta.sessions.events.stream(session.id)


@proves("v1.stream-limits")
async def test_an_idle_stream_gets_pings(sdk: AsyncAnthropic, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05)
    session = await create_session(sdk)

    async with httpx2.AsyncClient() as client:
        path = f"{url}/v1/sessions/{session.id}/events/stream"
        async with asyncio.timeout(SECONDS), client.stream("GET", path, headers=KEY) as response:
            found = b""
            async for chunk in response.aiter_bytes():
                found += chunk
                if found.count(b"event: ping") >= 2:
                    break

    assert b'data: {"type": "ping"}' in found


@proves("v1.stream-limits")
async def test_one_task_follows_the_ledger_for_all_streams(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    sessions = [await create_session(sdk) for _ in range(3)]
    streams = [await sdk.beta.sessions.events.stream(session.id) for session in sessions for _ in range(10)]
    followers = [task for task in asyncio.all_tasks() if "restart_on_failure" in str(task.get_coro())]

    await send(sdk, sessions[0].id, message("Hello"))
    found = await asyncio.gather(*(collect(stream) for stream in streams[:10]))

    # The worker of the runtime is the other.
    assert len(followers) <= 2
    assert len({tuple(event.id for event in events) for events in found}) == 1
    for stream in streams:
        await stream.close()


@proves("v1.stream")
async def test_a_stream_shows_what_another_process_commits(
    sdk: AsyncAnthropic, application: Application, tmp_path: Path, script: Script
) -> None:
    script(replies())
    session = await create_session(sdk)
    other = RuntimeApplication(load_settings(str(tmp_path / "home"), environ={}))

    async with other, await sdk.beta.sessions.events.stream(session.id) as stream:
        service = await other.runtime()
        sent = {"type": "user.message", "content": "From elsewhere"}
        await service.send(session.id.replace("sesn_", "s_"), [sent], by="person:test", channel="cli")
        events = await collect(stream)

    assert events[0].content[0].text == "From elsewhere"
