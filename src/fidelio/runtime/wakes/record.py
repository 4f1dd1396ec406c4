"""The part of a session's record that wakes need: what is pending, queued, active and used up. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

# The kind of the jobs that wakes are, that of the jobs of sessions that only wait for an answer, due when the request expires,
# and the key under which at most one of each kind waits. The second kind keeps no worker up.
WAKE_JOB = "runtime.wake"
EXPIRY_JOB = "runtime.expiry"
JOB_KINDS = (WAKE_JOB, EXPIRY_JOB)
WAKE_KEY = "wake"
DAY_MS = 24 * 60 * 60 * 1000
SUMMARY = 400
# The limits of which a child has a share, and to how many digits each is counted.
SHARED_LIMITS: Mapping[str, int] = {"tokens": 0, "usd": 6, "wall_seconds": 3}

Priority = Literal["low", "normal", "high"]
# `requested`: the model has asked for it. `started`: its effect may have happened. `waiting`: for a person. `custom`: for the
# caller, who carries it out; `answered`: the result came through the inbox. `worker`: for a worker of the user.
CallState = Literal["requested", "started", "waiting", "custom", "answered", "worker"]
WORKER: CallState = "worker"


class QueuedWake(msgspec.Struct, frozen=True, omit_defaults=True):
    """A later wake that the agent, a schedule or the runtime has queued."""

    id: str
    due: int
    reason: str
    note: str = ""
    key: str = ""
    priority: Priority = "normal"


class Schedule(msgspec.Struct, frozen=True):
    """A wake that a person wants again and again. `next` is when it is due."""

    name: str
    every_seconds: int
    note: str
    next: int


class OpenCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call of the model that has no result yet. `request` is what a person has to answer."""

    id: str
    name: str
    seq: int
    state: CallState = "requested"
    request: str = ""
    # Its end is not known: a process died while it ran.
    is_unknown: bool = False
    # Who carries it out, if it is not this process: `worker`.
    runs: str = ""


class UsageTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session has used so far. `cost_micros` are millionths of a US dollar, of the requests whose price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros: int = 0
    requests: int = 0
    active_ms: int = 0
    web_fetches: int = 0
    web_searches: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


class WakeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a session stands between and during its wakes.

    User events up to `processed_seq` are processed, those after it are pending. `current` is the wake under way; after a crash
    it is still set, and the next claim goes on with it. `stop_reason` is that of the last idle event, and empty while it works.
    """

    current: str = ""
    started_at: int = 0
    started_seq: int = 0
    last: str = ""
    count: int = 0
    processed_seq: int = 0
    pending: int = 0
    # The newest interrupt, and the newest that was carried out.
    interrupt_seq: int = 0
    interrupted_seq: int = 0
    queued: tuple[QueuedWake, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    open_calls: tuple[OpenCall, ...] = ()
    stop_reason: str = ""
    # A turn waits for answers: the next wake goes on with it, before anything else.
    is_paused: bool = False
    summary: str = ""
    # How often in a row the agent asked to go on, and how often a wake was cut off at its limits.
    continues: int = 0
    extensions: int = 0
    # Fields of the last directive that were not accepted, for the model.
    rejected: tuple[str, ...] = ()
    # The day of the last wake, counted from 1970, and how many wakes it had.
    day: int = 0
    day_wakes: int = 0
    usage: UsageTotals = UsageTotals()
    # What children have of the budget, by the name of the limit, and the closed children that have returned what they left.
    reserved: dict[str, float] = {}
    returned: tuple[str, ...] = ()
    # Tokens of the newest request: what the conversation takes of the window.
    context_tokens: int = 0
    # The conversation begins after this event; what was before it is in a summary.
    compacted_seq: int = 0
    compacted_messages: int = 0
    setup: str = ""

    @property
    def blocking(self) -> tuple[OpenCall, ...]:
        """The calls that wait for a person, for the caller or for a worker of the user."""
        return tuple(call for call in self.open_calls if call.state in ("waiting", "custom", WORKER))

    @property
    def next_due(self) -> int | None:
        """When the next queued or scheduled wake is due."""
        times = [wake.due for wake in self.queued] + [schedule.next for schedule in self.schedules]
        return min(times, default=None)

    def find_call(self, tool_use: str) -> OpenCall | None:
        return next((call for call in self.open_calls if call.id == tool_use), None)


WakeFold: TypeAlias = Callable[[WakeRecord, RecordEvent], WakeRecord]


def _receive(wakes: WakeRecord, _: RecordEvent) -> WakeRecord:
    return replace(wakes, pending=wakes.pending + 1)


def _interrupt(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    return replace(wakes, interrupt_seq=event.seq)


def _start_span(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    body = event.body
    if body.get("span_kind") == "tool":
        return _change_call(wakes, body.get("tool_use_id", ""), state="started", is_unknown=False)
    if body.get("span_kind") != "wake":
        return wakes
    day, consumed = event.time // DAY_MS, set(body.get("consumed", ()))
    return replace(
        wakes,
        current=body["wake_id"],
        started_at=event.time,
        started_seq=event.seq,
        count=wakes.count + 1,
        processed_seq=body.get("processed_seq", wakes.processed_seq),
        # Counted from the record, not by whoever began the wake: more may have been sent before this was committed.
        pending=max(0, wakes.pending - body.get("messages", 0)),
        queued=tuple(wake for wake in wakes.queued if wake.id not in consumed),
        schedules=tuple(_advance(schedule, event.time) for schedule in wakes.schedules),
        stop_reason="",
        is_paused=False,
        rejected=(),
        day=day,
        day_wakes=wakes.day_wakes + 1 if wakes.day == day else 1,
        setup=body.get("setup", wakes.setup),
    )


def _advance(schedule: Schedule, now: int) -> Schedule:
    """The next time of a schedule. What was missed while nothing ran is made up for by a single wake."""
    if schedule.next > now:
        return schedule
    step = schedule.every_seconds * 1000
    return replace(schedule, next=schedule.next + ((now - schedule.next) // step + 1) * step)


def _complete_span(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    body = event.body
    if body.get("span_kind") != "wake" or body.get("wake_id") != wakes.current:
        return wakes
    active = replace(wakes.usage, active_ms=wakes.usage.active_ms + max(0, event.time - wakes.started_at))
    return replace(
        wakes,
        current="",
        last=wakes.current,
        summary=str(body.get("summary", ""))[:SUMMARY] or wakes.summary,
        continues=body.get("continues", 0),
        extensions=body.get("extensions", 0),
        rejected=tuple(body.get("rejected", ())),
        usage=active,
    )


def _use_tool(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    # A call of an external client has no wake: nobody goes on with it.
    if not event.body.get("wake_id"):
        return wakes
    state: CallState = "custom" if event.type == e.CUSTOM_TOOL_USE else "requested"
    runs = str(event.body.get("runs", ""))
    if runs and event.body.get("permission") == "allow":
        state = WORKER
    name = event.body.get("tool") or event.body.get("name", "")
    call = OpenCall(event.body["id"], name, event.seq, state, runs=runs)
    return replace(wakes, open_calls=(*wakes.open_calls, call))


def _finish_call(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    name = event.body.get("tool_use_id") or event.body.get("custom_tool_use_id")
    rest = tuple(call for call in wakes.open_calls if call.id != name)
    return replace(wakes, open_calls=rest, usage=_count_request(wakes.usage, event.body.get("name", "")))


def _count_request(usage: UsageTotals, tool: str) -> UsageTotals:
    """Count the requests to the web that tools of ours have made."""
    if tool == "web_fetch":
        return replace(usage, web_fetches=usage.web_fetches + 1)
    return replace(usage, web_searches=usage.web_searches + 1) if tool == "web_search" else usage


def _wait_for_approval(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    body = event.body
    unknown = bool(body.get("is_unknown"))
    return _change_call(wakes, body.get("tool_use_id", ""), state="waiting", request=body["request"], is_unknown=unknown)


def _request_custom_tool(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    return _change_call(wakes, event.body["tool_use_id"], request=event.body["request"])


def _assign_to_worker(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    return _change_call(wakes, event.body["tool_use_id"], state=WORKER, request="")


def _answer(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    call = next((call for call in wakes.open_calls if call.request == event.body.get("request")), None)
    return wakes if call is None or call.state != "custom" else _change_call(wakes, call.id, state="answered")


def _change_call(wakes: WakeRecord, tool_use: str, **changes: Any) -> WakeRecord:
    calls = tuple(replace(call, **changes) if call.id == tool_use else call for call in wakes.open_calls)
    return replace(wakes, open_calls=calls)


def _queue(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    body = event.body
    wake = QueuedWake(
        body["id"], body["due"], body["reason"], body.get("note", ""), body.get("key", ""), body.get("priority", "normal")
    )
    return replace(wakes, queued=(*wakes.queued, wake))


def _cancel(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    cancelled = set(event.body.get("ids", ()))
    return replace(wakes, queued=tuple(wake for wake in wakes.queued if wake.id not in cancelled))


def _set_schedule(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    body = event.body
    others = tuple(schedule for schedule in wakes.schedules if schedule.name != body["name"])
    if not body.get("every_seconds"):
        return replace(wakes, schedules=others)
    schedule = Schedule(body["name"], body["every_seconds"], body.get("note", ""), body["next"])
    return replace(wakes, schedules=(*others, schedule))


def _idle(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    handled, reason = event.body.get("interrupt_seq", wakes.interrupted_seq), event.body["stop_reason"]["type"]
    # A wake that could not begin, for want of a budget or an agent, leaves the turn as it was. An interrupt ends it.
    is_paused = reason == "requires_action" or (wakes.is_paused and handled == wakes.interrupted_seq)
    return replace(wakes, stop_reason=reason, is_paused=is_paused, interrupted_seq=handled)


def _end_request(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    body, usage = event.body, wakes.usage
    used: Mapping[str, int] = body.get("model_usage") or {}
    totals = replace(
        usage,
        input_tokens=usage.input_tokens + used.get("input_tokens", 0),
        output_tokens=usage.output_tokens + used.get("output_tokens", 0),
        cache_read_tokens=usage.cache_read_tokens + used.get("cache_read_input_tokens", 0),
        cache_write_tokens=usage.cache_write_tokens + used.get("cache_creation_input_tokens", 0),
        cost_micros=usage.cost_micros + body.get("cost_micros", 0),
        requests=usage.requests + 1,
    )
    # A failed request, and one of a grader or a summary, says nothing about the conversation.
    context = body.get("context_tokens") or wakes.context_tokens
    return replace(wakes, usage=totals, context_tokens=context)


def _compact(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    body = event.body
    dropped = wakes.compacted_messages + body.get("messages", 0)
    return replace(wakes, compacted_seq=body["through_seq"], compacted_messages=dropped, context_tokens=0)


def _reserve(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    share: Mapping[str, float] = event.body.get("budget") or {}
    return replace(wakes, reserved=_add_limits(wakes.reserved, share))


def release_share(wakes: WakeRecord, budget: Mapping[str, float]) -> WakeRecord:
    """The record after children have returned a part of what they have."""
    return replace(wakes, reserved=_add_limits(wakes.reserved, {name: -value for name, value in budget.items()}))


def _add_limits(reserved: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    sums = {name: round(reserved.get(name, 0) + more.get(name, 0), digits) for name, digits in SHARED_LIMITS.items()}
    return {name: value for name, value in sums.items() if value > 0}


def _return_budget(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    child = event.body["childSessionId"]
    returned = wakes.returned if child in wakes.returned else (*wakes.returned, child)
    return replace(release_share(wakes, event.body.get("budget") or {}), returned=returned)


def _terminate(wakes: WakeRecord, event: RecordEvent) -> WakeRecord:
    cut_off = max(0, event.time - wakes.started_at) if wakes.current else 0
    usage = replace(wakes.usage, active_ms=wakes.usage.active_ms + cut_off)
    return replace(wakes, current="", open_calls=(), queued=(), schedules=(), pending=0, is_paused=False, usage=usage)


WAKE_FOLDS: Mapping[str, WakeFold] = {
    e.USER_MESSAGE: _receive,
    e.USER_OUTCOME: _receive,
    e.SYSTEM_MESSAGE: _receive,
    e.USER_INTERRUPT: _interrupt,
    e.SPAN_STARTED: _start_span,
    e.SPAN_COMPLETED: _complete_span,
    e.TOOL_USE: _use_tool,
    e.CUSTOM_TOOL_USE: _use_tool,
    e.TOOL_RESULT: _finish_call,
    e.USER_TOOL_RESULT: _finish_call,
    e.WORKER_RESULT: _finish_call,
    e.CALL_HANDED_OVER: _assign_to_worker,
    e.CUSTOM_TOOL_REQUESTED: _request_custom_tool,
    e.WAKE_QUEUED: _queue,
    e.WAKES_CANCELLED: _cancel,
    e.SCHEDULE_SET: _set_schedule,
    e.STATUS_IDLE: _idle,
    e.MODEL_REQUEST_ENDED: _end_request,
    e.CONTEXT_COMPACTED: _compact,
    e.CHILD_CREATED: _reserve,
    e.CHILD_BUDGET_RETURNED: _return_budget,
}
# Events that other parts of the record are folded from too.
SHARED_WAKE_FOLDS: Mapping[str, WakeFold] = {
    e.APPROVAL_REQUESTED: _wait_for_approval,
    e.REQUEST_ANSWERED: _answer,
    e.ENDED: _terminate,
}
