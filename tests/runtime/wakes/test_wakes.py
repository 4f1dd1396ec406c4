from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from fidelio.errors import StaleLease, UsageProblem
from fidelio.providers.model import ModelInfo, ModelProblem, ModelReply, ModelRequest, Price
from fidelio.runtime import events as e
from fidelio.runtime.wakes.rules import MAX_EXTENSIONS, MAX_TURNS
from tests.runtime.support import FakeSandboxes
from tests.runtime.wakes.support import LEASE_MS, Script, open_runtime, replies, results_of, say, texts_of, use

WRITE = ("write", {"path": "a.txt", "content": "A"})
RUN = ("shell_run", {"command": "make"})


def make_sandboxes(**more: object) -> FakeSandboxes:
    return FakeSandboxes(
        {
            "write_text": lambda given: {"path": given["path"], "bytes": 1},
            "read_text": lambda given: {"path": given["path"], "content": "A", "truncated": False},
            "run_shell": lambda given: {
                "commandId": given.get("commandId"),
                "status": "completed",
                "exitCode": 0,
                "stdout": "ok",
            },
        }
    )


@pytest.mark.proves("runtime.wake-answer")
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


@pytest.mark.proves("runtime.wake-conversation")
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


@pytest.mark.proves("runtime.wake-pending")
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


@pytest.mark.proves("runtime.approval-pause")
async def test_a_call_that_needs_a_person_pauses_and_is_carried_out_by_the_runtime(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(RUN, WRITE, text="Both."), say("Built.")), sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        record = await runtime.record(session)
        (waiting,) = record.wakes.blocking

        (idle,) = await runtime.events(session, e.STATUS_IDLE)
        assert idle.body["stop_reason"] == {"type": "requires_action", "event_ids": [waiting.id]}
        assert idle.body["blockingEventIds"] == [waiting.id]
        assert "write_text" in sandboxes.actions
        assert "run_shell" not in sandboxes.actions
        await runtime.tell(session, "Are you there?")
        assert await runtime.work() == 1
        assert len(runtime.requests) == 1

        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": waiting.id, "result": "allow"})
        await runtime.work()

        assert sandboxes.actions.count("run_shell") == 1
        assert sandboxes.actions.count("write_text") == 1
        assert [result.is_error for result in results_of(runtime.requests[1])] == [False, False]
        assert "Are you there?" not in texts_of(runtime.requests[1])
        assert "Are you there?" in texts_of(runtime.requests[2])


@pytest.mark.proves("runtime.approval-denied")
async def test_a_denial_is_the_result_of_the_call_with_the_persons_words(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(RUN), say("All right.")), sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        (call,) = (await runtime.record(session)).wakes.blocking
        denial = {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "deny", "deny_message": "Not on Fridays."}
        await runtime.send(session, denial)
        await runtime.work()

        (result,) = results_of(runtime.requests[1])
        assert result.is_error
        assert "Not on Fridays." in result.content[0].text  # type: ignore[union-attr]  # it is a text
        assert sandboxes.actions == []
        with pytest.raises(UsageProblem, match="does not wait"):
            await runtime.send(session, denial)


