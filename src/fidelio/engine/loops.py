"""Whether a loop goes into another pass: yes, no, or as the agent finds.

A pass that has begun is finished; the conditions are looked at between passes, the break condition after each. What is not
known yet leaves the choice to the agent, who sees what the loop is about. No loop runs longer than its maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fidelio.engine.conditions import Truth, holds, look_up
from fidelio.engine.state import Pass

if TYPE_CHECKING:
    from fidelio.definitions.models import Loop


def begins(loop: Loop, values: Mapping[str, Any]) -> Truth:
    """Whether there is a first pass."""
    if loop.type == "doWhile":
        return True
    if loop.type == "while":
        return _while(loop, values)
    items = collection(loop, values)
    return None if items is None else bool(items)


def goes_on(loop: Loop, running: Pass, values: Mapping[str, Any]) -> Truth:
    """Whether another pass follows the one that is running."""
    if running.iteration >= loop.max_iterations:
        return False
    if loop.break_condition is not None and holds(loop.break_condition, values):
        return False
    if loop.type == "forEach":
        return running.iteration < len(running.items or ())
    return _while(loop, values)


def collection(loop: Loop, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What a `forEach` goes over, when it is known."""
    found = look_up(loop.over, values) if loop.over else None
    return tuple(found) if isinstance(found, list | tuple) else None


def passes(loop: Loop, running: Pass) -> int | None:
    """How many passes there will be, when that is known."""
    return min(len(running.items), loop.max_iterations) if running.items is not None else None


def _while(loop: Loop, values: Mapping[str, Any]) -> Truth:
    return None if loop.condition is None else holds(loop.condition, values)
