from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.errors import UsageProblem
from fidelio.ledger.model import Change, CommitResult
from fidelio.providers.model import ModelInfo
from fidelio.runtime import events as e
from tests.runtime.wakes.support import (
    LEASE_MS,
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


@proves("runtime.approval-pause")
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


@proves("runtime.approval-denied")
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


@proves("runtime.approval-partial")
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


@proves("runtime.approval-expired")
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


@proves("runtime.wake-unknown-end")
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


@proves("runtime.custom-pause")
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


@proves("runtime.budget-price")
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


@proves("runtime.sent-together")
async def test_everything_that_is_sent_in_a_call_is_a_single_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_runtime(tmp_path, replies(use(RUN, RUN)), sandboxes=make_sandboxes()) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        calls = [call.id for call in (await runtime.record(session)).wakes.blocking]
        commit, count = runtime.ledger.commit, 0

        async def counted(*changes: Change) -> tuple[CommitResult, ...]:
            nonlocal count
            count += 1
            return await commit(*changes)

        monkeypatch.setattr(runtime.ledger, "commit", counted)
        answers = [{"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"} for call in calls]
        sent = await runtime.send(session, {"type": "user.message", "content": "Go on."}, *answers)

        assert (len(calls), count) == (2, 1)
        assert [event.type for event in sent] == ["user.message", *["user.tool_confirmation"] * 2]
