"""The bundled workflows are carried out by a robot: every activity, option and way is used by some walk, and every walk ends.

The robot reports what opens a way, but it never gets stuck at its work; that a task is blocked is therefore given to it
beforehand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fidelio.definitions.models import Workflow
from tests.bundled.reading import ALL, workflow
from tests.support import proves
from tests.support.walker import Robot, Untaken, Walk, never_taken

WalkSituation = Mapping[str, Any]

MOST_ROUNDS = 40
NOTHING = Untaken(options=(), transitions=(), activities=())
ONE_TASK = [{"title": "Say hello", "kind": "code"}]
BLOCKED = {"route_settled": True, "quick_fix": True, "task_blocked": True, "tasks": ONE_TASK}
SITUATIONS: Mapping[str, tuple[WalkSituation, ...]] = {"work-package": ({}, BLOCKED)}


def in_situation(here: Workflow, found: WalkSituation) -> Workflow:
    """The workflow with what was found as its defaults."""
    variables = [v.model_copy(update={"default_value": found.get(v.name, v.default_value)}) for v in here.variables]
    return Workflow.model_validate({**here.model_dump(by_alias=True, exclude={"broken"}), "variables": variables})


def rounds(name: str) -> Iterator[list[Walk]]:
    """In every round each policy walks through each situation. A robot prefers what it has not done in earlier rounds."""
    situations = [in_situation(workflow(name), found) for found in SITUATIONS.get(name, ({},))]
    robots = [Robot("first"), Robot("last"), Robot(random.Random(20261115))]
    for _ in range(MOST_ROUNDS):
        yield [robot.walk(here) for robot in robots for here in situations]


@proves("bundled.every-way")
@pytest.mark.parametrize("name", ALL)
def test_every_activity_option_and_way_is_used_by_some_walk_and_every_walk_ends(name: str) -> None:
    walks: list[Walk] = []
    for walked in rounds(name):
        walks += walked
        assert [walk.problem for walk in walked if walk.problem] == []
        if never_taken(workflow(name), walks) == NOTHING:
            break

    assert never_taken(workflow(name), walks) == NOTHING
