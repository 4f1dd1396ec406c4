"""Properties of the record of wakes: it follows from the events alone, however they are read."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.encoding import encode_record
from fidelio.ledger.redaction import EventView
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords, fold
from fidelio.runtime.wakes.record import DAY_MS
from tests.runtime.simulation.histories import SHAPES, EventHistory
from tests.support import proves

# Type, time and body.
RawEvents: TypeAlias = list[tuple[str, int, dict[str, Any]]]
IDS = st.sampled_from(["one", "two", "three"])
TIMES = st.integers(0, 3 * DAY_MS)
COUNTS = st.integers(0, 1_000)
KINDS = st.sampled_from(["wake", "tool"])


def body(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


# Events of any order: the fold reads whatever is on record.
BODIES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    e.USER_MESSAGE: body(),
    e.USER_INTERRUPT: body(),
    e.SPAN_STARTED: body(
        span_kind=KINDS,
        wake_id=IDS,
        tool_use_id=IDS,
        messages=st.integers(0, 2),
        consumed=st.lists(IDS, max_size=2),
    ),
    e.SPAN_COMPLETED: body(span_kind=KINDS, wake_id=IDS, summary=st.text(max_size=5), continues=COUNTS),
    e.TOOL_USE: body(id=IDS, name=IDS, wake_id=IDS),
    e.CUSTOM_TOOL_USE: body(id=IDS, name=IDS, wake_id=IDS),
    e.TOOL_RESULT: body(tool_use_id=IDS),
    e.USER_TOOL_RESULT: body(custom_tool_use_id=IDS),
    e.CUSTOM_TOOL_REQUESTED: body(tool_use_id=IDS, request=IDS),
    e.APPROVAL_REQUESTED: body(request=IDS, digest=IDS, tool=IDS, expires=TIMES, tool_use_id=IDS, is_unknown=st.booleans()),
    e.REQUEST_ANSWERED: body(request=IDS, option=st.sampled_from(["allow", "deny"]), assurance=st.just("local")),
    e.APPROVAL_USED: body(request=IDS),
    e.WAKE_QUEUED: body(id=IDS, due=TIMES, reason=IDS, key=IDS, priority=st.sampled_from(["low", "normal", "high"])),
    e.WAKES_CANCELLED: body(ids=st.lists(IDS, max_size=2)),
    e.SCHEDULE_SET: body(name=IDS, every_seconds=st.integers(0, 100), next=TIMES),
    e.STATUS_RUNNING: body(),
    e.STATUS_IDLE: body(
        stop_reason=st.sampled_from(["end_turn", "requires_action", "budget_reached"]).map(lambda reason: {"type": reason}),
        waits=st.booleans(),
    ),
    e.STATUS_RESCHEDULED: body(),
    e.MODEL_REQUEST_ENDED: body(
        model_usage=body(input_tokens=COUNTS, output_tokens=COUNTS), cost_micros=COUNTS, context_tokens=COUNTS
    ),
    e.CONTEXT_COMPACTED: body(through_seq=COUNTS, messages=COUNTS),
    e.ENDED: body(),
}
EVENTS = st.lists(
    st.sampled_from(sorted(BODIES)).flatmap(lambda type_: st.tuples(st.just(type_), TIMES, BODIES[type_])), max_size=40
)


def number(events: RawEvents) -> list[EventView]:
    return [EventView(seq, type_, time, content) for seq, (type_, time, content) in enumerate(events, 1)]


def view(history: EventHistory) -> list[EventView]:
    return [EventView(event.seq, event.type, event.time, event.body) for event in history.events]


@proves("runtime.record-fold")
@given(EVENTS, st.lists(st.integers(0, 40), max_size=4))
def test_a_record_that_is_stored_and_folded_on_is_the_same(raw: RawEvents, stops: list[int]) -> None:
    events = number(raw)
    record, begin = RuntimeRecord(), 0
    for stop in [*sorted(stops), len(events)]:
        record = RuntimeRecords().read(encode_record(fold(record, events[begin:stop])))
        begin = max(begin, stop)

    assert record == fold(RuntimeRecord(), events)


@proves("runtime.record-fold")
@given(EVENTS)
def test_no_order_of_events_breaks_the_bounds_of_the_record(raw: RawEvents) -> None:
    record = RuntimeRecord()
    for event in number(raw):
        record = fold(record, [event])
        wakes = record.wakes

        assert 0 <= wakes.pending <= sum(type_ == e.USER_MESSAGE for type_, _, _ in raw)
        assert wakes.interrupted_seq <= wakes.interrupt_seq
        assert len({schedule.name for schedule in wakes.schedules}) == len(wakes.schedules)
        assert record.status in ("idle", "running", "rescheduling", "terminated")
    if any(type_ == e.ENDED for type_, _, _ in raw):
        assert record.status == "terminated"


@proves("runtime.record-fold")
@given(SHAPES.map(EventHistory))
def test_after_every_wake_nothing_is_pending_open_or_under_way(history: EventHistory) -> None:
    record = fold(RuntimeRecord(), view(history))
    wakes = record.wakes

    assert (wakes.pending, wakes.open_calls, wakes.current, record.status) == (0, (), "", "idle")
    assert wakes.count == sum(event.type == e.SPAN_STARTED for event in history.events)


@proves("runtime.record-fold")
@given(EVENTS)
def test_usage_is_the_sum_of_all_requests(raw: RawEvents) -> None:
    used = [content for type_, _, content in raw if type_ == e.MODEL_REQUEST_ENDED]
    usage = fold(RuntimeRecord(), number(raw)).wakes.usage

    assert usage.tokens == sum(sum(content["model_usage"].values()) for content in used)
    assert (usage.cost_micros, usage.requests) == (sum(content["cost_micros"] for content in used), len(used))
