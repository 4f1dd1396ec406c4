"""What a report counts as a difference, and what is a mere fact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.models import Workflow
from fidelio.engine.record import (
    ANSWERED,
    CALLED,
    CANCELLED,
    CHILD_STARTED,
    COMPLETED,
    ENTERED,
    STARTED,
    VARIABLES_SET,
    YIELDED,
)
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Event, NewEvent
from fidelio.settings import Settings
from fidelio.workflows.report import report_session
from fidelio.workflows.report.builder import build_report
from fidelio.workflows.report.model import Report
from tests.dialects.conftest import playing
from tests.engine.builders import activity, checkpoint, variable, when, workflow
from tests.support import proves

Fact = tuple[str, dict[str, Any]]


def asking(**parts: Any) -> Workflow:
    return workflow(
        activity("one", checkpoints=[checkpoint("ask", **parts)]),
        variables=[variable("risky", defaultValue=False), variable("other")],
    )


def report_of(definition: Workflow, *facts: Fact, **started: Any) -> Report:
    begun: Fact = (STARTED, {"workflow": "wf", "version": "1.0.0", "definition": "d", **started})
    events = [
        Event(number, "s_a", number, f"e_{number}", kind, "agent:a", number, json.dumps(body), None, b"", b"")
        for number, (kind, body) in enumerate([begun, (ENTERED, {"activity": "one"}), *facts], start=1)
    ]
    return build_report("s_a", events, definition)


def told(**variables: Any) -> Fact:
    return VARIABLES_SET, {"variables": variables, "by": "agent:worker"}


def yielded(**body: Any) -> Fact:
    return YIELDED, {"checkpoint": "ask", "request": "r", **body}


def answered(assurance: str = "local", mode: str = "option") -> Fact:
    who = {"by": "person:a", "channel": assurance, "assurance": assurance, "after_ms": 1}
    return ANSWERED, {"request": "r", "option": "yes" if mode == "option" else "", "mode": mode, **who}


DISMISSED = answered("relayed", "condition_not_met")
ENDED: Fact = (COMPLETED, {"activity": "__terminal__"})
WEAK = "one: Checkpoint 'ask' demands a person, but its answer was only '{}'."
GUESSED = ["one: Checkpoint 'ask' was dismissed although its condition was not known to be false."]


@proves("workflows.report-differences")
@pytest.mark.parametrize("assurance", ["relayed", "timer", "local", "elicited", "proven"])
@pytest.mark.parametrize("demand", ["checkpoint", "request", "none"])
def test_an_answer_below_the_demanded_assurance_is_a_difference(assurance: str, demand: str) -> None:
    definition = asking(**({"answered_by": "person"} if demand == "checkpoint" else {}))
    asked = yielded(**({"person": True} if demand == "request" else {}))
    is_weak = demand != "none" and assurance in ("relayed", "timer")

    differences = report_of(definition, asked, answered(assurance), ENDED).differences

    assert differences == ([WEAK.format(assurance)] if is_weak else [])


@proves("workflows.report-differences")
@pytest.mark.parametrize(
    ("facts", "differences"),
    [
        ([yielded(), told(other=False), DISMISSED], []),
        ([told(other=False), yielded(), DISMISSED], []),
        ([yielded(), DISMISSED], GUESSED),
        ([told(other=True), yielded(), told(other=False), DISMISSED], GUESSED),
    ],
)
def test_a_dismissal_needs_a_condition_that_is_known_to_be_false(facts: list[Fact], differences: list[str]) -> None:
    assert report_of(asking(condition=when("other")), *facts, ENDED).differences == differences


@proves("workflows.report-differences")
def test_a_declared_default_lets_a_question_be_dismissed() -> None:
    assert report_of(asking(condition=when("risky")), yielded(), DISMISSED, ENDED).differences == []


@proves("workflows.report-differences")
def test_cancelled_unverified_and_drifted_sessions_differ() -> None:
    cancelled: Fact = (CANCELLED, {"by": "person:a", "channel": "cli", "reason": ""})
    drifted: Fact = (CALLED, {"name": "get_activity", "aid": "a", "s": "ok", "drift": ["It has changed."]})
    plain = asking(required=False)

    assert report_of(plain, cancelled).differences == ["The session was ended before its workflow was."]
    assert report_of(plain, ENDED, unverified=True).differences == [
        "The session was rebuilt from a token whose seal could not be checked."
    ]
    warned: Fact = (COMPLETED, {"activity": "__terminal__", "warnings": ["It has changed."]})
    assert report_of(plain, drifted, ENDED).differences == ["It has changed."]
    assert report_of(plain, drifted, warned).differences == ["It has changed."]
    assert report_of(plain).differences == []


TREE = """
id: {name}
version: 1.0.0
title: {name}
initialActivity: work
activities:
  - id: work
    version: 1.0.0
    name: Work
    steps: [{{id: do, name: Do}}]
"""


@proves("workflows.report-differences")
async def test_the_differences_of_children_count_for_the_parent(settings: Settings, library: Path) -> None:
    for name in ("root", "branch", "leaf"):
        (library / f"{name}.yaml").write_text(TREE.format(name=name))
    did = [{"step_id": "do", "output": "done"}]
    async with playing(settings, library) as play:
        tokens, parent = dict[str, str](), dict[str, str]()
        for name in ("root", "branch", "leaf"):
            token = await play.start(name, **parent)
            token = (await play("next_activity", session_token=token, activity_id="work")).token
            tokens[name], parent = token, {"parent_session_token": token}
        for name, manifest in (("leaf", []), ("branch", did), ("root", did)):
            move = {"activity_id": "__terminal__", "step_manifest": manifest}
            await play("next_activity", session_token=tokens[name], **move)
        root, leaf = [(await play("get_trace", session_token=tokens[name])).json["traceId"] for name in ("root", "leaf")]
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, root)
        await ledger.erase([leaf], actor="person:a", reason="test")
        afterwards = await report_session(ledger, root)

    (difference,) = report.differences
    assert difference.startswith("branch (s_")
    assert difference.endswith("work: Missing steps in manifest: [do]")
    assert [child.workflow for child in report.iter_children()] == ["branch", "leaf"]
    assert afterwards.differences[0].endswith("The session cannot be read here, so it was not checked.")


@proves("workflows.report-differences")
async def test_a_child_of_another_ledger_is_a_difference(settings: Settings, library: Path) -> None:
    (library / "root.yaml").write_text(TREE.format(name="root"))
    async with playing(settings, library) as play:
        session = (await play("get_trace", session_token=await play.start("root"))).json["traceId"]
    async with await open_ledger(settings.ledger) as ledger:
        child = {"session": "s_nowhere", "workflow": "x", "step": "", "suspends": False}
        await ledger.append(session, NewEvent(type=CHILD_STARTED, body=child, actor="agent"))
        report = await report_session(ledger, session)

    assert report.differences == ["s_nowhere: The session cannot be read here, so it was not checked."]
