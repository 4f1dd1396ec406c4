from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from fidelio.errors import UsageProblem
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime import events as e
from tests.runtime.wakes.support import (
    RUN,
    WRITE,
    make_sandboxes,
    open_runtime,
    replies,
    results_of,
    say,
    texts_of,
    use,
)
from tests.support import proves


@proves("runtime.wake-answer")
async def test_a_message_is_answered_in_one_wake(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(say("Hello to you.", {"outcome": "sleep", "summary": "Greeted."}))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello!")

        assert await runtime.work() == 1
        record = await runtime.record(session)

        assert (record.status, record.wakes.summary, record.wakes.pending) == ("idle", "Greeted.", 0)
        assert (await runtime.types(session))[2:] == [
            e.STATUS_RUNNING,
            e.SPAN_STARTED,
            e.MODEL_REQUEST_STARTED,
            e.MODEL_REQUEST_ENDED,
            e.AGENT_MESSAGE,
            e.SPAN_COMPLETED,
            e.STATUS_IDLE,
        ]
        (message,) = await runtime.events(session, e.AGENT_MESSAGE)
        assert message.body["content"] == [{"type": "text", "text": "Hello to you."}]
        assert await runtime.work() == 0


@proves("runtime.wake-conversation")
async def test_the_next_wake_sends_the_same_conversation_and_adds_to_it(tmp_path: Path) -> None:
    async with open_runtime(
        tmp_path, replies(use(WRITE, text="I write."), say("Written.")), sandboxes=make_sandboxes()
    ) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Write it.")
        await runtime.work()
        await runtime.tell(session, "Thank you.")
        await runtime.work()

        earlier, later = runtime.requests[1], runtime.requests[2]
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert (later.system, later.tools) == (earlier.system, earlier.tools)
        assert [message.role for message in later.messages] == ["user", "assistant", "user", "assistant", "user"]


@proves("runtime.wake-pending")
async def test_what_arrives_during_a_wake_is_for_the_next_one(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()

        async def send_more(request: ModelRequest) -> ModelReply:
            if len(runtime.requests) == 1:
                await runtime.tell(session, "And this.")
                assert (await runtime.record(session)).wakes.pending == 1
            return say("Done.")

        runtime.script(send_more)
        await runtime.tell(session, "Do that.")
        assert await runtime.work() == 2

        assert "And this." not in texts_of(runtime.requests[0])
        assert "And this." in texts_of(runtime.requests[1])
        assert (await runtime.record(session)).wakes.pending == 0


@proves("runtime.wake-interrupt")
async def test_an_interrupt_stops_the_model_and_goes_on_with_what_the_person_says(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        thinking, stopped = asyncio.Event(), asyncio.Event()

        async def think(request: ModelRequest) -> ModelReply:
            if "Stop" in texts_of(request):
                return say("Stopped.")
            thinking.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                stopped.set()
                raise
            return say("Too late.")

        runtime.script(think)
        await runtime.tell(session, "Think.")
        working = asyncio.create_task(runtime.work())
        async with asyncio.timeout(5):
            await thinking.wait()
        await runtime.send(session, {"type": "user.interrupt"}, {"type": "user.message", "content": "Stop, do this."})
        async with asyncio.timeout(5):
            await stopped.wait()
            await working

        record = await runtime.record(session)
        assert record.status == "idle"
        assert record.wakes.stop_reason == "end_turn"
        texts = [event.body["content"][0]["text"] for event in await runtime.events(session, e.AGENT_MESSAGE)]
        assert texts == ["Stopped."]


@proves("runtime.wake-interrupt-clears")
async def test_an_interrupt_ends_requests_and_queued_wakes(tmp_path: Path) -> None:
    later = {"outcome": "sleep", "queuedWakes": [{"reason": "look again", "delaySeconds": 600}]}
    async with open_runtime(tmp_path, replies(say("Later.", later), use(RUN), say("Fine."))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Remind me.")
        await runtime.work()
        await runtime.tell(session, "Build.")
        await runtime.work()
        (call,) = (await runtime.record(session)).wakes.blocking
        assert len((await runtime.record(session)).wakes.queued) == 1

        await runtime.send(session, {"type": "user.interrupt"})
        await runtime.work()

        record = await runtime.record(session)
        assert (record.status, record.wakes.queued, record.wakes.open_calls, record.approvals) == ("idle", (), (), {})
        with pytest.raises(UsageProblem, match="does not wait"):
            await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
        assert (await runtime.ledger.requests(session=session)).items == ()
        await runtime.tell(session, "Go on.")
        await runtime.work()
        assert "interrupted" in msgspec.json.encode(results_of(runtime.requests[-1])[0]).decode()


@proves("runtime.tools-meta")
async def test_an_undeclared_tool_is_opened_and_called_by_name(tmp_path: Path) -> None:
    calls = (
        use(("tools_open", {"group": "memory"})),
        use(("tool_call", {"name": "memory_list", "arguments": {}})),
        use(("memory_list", {})),
        use(("tool_call", {"name": "nothing", "arguments": {}})),
    )
    async with open_runtime(tmp_path, replies(*calls)) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Look.")
        await runtime.work()

        declared = {tool.name for tool in runtime.requests[0].tools}
        assert "memory_list" not in declared
        assert "memory_list" in next(t.description for t in runtime.requests[0].tools if t.name == "tools_open")
        assert all(request.tools == runtime.requests[0].tools for request in runtime.requests)
        opened, called, direct, unknown = results_of(runtime.requests[-1])
        assert "memory_read" in opened.content[0].text  # type: ignore[union-attr]  # it is a text
        assert called.content == direct.content
        assert unknown.is_error
