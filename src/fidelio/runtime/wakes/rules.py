"""Decides what the next wake of a session is. Pure: functions of the record and the time."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fidelio.ids import new_id
from fidelio.runtime.agents.definition import DEFAULT_USD, Budget
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.wakes.directive import Directive
from fidelio.runtime.wakes.record import DAY_MS, WORKER, OpenCall, QueuedWake, Schedule, WakeRecord

TURN_LIMIT = 24
MAX_SECONDS = 600
# How often a message may go on in another wake after these limits, and how often an agent may ask to go on.
MAX_EXTENSIONS = 10
MAX_CONTINUES = 3
MAX_QUEUED = 20
# A low priority lets everything else that is due at the same time go first.
LOW_PRIORITY_MS = 5_000
FOLLOW_UP = "session.follow_up"
REVISION = "outcome.revision"
EXTENSION = "session.extension"


class NothingDue(msgspec.Struct, frozen=True):
    """Nothing is due. `next` is when the next wake is, `expiry` when the first request expires that the turn waits for."""

    next: int | None = None
    expiry: int | None = None


class Interrupted(msgspec.Struct, frozen=True):
    """A person has interrupted: end what is open, then go on with what was sent."""


class Resumed(msgspec.Struct, frozen=True):
    """A wake that a process began and did not end."""

    wake: str


class Answered(msgspec.Struct, frozen=True):
    """Calls that waited can go on: answered, expired, or repeated by the runtime."""


class Fresh(msgspec.Struct, frozen=True):
    """A new wake for pending events and due wakes. `goes_on`: it continues a turn, so nothing is recalled again."""

    wakes: tuple[QueuedWake, ...] = ()
    schedules: tuple[Schedule, ...] = ()

    @property
    def goes_on(self) -> bool:
        return bool(self.wakes) and all(wake.reason in (EXTENSION, FOLLOW_UP) for wake in self.wakes) and not self.schedules


WakePlan = NothingDue | Interrupted | Resumed | Answered | Fresh


def plan_wake(record: RuntimeRecord, *, now: int) -> WakePlan:
    """What the next wake is about. A session that waits for a person is released only by answers or an interrupt."""
    wakes = record.wakes
    if record.is_closed or record.role == "store":
        return NothingDue()
    if wakes.interrupt_seq > wakes.interrupted_seq:
        return Interrupted()
    if wakes.current:
        return Resumed(wakes.current)
    if wakes.open_calls or wakes.is_paused:
        return _plan_paused(record, now=now)
    due = tuple(sorted((wake for wake in wakes.queued if find_due(wake) <= now), key=lambda wake: (wake.due, wake.id)))
    schedules = tuple(schedule for schedule in wakes.schedules if schedule.next <= now)
    if wakes.pending or due or schedules:
        return Fresh(due, schedules)
    return NothingDue(find_next(wakes))


def _plan_paused(record: RuntimeRecord, *, now: int) -> WakePlan:
    """A turn that waits for answers. It goes on with those that have arrived, and when every call has its result."""
    calls = record.wakes.open_calls
    is_due = not calls or any(call.state == "answered" or is_ready(record, call, now=now) for call in calls)
    return Answered() if is_due else NothingDue(expiry=_find_expiry(record))


def is_ready(record: RuntimeRecord, call: OpenCall, *, now: int) -> bool:
    """Whether a call without a result can go on."""
    if call.state in ("custom", "answered", WORKER):
        return False
    if call.state != "waiting":
        return True
    approval = record.approvals.get(call.request)
    # Another call has used or ended it: the gate decides again.
    return approval is None or approval.state != "open" or approval.expires <= now


def _find_expiry(record: RuntimeRecord) -> int | None:
    """When the first open request of a waiting call expires."""
    waiting = {call.request for call in record.wakes.open_calls}
    return min((approval.expires for name, approval in record.approvals.items() if name in waiting), default=None)


def find_due(wake: QueuedWake) -> int:
    return wake.due + LOW_PRIORITY_MS if wake.priority == "low" else wake.due


def find_next(wakes: WakeRecord) -> int | None:
    """When the next queued or scheduled wake is due."""
    times = [find_due(wake) for wake in wakes.queued] + [schedule.next for schedule in wakes.schedules]
    return min(times, default=None)


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a wake: the wakes to queue, the counter of continues, and what was rejected."""

    queued: tuple[QueuedWake, ...] = ()
    continues: int = 0
    rejected: tuple[str, ...] = ()


