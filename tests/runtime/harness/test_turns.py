"""Turns that end in unusual ways: asked to go on twice, cut off by a limit, malformed, or stopped in their first command."""

from __future__ import annotations

from pathlib import Path

from fidelio.runtime import events as e
from tests.runtime.wakes.support import open_runtime, say
from tests.support import proves


@proves("runtime.directive.continue")
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
