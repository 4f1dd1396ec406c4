"""Races: what a person sends while a wake commits is neither lost nor done twice."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fidelio.ledger.model import Event
from fidelio.providers.model import ModelProblem, ModelReply, ModelRequest
from fidelio.runtime import events as e
from tests.runtime.harness.racing import open_race
from tests.runtime.harness.support import make_sandboxes
from tests.runtime.wakes.support import Runtime, replies, say, texts_of, use
from tests.support import proves

INTERRUPT = {"type": "user.interrupt"}
RUN = ("shell_run", {"command": "make"})
WEATHER = {"name": "weather", "description": "The weather.", "input_schema": {"type": "object"}}


async def list_wakes(runtime: Runtime, session: str) -> list[Event]:
    """The events with which wakes began."""
    return [event for event in await runtime.events(session, e.SPAN_STARTED) if event.body["span_kind"] == "wake"]


async def count_inputs(runtime: Runtime, session: str, text: str) -> int:
    """How many wakes got a text as their input."""
    return sum(text in msgspec.json.encode(wake.body["input"]).decode() for wake in await list_wakes(runtime, session))


@proves("runtime.race-send")
@pytest.mark.parametrize("type_", [e.SPAN_STARTED, e.MODEL_REQUEST_ENDED, e.SPAN_COMPLETED])
async def test_a_message_that_is_sent_during_a_commit_of_a_wake_is_processed_once(tmp_path: Path, type_: str) -> None:
    async with open_race(tmp_path) as race:
        runtime = race.runtime
        session = await runtime.begin()
        sent = race.before(type_, lambda: runtime.tell(session, "second"))
        await runtime.tell(session, "first")
        await runtime.work()

        assert sent.has_run
        assert (await runtime.record(session)).wakes.pending == 0
        assert [await count_inputs(runtime, session, text) for text in ("first", "second")] == [1, 1]
        assert "second" in texts_of(runtime.requests[-1])
        assert (await runtime.record(session)).status == "idle"


@proves("runtime.race-interrupt")
async def test_a_custom_result_and_an_interrupt_at_once_leave_one_result(tmp_path: Path) -> None:
    async with open_race(tmp_path, replies(use(("weather", {})), say("Sunny."))) as race:
        runtime = race.runtime
        session = await runtime.begin(tools={"custom": [WEATHER]})
        await runtime.tell(session, "Weather?")
        await runtime.work()
        (call,) = await runtime.events(session, e.CUSTOM_TOOL_USE)
        result = {"type": "user.custom_tool_result", "custom_tool_use_id": call.body["id"], "content": "21 degrees"}
        await runtime.send(session, INTERRUPT)
        race.before(e.STATUS_IDLE, lambda: runtime.send(session, result))
        await runtime.work()

        assert [event.type for event in await runtime.events(session, e.TOOL_RESULT, e.USER_TOOL_RESULT)] == [
            e.USER_TOOL_RESULT
        ]
        assert (await runtime.ledger.requests(session=session)).items == ()
        assert (await runtime.record(session)).status == "idle"


@proves("runtime.race-interrupt")
@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_a_confirmation_and_an_interrupt_at_once_end_the_turn_once(tmp_path: Path, answer: str) -> None:
    sandboxes = make_sandboxes()
    async with open_race(tmp_path, replies(use(RUN), say("Fine.")), sandboxes=sandboxes) as race:
        runtime = race.runtime
        session = await runtime.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        (call,) = (await runtime.record(session)).wakes.blocking
        confirmation = {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": answer}
        await runtime.send(session, INTERRUPT)
        race.before(e.STATUS_IDLE, lambda: runtime.send(session, confirmation))
        await runtime.work()

        record = await runtime.record(session)
        assert (record.status, record.approvals, record.wakes.open_calls) == ("idle", {}, ())
        assert len(await runtime.events(session, e.TOOL_RESULT)) == 1
        assert "run_shell" not in sandboxes.actions


@proves("runtime.race-pause")
async def test_a_custom_result_that_arrives_before_the_pause_lets_the_turn_go_on(tmp_path: Path) -> None:
    async with open_race(tmp_path, replies(use(("weather", {})), say("Sunny."))) as race:
        runtime = race.runtime
        session = await runtime.begin(tools={"custom": [WEATHER]})

        async def send_result() -> None:
            (call,) = await runtime.events(session, e.CUSTOM_TOOL_USE)
            result = {"type": "user.custom_tool_result", "custom_tool_use_id": call.body["id"], "content": "21 degrees"}
            await runtime.send(session, result)

        race.before(e.STATUS_IDLE, send_result)
        await runtime.tell(session, "Weather?")
        await runtime.work()

        assert len(runtime.requests) == 2
        (idle,) = await runtime.events(session, e.STATUS_IDLE)
        assert idle.body["stop_reason"] == {"type": "end_turn"}
        assert (await runtime.ledger.requests(session=session)).items == ()


@proves("runtime.race-end")
@pytest.mark.parametrize("problem", ["interrupt", "setup", "model"])
async def test_a_session_that_is_ended_while_its_wake_ends_early_stays_ended(tmp_path: Path, problem: str) -> None:
    def fail(_: ModelRequest) -> ModelReply:
        raise ModelProblem("Wrong key.", status=401)

    async with open_race(tmp_path, fail) as race:
        runtime = race.runtime
        session = await runtime.begin(model="claude-none" if problem == "setup" else "scripted:test")
        race.before(e.STATUS_IDLE, lambda: runtime.service.end_session(session, by="person:test"))
        await runtime.send(session, INTERRUPT if problem == "interrupt" else {"type": "user.message", "content": "Hello."})
        await runtime.work()

        assert (await runtime.types(session))[-1] == e.ENDED
        assert await runtime.ledger.jobs(session=session) == ()
