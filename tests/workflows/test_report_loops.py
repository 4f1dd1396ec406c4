"""What a report says of loops."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fidelio.engine.record import ENTERED, LOOP_ADVANCED, STARTED
from fidelio.ledger.model import Event
from fidelio.workflows.report.builder import build_report
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
