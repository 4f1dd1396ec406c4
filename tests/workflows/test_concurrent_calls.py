"""Many calls in flight on one session: they wait for each other, and none of them is lost."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.ledger import unit_of_work
from tests.dialects.conftest import Opens
from tests.support import proves

MANY = 128


@proves("sessions.in-flight")
async def test_a_hundred_calls_in_flight_on_one_session_all_succeed(memory: Opens) -> None:
    async with memory() as play:
        token = await play.at("tune")
        reads = await asyncio.gather(*(play("get_activity", session_token=token) for _ in range(MANY)))
        trace = (await play("get_trace", session_token=token)).json

    assert not [reply.text for reply in reads if reply.is_error]
    assert trace["event_count"] == MANY + 2


@proves("sessions.in-flight")
async def test_calls_in_flight_over_two_servers_of_one_home_all_succeed(memory: Opens) -> None:
    async with memory() as one, memory() as two:
        token = await one.at("tune")
        replies = await asyncio.gather(
            *(play("get_activity", session_token=token) for _ in range(MANY // 2) for play in (one, two))
        )

    assert not [reply.text for reply in replies if reply.is_error]


@proves("sessions.in-flight", "sessions.children")
async def test_many_children_of_one_parent_begin_and_end_at_once(memory: Opens) -> None:
    async with memory() as play:
        parent = await play.at("play")
        children = await asyncio.gather(*(play.start("solo", parent_session_token=parent) for _ in range(32)))
        alone = await asyncio.gather(*(play("next_activity", session_token=one, activity_id="alone") for one in children))
        ended = await asyncio.gather(
            *(play("next_activity", session_token=one.token, activity_id="__terminal__") for one in alone)
        )
        status = (await play("get_workflow_status", session_token=parent)).json

    assert not [reply.text for reply in ended if reply.is_error]
    assert "suspended_by" not in status


@proves("sessions.in-flight")
async def test_a_call_that_always_loses_is_told_to_come_again(memory: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory() as play:
        token = await play.start()
        monkeypatch.setattr(unit_of_work, "MAX_ATTEMPTS", 0)
        refused = await play("get_workflow_status", session_token=token)

    assert refused.is_error
    assert refused.text.endswith("Nothing was changed. Call again.")


@proves("sessions.in-flight")
async def test_a_call_that_is_given_up_does_not_hold_the_others(memory: Opens) -> None:
    async with memory() as play:
        token = await play.at("tune")
        calls = [asyncio.ensure_future(play("get_activity", session_token=token)) for _ in range(8)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        after = await play("get_activity", session_token=token)

    assert not after.is_error
    assert not any(isinstance(one, BaseException) for one in done[1::2])
