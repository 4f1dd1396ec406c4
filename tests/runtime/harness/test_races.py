"""Races: what a person sends while a wake commits is neither lost nor done twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from fidelio.errors import RequestClosed, SessionNotFound, StaleLease, UsageProblem
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Event, Retry
from fidelio.providers.model import ModelProblem, ModelReply, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.wakes.record import DAY_MS, WAKE_JOB
from fidelio.runtime.wakes.wake import WakeRunner
from tests.runtime.harness.racing import open_race
from tests.runtime.harness.support import make_sandboxes
from tests.runtime.wakes.support import LEASE_MS, Runtime, replies, say, texts_of, use
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


@proves("runtime.race-claim")
async def test_of_two_workers_only_one_gets_a_session(tmp_path: Path) -> None:
    async with open_race(tmp_path) as race:
        runtime = race.runtime
        session = await runtime.begin()
        await runtime.tell(session, "Hello.")
        leases = await asyncio.gather(*(runtime.ledger.claim(name, (WAKE_JOB,), lease_ms=LEASE_MS) for name in ("a", "b", "c")))
        (lease,) = [lease for lease in leases if lease is not None]
        await runtime.tell(session, "More.")
        assert await runtime.ledger.claim("d", (WAKE_JOB,), lease_ms=LEASE_MS) is None

        await runtime.run(Assignment(runtime.ledger, lease))
        await runtime.work()
        assert [await count_inputs(runtime, session, text) for text in ("Hello.", "More.")] == [1, 1]


@proves("runtime.race-claim")
@pytest.mark.parametrize("type_", [e.SPAN_STARTED, e.MODEL_REQUEST_ENDED, e.SPAN_COMPLETED])
async def test_a_worker_that_is_overtaken_in_any_commit_writes_nothing_more(tmp_path: Path, type_: str) -> None:
    sandboxes = make_sandboxes()
    script = replies(use(("write", {"path": "a.txt", "content": "A"})), say("Done."))
    async with open_race(tmp_path, script, sandboxes=sandboxes) as race:
        runtime = race.runtime
        session = await runtime.begin()
        other = WakeRunner(msgspec.structs.replace(runtime.context, ledger=race.plain))

        async def overtake() -> None:
            runtime.clock.now += LEASE_MS + 1
            lease = await race.plain.claim("other", (WAKE_JOB,), lease_ms=LEASE_MS)
            assert lease is not None
            await other.run(Assignment(race.plain, lease))

        race.before(type_, overtake)
        await runtime.tell(session, "Write.")
        with pytest.raises(StaleLease):
            await runtime.run(await runtime.claim())
        await runtime.work()

        assert await count_inputs(runtime, session, "Write.") == 1
        assert len(await runtime.events(session, e.STATUS_IDLE)) == 1
        # A turn that was not committed has no effect; one that was committed has it once.
        assert sandboxes.actions == ["write_text"] * len(await runtime.events(session, e.TOOL_USE))


@proves("runtime.race-confirm")
async def test_of_two_confirmations_at_once_one_counts(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    async with open_race(tmp_path, replies(use(RUN), say("Fine.")), sandboxes=sandboxes) as race:
        runtime = race.runtime
        session = await runtime.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        (call,) = (await runtime.record(session)).wakes.blocking
        answers = [{"type": "user.tool_confirmation", "tool_use_id": call.id, "result": answer} for answer in ("allow", "deny")]
        done = await asyncio.gather(*(runtime.send(session, answer) for answer in answers), return_exceptions=True)
        await runtime.work()

        assert sorted(isinstance(result, RequestClosed | UsageProblem) for result in done) == [False, True]
        is_allowed = not isinstance(done[0], BaseException)
        assert sandboxes.actions.count("run_shell") == is_allowed
        assert len(await runtime.events(session, e.TOOL_RESULT)) == len(await runtime.events(session, e.USER_CONFIRMATION)) == 1


@proves("runtime.race-confirm")
@pytest.mark.parametrize("is_paused", [True, False])
async def test_a_custom_call_takes_one_result_also_if_two_are_sent_together(tmp_path: Path, *, is_paused: bool) -> None:
    async with open_race(tmp_path, replies(use(("weather", {})), say("Sunny."))) as race:
        runtime = race.runtime
        session = await runtime.begin(tools={"custom": [WEATHER]})

        async def send_twice() -> None:
            (call,) = await runtime.events(session, e.CUSTOM_TOOL_USE)
            result = {"type": "user.custom_tool_result", "custom_tool_use_id": call.body["id"], "content": "21 degrees"}
            with pytest.raises(UsageProblem):
                await runtime.send(session, result, result)
            await runtime.send(session, result)

        if not is_paused:
            race.before(e.STATUS_IDLE, send_twice)
        await runtime.tell(session, "Weather?")
        await runtime.work()
        if is_paused:
            await send_twice()
            await runtime.work()

        assert len(await runtime.events(session, e.USER_TOOL_RESULT)) == 1
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"


CHANGES = [e.SPAN_STARTED, e.MODEL_REQUEST_ENDED, e.TOOL_RESULT, e.SPAN_COMPLETED]


@proves("runtime.race-end")
@pytest.mark.parametrize("type_", CHANGES)
async def test_a_session_that_is_ended_in_any_commit_of_a_wake_stays_ended(tmp_path: Path, type_: str) -> None:
    sandboxes = make_sandboxes()
    script = replies(use(("write", {"path": "a.txt", "content": "A"})), say("Done."))
    async with open_race(tmp_path, script, sandboxes=sandboxes) as race:
        runtime = race.runtime
        session = await runtime.begin()
        race.before(type_, lambda: runtime.service.end_session(session, by="person:test"))
        await runtime.tell(session, "Write.")
        await runtime.work()

        record = await runtime.record(session)
        assert (record.status, record.wakes.current, record.wakes.open_calls) == ("terminated", "", ())
        assert await runtime.ledger.jobs(session=session) == ()
        # Only the result of what had begun may follow the end.
        types = await runtime.types(session)
        assert set(types[types.index(e.ENDED) + 1 :]) <= {e.SANDBOX_STARTED, e.TOOL_RESULT, e.SPAN_COMPLETED}
        with pytest.raises(SessionNotFound):
            await runtime.tell(session, "Still there?")


@proves("runtime.race-end")
@pytest.mark.parametrize("type_", CHANGES)
async def test_a_session_that_is_deleted_in_any_commit_of_a_wake_stays_deleted(tmp_path: Path, type_: str) -> None:
    script = replies(use(("write", {"path": "a.txt", "content": "A"})), say("Done."))
    async with open_race(tmp_path, script, sandboxes=make_sandboxes()) as race:
        runtime = race.runtime
        session = await runtime.begin()
        other = await runtime.start()
        race.before(type_, lambda: runtime.service.delete_session(session, by="person:test", reason="a test"))
        await runtime.tell(session, "Write.")
        with suppress(StaleLease):
            await runtime.work()
        await runtime.tell(other, "Hello.")
        await runtime.work()

        with pytest.raises(SessionNotFound):
            await runtime.service.load(session)
        assert (await runtime.record(other)).wakes.stop_reason == "end_turn"
        assert await runtime.ledger.jobs(session=session) == ()


@proves("runtime.race-end")
@pytest.mark.parametrize("way", ["end", "delete", "archive"])
async def test_a_paused_session_that_is_closed_leaves_no_request(tmp_path: Path, way: str) -> None:
    async with open_race(tmp_path, replies(use(RUN, ("weather", {})), say("Fine."))) as race:
        runtime = race.runtime
        session = await runtime.begin(tools={"custom": [WEATHER]})
        await runtime.tell(session, "Build.")
        await runtime.work()
        waiting = (await runtime.ledger.requests(session=session)).items
        assert len(waiting) == 2
        if way == "end":
            await runtime.service.end_session(session, by="person:test")
        elif way == "delete":
            await runtime.service.delete_session(session, by="person:test", reason="a test")
        else:
            await runtime.service.archive_session(session, by="person:test")

        assert (await runtime.ledger.requests(session=session)).items == ()
        runtime.clock.now += 2 * DAY_MS
        await runtime.work()
        assert len(runtime.requests) == 1
        with pytest.raises(SessionNotFound):
            await runtime.tell(session, "Still there?")


@proves("runtime.race-end")
async def test_a_session_at_work_is_not_archived(tmp_path: Path) -> None:
    async with open_race(tmp_path) as race:
        runtime = race.runtime
        session = await runtime.begin()

        async def archive(_: ModelRequest) -> ModelReply:
            with pytest.raises(UsageProblem, match="at work"):
                await runtime.service.archive_session(session, by="person:test")
            return say("Done.")

        runtime.script(archive)
        await runtime.tell(session, "Hello.")
        await runtime.work()
        await runtime.service.archive_session(session, by="person:test")
        assert (await runtime.record(session)).is_archived


@proves("runtime.race-end")
async def test_a_session_that_is_ended_after_its_wake_failed_repeatedly_stays_ended(tmp_path: Path) -> None:
    async with open_race(tmp_path) as race:
        runtime = race.runtime
        session = await runtime.begin()
        await runtime.tell(session, "Hello.")
        for _ in range(4):
            lease = (await runtime.claim()).lease
            await runtime.ledger.settle(lease, Retry(due=0, error="ValueError: a defect"))
        await runtime.service.end_session(session, by="person:test")
        await runtime.work()

        assert (await runtime.types(session))[-1] == e.ENDED
        assert await runtime.ledger.jobs(session=session) == ()


@proves("runtime.race-interrupt")
async def test_a_result_that_arrives_while_a_broken_wake_is_ended_is_the_only_one(tmp_path: Path) -> None:
    async with open_race(tmp_path, replies(use(("weather", {})), say("Sunny."))) as race:
        runtime = race.runtime
        session = await runtime.begin(tools={"custom": [WEATHER]})
        await runtime.tell(session, "Weather?")
        await runtime.work()
        (call,) = await runtime.events(session, e.CUSTOM_TOOL_USE)
        result = {"type": "user.custom_tool_result", "custom_tool_use_id": call.body["id"], "content": "21 degrees"}
        await runtime.tell(session, "Hurry.")
        for _ in range(4):
            lease = (await runtime.claim()).lease
            await runtime.ledger.settle(lease, Retry(due=0, error="ValueError: a defect"))
        race.before(e.STATUS_IDLE, lambda: runtime.send(session, result))
        await runtime.work()

        assert len(await runtime.events(session, e.TOOL_RESULT, e.USER_TOOL_RESULT)) == 1
        assert (await runtime.ledger.requests(session=session)).items == ()
