"""Workflows that triggers name: those that this server does not have, and those that were started too seldom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import report_session
from tests.dialects.conftest import playing
from tests.support import proves

WORKFLOW = """
id: tour
version: 1.0.0
title: Tour
initialActivity: one
variables: [{{name: items, type: array}}]
activities:
  - id: one
    version: 1.0.0
    name: One
    {parts}
    transitions: [{{to: two, isDefault: true}}]
  - {{id: two, version: 1.0.0, name: Two}}
"""
NEVER = "Workflow 'nowhere' should have been started here and was not."
MISSING = f"{NEVER} This server cannot start it: Workflow not found: nowhere"


async def list_differences(settings: Settings, workflow: str = "tour") -> list[str]:
    async with await open_ledger(settings.ledger) as ledger:
        reports = [await report_session(ledger, session.id) for session in (await ledger.sessions()).items]
    return next(report.differences for report in reports if report.workflow == workflow)


@proves("triggers.unavailable")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize("level", ["advise", "enforce"])
async def test_a_trigger_of_a_missing_workflow_says_that_it_is_missing(
    settings: Settings, library: Path, dialect: str, level: str
) -> None:
    (library / "tour.yaml").write_text(WORKFLOW.format(parts="triggers: [{workflow: nowhere}]"))
    async with playing(settings, library, dialect=dialect, fidelity=level) as play:
        token = (await play("start_session", workflow_id="tour")).token
        token = (await play("next_activity", session_token=token, activity_id="one")).token
        left = await play("next_activity", session_token=token, activity_id="two")

    assert left.is_error == (level == "enforce")
    if left.is_error:
        assert MISSING in left.text
        assert "A person can add the workflow to this server" in left.text
        assert "start_session" not in left.text
    else:
        (difference,) = await list_differences(settings)
        assert difference.startswith(f"one: {MISSING if dialect == 'sessions' else NEVER}")


@proves("triggers.unavailable")
@pytest.mark.parametrize("level", ["advise", "enforce"])
async def test_navigator_goes_on_without_a_missing_workflow_only_with_advise(
    settings: Settings, library: Path, level: str
) -> None:
    parts = "steps: [{id: s, name: S, triggers: [{workflow: nowhere}]}]"
    (library / "tour.yaml").write_text(WORKFLOW.format(parts=parts))
    async with playing(settings, library, dialect="navigator", fidelity=level) as play:
        state = json.loads((await play("nav_start", workflow_id="tour")).text)["state"]
        done = await play("nav_action", state=state, action="complete_step", step_id="s", output="did it")

    assert done.is_error == (level == "enforce")
    assert (MISSING if done.is_error else "'nowhere' is to be started here and cannot be") in done.text


CHILD = """
id: kid
version: 1.0.0
title: Kid
initialActivity: k
activities: [{id: k, version: 1.0.0, name: K}]
"""


@proves("sessions.report")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_workflow_is_due_for_each_iteration_of_its_step(
    settings: Settings, library: Path, dialect: str, times: int
) -> None:
    step = "{id: s, name: S, triggers: [{workflow: kid}]}"
    parts = f"loops: [{{id: each, name: Each, type: forEach, over: items, variable: item, steps: [{step}]}}]"
    (library / "tour.yaml").write_text(WORKFLOW.format(parts=parts))
    (library / "kid.yaml").write_text(CHILD)
    manifest = [{"step_id": "s", "output": "did it", "iteration": number} for number in (1, 2)]
    async with playing(settings, library, dialect=dialect) as play:
        token = (await play("start_session", workflow_id="tour")).token
        token = (await play("next_activity", session_token=token, activity_id="one", variables={"items": ["a", "b"]})).token
        for _ in range(times):
            child = (await play("start_session", workflow_id="kid", parent_session_token=token)).token
            for target in ("k", "__terminal__"):
                child = (await play("next_activity", session_token=child, activity_id=target)).token
        moved = await play("next_activity", session_token=token, activity_id="two", step_manifest=manifest)
        assert not moved.is_error

    expected = [] if times == 2 else ["one: Workflow 'kid' should have been started here and was not."]
    assert await list_differences(settings) == expected
