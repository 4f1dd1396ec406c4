"""A mode leaves activities out. The transitions must say the same, or a reader of the file is led astray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fidelio.definitions.conditions import holds
from fidelio.definitions.models import Activity, Effect
from tests.bundled.reading import workflow
from tests.support import proves

MODES = {
    "quick-fix": {"quick_fix": True, "review_only": False},
    "review-only": {"quick_fix": False, "review_only": True},
}


def possible_targets(activity: Activity, variables: dict[str, Any]) -> Iterator[str]:
    """Every way on up to the first that certainly holds, and those of answers that do not leave the mode."""
    for checkpoint in activity.checkpoints:
        for option in checkpoint.options:
            if option.effect and option.effect.transition_to and not leaves(option.effect, variables):
                yield option.effect.transition_to
    yield from (branch.transition_to for d in activity.decisions for branch in d.branches if branch.transition_to)
    for transition in activity.transitions:
        truth = holds(transition.condition, variables)
        if truth is not False:
            yield transition.to
        if truth is True:
            return


def leaves(effect: Effect, variables: dict[str, Any]) -> bool:
    return any(effect.set_variable.get(name, value) != value for name, value in variables.items())


def reachable(variables: dict[str, Any]) -> set[str]:
    here = workflow("work-package")
    waiting, reached = [here.initial_activity or ""], set[str]()
    while waiting:
        activity = here.activity(waiting.pop())
        if activity is not None and activity.id not in reached:
            reached.add(activity.id)
            waiting.extend(possible_targets(activity, variables))
    return reached


@proves("bundled.modes")
@pytest.mark.parametrize("mode", MODES)
def test_no_way_leads_into_what_a_mode_leaves_out(mode: str) -> None:
    skipped = next(set(m.skip_activities) for m in workflow("work-package").modes if m.id == mode)

    assert reachable(MODES[mode]) & skipped == set()


@proves("bundled.modes")
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_leaves_out_nothing_else(mode: str) -> None:
    everything = {activity.id for activity in workflow("work-package").activities}
    skipped = next(set(m.skip_activities) for m in workflow("work-package").modes if m.id == mode)

    assert reachable(MODES[mode]) == everything - skipped
