"""Iterations that are due: whether a loop has a first or another iteration, and the items that it goes over.

An iteration that has begun is finished: conditions are evaluated between iterations, the break condition after each one. An
unknown condition leaves the decision to the agent. No loop exceeds its maximum number of iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fidelio.definitions.conditions import Truth, holds
from fidelio.engine.record import BY_ANSWER, BY_CHILD
from fidelio.engine.scope import find_loop_items
from fidelio.engine.state import LoopIteration, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Loop

# Prefixes of authors whose lists count as they are, also if they are shorter: answers, actions on entry and exit, and children.
_BY_OTHERS = (BY_ANSWER, "entry:", "exit:", BY_CHILD)


def has_first_iteration(loop: Loop, record: Record, values: Mapping[str, Any]) -> Truth:
    """Whether the loop has a first iteration."""
    if loop.type == "doWhile":
        return True
    if loop.type == "while":
        return _while_holds(loop, values)
    items = find_due_items(loop, record, values)
    return None if items is None else bool(items)


def has_next_iteration(loop: Loop, running: LoopIteration, values: Mapping[str, Any]) -> Truth:
    """Whether another iteration follows the current iteration."""
    if running.iteration >= loop.max_iterations:
        return False
    if loop.break_condition is not None and holds(loop.break_condition, values):
        return False
    if loop.type == "forEach":
        return running.iteration < len(running.items or ())
    return _while_holds(loop, values)


def find_due_items(loop: Loop, record: Record, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The items that a loop of the current activity has to go over, if they are known.

    Inside the activity an agent can make the list longer, but not shorter: otherwise it could report an empty list instead of
    doing the work. The actions of the steps of the loop do not change its list either. What an answer sets counts as it is.
    """
    listed, earlier = find_loop_items(loop, values), record.here.loop_items.get(loop.id, ())
    is_settled = find_author(record, loop.over or "").startswith(_BY_OTHERS)
    return tuple(earlier) if len(earlier) > len(listed or ()) and not is_settled else listed


def find_author(record: Record, name: str) -> str:
    """The author of a variable, or of the object that contains it; empty if it is not set."""
    while name and name not in record.set_by:
        name = name.rpartition(".")[0]
    return record.set_by.get(name, "")


def count_iterations(loop: Loop, running: LoopIteration) -> int | None:
    """The number of iterations, if it is known."""
    return min(len(running.items), loop.max_iterations) if running.items is not None else None


def _while_holds(loop: Loop, values: Mapping[str, Any]) -> Truth:
    return None if loop.condition is None else holds(loop.condition, values)
