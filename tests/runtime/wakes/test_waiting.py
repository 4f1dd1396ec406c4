"""Sessions that wait for people: what keeps a worker up, and several answers in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.app.runtime import has_queued_wakes
from fidelio.clock import now_ms
from fidelio.errors import LedgerBusy
from fidelio.ledger.sqlite import requests as request_rows
from fidelio.runtime import events as e
from fidelio.runtime.wakes.record import DAY_MS, EXPIRY_JOB
from fidelio.settings import Settings
from tests.runtime.wakes.support import RUN, Runtime, make_sandboxes, open_runtime, replies, results_of, say, use
from tests.support import proves

PERSON = "person:test"


async def wait_for_calls(runtime: Runtime, *, calls: int = 1) -> tuple[str, list[str]]:
    """A session that waits for this many confirmations."""
    runtime.script(replies(use(*[RUN] * calls), say("Built.", {"outcome": "sleep"})))
    session = await runtime.begin()
    await runtime.tell(session, "Build.")
    await runtime.work()
    return session, [call.id for call in (await runtime.record(session)).wakes.blocking]


def confirm(call: str, result: str = "allow") -> dict[str, Any]:
    return {"type": "user.tool_confirmation", "tool_use_id": call, "result": result}


async def is_worker_needed(runtime: Runtime) -> bool:
    return await has_queued_wakes(runtime.ledger, runtime.clock)


@proves("runtime.expiry-needs-no-worker")
async def test_a_request_keeps_no_worker_up_until_it_expires(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, _ = await wait_for_calls(runtime)
        assert not await is_worker_needed(runtime)
        (job,) = await runtime.ledger.jobs(session=session)
        assert (job.kind, job.due) == (EXPIRY_JOB, runtime.clock.now + DAY_MS)
        runtime.clock.now = job.due - 60_000
        assert await is_worker_needed(runtime)
        runtime.clock.now = job.due
        await runtime.work()

        (result,) = results_of(runtime.requests[1])
        assert "within 24 hours" in result.content[0].text  # type: ignore[union-attr]  # it is a text
        assert not await is_worker_needed(runtime)


@proves("runtime.expiry-needs-no-worker")
async def test_an_answer_needs_a_worker_at_once_and_its_old_expiry_none(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, (call,) = await wait_for_calls(runtime)
        await runtime.send(session, confirm(call))
        assert await is_worker_needed(runtime)
        await runtime.work()
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"
        assert not await is_worker_needed(runtime)
        runtime.clock.now += 2 * DAY_MS
        await runtime.work()

        assert (await runtime.record(session)).wakes.count == 2
        assert await runtime.ledger.jobs(session=session) == ()


@proves("runtime.expiry-needs-no-worker")
async def test_a_wake_of_tomorrow_keeps_a_worker_up(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.service.set_schedule(session, "daily", 24 * 60 * 60, by=PERSON)

        assert await is_worker_needed(runtime)


@proves("runtime.expiry-needs-no-worker")
async def test_two_requests_expire_one_after_the_other(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, calls = await wait_for_calls(runtime, calls=2)
        first = runtime.clock.now
        await runtime.send(session, confirm(calls[0]))
        runtime.clock.now += 1_000
        await runtime.work()
        assert not await is_worker_needed(runtime)
        assert [job.kind for job in await runtime.ledger.jobs(session=session)] == [EXPIRY_JOB]
        runtime.clock.now = first + DAY_MS
        await runtime.work()

        assert (await runtime.record(session)).wakes.open_calls == ()
        assert await runtime.ledger.jobs(session=session) == ()


@proves("runtime.expiry-needs-no-worker")
async def test_the_background_worker_ends_while_a_session_waits(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        runtime.clock.now = now_ms()
        session, calls = await wait_for_calls(runtime)
        home = runtime.context.home
    async with Application(Settings(home=home, ledger=str(home.ledger))) as app, asyncio.timeout(60):
        await app.work_until_idle(0.1)

        record = (await (await app.runtime()).load(session)).record
        assert [call.id for call in record.wakes.blocking] == calls


@proves("runtime.send-whole")
@pytest.mark.parametrize("moment", ["in the transaction", "before the commit"])
async def test_several_confirmations_are_stored_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, sandboxes=sandboxes) as runtime:
        session, calls = await wait_for_calls(runtime, calls=3)
        before = await runtime.ledger.session(session)
        with monkeypatch.context() as patch:
            (fail_at_second_answer if moment == "in the transaction" else fail_at_commit)(runtime, patch)
            with pytest.raises(LedgerBusy):
                await runtime.send(session, *map(confirm, calls))

        record = await runtime.record(session)
        assert (await runtime.ledger.session(session)).last_seq == before.last_seq
        assert [record.approvals[call.request].state for call in record.wakes.blocking] == ["open"] * 3
        assert len((await runtime.ledger.requests(session=session)).items) == 3
        assert await runtime.work() == 0
        sent = await runtime.send(session, *map(confirm, calls))
        await runtime.work()

        assert [event.type for event in sent] == [e.USER_CONFIRMATION] * 3
        assert sandboxes.actions.count("run_shell") == 3


@proves("runtime.archive-dismisses")
@pytest.mark.parametrize("closing", ["end_session", "delete_session"])
async def test_a_session_that_was_archived_while_it_waited_can_be_ended_and_deleted(tmp_path: Path, closing: str) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, _ = await wait_for_calls(runtime)
        await runtime.service.archive_session(session, by=PERSON)
        more = {"reason": "test"} if closing == "delete_session" else {}
        await getattr(runtime.service, closing)(session, by=PERSON, **more)

        assert (await runtime.ledger.session(session)).status == ("deleted" if more else "terminated")
        assert (await runtime.ledger.requests(session=session)).items == ()


def fail_at_second_answer(_: Runtime, patch: pytest.MonkeyPatch) -> None:
    close: Callable[..., None] = request_rows._close
    closed = list[str]()

    def close_first(connection: object, session: str, request: object, answer: str, now: int) -> None:
        if closed:
            raise LedgerBusy("The disk is full.", remedy="Try again.")
        closed.append(session)
        close(connection, session, request, answer, now)

    patch.setattr(request_rows, "_close", close_first)


def fail_at_commit(runtime: Runtime, patch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> object:
        raise LedgerBusy("The disk is full.", remedy="Try again.")

    patch.setattr(type(runtime.ledger), "commit", fail)
