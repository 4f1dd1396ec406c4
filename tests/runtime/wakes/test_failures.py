from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.errors import StaleLease
from fidelio.providers.model import ModelProblem, ModelReply, ModelRequest
from fidelio.runtime import events as e
from tests.runtime.wakes.support import (
    LEASE_MS,
    WRITE,
    ModelBehaviour,
    make_sandboxes,
    open_runtime,
    replies,
    results_of,
    say,
    texts_of,
    use,
)
from tests.support import proves


def fail(times: int, problem: ModelProblem) -> ModelBehaviour:
    left = [times]

    def reply(_: ModelRequest) -> ModelReply:
        left[0] -= 1
        if left[0] >= 0:
            raise problem
        return say("At last.")

    return reply


@proves("runtime.wake-crash")
async def test_a_wake_that_died_is_finished_without_repeating_a_finished_call(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, sandboxes=sandboxes) as runtime:
        session = await runtime.begin()

        def die_after_the_call(request: ModelRequest) -> ModelReply:
            if not results_of(request):
                return use(WRITE)
            raise MemoryError("the process dies")

        runtime.script(die_after_the_call)
        await runtime.tell(session, "Write.")
        with pytest.raises(MemoryError):
            await runtime.run(await runtime.claim())
        assert (await runtime.record(session)).status == "running"

        runtime.script(replies(say("Written.")))
        runtime.clock.now += LEASE_MS + 1
        await runtime.work()

        assert sandboxes.actions.count("write_text") == 1
        assert (await runtime.record(session)).status == "idle"
        assert len(await runtime.events(session, e.AGENT_MESSAGE)) == 1


@proves("runtime.wake-fencing")
async def test_a_worker_that_lost_its_lease_cannot_commit(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello.")
        slow = await runtime.claim()
        runtime.clock.now += LEASE_MS + 1
        await runtime.work()

        with pytest.raises(StaleLease):
            await runtime.run(slow)
        assert len(await runtime.events(session, e.AGENT_MESSAGE)) == 1


@proves("runtime.retry-backoff")
async def test_retryable_failures_back_off_and_the_vendors_wish_wins(tmp_path: Path) -> None:
    overloaded = ModelProblem("Overloaded.", kind="model_overloaded_error", retryable=True, status=529)
    async with open_runtime(tmp_path, fail(3, overloaded)) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello.")
        await runtime.work()

        assert runtime.pauses == pytest.approx([0.5, 1.0, 2.0])
        errors = await runtime.events(session, e.SESSION_ERROR)
        assert [error.body["error"]["retry_status"]["type"] for error in errors] == ["retrying"] * 3
        assert errors[0].body["error"]["type"] == "model_overloaded_error"
        runtime.script(fail(1, ModelProblem("Slow down.", retryable=True, retry_after=7)))
        await runtime.tell(session, "Again.")
        await runtime.work()
        assert runtime.pauses[-1] == 7


@proves("runtime.retry-exhausted")
async def test_failures_that_do_not_end_exhaust_the_retries(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, fail(1000, ModelProblem("Down.", retryable=True))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello.")
        await runtime.work()

        assert len(runtime.requests) == 8
        record = await runtime.record(session)
        assert (record.status, record.wakes.stop_reason) == ("idle", "retries_exhausted")
        runtime.script(replies(say("I am back.")))
        await runtime.tell(session, "Still there?")
        await runtime.work()
        assert "Hello." in texts_of(runtime.requests[-1])


@proves("runtime.retry-permanent")
async def test_a_permanent_error_stops_at_once(tmp_path: Path) -> None:
    async with open_runtime(
        tmp_path, fail(1, ModelProblem("Wrong key.", remedy="Set ANTHROPIC_API_KEY.", status=401))
    ) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello.")
        assert await runtime.work() == 1

        assert len(runtime.requests) == 1
        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert error.body["error"] == {
            "type": "model_request_failed_error",
            "message": "Wrong key.",
            "remedy": "Set ANTHROPIC_API_KEY.",
            "retry_status": {"type": "terminal"},
            "status": 401,
        }
        await runtime.tell(session, "Again.")
        await runtime.work()
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"


@proves("runtime.wake-refusal")
async def test_a_refusal_of_the_model_ends_the_turn_without_an_error(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(ModelReply(content=(), stop_reason="refusal"))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Something bad.")
        await runtime.work()

        assert (await runtime.record(session)).wakes.stop_reason == "refusal"
        assert await runtime.events(session, e.SESSION_ERROR) == ()
