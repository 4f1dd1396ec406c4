"""What one reply of get_trace holds, how to get the rest, and what it says of other sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.workflows import trace as tracing
from tests.dialects.conftest import Opens, Player
from tests.support import proves


async def played(play: Player, calls: int) -> tuple[str, list[str]]:
    """A session with two stretches, the first of which has that many calls, and their trace tokens."""
    first = await play("next_activity", session_token=await play.start(), activity_id="tune")
    for _ in range(calls):
        # It is refused, so each is an event: equal reads are one event together.
        await play("resume_checkpoint", session_token=first.token)
    second = await play("next_activity", session_token=first.token, activity_id="bow")
    third = await play("next_activity", session_token=second.token, activity_id="workflow-end")
    return third.token, [reply.meta["trace_token"] for reply in (first, second, third)]


async def all_pages(play: Player, token: str, tokens: list[str]) -> list[list[str]]:
    """The ids of the events, page by page, as the replies say how to go on."""
    pages, after = [], 0
    for _ in range(50):
        trace = (await play("get_trace", session_token=token, trace_tokens=tokens, after=after)).json
        pages.append([event["spanId"] for event in trace["events"]])
        if "next" not in trace:
            return pages
        assert f"after: {trace['next']['after']}" in trace["more"]
        after = trace["next"]["after"]
        tokens = tokens[trace["next"].get("from_token", 0) :]
    raise AssertionError("the trace has no end")


@proves("sessions.trace-bounded")
async def test_a_token_that_is_repeated_is_resolved_once(memory: Opens) -> None:
    async with memory() as play:
        token, tokens = await played(play, calls=3)
        once = (await play("get_trace", session_token=token, trace_tokens=tokens)).json
        often = (await play("get_trace", session_token=token, trace_tokens=tokens * 300)).json
        broken = (await play("get_trace", session_token=token, trace_tokens=["broken"] * 300)).json

    assert often["events"] == once["events"]
    assert len(broken["token_errors"]) == 1


@proves("sessions.trace-bounded")
@pytest.mark.parametrize(
    "bounds", [{"MAX_CALLS": 3}, {"MAX_SCANNED": 3}, {"MAX_TOKENS": 1}, {"PAGE_SIZE": 2}, {"MAX_CALLS": 1}]
)
@pytest.mark.parametrize("by_tokens", [True, False])
async def test_what_does_not_fit_into_a_reply_comes_with_the_next(
    memory: Opens, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int], by_tokens: bool
) -> None:
    async with memory() as play:
        token, tokens = await played(play, calls=5)
        whole = (await play("get_trace", session_token=token)).json["events"]
        for name, bound in bounds.items():
            monkeypatch.setattr(tracing, name, bound)
        pages = await all_pages(play, token, tokens if by_tokens else [])

    assert [span for page in pages for span in page] == [event["spanId"] for event in whole]
    assert max(map(len, pages)) <= bounds.get("MAX_CALLS", len(whole))


@proves("sessions.trace-bounded")
async def test_others_are_served_while_a_long_trace_is_read(memory: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "PAGE_SIZE", 2)
    async with memory() as play:
        token, tokens = await played(play, calls=40)
        order = list[str]()

        async def noted(name: str, **arguments: Any) -> None:
            await play(name, **arguments)
            order.append(name)

        await asyncio.gather(noted("get_trace", session_token=token, trace_tokens=tokens), noted("health_check"))

    assert order == ["health_check", "get_trace"]


@proves("sessions.lineage")
async def test_a_whole_line_of_children_is_not_foreign_to_its_ends(memory: Opens) -> None:
    async with memory() as play:
        line = [await play.start()]
        for _ in range(3):
            line.append(await play.start("score", parent_session_token=line[-1]))
        ends = [line[0], line[-1]]
        moved = [await play("next_activity", session_token=token, activity_id="tune") for token in ends]
        downwards, upwards = [
            (await play("get_trace", session_token=reader, trace_tokens=[reply.meta["trace_token"]])).json
            for reader, reply in zip(ends, reversed(moved), strict=True)
        ]

    assert downwards["event_count"] == 2
    assert upwards["event_count"] == 2
    assert "foreign" not in str(downwards["events"] + upwards["events"])


@proves("sessions.lineage")
async def test_a_sibling_is_foreign(memory: Opens) -> None:
    async with memory() as play:
        parent = await play.start()
        one, other = [await play.start("score", parent_session_token=parent) for _ in range(2)]
        moved = await play("next_activity", session_token=other, activity_id="tune")
        trace = (await play("get_trace", session_token=one, trace_tokens=[moved.meta["trace_token"]])).json

    assert all(event["foreign"] for event in trace["events"])


@proves("sessions.lineage", "sessions.trace")
async def test_foreign_events_name_no_session_that_could_be_opened(memory: Opens) -> None:
    async with memory() as play:
        parent = await play.start()
        child = await play.start("score", parent_session_token=parent)
        names = [(await play("get_trace", session_token=token)).json["traceId"] for token in (parent, child)]
        moved = await play("next_activity", session_token=child, activity_id="tune")
        stranger = await play("get_trace", session_token=await play.start(), trace_tokens=[moved.meta["trace_token"]])
        events = stranger.json["events"]
        opened = await play("get_workflow_status", session_token=events[0]["traceId"])

    assert not any(name in stranger.text for name in names)
    assert len({event["traceId"] for event in events}) == 1
    assert opened.is_error