@pytest.mark.proves("runtime.approval-partial")
async def test_after_a_partial_answer_the_session_waits_for_the_rest(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    other = ("shell_run", {"command": "make test"})
    async with open_runtime(tmp_path, replies(use(RUN, other), say("Both ran.")), sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Build and test.")
        await runtime.work()
        first, second = (await runtime.record(session)).wakes.blocking

        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": second.id, "result": "allow"})
        await runtime.work()
        idles = await runtime.events(session, e.STATUS_IDLE)
        assert idles[-1].body["blockingEventIds"] == [first.id]
        assert len(runtime.requests) == 1

        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": first.id, "result": "deny"})
        await runtime.work()
        assert [result.is_error for result in results_of(runtime.requests[1])] == [True, False] or [
            result.is_error for result in results_of(runtime.requests[1])
        ] == [False, True]
        assert sandboxes.actions == ["run_shell"]


@pytest.mark.proves("runtime.approval-expired")
async def test_a_request_that_nobody_answers_is_a_denial_after_a_day(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(use(RUN), say("I wait no longer.")), sandboxes=make_sandboxes()) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        assert await runtime.work() == 0
        runtime.clock.now += 25 * 60 * 60 * 1000
        await runtime.work()

        (result,) = results_of(runtime.requests[1])
        assert "within 24 hours" in result.content[0].text  # type: ignore[union-attr]  # it is a text


@pytest.mark.proves("runtime.wake-crash")
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


@pytest.mark.proves("runtime.wake-unknown-end")
@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_a_call_whose_end_is_unknown_is_repeated_only_by_a_person(tmp_path: Path, answer: str) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(WRITE), say("Written.")), sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        write = sandboxes.replies["write_text"]

        def die(given: dict[str, object]) -> object:
            sandboxes.replies["write_text"] = write
            raise MemoryError("the process dies in the middle of the effect")

        sandboxes.replies["write_text"] = die  # type: ignore[assignment]  # it never returns
        await runtime.tell(session, "Write.")
        with pytest.raises(MemoryError):
            await runtime.run(await runtime.claim())
        runtime.clock.now += LEASE_MS + 1
        await runtime.work()

        (call,) = (await runtime.record(session)).wakes.blocking
        (use_event,) = await runtime.events(session, e.TOOL_USE)
        (idle,) = await runtime.events(session, e.STATUS_IDLE)
        assert idle.body["stop_reason"]["event_ids"] == [use_event.body["id"]] == [call.id]
        assert sandboxes.actions.count("write_text") == 1

        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": answer})
        await runtime.work()
        assert sandboxes.actions.count("write_text") == (2 if answer == "allow" else 1)
        (result,) = results_of(runtime.requests[-1])
        assert result.is_error is (answer == "deny")
        if answer == "deny":
            assert "not known how it ended" in result.content[0].text  # type: ignore[union-attr]  # it is a text


@pytest.mark.proves("runtime.wake-fencing")
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


@pytest.mark.proves("runtime.wake-interrupt")
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


@pytest.mark.proves("runtime.wake-interrupt-clears")
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


def fail(times: int, problem: ModelProblem) -> Script:
    left = [times]

    def reply(_: ModelRequest) -> ModelReply:
        left[0] -= 1
        if left[0] >= 0:
            raise problem
        return say("At last.")

    return reply


@pytest.mark.proves("runtime.retry-backoff")
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


@pytest.mark.proves("runtime.retry-exhausted")
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


@pytest.mark.proves("runtime.retry-permanent")
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


@pytest.mark.proves("runtime.wake-refusal")
async def test_a_refusal_of_the_model_ends_the_turn_without_an_error(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(ModelReply(content=(), stop_reason="refusal"))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Something bad.")
        await runtime.work()

        assert (await runtime.record(session)).wakes.stop_reason == "refusal"
        assert await runtime.events(session, e.SESSION_ERROR) == ()


@pytest.mark.proves("runtime.directive-continue")
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


@pytest.mark.proves("runtime.directive-wakes")
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


@pytest.mark.proves("runtime.budget-tokens")
async def test_a_used_up_budget_stops_before_the_next_request(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, lambda _: use(("permissions_describe", {}))) as runtime:
        session = await runtime.begin(limits={"tokens": 3_000})
        await runtime.tell(session, "Loop.")
        await runtime.work()

        record = await runtime.record(session)
        assert record.wakes.stop_reason == "budget_reached"
        used = len(runtime.requests)
        assert 0 < used < MAX_TURNS
        await runtime.tell(session, "Go on.")
        await runtime.work()
        assert len(runtime.requests) == used


@pytest.mark.proves("runtime.wake-limits")
async def test_a_wake_has_a_limit_of_turns_and_goes_on_in_another_ten_times(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, lambda _: use(("permissions_describe", {}))) as runtime:
        session = await runtime.begin(limits={"tokens": 0, "wakes_per_day": 0})
        await runtime.tell(session, "Loop.")
        await runtime.work(most=200)

        assert len(runtime.requests) == MAX_TURNS * (MAX_EXTENSIONS + 1)
        record = await runtime.record(session)
        assert record.status == "idle"
        (idle,) = await runtime.events(session, e.STATUS_IDLE)
        assert "without coming to an end" in idle.body["summary"]


@pytest.mark.proves("runtime.custom-pause")
async def test_a_custom_tool_pauses_until_its_result_arrives(tmp_path: Path) -> None:
    tool = {"name": "weather", "description": "The weather.", "input_schema": {"type": "object"}}
    async with open_runtime(tmp_path, replies(use(("weather", {"city": "Bonn"}), text="I look."), say("Sunny."))) as runtime:
        session = await runtime.begin(tools={"custom": [tool]})
        await runtime.tell(session, "Weather?")
        await runtime.work()
        (called,) = await runtime.events(session, e.CUSTOM_TOOL_USE)
        (idle,) = await runtime.events(session, e.STATUS_IDLE)
        (text,) = await runtime.events(session, e.AGENT_MESSAGE)

        assert idle.body["blockingEventIds"] == [called.body["id"]]
        assert text.body["content"][0]["text"] == "I look."
        result = {"type": "user.custom_tool_result", "custom_tool_use_id": called.body["id"], "content": "21 degrees"}
        await runtime.send(session, result)
        await runtime.work()
        assert results_of(runtime.requests[1])[0].content[0].text == "21 degrees"  # type: ignore[union-attr]  # it is a text
        with pytest.raises(UsageProblem, match="waits for a result"):
            await runtime.send(session, result)


@pytest.mark.proves("runtime.tools-meta")
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


@pytest.mark.proves("runtime.context-compaction")
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


@pytest.mark.proves("runtime.budget-price")
async def test_an_unknown_price_switches_the_default_off_and_refuses_a_set_one(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, info=ModelInfo(price=None)) as runtime:
        session = await runtime.begin()
        for text in ("One.", "Two."):
            await runtime.tell(session, text)
            await runtime.work()
        (notice,) = await runtime.events(session, e.SESSION_NOTICE)
        assert "price" in notice.body["message"]
        with pytest.raises(UsageProblem, match="price"):
            await runtime.start(budget={"usd": 1.0})


@pytest.mark.proves("runtime.budget-money")
async def test_a_budget_in_money_stops_the_session(tmp_path: Path) -> None:
    info = ModelInfo(price=Price(input=1000.0, output=1000.0))
    async with open_runtime(tmp_path, lambda _: use(("permissions_describe", {})), info=info) as runtime:
        session = await runtime.begin(limits={"usd": 3.0})
        await runtime.tell(session, "Loop.")
        await runtime.work()
        record = await runtime.record(session)
        assert record.wakes.stop_reason == "budget_reached"
        assert record.wakes.usage.cost_micros >= 3_000_000


@pytest.mark.proves("runtime.budget-wakes")
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
