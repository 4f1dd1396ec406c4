"""A redaction erases the items of a loop, but not how many there are, nor which iterations were answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fidelio.app.records import record_type
from fidelio.engine.record import RESTORED, Record, encode_record, fold
from fidelio.engine.state import ActivityVisit, LoopAnswers, LoopIteration
from fidelio.ledger import open_ledger
from fidelio.ledger.redaction import EventView, blank_body
from fidelio.settings import Settings
from fidelio.workflows.records import WorkflowRecords
from tests.dialects.conftest import playing
from tests.support import proves

WORKFLOW = """
id: tour
version: 1.0.0
title: Tour
initialActivity: one
variables: [{name: items, type: array}]
activities:
  - id: one
    version: 1.0.0
    name: One
    loops: [{id: each, name: Each, type: forEach, over: items, variable: item, steps: [{id: s, name: S}]}]
"""


def fold_redacted(kind: str, body: dict[str, Any]) -> Record:
    return fold(Record(), [EventView(1, kind, 0, blank_body(body, WorkflowRecords.structure))])


@proves("chain.redacted-projections")
def test_a_redacted_restored_record_keeps_its_loops_without_their_texts() -> None:
    here = ActivityVisit(
        "one",
        1,
        running=LoopIteration("each", 2, items=("a secret", {"secret": 1}, 3)),
        in_loops={"ok": LoopAnswers((1, 2), 3)},
        loop_items={"each": ["a secret", 4]},
    )
    body = {"workflow": "tour", "version": "1.0.0", "definition": "d", "record": encode_record(Record(here=here))}

    after = fold_redacted(RESTORED, body).here

    assert after.in_loops == {"ok": LoopAnswers((1, 2), 3)}
    assert after.running == LoopIteration("each", 2, items=("", "", ""))
    assert after.loop_items == {"each": ["", ""]}


@proves("chain.redacted-projections")
async def test_a_running_loop_goes_on_after_its_items_were_redacted(settings: Settings, library: Path) -> None:
    (library / "tour.yaml").write_text(WORKFLOW)
    async with playing(settings, library, dialect="navigator") as play:
        reply = await play("nav_start", workflow_id="tour", initial_variables={"items": ["a secret", "b", "c"]})
        done = {"action": "complete_step", "step_id": "s", "output": "x"}
        advance = {"action": "advance_loop", "loop_id": "each"}
        for move in (advance, done):
            reply = await play("nav_action", state=json.loads(reply.text)["state"], **move)
        async with await open_ledger(settings.ledger) as ledger:
            ledger.record_type = record_type
            (session,) = (await ledger.sessions()).items
            # The items are in the start and in the iteration.
            seqs = [event.seq for event in await ledger.events(session.id) if "a secret" in str(event.body)]
            await ledger.redact(session.id, seqs, actor="person:ada", reason="x")
        reply = await play("nav_action", state=json.loads(reply.text)["state"], **advance)

    position = json.loads(reply.text)["position"]["loop"]
    assert (position["iteration"], position["total"], len(seqs)) == (2, 3, 2)
    assert "a secret" not in reply.text
