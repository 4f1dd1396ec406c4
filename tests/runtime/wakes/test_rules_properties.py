"""Properties of the rules of wakes: never two follow-ups, never a wake too early or too late, never more than a budget."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.providers.model import ModelInfo, ModelProblem, ModelReply, ModelRequest, OnText, ToolUseBlock
from fidelio.runtime.agents.definition import DEFAULT_USD, Budget
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS, RUNTIME_TOOL_NAMES
from fidelio.runtime.wakes.directive import Directive, WakeRequest
from fidelio.runtime.wakes.model_calls import (
    LONGEST_SECONDS,
    MAX_ATTEMPTS,
    MAX_RETRY_SECONDS,
    Timing,
    compute_pause,
    request_reply,
)
from fidelio.runtime.wakes.preparation import Offer
from fidelio.runtime.wakes.record import DAY_MS, CallState, OpenCall, Priority, QueuedWake, Schedule, UsageTotals, WakeRecord
from fidelio.runtime.wakes.rounds import MAX_PARALLEL, split_parallel
from fidelio.runtime.wakes.rules import (
    FOLLOW_UP,
    MAX_CONTINUES,
    MAX_QUEUED,
    Fresh,
    Interrupted,
    NothingDue,
    Resumed,
    check_budget,
    find_due,
    plan_continuation,
    plan_wake,
)
from tests.support import proves

NOW = 1_700_000_000_000
TIMES = st.integers(NOW - 100_000, NOW + 100_000)
PRIORITIES: st.SearchStrategy[Priority] = st.sampled_from(get_args(Priority))
KEYS = st.sampled_from(["", "", "a", "b", "follow-up:s_1"])
REQUESTS = st.builds(WakeRequest, st.just("look"), st.integers(1, 86_400), st.just(""), KEYS, PRIORITIES)
DIRECTIVES = st.builds(
    Directive,
    outcome=st.sampled_from(["continue", "sleep"]),
    follow_up_seconds=st.integers(1, 86_400),
    wakes=st.lists(REQUESTS, max_size=3).map(tuple),
)
STATES: st.SearchStrategy[CallState] = st.sampled_from(get_args(CallState))


@st.composite
def records(draw: st.DrawFn) -> RuntimeRecord:
    """A record between two wakes, or in the middle of one."""
    calls = [
        OpenCall(f"toolu_{number}", "write", number, state, request=f"r_{number}" if state in ("waiting", "custom") else "")
        for number, state in enumerate(draw(st.lists(STATES, max_size=3)))
    ]
    approvals = {
        call.request: ApprovalRecord(
            call.request, "digest", "write", draw(TIMES), draw(st.sampled_from(["open", "open", "allowed", "denied"]))
        )
        for call in calls
        if call.state == "waiting"
    }
    queued = [
        QueuedWake(f"wake_{number}", due, "look", "", "", priority)
        for number, (due, priority) in enumerate(draw(st.lists(st.tuples(TIMES, PRIORITIES), max_size=3)))
    ]
    schedules = [Schedule(f"every {number}", 60, "", due) for number, due in enumerate(draw(st.lists(TIMES, max_size=2)))]
    wakes = WakeRecord(
        current=draw(st.sampled_from(["", "", "wake_1"])),
        pending=draw(st.integers(0, 2)),
        interrupt_seq=draw(st.sampled_from([0, 0, 5])),
        open_calls=tuple(calls),
        is_paused=bool(calls) or draw(st.booleans()),
        queued=tuple(queued),
        schedules=tuple(schedules),
    )
    status = draw(st.sampled_from(["idle", "idle", "idle", "terminated"]))
    return RuntimeRecord(
        status=status, is_archived=draw(st.sampled_from([False, False, True])), approvals=approvals, wakes=wakes
    )


@proves("runtime.wake-plan")
@given(records())
def test_a_session_that_has_nothing_to_do_is_woken_exactly_when_it_has(record: RuntimeRecord) -> None:
    plan = plan_wake(record, now=NOW)

    if isinstance(plan, NothingDue) and plan.next is not None:
        # Neither at once, which would be a loop, nor at a moment when there is still nothing to do.
        assert plan.next > NOW
        assert isinstance(plan_wake(record, now=plan.next - 1), NothingDue)
        assert not isinstance(plan_wake(record, now=plan.next), NothingDue)


@proves("runtime.wake-plan")
@given(records())
def test_nothing_that_is_due_is_forgotten(record: RuntimeRecord) -> None:
    plan, wakes = plan_wake(record, now=NOW), record.wakes
    is_closed = record.status == "terminated" or record.is_archived
    due = {wake.id for wake in wakes.queued if find_due(wake) <= NOW}
    schedules = {schedule.name for schedule in wakes.schedules if schedule.next <= NOW}

    if is_closed:
        assert plan == NothingDue()
    elif wakes.interrupt_seq:
        assert isinstance(plan, Interrupted)
    elif wakes.current:
        assert plan == Resumed(wakes.current)
    elif isinstance(plan, Fresh):
        assert ({wake.id for wake in plan.wakes}, {schedule.name for schedule in plan.schedules}) == (due, schedules)
        assert not wakes.open_calls
    elif isinstance(plan, NothingDue):
        assert wakes.open_calls or not (wakes.pending or due or schedules)


def queue(wakes: WakeRecord, directive: Directive) -> tuple[WakeRecord, int]:
    """The record after a wake with a directive, and how many wakes it has queued."""
    after = plan_continuation(RuntimeRecord(wakes=wakes), "s_1", directive, now=NOW)
    return replace(wakes, queued=(*wakes.queued, *after.queued), continues=after.continues), len(after.queued)


@proves("runtime.directive-continue")
@given(st.lists(DIRECTIVES, max_size=30))
def test_there_is_never_a_second_follow_up_and_the_queue_is_bounded(directives: list[Directive]) -> None:
    wakes = WakeRecord()
    for directive in directives:
        wakes, _ = queue(wakes, directive)

        assert sum(wake.reason == FOLLOW_UP for wake in wakes.queued) <= 1
        keys = [wake.key for wake in wakes.queued if wake.key]
        assert len(keys) == len(set(keys))
        assert len(wakes.queued) <= MAX_QUEUED + 1
        assert all(NOW < wake.due <= NOW + DAY_MS for wake in wakes.queued)


@proves("runtime.directive-continue")
@given(st.lists(DIRECTIVES, max_size=30))
def test_the_fourth_continue_in_a_row_sleeps_and_is_told(directives: list[Directive]) -> None:
    wakes, row = WakeRecord(), 0
    for directive in directives:
        after = plan_continuation(RuntimeRecord(wakes=wakes), "s_1", directive, now=NOW)
        row = row + 1 if directive.outcome == "continue" and row < MAX_CONTINUES else 0
        is_refused = directive.outcome == "continue" and row == 0

        assert after.continues == row
        assert is_refused is any("continue was refused" in text for text in after.rejected)
        # Each wake that was asked for is queued, or the model is told why not.
        assert len(after.queued) - bool(row) <= len(directive.wakes)
        left_out = sum(text.startswith("queuedWakes") for text in after.rejected)
        follow_ups = sum(wake.reason == FOLLOW_UP for wake in after.queued)
        assert len(after.queued) - follow_ups + left_out == len(directive.wakes)
        wakes = replace(wakes, queued=(*wakes.queued, *after.queued), continues=after.continues)


@st.composite
def usages(draw: st.DrawFn) -> UsageTotals:
    counts = st.integers(0, 2_000_000)
    return UsageTotals(
        draw(counts), draw(counts), draw(counts), draw(counts), draw(st.integers(0, 20_000_000)), 1, draw(counts)
    )


BUDGETS = st.builds(
    Budget,
    tokens=st.integers(0, 4_000_000),
    usd=st.none() | st.floats(0, 20),
    wakes_per_day=st.integers(0, 5),
    wall_seconds=st.integers(0, 2_000),
)


@proves("runtime.budget-rules")
@given(usages(), BUDGETS, st.booleans(), st.booleans(), st.integers(0, 5))
def test_a_session_may_go_on_exactly_while_every_budget_has_something_left(
    usage: UsageTotals, budget: Budget, is_priced: bool, begins: bool, day_wakes: int
) -> None:
    record = RuntimeRecord(wakes=WakeRecord(usage=usage, day=NOW // DAY_MS, day_wakes=day_wakes))
    state = check_budget(record, budget, now=NOW, is_priced=is_priced, begins=begins)
    usd = DEFAULT_USD if budget.usd is None else budget.usd
    used_up = [
        bool(budget.tokens) and usage.tokens >= budget.tokens,
        is_priced and bool(usd) and usage.cost_micros >= usd * 1_000_000,
        bool(budget.wall_seconds) and usage.active_ms >= budget.wall_seconds * 1_000,
        begins and bool(budget.wakes_per_day) and day_wakes >= budget.wakes_per_day,
    ]

    assert bool(state.problem) is any(used_up)
    if state.next is not None:
        # Only the number of wakes comes back by itself, on the next day.
        assert not any(used_up[:3])
        assert NOW < state.next <= NOW + DAY_MS
        assert check_budget(record, budget, now=state.next, is_priced=is_priced, begins=begins).problem == ""


@proves("runtime.retry-backoff")
@given(st.integers(1, 20), st.none() | st.floats(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_doubled_within_a_fifth_and_the_vendors_wish_wins(attempt: int, wish: float | None, chance: float) -> None:
    pause = compute_pause(attempt, ModelProblem("Busy.", retry_after=wish), lambda: chance)

    if wish is None:
        whole = min(LONGEST_SECONDS, 0.5 * 2 ** (attempt - 1))
        assert whole * 0.8 <= pause <= whole * 1.2
    else:
        assert pause == min(wish, MAX_RETRY_SECONDS)


class FailingProvider:
    """A model that is busy: each request fails and says when to come back."""

    name = "failing"

    def __init__(self, wishes: list[float | None]) -> None:
        self.wishes, self.requests = wishes, 0

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        assert request.messages == ()
        on_text("")
        wish = self.wishes[self.requests % len(self.wishes)]
        self.requests += 1
        raise ModelProblem("Busy.", retryable=True, retry_after=wish)

    def describe(self, model: str) -> ModelInfo:
        return ModelInfo(max_output=len(model))

    async def close(self) -> None:
        pass


@proves("runtime.retry-exhausted")
@given(st.lists(st.none() | st.floats(0, 1_000), min_size=1, max_size=8), st.floats(0, 1, exclude_max=True))
async def test_retries_end_after_eight_attempts_or_four_minutes(wishes: list[float | None], chance: float) -> None:
    provider, pauses, told = FailingProvider(wishes), list[float](), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def on_retry(_: ModelProblem, seconds: float) -> None:
        told.append(seconds)

    request = ModelRequest(model="m", system="", messages=())
    caught: list[Any] = []
    try:
        await request_reply(provider, request, lambda _: None, on_retry, Timing(sleep, lambda: chance), asyncio.Event())
    except ModelProblem as problem:
        caught.append(problem)

    assert len(caught) == 1
    assert provider.requests == len(pauses) + 1 <= MAX_ATTEMPTS
    assert sum(pauses) <= MAX_RETRY_SECONDS
    assert told == pauses


NAMES = st.sampled_from(["read", "grep", "write", "shell_run", "permissions_describe", "nothing"])


@proves("runtime.tools-order")
@given(st.lists(NAMES, max_size=20))
def test_only_calls_that_read_run_side_by_side_and_the_order_is_kept(names: list[str]) -> None:
    calls = [
        (OpenCall(f"toolu_{number}", name, number), ToolUseBlock(f"toolu_{number}", name, {}))
        for number, name in enumerate(names)
    ]
    groups = split_parallel(calls, Offer(RUNTIME_TOOL_NAMES))

    assert [call for group in groups for call in group] == calls
    for group in groups:
        assert 1 <= len(group) <= MAX_PARALLEL
        assert len(group) == 1 or all(DEFINITIONS[call.name].read_only for call, _ in group)
