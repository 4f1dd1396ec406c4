"""What a report says of loops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.engine.record import ENTERED, LOOP_ADVANCED, STARTED
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Event
from fidelio.settings import Settings
from fidelio.workflows.report import report_session
from fidelio.workflows.report.builder import build_report
from tests.dialects.conftest import playing
from tests.support import proves


def happened(number: int, kind: str, body: dict[str, Any]) -> Event:
    return Event(number, "s_a", number, f"e_{number}", kind, "agent:a", number, json.dumps(body), None, b"", b"")


def advanced(iteration: int, **more: Any) -> dict[str, Any]:
    return {"activity": "one", "loop": "each", "iteration": iteration, "items": [1, 2], "at": 0, "loops_over": [], **more}


@proves("sessions.report-loops")
@pytest.mark.parametrize(
    ("passes", "said"),
    [
        (
            [advanced(1, left_out=3), advanced(2)],
            ["Loop 'each' has taken no more than its maximum: 3 of its items were left out."],
        ),
        ([advanced(1), advanced(2)], []),
    ],
)
def test_items_that_a_loop_left_out_are_a_difference(passes: list[dict[str, Any]], said: list[str]) -> None:
    begun = {"workflow": "tour", "version": "1.0.0", "definition": "d"}
    facts = [(STARTED, begun), (ENTERED, {"activity": "one"}), *((LOOP_ADVANCED, body) for body in passes)]

    (visit,) = build_report("s_a", [happened(number, *fact) for number, fact in enumerate(facts, start=1)], None).visits

    assert visit.differences == said


THROUGH = """
id: tour
version: 1.0.0
title: Tour
initialActivity: one
variables: [{name: items, type: array}]
activities:
  - id: one
    version: 1.0.0
    name: One
    loops: [{id: each, name: Each, type: forEach, over: items, variable: it, steps: [{id: s, name: S}], activities: [inner]}]
    transitions: [{to: last, isDefault: true}]
  - {id: inner, version: 1.0.0, name: Inner, transitions: [{to: last, isDefault: true}]}
  - {id: last, version: 1.0.0, name: Last}
"""


@proves("sessions.report-loops")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize("reported", [(1, 2), (2,), ()])
async def test_a_step_left_out_before_an_activity_of_the_loop_is_a_difference(
    settings: Settings, library: Path, dialect: str, reported: tuple[int, ...]
) -> None:
    (library / "tour.yaml").write_text(THROUGH)
    async with playing(settings, library, dialect=dialect) as play:
        token = (await play("start_session", workflow_id="tour")).token
        moves: list[dict[str, Any]] = [{"activity_id": "one", "variables": {"items": ["a", "b"]}}]
        for iteration in (1, 2):
            given = [{"step_id": "s", "output": "did it", "iteration": iteration}] if iteration in reported else []
            moves += [{"activity_id": "inner", "step_manifest": given}, {"activity_id": "one"}]
        for move in (*moves, {"activity_id": "last"}, {"activity_id": "__terminal__"}):
            token = (await play("next_activity", session_token=token, **move)).token
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = (await ledger.sessions()).items
        report = await report_session(ledger, session.id)

    assert report.completed
    assert report.differences == [
        f"one: Iteration {iteration} of loop 'each' was not reported: [s]" for iteration in (1, 2) if iteration not in reported
    ]


REPEATED = """
id: tour
version: 1.0.0
title: Tour
initialActivity: one
variables: [{name: more, type: boolean}]
activities:
  - id: one
    version: 1.0.0
    name: One
    loops:
      - id: again
        name: Again
        type: KIND
        condition: {type: simple, variable: more, operator: "==", value: true}
        steps: [{id: s, name: S}]
    transitions: [{to: last, isDefault: true}]
  - {id: last, version: 1.0.0, name: Last}
"""


@proves("sessions.report-loops")
@pytest.mark.parametrize("kind", ["doWhile", "while"])
@pytest.mark.parametrize("manifest", [[], [{"step_id": "s", "output": "did it"}]])
async def test_the_first_iteration_of_a_do_while_loop_is_due_in_the_report_while_its_condition_is_unknown(
    settings: Settings, library: Path, kind: str, manifest: list[dict[str, Any]]
) -> None:
    (library / "tour.yaml").write_text(REPEATED.replace("KIND", kind))
    async with playing(settings, library, dialect="sessions") as play:
        token = (await play("start_session", workflow_id="tour")).token
        token = (await play("next_activity", session_token=token, activity_id="one")).token
        left = await play("next_activity", session_token=token, activity_id="last", step_manifest=manifest)
        assert left.warnings == []
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = (await ledger.sessions()).items
        differences = (await report_session(ledger, session.id)).differences

    is_missing = kind == "doWhile" and not manifest
    assert differences == (["one: Iteration 1 of loop 'again' was not reported: [s]"] if is_missing else [])
