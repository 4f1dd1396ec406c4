"""What a child session may have: at most what is left of its parent. Pure."""

from __future__ import annotations

from fidelio.errors import ToolRefused
from fidelio.runtime.agents.definition import DEFAULT_USD, Budget
from fidelio.runtime.record import RuntimeRecord

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


def narrow_budget(budget: Budget, record: RuntimeRecord) -> dict[str, float]:
    """The limits of a child: what its parent has left. A limit that is switched off stays off."""
    usage = record.wakes.usage
    left: dict[str, float] = {"wakes_per_day": budget.wakes_per_day}
    if budget.tokens:
        left["tokens"] = max(1, budget.tokens - usage.tokens)
    else:
        left["tokens"] = 0
    if budget.usd is not None:
        # 0 would switch the limit off.
        left["usd"] = 0 if budget.usd == 0 else max(0.000001, budget.usd - usage.cost_micros / 1_000_000)
    elif usage.cost_micros:
        left["usd"] = max(0.000001, DEFAULT_USD - usage.cost_micros / 1_000_000)
    if budget.wall_seconds:
        left["wall_seconds"] = max(1, budget.wall_seconds - usage.active_ms // 1000)
    return left
