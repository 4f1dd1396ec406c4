"""Benchmark of drawings: CPU time of SVG pictures of 300 activities, of the shapes that are hard to lay out."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from benchmarks.figures import Figure
from fidelio.definitions.drawing.graph import build_graph
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.models import Workflow

ACTIVITIES = 300
MOST_SECONDS = 2.0


def main() -> list[Figure]:
    return [
        Figure(name=f"SVG of {ACTIVITIES} activities, {shape}", value=measure(targets), unit="s of CPU", at_most=MOST_SECONDS)
        for shape, targets in make_shapes(ACTIVITIES).items()
    ]


def make_shapes(count: int) -> dict[str, list[list[int]]]:
    """For each shape the numbers of the activities that each activity leads to."""
    random = Random(1)
    return {
        "a chain": [[at + 1] for at in range(count - 1)],
        "a fan": [list(range(1, count))],
        "a fan in and out": [list(range(1, count - 1)), *([count - 1] for _ in range(count - 2))],
        "sparse": [[at + 1, *random.choices(range(count), k=2)] for at in range(count - 1)],
        "many back edges": [[at + 1, *range(max(0, at - 10), at)] for at in range(count - 1)],
        "ten from each": [random.choices(range(count), k=10) for _ in range(count)],
        "all to all": [list(range(count)) for _ in range(count)],
    }


def measure(targets: list[list[int]]) -> float:
    workflow = build_workflow(targets)
    start = time.process_time()
    draw_svg(build_graph(workflow))
    return time.process_time() - start


def build_workflow(targets: list[list[int]]) -> Workflow:
    rows = [*targets, *([] for _ in range(ACTIVITIES - len(targets)))]
    activities = [
        {"id": f"a{at}", "version": "1.0.0", "name": f"Activity {at}", "transitions": [describe(to) for to in row]}
        for at, row in enumerate(rows)
    ]
    return Workflow.model_validate(
        {"id": "large", "version": "1.0.0", "title": "Large", "initialActivity": "a0", "activities": activities}
    )


def describe(target: int) -> dict[str, Any]:
    condition = {"type": "simple", "variable": "choice", "operator": "==", "value": target}
    return {"to": f"a{target}", "condition": condition}
