"""Values of loops: entries of a manifest that belong to an iteration, and iterations that are missing.

They know no definition and no record; `loops` decides which iterations are due.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.engine import phrases
from fidelio.engine.state import Problem

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity

# A sentence names so many groups of iterations.
MAX_GROUPS = 20
# Items that are nested deeper are compared and stored only down to this depth.
MAX_DEPTH = 32


class StepReport(msgspec.Struct, frozen=True):
    """An entry of a step manifest. A step of a loop has the number of its iteration, from 1, or the item of the loop."""

    step_id: str
    output: str
    iteration: int | None = None
    item: Any = msgspec.UNSET


class MissingIteration(msgspec.Struct, frozen=True):
    """An iteration that was due, its steps that were not reported, and its activities that were not entered.

    `doubt`: only a default value says that it was due.
    """

    loop: str
    iteration: int
    steps: tuple[str, ...]
    activities: tuple[str, ...] = ()
    doubt: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.steps, *self.activities)


def find_stray_iterations(activity: Activity, manifest: Iterable[StepReport]) -> list[Problem]:
    """Entries of steps outside of loops that name an iteration or an item."""
    inside = {step.id for step in activity.loop_steps}
    tagged = (entry for entry in manifest if entry.iteration is not None or (has_item(entry) and entry.item is not None))
    stray = dict.fromkeys(entry.step_id for entry in tagged if entry.step_id not in inside)
    return [Problem("wrong-iterations", phrases.stray_iterations(stray))] if stray else []


def suggest_entry(missing: MissingIteration) -> str:
    if not missing.steps:
        return f"Enter '{missing.activities[0]}' with next_activity for each of them."
    example = {"step_id": missing.steps[0], "output": "...", "iteration": missing.iteration}
    return f"Do them and add an entry for each step and iteration, such as {json.dumps(example)}."


def has_item(entry: StepReport) -> bool:
    # Some clients send null for what they leave out, so null is an item only where the list has it.
    return entry.item is not msgspec.UNSET


def item_key(item: Any) -> str:
    """A text that is equal for equal JSON values: 1 is 1.0, and not true."""
    return json.dumps(_normalize(item, MAX_DEPTH), sort_keys=True, ensure_ascii=False)


def _normalize(value: Any, depth: int) -> Any:
    if not depth:
        # An agent can nest an item as deep as it likes, and encoding it could exhaust the stack.
        return "..."
    if isinstance(value, Mapping):
        return {key: _normalize(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalize(item, depth - 1) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def describe_groups(missing: Sequence[MissingIteration]) -> list[str]:
    """`1-3: write, check` for iterations in a row that lack the same steps."""
    texts = list[str]()
    for _, group in groupby(enumerate(missing), lambda pair: (pair[1].iteration - pair[0], pair[1].names)):
        found = [pair[1] for pair in group]
        first, last = found[0].iteration, found[-1].iteration
        texts.append(f"{first if first == last else f'{first}-{last}'}: {', '.join(found[0].names)}")
    return texts[:MAX_GROUPS] + ([f"and {len(texts) - MAX_GROUPS} more"] if len(texts) > MAX_GROUPS else [])


def shorten_item(item: Any) -> str:
    return item_key(item)[: phrases.MAX_NAME_LENGTH]
