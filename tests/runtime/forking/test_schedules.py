from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.errors import UsageProblem
from fidelio.runtime.schedules import MAX_SCHEDULES
from tests.runtime.wakes.support import open_runtime, texts_of
from tests.support import proves

BY = "person:test"


@proves("runtime.schedule-wakes")
async def test_a_schedule_wakes_the_session_again_and_again(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.service.set_schedule(session, "hourly", 3_600, "Look for news.", by=BY)
        assert await runtime.work() == 0
        for count in (1, 2, 3):
            runtime.clock.now += 3_600_000
            assert await runtime.work() == 1
            assert len(runtime.requests) == count

        assert "schedule hourly" in texts_of(runtime.requests[-1])
        assert "Look for news." in texts_of(runtime.requests[-1])
        (listed,) = (await runtime.service.describe(session))["schedules"]
        assert (listed["name"], listed["everySeconds"], listed["note"]) == ("hourly", 3_600, "Look for news.")


@proves("runtime.schedule-wakes")
async def test_what_was_missed_is_made_up_for_once(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.service.set_schedule(session, "often", 60, "", by=BY)
        runtime.clock.now += 10 * 60_000 + 30_000
        await runtime.work()

        assert len(runtime.requests) == 1
        (schedule,) = (await runtime.record(session)).wakes.schedules
        assert schedule.next == 1_700_000_000_000 + 11 * 60_000


@proves("runtime.schedule-cancel")
async def test_a_cancelled_schedule_wakes_nobody(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.service.set_schedule(session, "hourly", 3_600, "", by=BY)
        await runtime.service.set_schedule(session, "hourly", 7_200, "Rarely.", by=BY)
        assert [schedule.every_seconds for schedule in (await runtime.record(session)).wakes.schedules] == [7_200]
        await runtime.service.cancel_schedule(session, "hourly", by=BY)
        runtime.clock.now += 100_000_000
        await runtime.work()

        assert runtime.requests == []
        assert (await runtime.service.describe(session))["schedules"] == []
        with pytest.raises(UsageProblem, match="no schedule 'hourly'"):
            await runtime.service.cancel_schedule(session, "hourly", by=BY)


@proves("runtime.schedule-refused")
async def test_a_schedule_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        for name, seconds, note in (("a", 59, ""), ("a b", 60, ""), ("a", 60, "x" * 1_001), ("a", 10**9, "")):
            with pytest.raises(UsageProblem):
                await runtime.service.set_schedule(session, name, seconds, note, by=BY)
        for number in range(MAX_SCHEDULES):
            await runtime.service.set_schedule(session, f"s{number}", 60, "", by=BY)
        with pytest.raises(UsageProblem, match="20 schedules"):
            await runtime.service.set_schedule(session, "more", 60, "", by=BY)
        await runtime.service.archive_session(session, by=BY)
        with pytest.raises(UsageProblem, match="is archived"):
            await runtime.service.set_schedule(session, "s0", 60, "", by=BY)
