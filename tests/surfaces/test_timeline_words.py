"""The words of the timeline for calls of tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fidelio.ledger.model import Event
from fidelio.surfaces.timeline import describe_event
from tests.support import proves


@proves("cli.record")
@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({}, "called get_workflow_status"),
        ({"reads": 1}, "called get_workflow_status again"),
        ({"reads": 12}, "called get_workflow_status again, 12 times"),
    ],
)
def test_equal_reads_are_shown_with_their_number(body: dict[str, Any], what: str) -> None:
    event = Event(
        position=1,
        session="s_one",
        seq=1,
        id="e_one",
        type="tool.called",
        actor="worker",
        time=0,
        raw=json.dumps({"name": "get_workflow_status", **body}),
        salt=None,
        digest=b"",
        hash=b"",
    )

    assert describe_event(event).what == what
