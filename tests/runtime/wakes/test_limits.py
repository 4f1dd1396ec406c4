from __future__ import annotations

from pathlib import Path

from fidelio.providers.model import ModelInfo, ModelReply, ModelRequest, Price
from fidelio.runtime import events as e
from fidelio.runtime.wakes.rules import MAX_EXTENSIONS, TURN_LIMIT
from tests.runtime.wakes.support import (
    open_runtime,
    replies,
    say,
    texts_of,
    use,
)
from tests.support import proves


@proves("runtime.directive-continue")
async def test_one_message_answered_with_continue_for_ever_makes_four_model_calls(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, lambda _: say("More.", {"outcome": "continue", "followUpSeconds": 10})) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Go.")
        for _ in range(10):
            await runtime.work()
            runtime.clock.now += 11_000

        assert len(runtime.requests) == 4
        record = await runtime.record(session)
        assert record.status == "idle"
        assert any("continue was refused" in text for text in record.wakes.rejected)
        assert len(await runtime.events(session, e.STATUS_IDLE)) == 1
        await runtime.tell(session, "Go again.")
        await runtime.work()
        assert "continue was refused" in texts_of(runtime.requests[-1])


@proves("runtime.directive-wakes")
async def test_all_due_wakes_are_shown_to_the_model(tmp_path: Path) -> None:
    queued = [{"reason": f"reason {n}", "delaySeconds": 60 * n, "note": f"note {n}"} for n in (1, 2)]
    async with open_runtime(tmp_path, replies(say("Later.", {"outcome": "sleep", "queuedWakes": queued}))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Remind me.")
        await runtime.work()
        assert await runtime.work() == 0

        runtime.clock.now += 121_000
        await runtime.work()
        seen = texts_of(runtime.requests[1])
        assert all(f"reason {n}" in seen and f"note {n}" in seen for n in (1, 2))
        assert (await runtime.record(session)).wakes.queued == ()


@proves("runtime.budget-tokens")
async def test_a_used_up_budget_stops_before_the_next_request(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, lambda _: use(("permissions_describe", {}))) as runtime:
        session = await runtime.begin(limits={"tokens": 3_000})
        await runtime.tell(session, "Loop.")
        await runtime.work()

        record = await runtime.record(session)
        assert record.wakes.stop_reason == "budget_reached"
        used = len(runtime.requests)
        assert 0 < used < TURN_LIMIT
        await runtime.tell(session, "Go on.")
        await runtime.work()
        assert len(runtime.requests) == used


@proves("runtime.wake-limits")
async def test_a_wake_has_a_limit_of_turns_and_goes_on_in_another_ten_times(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, lambda _: use(("permissions_describe", {}))) as runtime:
        session = await runtime.begin(limits={"tokens": 0, "wakes_per_day": 0})
        await runtime.tell(session, "Loop.")
        await runtime.work(most=200)

        assert len(runtime.requests) == TURN_LIMIT * (MAX_EXTENSIONS + 1)
        record = await runtime.record(session)
        assert record.status == "idle"
        (idle,) = await runtime.events(session, e.STATUS_IDLE)
        assert "without coming to an end" in idle.body["summary"]


@proves("runtime.context-compaction")
async def test_a_conversation_that_fills_the_window_is_compacted(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> ModelReply:
        if "about to be shortened" in texts_of(request):
            return say("The person likes tea.")
        return say("word " * 2_000)

    async with open_runtime(tmp_path, reply) as runtime:
        session = await runtime.begin(limits={"tokens": 0})
        for number in range(100):
            await runtime.tell(session, f"Message {number}: " + "text " * 2_000)
            await runtime.work()
            if await runtime.events(session, e.CONTEXT_COMPACTED):
                break

        last = runtime.requests[-1]
        assert "The person likes tea." in texts_of(last)
        assert "Message 0:" not in texts_of(last)
        assert f"Message {number}:" in texts_of(last)
        assert (await runtime.record(session)).wakes.compacted_messages > 0


@proves("runtime.budget-money")
async def test_a_budget_in_money_stops_the_session(tmp_path: Path) -> None:
    info = ModelInfo(price=Price(input=1000.0, output=1000.0))
    async with open_runtime(tmp_path, lambda _: use(("permissions_describe", {})), info=info) as runtime:
        session = await runtime.begin(limits={"usd": 3.0})
        await runtime.tell(session, "Loop.")
        await runtime.work()
        record = await runtime.record(session)
        assert record.wakes.stop_reason == "budget_reached"
        assert record.wakes.usage.cost_micros >= 3_000_000


@proves("runtime.budget-wakes")
async def test_a_session_has_a_number_of_wakes_a_day_and_goes_on_the_next_day(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin(limits={"wakes_per_day": 2})
        for text in ("One.", "Two.", "Three."):
            await runtime.tell(session, text)
            await runtime.work()
        assert len(runtime.requests) == 2
        assert (await runtime.record(session)).wakes.stop_reason == "budget_reached"
        runtime.clock.now += 24 * 60 * 60 * 1000
        await runtime.work()
        assert "Three." in texts_of(runtime.requests[-1])
