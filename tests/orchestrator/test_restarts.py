"""A host that fails without dying: it says so, and takes its work up again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from fidelio import retry as steadiness
from fidelio.errors import LedgerDamaged
from fidelio.locks import is_hosted
from fidelio.orchestrator.record.record import RUN_STOP_REQUESTED
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.service.service import AgentService
from fidelio.retry import restart_on_failure
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until_finished
from tests.support import proves

SECONDS = 20


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steadiness, "_RESTART_PAUSES", (0.01, 0.02))


def fails_at(harness: OrchestratorHarness, monkeypatch: pytest.MonkeyPatch, method: str, *calls: int) -> asyncio.Event:
    """Makes these calls of a method of the ledger fail in a way that nobody has foreseen; set with the last of them."""
    whole: Callable[..., Awaitable[Any]] = getattr(harness.ledger, method)
    number, failed = count(1), asyncio.Event()

    async def now_and_then(*given: Any, **more: Any) -> Any:
        if method == "events" and RUN_STOP_REQUESTED not in more.get("types", ()):
            # Somebody else than the host reads on.
            return await whole(*given, **more)
        this = next(number)
        if this == max(calls):
            failed.set()
        if this in calls:
            raise ZeroDivisionError("nobody has foreseen this")
        return await whole(*given, **more)

    monkeypatch.setattr(type(harness.ledger), method, staticmethod(now_and_then))
    return failed


@proves("orchestrator.host-restarts")
@pytest.mark.parametrize(
    ("method", "calls"), [("next_due", (2,)), ("jobs", (1, 2, 3)), ("events", (1,))], ids=["claiming", "beginning", "following"]
)
async def test_a_host_that_fails_begins_again_and_carries_out_what_waits(
    harness: OrchestratorHarness,
    service: AgentService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    calls: tuple[int, ...],
) -> None:
    failed = fails_at(harness, monkeypatch, method, *calls)
    async with asyncio.timeout(SECONDS), AgentHost(service.context):
        await start(service, "aria")
        await failed.wait()
        await start(service, "bass")
        for session in await wait_until_finished(service, "aria", "bass"):
            assert session.run.state == "succeeded"

    said = [record.getMessage() for record in caplog.records if "begins again" in record.getMessage()]
    assert len(said) == len(calls)
    assert str(harness.home.path) in said[0]
    assert "ZeroDivisionError: nobody has foreseen this" in said[0]


@proves("orchestrator.host-restarts")
async def test_a_turn_at_work_is_given_its_time_before_the_host_begins_again(
    harness: OrchestratorHarness, service: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    failed = fails_at(harness, monkeypatch, "events", 2)
    async with asyncio.timeout(SECONDS), harness.host(service, grace=SECONDS):
        await start(service, "aria")
        await paused.entered.wait()
        await start(service, "bass")
        await failed.wait()
        paused.go_on.set()
        for session in await wait_until_finished(service, "aria", "bass"):
            assert (session.run.number, session.run.state) == (1, "succeeded")


@proves("orchestrator.host-restarts")
async def test_while_it_pauses_another_process_may_be_the_host(
    harness: OrchestratorHarness, service: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = asyncio.Event()
    monkeypatch.setattr(steadiness, "_RESTART_PAUSES", (600.0,))
    monkeypatch.setattr(steadiness, "_report", lambda *_: paused.set())
    fails_at(harness, monkeypatch, "jobs", 1)
    async with asyncio.timeout(SECONDS), AgentHost(service.context):
        await paused.wait()
        assert not is_hosted(harness.home)
        async with harness.host(harness.service()):
            await start(service, "aria")
            await wait_until_finished(service, "aria")
            assert is_hosted(harness.home)


@proves("orchestrator.host-restarts")
async def test_each_pause_is_longer_until_the_longest(caplog: pytest.LogCaptureFixture) -> None:
    ending = asyncio.Event()
    done: list[int] = []

    async def work() -> None:
        done.append(1)
        if len(done) == 4:
            ending.set()
        raise LedgerDamaged("The file is damaged.", remedy="Restore it.")

    async with asyncio.timeout(SECONDS):
        await restart_on_failure(work, name="This", until=ending)

    said = [record.getMessage() for record in caplog.records]
    pauses = ("0.01", "0.02", "0.02", "0.02")
    assert said == [
        f"This has failed and begins again in {pause} seconds: The file is damaged. Restore it." for pause in pauses
    ]
    assert not any(record.exc_info for record in caplog.records)
