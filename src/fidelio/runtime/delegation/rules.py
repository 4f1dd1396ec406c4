"""What a child session may have, at most what is left of its parent, and what it leaves of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from fidelio.errors import ToolRefused
from fidelio.runtime.agents.definition import DEFAULT_USD, Budget
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.wakes.record import SHARED_LIMITS, WakeRecord, release_share

MAX_DEPTH = 3
MAX_CHILDREN = 8


def check_family(record: RuntimeRecord, children: int) -> None:
    """Refuse a child that would be too deep, or more than a session may have."""
    if record.depth >= MAX_DEPTH:
        raise ToolRefused(
            f"This session is {record.depth} levels below the first one, the most that is allowed.",
            remedy="Do the task yourself.",
            reason="too_deep",
        )
    if children >= MAX_CHILDREN:
        raise ToolRefused(
            f"This session has {children} children, the most that is allowed.",
            remedy="Send the task to one of them, or do it yourself.",
            reason="too_many_children",
        )


def share_budget(budget: Budget, record: RuntimeRecord, *, now: int, is_priced: bool) -> dict[str, float]:
    """The limits of a child: half of what its parent has left, taken out of it. A limit that is switched off stays off.

    Raises `ToolRefused` if nothing can be shared. Without a known price, the default limit in money is off for both.
    """
    wakes, usage = record.wakes, record.wakes.usage
    usd = (DEFAULT_USD if is_priced else 0) if budget.usd is None else budget.usd
    active_ms = usage.active_ms + (max(0, now - wakes.started_at) if wakes.current else 0)
    shared: dict[str, float] = {
        "wakes_per_day": budget.wakes_per_day,
        "tokens": _halve("tokens", budget.tokens, usage.tokens + wakes.reserved.get("tokens", 0), 0),
        "wall_seconds": _halve("seconds", budget.wall_seconds, active_ms / 1000 + wakes.reserved.get("wall_seconds", 0), 0),
    }
    if budget.usd is not None or usd:
        shared["usd"] = _halve("US dollars", usd, usage.cost_micros / 1_000_000 + wakes.reserved.get("usd", 0), 6)
    return shared


def _halve(unit: str, limit: float, used: float, digits: int) -> float:
    """Half of the rest, rounded down to a number of digits. 0 would switch the limit of the child off."""
    if not limit:
        return 0
    scale: int = 10**digits
    share = int((limit - used) / 2 * scale) / scale
    if share <= 0:
        raise ToolRefused(
            f"Too little is left of the {limit:g} {unit} of this session to give a child its half.",
            remedy="Do the task yourself, or end with what you have.",
            reason="budget_reached",
        )
    return share


class BudgetMember(msgspec.Struct, frozen=True):
    """A session of a family, as its budget sees it: what it has of its parent's, and what it has used and reserved."""

    id: str
    share: Mapping[str, float]
    wakes: WakeRecord


def plan_returns(line: Sequence[BudgetMember]) -> tuple[dict[str, float], ...]:
    """What the sessions above the first of a line get back because it is closed, nearest first; nothing the second time.

    A session that was closed earlier has no use for it, and passes on what this leaves of its own share.
    """
    child, *above = line
    is_shared = any(child.share.get(name) for name in SHARED_LIMITS)
    if not above or not is_shared or child.id in above[0].wakes.returned:
        return ()
    amounts = [find_unused(child.share, child.wakes)]
    for parent, grandparent in pairwise(above):
        if not amounts[-1] or parent.id not in grandparent.wakes.returned:
            break
        before, after = (find_unused(parent.share, wakes) for wakes in (parent.wakes, release_share(parent.wakes, amounts[-1])))
        amounts.append({name: value for name in after if (value := _round(name, after[name] - before.get(name, 0))) > 0})
    return tuple(amounts)


def find_unused(share: Mapping[str, float], wakes: WakeRecord) -> dict[str, float]:
    """What a session has neither used of its share nor reserved for children of its own, by limit; only what is above 0."""
    usage = wakes.usage
    used = {"tokens": usage.tokens, "usd": usage.cost_micros / 1_000_000, "wall_seconds": usage.active_ms / 1000}
    left = {name: _round(name, share.get(name, 0) - used[name] - wakes.reserved.get(name, 0)) for name in SHARED_LIMITS}
    return {name: value for name, value in left.items() if value > 0}


def _round(name: str, value: float) -> float:
    return round(value, SHARED_LIMITS[name])
