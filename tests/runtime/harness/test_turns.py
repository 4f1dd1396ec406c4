"""Turns that end in unusual ways: asked to go on twice, cut off by a limit, malformed, or stopped in their first command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.records import record_type
from fidelio.providers.model import ModelProblem, ModelReply, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.memory.learnings import list_learnings
from fidelio.runtime.ports import NoModels
from fidelio.runtime.wakes.record import DAY_MS
from fidelio.sandbox.model import ActionResult, SandboxSpec
from tests.runtime.harness.support import make_sandboxes
from tests.runtime.support import FakeSandboxes
from tests.runtime.wakes.support import PROJECT, Runtime, open_runtime, replies, results_of, say, texts_of, use
from tests.runtime.wakes.test_failures import fail
from tests.support import proves

RUN = ("shell_run", {"command": "make"})
WEATHER = {"name": "weather", "description": "The weather.", "input_schema": {"type": "object"}}
# A wake of this length ends in its first call, on a busy machine too.
SHORT_SECONDS = 1.0


@proves("runtime.directive-continue")
async def test_a_second_continue_before_the_follow_up_is_due_queues_no_second_one(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, lambda _: say("More.", {"outcome": "continue"})) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Go.")
        await runtime.work()
        await runtime.tell(session, "And this.")
        await runtime.work()

        record = await runtime.record(session)
        assert [wake.reason for wake in record.wakes.queued] == ["session.follow_up"]
        (first, second) = await runtime.events(session, e.STATUS_RESCHEDULED)
        assert second.body["due"] == first.body["due"] == record.wakes.queued[0].due
        assert record.wakes.continues == 2


@proves("runtime.tools-malformed")
async def test_a_call_whose_arguments_cannot_be_read_is_refused_and_has_no_effect(tmp_path: Path) -> None:
    # A provider that cannot read all of the arguments may still know some of them.
    cut = ToolUseBlock("call_1", "write", {"path": "a.txt", "content": "A"}, problem="The JSON is cut off.")
    sandboxes = make_sandboxes()
    script = replies(ModelReply(content=(cut,), stop_reason="tool_use"), say("I try again."))
    async with open_runtime(tmp_path, script, sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Write.")
        await runtime.work()

        (result,) = results_of(runtime.requests[-1])
        assert result.is_error
        assert "The JSON is cut off." in str(result.content)
        assert sandboxes.actions == []


@proves("runtime.wake-pending")
@pytest.mark.parametrize("text", ["word " * 780, "\x01" * 3_900], ids=["plain", "escaped"])
async def test_any_number_of_long_messages_is_processed(tmp_path: Path, text: str) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin(limits={"tokens": 0})
        for number in range(4):
            blocks = [{"type": "text", "text": f"<{number}>{text}"} for _ in range(99)]
            await runtime.send(session, {"type": "user.message", "content": blocks})
        await runtime.work()

        assert (await runtime.record(session)).wakes.pending == 0
        wakes = await runtime.events(session, e.SPAN_STARTED)
        assert sum(wake.body["messages"] for wake in wakes) == 4
        for number in range(4):
            assert any(texts_of(request).count(f"<{number}>{text}") == 99 for request in runtime.requests)


@proves("runtime.approval-equal-calls")
async def test_equal_calls_of_a_turn_each_ask_and_each_run_once(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(RUN, RUN), say("Built.")), sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Build twice.")
        await runtime.work()
        first, second = (await runtime.record(session)).wakes.blocking
        await runtime.tell(session, "Are you there?")
        await runtime.work()

        assert (await runtime.record(session)).wakes.count == 1
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": second.id, "result": "allow"})
        await runtime.work()
        assert [call.id for call in (await runtime.record(session)).wakes.blocking] == [first.id]
        assert sandboxes.actions == ["run_shell"]
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": first.id, "result": "deny"})
        await runtime.work()
        assert {result.is_error for result in results_of(runtime.requests[1])} == {True, False}
        assert sandboxes.actions == ["run_shell"]


async def pause_for_weather(runtime: Runtime, **definition: Any) -> tuple[str, dict[str, Any]]:
    """A session that waits for the result of a custom tool, and that result."""
    runtime.script(replies(use(("weather", {})), say("Sunny.")))
    session = await runtime.begin(tools={"custom": [WEATHER]}, **definition)
    await runtime.tell(session, "Weather?")
    await runtime.work()
    (call,) = await runtime.events(session, e.CUSTOM_TOOL_USE)
    return session, {"type": "user.custom_tool_result", "custom_tool_use_id": call.body["id"], "content": "21 degrees"}


@proves("runtime.approval-goes-on")
async def test_a_turn_whose_answer_meets_a_used_up_budget_goes_on_when_it_may(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session, result = await pause_for_weather(runtime, limits={"wakes_per_day": 1})
        await runtime.send(session, result)
        await runtime.work()
        assert (await runtime.record(session)).wakes.stop_reason == "budget_reached"

        runtime.clock.now += DAY_MS
        await runtime.work()
        assert len(runtime.requests) == 2
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"


@proves("runtime.approval-goes-on")
async def test_a_turn_whose_answer_meets_a_model_that_is_gone_goes_on_with_the_next_message(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session, result = await pause_for_weather(runtime)
        models = runtime.context.ports.models
        find, models.find = models.find, NoModels().find  # type: ignore[method-assign]  # the provider is gone for a while
        await runtime.send(session, result)
        await runtime.work()
        record = await runtime.record(session)
        assert (record.status, record.wakes.stop_reason) == ("idle", "retries_exhausted")

        models.find = find  # type: ignore[method-assign]  # and back again
        await runtime.tell(session, "Now?")
        await runtime.work()
        assert "21 degrees" in str(results_of(runtime.requests[1]))
        assert "Now?" not in texts_of(runtime.requests[1])
        assert "Now?" in texts_of(runtime.requests[2])


@proves("runtime.wake-status")
async def test_a_session_that_nothing_wakes_is_idle_although_something_is_pending(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session, _ = await pause_for_weather(runtime)
        await runtime.tell(session, "Hurry.")
        await runtime.work()
        assert (await runtime.record(session)).status == "idle"

        other = await runtime.start(budget={"tokens": 1})
        await runtime.tell(other, "Hello.")
        await runtime.work()
        await runtime.tell(other, "Still there?")
        await runtime.work()
        record = await runtime.record(other)
        assert (record.status, record.wakes.stop_reason, record.wakes.pending) == ("idle", "budget_reached", 1)
        assert await runtime.ledger.jobs(session=other) == ()


@proves("runtime.retry-exhausted")
async def test_a_queued_wake_that_meets_a_failing_model_is_tried_again_soon(tmp_path: Path) -> None:
    soon, late = ({"reason": reason, "delaySeconds": delay} for reason, delay in (("soon", 60), ("late", 80_000)))
    async with open_runtime(tmp_path, replies(say("Later.", {"outcome": "sleep", "queuedWakes": [soon, late]}))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Remind me.")
        await runtime.work()
        runtime.script(fail(8, ModelProblem("Down.", retryable=True)))
        runtime.clock.now += 61_000
        await runtime.work()
        assert (await runtime.record(session)).wakes.stop_reason == "retries_exhausted"

        runtime.clock.now += 15 * 60 * 1000
        await runtime.work()
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"
        assert "soon" in texts_of(runtime.requests[-1])


@proves("runtime.directive-fields")
async def test_a_directive_that_asks_for_a_custom_tool_keeps_its_other_parts(tmp_path: Path) -> None:
    directive = {
        "customToolRequest": {"name": "weather", "input": {"city": "Bonn"}},
        "queuedWakes": [{"reason": "look again", "delaySeconds": 60}],
        "learnings": [{"title": "Weather", "detail": "It changes."}],
        "mood": "good",
    }
    async with open_runtime(tmp_path, replies(say("I ask.", directive), say("Sunny."))) as runtime:
        session = await runtime.begin(tools={"custom": [WEATHER]})
        await runtime.tell(session, "Weather?")
        await runtime.work()
        record = await runtime.record(session)
        (call,) = record.wakes.blocking
        assert [wake.reason for wake in record.wakes.queued] == ["look again"]

        runtime.clock.now += 61_000
        assert await runtime.work() == 0
        result = {"type": "user.custom_tool_result", "custom_tool_use_id": call.id, "content": "21 degrees"}
        await runtime.send(session, result)
        await runtime.work()
        assert "21 degrees" in str(results_of(runtime.requests[1]))
        assert "mood: unknown field" in texts_of(runtime.requests[1])
        assert "look again" in texts_of(runtime.requests[2])
        assert [learning.content.title for learning in await list_learnings(runtime.context, PROJECT, "helper", 10)] == [
            "Weather"
        ]


class SlowFiles(FakeSandboxes):
    """Sandboxes in which writing the first file takes longer than a wake may."""

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        if arguments.get("path") == "first.txt":
            await asyncio.sleep(SHORT_SECONDS * 1.2)  # the time of the wake passes
        return await super().call(spec, action, arguments, timeout=timeout)


@proves("runtime.wake-limits")
async def test_calls_that_are_left_at_the_limit_are_carried_out_in_the_next_wake_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes = SlowFiles({"write_text": lambda given: {"path": given["path"], "bytes": 1}})
    calls = [("write", {"path": path, "content": "A"}) for path in ("first.txt", "second.txt")]
    monkeypatch.setattr("fidelio.runtime.wakes.wake.MAX_SECONDS", SHORT_SECONDS)
    async with open_runtime(tmp_path, replies(use(*calls), say("Both.", {"outcome": "sleep"})), sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Write both.")
        await runtime.work()

        assert sandboxes.actions == ["write_text", "write_text"]
        assert len(runtime.requests) == 2
        record = await runtime.record(session)
        assert (record.status, record.wakes.count, record.wakes.queued) == ("idle", 2, ())


@proves("runtime.conversation-accepted")
async def test_an_allowed_call_whose_content_was_redacted_is_refused_and_the_turn_goes_on(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(RUN), say("All right.")), sandboxes=sandboxes) as runtime:
        runtime.ledger.record_type = record_type
        session = await runtime.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        (used,) = await runtime.events(session, e.TOOL_USE)
        (call,) = (await runtime.record(session)).wakes.blocking
        await runtime.ledger.redact(session, [used.seq], actor="person:test", reason="a test")
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
        await runtime.work()

        record = await runtime.record(session)
        assert (record.wakes.open_calls, record.approvals, record.wakes.stop_reason) == ((), {}, "end_turn")
        assert sandboxes.actions == []
