"""A workflow as text in a terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fidelio.definitions.describe import render_workflow
from fidelio.definitions.findings import error
from fidelio.definitions.models import Workflow
from tests.definitions.drawing.workflows import BOOLEAN, IS_READY, otherwise, way, workflow
from tests.support import proves

WHOLE = """
Demo
demo 1.0.0 · 2 activities, begins with plan
tags: small, quick

Shows everything.

Rules
  - Be kind

Skills
  lead
  supported by help

Variables
  is_ready (boolean, at first false, required)
      Whether it is

Modes
  Review: when is_ready, skips build

Artifact locations
  notes docs/notes (not under version control)

1. Plan (optional) · plan · 10m
   What is to be done.
   Skills: lead and help
   1. Read
      asks agree, then
   2. Write (if is_ready, skill help, optional)
      ⇒ starts the workflow helper
   ? Agreement (agree) if is_ready
     Shall we?
     - Yes: sets is_ready to true, goes to build
     - No
   ? Nudge (nudge, takes * after 1.5 s)
     Anything else?
     * Nothing
   ↻ Again: while is_ready, at most 3 times
     1. Try
   ◇ Size
     - Small (if is_ready), goes to build
     - Large (otherwise)
   ⇒ starts the workflow child with is_ready
   Leaves plan.md in notes and log.md
   → build, if is_ready
   → plan, otherwise

2. Build · build
   ? Ship (ship, only a person may answer)
     Ship it?
     - Back: goes to plan
   → the end, unless an answer leads elsewhere

Cannot be read
  test: It is broken.
"""


def everything() -> Workflow:
    yes = {"id": "yes", "label": "Yes", "effect": {"setVariable": {"is_ready": True}, "transitionTo": "build"}}
    plan = {
        "id": "plan",
        "name": "Plan",
        "description": "What is to be done.",
        "required": False,
        "estimatedTime": "10m",
        "skills": {"primary": "lead", "supporting": ["help"]},
        "steps": [
            {"id": "read", "name": "Read"},
            {
                "id": "w",
                "name": "Write",
                "checkpoint": "agree",
                "condition": IS_READY,
                "skill": "help",
                "required": False,
                "triggers": {"workflow": "helper"},
            },
        ],
        "checkpoints": [
            {
                "id": "agree",
                "name": "Agreement",
                "message": "Shall we?",
                "condition": IS_READY,
                "options": [yes, {"id": "no", "label": "No"}],
            },
            {
                "id": "nudge",
                "name": "Nudge",
                "message": "Anything else?",
                "blocking": False,
                "autoAdvanceMs": 1500,
                "defaultOption": "nothing",
                "options": [{"id": "nothing", "label": "Nothing"}],
            },
        ],
        "loops": [
            {
                "id": "l",
                "name": "Again",
                "type": "while",
                "condition": IS_READY,
                "maxIterations": 3,
                "steps": [{"id": "t", "name": "Try"}],
            }
        ],
        "decisions": [
            {
                "id": "d",
                "name": "Size",
                "branches": [
                    {"id": "s", "label": "Small", "condition": IS_READY, "transitionTo": "build"},
                    {"id": "b", "label": "Large", "isDefault": True},
                ],
            }
        ],
        "triggers": [{"workflow": "child", "passContext": ["is_ready"]}],
        "artifacts": [{"id": "a", "name": "plan.md", "location": "notes"}, {"id": "b", "name": "log.md"}],
        "transitions": [way("build", condition=IS_READY), otherwise("plan")],
    }
    back = {"id": "back", "label": "Back", "effect": {"transitionTo": "plan"}}
    ship = {"id": "ship", "name": "Ship", "message": "Ship it?", "answered_by": "person", "options": [back]}
    return workflow(
        plan,
        {"id": "build", "name": "Build", "checkpoints": [ship]},
        description="Shows everything.",
        tags=["small", "quick"],
        rules=["Be kind"],
        skills={"primary": "lead", "supporting": ["help"]},
        variables=[{**BOOLEAN, "defaultValue": False, "required": True, "description": "Whether it is"}],
        modes=[{"id": "review", "name": "Review", "activationVariable": "is_ready", "skipActivities": ["build"]}],
        artifactLocations={"notes": {"path": "docs/notes", "gitignored": True}},
        broken={"test": (error("test.yaml", "schema", "It is broken."),)},
    )


@proves("show.everything")
def test_everything_that_decides_a_run_is_shown() -> None:
    assert render_workflow(everything(), width=80).splitlines() == WHOLE.strip().splitlines()


@proves("show.everything")
def test_a_workflow_of_independent_activities_says_so() -> None:
    assert "each activity is an entry of its own" in render_workflow(workflow({"id": "a"}, initialActivity=None))


@proves("show.plain")
def test_colours_change_nothing_but_colours() -> None:
    coloured = render_workflow(everything(), width=80, color=True)

    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render_workflow(everything(), width=80)
    assert "\x1b" not in render_workflow(everything(), width=80)


@proves("show.bounded")
@pytest.mark.parametrize("width", [10, 40, 72, 110, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = workflow(
        {"id": "plan", "name": "Plan", "description": "very " * 500}, description="long " * 900, rules=["word " * 300]
    )
    lines = render_workflow(long, width=width).splitlines()

    assert max(map(len, lines)) <= max(min(width, 110), 46)
    assert sum(line.count("very") for line in lines) < 60


@proves("show.everything")
@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({"isDefault": True, "transitionTo": "build"}, "→ where a decision leads"),
        ({"isDefault": True}, "→ the end, unless a decision leads elsewhere"),
        ({"condition": {**IS_READY, "value": False}, "transitionTo": "plan"}, "→ where a decision leads"),
    ],
)
def test_a_decision_that_leads_on_in_any_case_is_not_the_end(last: dict[str, Any], words: str) -> None:
    branches = [
        {"id": "s", "label": "Small", "condition": IS_READY, "transitionTo": "build"},
        {"id": "b", "label": "Large", **last},
    ]
    plan = {"id": "plan", "name": "Plan", "decisions": [{"id": "d", "name": "Size", "branches": branches}]}
    text = render_workflow(workflow(plan, {"id": "build", "name": "Build"}, variables=[BOOLEAN]))

    assert [line.strip() for line in text.splitlines() if "→" in line] == [words, "→ the end"]
