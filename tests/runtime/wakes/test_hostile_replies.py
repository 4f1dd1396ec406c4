"""Replies that a hostile or broken model sends: the session stays usable and nothing is requested for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.ledger.jobs import STOPPED
from fidelio.providers.model import (
    ModelProblem,
    ModelReply,
    ModelRequest,
    TextBlock,
    ThinkingBlock,
    TokenUsage,
    ToolUseBlock,
)
from fidelio.runtime import events as e
from fidelio.runtime.wakes.replies import MAX_CALLS
from fidelio.runtime.wakes.wake import is_failure
from tests.runtime.wakes.support import open_runtime, replies, results_of, say, texts_of, use
from tests.support import proves


def nest(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


HOSTILE = {
    "deep": use(("memory_read", nest(600))),
    "integer": use(("memory_read", {"target": 10**40})),
    "directive": say("Yes.", {"outcome": "sleep", "summary": "x" * 2_000_000}),
    "custom": say("Yes.", {"outcome": "sleep", "customToolRequest": {"name": "a\0b"}}),
    "signature": ModelReply(content=(ThinkingBlock("hm", "s" * 3_000_000), TextBlock("Yes.")), stop_reason="end_turn"),
    "usage": ModelReply(content=(TextBlock("Yes."),), stop_reason="end_turn", usage=TokenUsage(input_tokens=10**30)),
    "name": use(("a\0" * 300, {})),
}


@proves("runtime.wake-hostile")
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_reply_does_not_stop_the_session(tmp_path: Path, name: str) -> None:
    async with open_runtime(tmp_path, replies(HOSTILE[name])) as runtime:
        session = await runtime.begin(limits={"tokens": 0})
        await runtime.tell(session, "Hello.")
        await runtime.work()

        record = await runtime.record(session)
        assert (record.status, record.wakes.open_calls) == ("idle", ())
        runtime.script(lambda _: say("Still here."))
        await runtime.tell(session, "Are you there?")
        await runtime.work()
        assert (await runtime.events(session, e.AGENT_MESSAGE))[-1].body["content"][0]["text"] == "Still here."


@proves("runtime.wake-hostile")
async def test_a_reply_calls_a_bounded_number_of_tools(tmp_path: Path) -> None:
    calls = tuple(ToolUseBlock(f"c{number}", "memory_list", {}) for number in range(MAX_CALLS + 50))
    async with open_runtime(tmp_path, replies(ModelReply(content=calls, stop_reason="tool_use"))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Loop.")
        await runtime.work()

        assert len(results_of(runtime.requests[1])) == MAX_CALLS
        await runtime.tell(session, "Again.")
        await runtime.work()
        assert "50 further calls were dropped" in texts_of(runtime.requests[-1])


@proves("runtime.wake-broken")
async def test_a_wake_that_fails_again_and_again_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello.")
        for _ in range(6):
            runtime.script(_fail)
            lease = await runtime.ledger.claim("worker", ("runtime.wake",), lease_ms=30_000)
            if lease is None:
                break
            await _run_as_job(runtime, lease)
            runtime.clock.now += 400_000

        record = await runtime.record(session)
        assert (record.status, record.wakes.stop_reason, record.wakes.current) == ("idle", "retries_exhausted", "")
        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert error.body["error"]["type"] == "internal_error"
        runtime.script(replies(say("Better.")))
        await runtime.tell(session, "Again.")
        await runtime.work()
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"


def test_a_stopped_worker_is_no_failure_of_the_wake() -> None:
    assert is_failure("ValueError: x")
    assert not is_failure(STOPPED)
    assert not is_failure("")


async def _run_as_job(runtime: Any, lease: Any) -> None:
    from fidelio.ledger.jobs import Assignment
    from fidelio.ledger.model import Retry

    assignment = Assignment(runtime.ledger, lease)
    try:
        await runtime.runner.run(assignment)
    except ZeroDivisionError as error:
        await runtime.ledger.settle(lease, Retry(due=runtime.clock(), error=f"ZeroDivisionError: {error}"))


def _fail(_: ModelRequest) -> ModelReply:
    raise ZeroDivisionError("a defect")


@proves("runtime.context-forced")
async def test_a_conversation_that_the_vendor_calls_too_long_is_shortened(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> ModelReply:
        if len(texts_of(request)) > 30_000:
            raise ModelProblem("Too long.", kind="context_too_long_error", status=400)
        return say("The summary." if "about to be shortened" in texts_of(request) else "Fine.")

    async with open_runtime(tmp_path, reply) as runtime:
        session = await runtime.begin()
        for number in range(8):
            await runtime.tell(session, f"Message {number}: " + "word " * 1_500)
            await runtime.work()
            assert (await runtime.record(session)).wakes.stop_reason == "end_turn", number
        assert await runtime.events(session, e.CONTEXT_COMPACTED)


@proves("runtime.directive-fields")
async def test_an_unclosed_directive_and_one_beside_calls_are_told(tmp_path: Path) -> None:
    unclosed = ModelReply(content=(TextBlock('Done. <fidelio-loop>{"outcome": "continue"}'),), stop_reason="end_turn")
    beside = use(("memory_list", {}), text='I look. <fidelio-loop>{"outcome": "sleep"}</fidelio-loop>')
    async with open_runtime(tmp_path, replies(unclosed, beside)) as runtime:
        session = await runtime.begin()
        for text in ("One.", "Two.", "Three."):
            await runtime.tell(session, text)
            await runtime.work()

        shown = [event.body["content"][0]["text"] for event in await runtime.events(session, e.AGENT_MESSAGE)]
        assert not [text for text in shown if "fidelio-loop" in text]
        seen = texts_of(runtime.requests[-1])
        assert "has no </fidelio-loop>" in seen
        assert "also calls tools was ignored" in seen
