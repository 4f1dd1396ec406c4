"""Sessions over time: lanes over a range of time with an axis, and the usage of agents as plots with units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.async_api import Page, expect

from fidelio.clock import now_ms
from fidelio.ledger.model import NewEvent, Session
from fidelio.surfaces.web.charts import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Sample,
    StatePeriod,
    TimeAxis,
    choose_range,
    describe_duration,
    describe_lane,
    draw_axis,
    draw_lane,
    draw_usage,
    list_samples,
    list_segments,
)
from fidelio.surfaces.web.session_views import SessionView
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent
from tests.surfaces.web.test_work import load_events, put, read, said


@proves("web.lanes")
async def test_the_width_of_a_lane_is_duration_and_its_class_the_state(site: Site) -> None:
    session = await put(
        site,
        "s_lane00000001",
        NewEvent(type="run.starting", body={}, time=10 * MINUTE),
        NewEvent(type="run.waiting", body={}, time=20 * MINUTE),
        NewEvent(type="run.going-on", body={}, time=50 * MINUTE),
        NewEvent(type="run.succeeded", body={}, time=60 * MINUTE),
    )
    session = msgspec.structs.replace(session, created_at=10 * MINUTE)
    segments = list_segments(session, await load_events(site, session.id), 80 * MINUTE)
    axis = TimeAxis(0, 80 * MINUTE)

    assert [(part.state, part.duration // MINUTE) for part in segments] == [
        ("working", 10),
        ("waiting", 30),
        ("working", 10),
        ("idle", 20),
    ]
    drawn = str(draw_lane(segments, axis))
    assert drawn.count("<rect") == 4
    assert 'class="waiting" x="25.00%" y="4" width="37.50%"' in drawn
    assert describe_lane(segments, axis) == "working 20 min, waiting 30 min, idle 20 min"


@proves("web.lanes")
async def test_lanes_are_read_without_a_pointer_and_over_a_range_that_is_chosen(site: Site) -> None:
    now = now_ms()
    old, end = (NewEvent(type=name, body={}, time=now - 3 * DAY) for name in ("run.starting", "run.failed"))
    await put(site, "s_older0000001", old, end, status="failed")
    waiting = NewEvent(type="run.waiting", body={}, time=now - 2 * MINUTE)
    await put(site, "s_newer0000001", NewEvent(type="run.starting", body={}, time=now - 5 * MINUTE), waiting)
    pages = {name: await read(site, f"/sessions/lanes?range={name}") for name in ("10 minutes", "everything", "nonsense")}

    for page in pages.values():
        lane = page.partition('<a href="/sessions/s_newer0000001"')[2].partition("</li>")[0]
        assert "working 3 min, waiting 2 min" in lane
        assert "range=1%20week" in page
    assert "\N{MINUS SIGN}2 min" in pages["10 minutes"]
    assert "\N{MINUS SIGN}1 d" in pages["everything"]


@proves("web.lanes", "web.bounded")
async def test_sessions_that_ended_before_the_range_are_counted_and_lead_to_a_longer_one(site: Site) -> None:
    session = await put(site, "s_long00000001", said("x"))
    later = msgspec.structs.replace(session, status="failed", updated_at=session.created_at)
    lane = list_segments(later, [], session.created_at + DAY)
    axis = TimeAxis(session.created_at + HOUR, session.created_at + DAY)

    assert axis.cut(lane) == ()
    assert "Nothing happened" not in await read(site, "/sessions/lanes")


@proves("web.lanes")
@given(st.integers(min_value=10 * SECOND, max_value=20 * 365 * DAY))
def test_an_axis_has_a_few_ticks_at_equal_distances_of_round_times(length: int) -> None:
    axis = TimeAxis(10**12 - length, 10**12)
    ticks = axis.ticks

    assert 2 <= len(ticks) <= 7
    assert {earlier - later for earlier, later in pairwise(ticks)} == {axis.step}
    assert str(draw_axis(axis)).count("<text") == len(ticks)
    assert all(0 <= axis.locate(tick) <= 100 for tick in ticks)


@proves("web.lanes")
@given(
    st.lists(st.tuples(st.sampled_from(["working", "idle"]), st.integers(0, 30 * DAY), st.integers(0, 30 * DAY)), min_size=1),
    st.integers(SECOND, 30 * DAY),
)
def test_every_part_of_a_lane_is_inside_the_picture_and_can_be_seen(parts: Sequence[tuple[str, int, int]], length: int) -> None:
    axis = TimeAxis(30 * DAY - length, 30 * DAY)
    lane = [StatePeriod(state, *sorted((start, end))) for state, start, end in parts]
    drawn = str(draw_lane(lane, axis)).split("<rect")[1:]

    places = [[float(text.partition(name)[2].partition("%")[0]) for name in (' x="', 'width="')] for text in drawn]
    assert len(places) == len(axis.cut(lane))
    assert all(left >= 0 and width >= 0.3 and left + width <= 100.02 for left, width in places)


@proves("web.lanes")
@pytest.mark.parametrize(("age", "chosen"), [(8 * MINUTE, "10 minutes"), (3 * HOUR, "1 day"), (30 * DAY, "everything")])
def test_without_a_choice_the_range_is_the_smallest_in_which_most_lanes_begin(age: int, chosen: str) -> None:
    now = 100 * DAY
    lanes = [[StatePeriod("working", now - each, now)] for each in (MINUTE, age, age)]

    assert choose_range(lanes, now) == chosen


@proves("web.lanes")
@pytest.mark.parametrize(
    ("length", "words"), [(800, "0.8 s"), (10 * MINUTE, "10 min"), (7 * DAY, "7 days"), (25 * HOUR, "1 day 1 h")]
)
def test_durations_are_told_as_people_say_them(length: int, words: str) -> None:
    assert describe_duration(length) == words


@proves("web.usage")
async def test_usage_over_time_is_drawn_from_what_agents_report_with_its_unit(site: Site) -> None:
    def used(tokens: int, time: int) -> NewEvent:
        usage = {"turns": 1, "input_tokens": tokens, "output_tokens": 0, "cost_usd": tokens / 1000}
        return NewEvent(type="run.used", body={"usage": usage}, time=time)

    session = await put(site, "s_usage0000001", used(100, MINUTE), used(400, 2 * MINUTE), used(500, 3 * MINUTE))
    samples = list_samples(await load_events(site, session.id))
    tokens, cost = draw_usage(samples)
    page = await read(site, f"/sessions/{session.id}")

    assert [sample.tokens for sample in samples] == [100, 400, 500]
    assert (tokens.latest, tokens.top, cost.latest, cost.top) == ("500 tokens", "500 tokens", "$0.50", "$0.50")
    assert '<polyline points="0.0,80.0 200.0,20.0 400.0,0.0"' in tokens.picture
    assert "Tokens <strong>500 tokens</strong>" in page


@proves("web.usage")
@given(st.lists(st.integers(min_value=0, max_value=10**9), min_size=2, max_size=20))
def test_a_plot_contains_all_its_values(values: Sequence[int]) -> None:
    plots = draw_usage([Sample(number, value, 0.0) for number, value in enumerate(values)])

    assert bool(plots) == any(values)
    for plot in plots:
        assert int(plot.top.removesuffix(" tokens").replace(",", "")) >= max(values)


@proves("web.usage")
async def test_who_grades_an_outcome_does_not_empty_the_context_of_the_agent(site: Site) -> None:
    def answer(context: int) -> NewEvent:
        return NewEvent(type="span.model_request_end", body={"model_usage": {"input_tokens": 10}, "context_tokens": context})

    session = await put(site, "s_grader000001", answer(400), answer(0), answer(500))
    samples = list_samples(await load_events(site, session.id))

    assert [sample.context for sample in samples] == [400, 400, 500]


@proves("web.tree", "web.session")
@pytest.mark.parametrize(
    ("status", "record", "shown"),
    [
        ("idle", {"wakes": {"stop_reason": "requires_action"}}, "waiting"),
        ("idle", {"wakes": {"stop_reason": "end_turn"}}, "idle"),
        ("idle", {"wakes": {"stop_reason": "requires_action"}, "is_archived": True}, "idle"),
        ("terminated", {"wakes": {"stop_reason": "requires_action"}}, "terminated"),
    ],
)
def test_a_runtime_agent_whose_turn_needs_an_answer_waits(status: str, record: Mapping[str, Any], shown: str) -> None:
    empty = dict.fromkeys(Session.__struct_fields__, "")
    raw = msgspec.json.encode(record).decode()
    session = Session(**{**empty, "kind": "runtime", "status": status, "raw": raw})  # type: ignore[arg-type]  # of no table

    assert SessionView(session).status == shown


@proves("web.times")
async def test_how_long_a_run_lasts_stays_current_on_an_open_page(site: Site, agent: WaitingAgent, tab: Page) -> None:
    await tab.clock.install()
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    await tab.clock.fast_forward("02:05:10")

    await expect(tab.get_by_role("heading", name="Running for 2 h 5 min")).to_be_visible()
    await expect(tab.locator(".visits .next")).to_contain_text("2 h 5 min until now")


@proves("web.times")
async def test_durations_on_an_open_page_have_the_words_of_the_server(site: Site, agent: WaitingAgent, tab: Page) -> None:
    lengths = [0, 310, 9_910, 12_100, 180_100, 200_100, 7_200_100, 7_500_100, DAY + 100, 3 * DAY + 4 * HOUR + 100]
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    await tab.wait_for_load_state("load")
    show = """length => {
      const time = document.querySelector("time[data-time=lasting]");
      document.getElementById("state").dataset.now = Date.now();
      time.dateTime = new Date(Date.now() - length).toISOString();
      document.dispatchEvent(new Event("htmx:after:swap"));
      return time.textContent;
    }"""

    assert [await tab.evaluate(show, length) for length in lengths] == [describe_duration(length) for length in lengths]