def plan_continuation(record: RuntimeRecord, session: str, directive: Directive, *, now: int) -> Continuation:
    """Queue what the directive asks for. The fourth `continue` in a row sleeps."""
    wakes = record.wakes
    rejected, queued = list(directive.rejected), list[QueuedWake]()
    known = {wake.key for wake in wakes.queued if wake.key}
    for request in directive.wakes:
        if len(wakes.queued) + len(queued) >= MAX_QUEUED:
            rejected.append(f"queuedWakes: {MAX_QUEUED} wakes are queued already; {request.reason!r} was not.")
        elif request.key and request.key in known:
            rejected.append(f"queuedWakes: a wake with dedupeKey {request.key!r} is queued already.")
        else:
            known.add(request.key)
            due = now + request.delay_seconds * 1000
            queued.append(QueuedWake(new_id("wake_"), due, request.reason, request.note, request.key, request.priority))
    continues = 0
    if directive.outcome == "continue":
        if wakes.continues >= MAX_CONTINUES:
            rejected.append(f"outcome: continue was refused after {MAX_CONTINUES} in a row. Wait for the person.")
        else:
            continues = wakes.continues + 1
            due, key = now + directive.follow_up_seconds * 1000, f"follow-up:{session}"
            if key not in known:
                queued.append(QueuedWake(new_id("wake_"), due, FOLLOW_UP, "", key))
    return Continuation(queued=tuple(queued), continues=continues, rejected=tuple(rejected))


class BudgetState(msgspec.Struct, frozen=True):
    """Whether a session may use more. `problem` says which limit it has reached; `next` is when it may go on by itself."""

    problem: str = ""
    next: int | None = None


def merge_budget(limits: Budget, changed: dict[str, float]) -> Budget:
    """The limits of a session: those of its agent, with what was changed for it."""
    fields = {name: getattr(limits, name) for name in Budget.__struct_fields__}
    own = {name: value for name, value in changed.items() if name in fields}
    return msgspec.convert({**fields, **own}, Budget, strict=False)


def check_budget(record: RuntimeRecord, budget: Budget, *, now: int, is_priced: bool, begins: bool) -> BudgetState:
    """Check the limits of a session before a wake (`begins`) and before each request."""
    wakes, usage, reserved = record.wakes, record.wakes.usage, record.wakes.reserved
    tokens = usage.tokens + int(reserved.get("tokens", 0))
    if budget.tokens and tokens >= budget.tokens:
        return BudgetState(f"The session has used {tokens:,} of {budget.tokens:,} tokens{_name_children(reserved, 'tokens')}.")
    usd = DEFAULT_USD if budget.usd is None else budget.usd
    cost = usage.cost_micros + round(reserved.get("usd", 0) * 1_000_000)
    if usd and is_priced and cost >= usd * 1_000_000:
        spent = f"{cost / 1_000_000:.2f} of {usd:.2f} US dollars{_name_children(reserved, 'usd')}"
        return BudgetState(f"The session has cost {spent}.")
    active_ms = usage.active_ms + (max(0, now - wakes.started_at) if wakes.current else 0)
    active_ms += int(reserved.get("wall_seconds", 0) * 1000)
    if budget.wall_seconds and active_ms >= budget.wall_seconds * 1000:
        worked = f"{active_ms // 1000} of {budget.wall_seconds} seconds{_name_children(reserved, 'wall_seconds')}"
        return BudgetState(f"The session has worked for {worked}.")
    today = now // DAY_MS
    if begins and budget.wakes_per_day and wakes.day == today and wakes.day_wakes >= budget.wakes_per_day:
        return BudgetState(f"The session has had {wakes.day_wakes} wakes today, its limit.", (today + 1) * DAY_MS)
    return BudgetState()


def _name_children(reserved: Mapping[str, float], name: str) -> str:
    """Says that a part of what counts as used is reserved for children."""
    return f", with {reserved[name]:,.10g} that its children have" if reserved.get(name) else ""
