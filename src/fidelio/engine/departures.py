"""Going from one activity to another, or to the end: the events that this consists of.

Leaving carries out the exit actions, arriving the entry actions. Entering the current activity again is the same visit, unless
an answer or a declared way really leads back to it: then the person or the definition wants it done anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fidelio.engine.claims import check_claim
from fidelio.engine.record import COMPLETED, ENTERED, VARIABLES_SET, Draft, foreseen
from fidelio.engine.scope import known, left_out, running_loop
from fidelio.engine.state import Record
from fidelio.engine.transitions import ends_workflow, next_in_pass, ways
from fidelio.engine.variables import set_by_actions

if TYPE_CHECKING:
    from fidelio.definitions.models import Action, Workflow


def departure(
    workflow: Workflow,
    record: Record,
    target: str,
    *,
    condition: str | None = None,
    manifest: Sequence[dict[str, str]] | None = None,
    warnings: Sequence[str] = (),
    again: bool | None = None,
) -> list[Draft]:
    """The events of going to `target`. Whether the move is right is not asked here.

    `again` makes entering the current activity a new visit; left out, what leads there decides.
    """
    if again is None:
        again = target == record.activity and leads_back(workflow, record, condition)
    body: dict[str, Any] = {"activity": target, "from": record.activity, "condition": condition or ""}
    body |= {"manifest": list(manifest)} if manifest is not None else {}
    body |= {"warnings": list(warnings)} if warnings else {}
    if target == record.activity and not again:
        return [Draft(ENTERED, body)]
    body |= {"again": True} if again else {}
    body |= _passing(workflow, record, target) | _how(workflow, record, target)
    type_ = COMPLETED if ends_workflow(workflow, target) else ENTERED
    # A loop that goes through other activities leaves its owner without an end and comes back to it without a beginning.
    leaving = [] if body["how"] == "loop" else _leaving(workflow, record)
    drafts = [*leaving, Draft(type_, body)]
    return drafts if body["how"] == "return" else [*drafts, *_arriving(workflow, foreseen(record, drafts, 0))]


def leads_back(workflow: Workflow, record: Record, claim: str | None) -> bool:
    """Whether going to the current activity is a new visit of it."""
    if record.forced == record.activity:
        return True
    own = [way for way in ways(workflow, record, told=True) if way.to == record.activity and way.kind != "answer"]
    if not own or all(way.holds is False for way in own):
        return False
    claimed = bool(claim) and not check_claim(workflow, record, record.activity, claim)
    return claimed or any(way.holds for way in own)


def _passing(workflow: Workflow, record: Record, target: str) -> dict[str, Any]:
    if not left_out(workflow, record):
        return {}
    way = next((way for way in ways(workflow, record) if way.to == target and way.via), None)
    return {"passed": list(way.via)} if way is not None else {}


def _how(workflow: Workflow, record: Record, target: str) -> dict[str, Any]:
    """How loops that go through activities see the move: into the first, on to the next, back to the owner, or out of them."""
    loop = running_loop(workflow, record.here)
    inward = next_in_pass(workflow, record, record.here)
    if loop is not None and inward is not None and inward[0] == target and not record.forced:
        return {"how": "loop", "reached": inward[1], "at": len(loop.steps)}
    if record.outer and target == record.activity:
        return {"how": "pass", "reached": _reached(record)}
    if record.outer and not record.forced:
        following = next_in_pass(workflow, record, record.outer[-1])
        if following is not None and following[0] == target:
            return {"how": "pass", "reached": following[1]}
        if following is None and record.outer[-1].activity == target:
            return {"how": "return"}
    return {"how": "next"}


def _reached(record: Record) -> int:
    running = record.outer[-1].running
    return running.entered if running is not None else 0


def _leaving(workflow: Workflow, record: Record) -> list[Draft]:
    activity = workflow.activity(record.activity)
    return _carried_out(workflow, record, activity.exit_actions, f"exit:{activity.id}") if activity is not None else []


def _arriving(workflow: Workflow, record: Record) -> list[Draft]:
    activity = workflow.activity(record.activity)
    return _carried_out(workflow, record, activity.entry_actions, f"entry:{activity.id}") if activity is not None else []


def _carried_out(workflow: Workflow, record: Record, actions: Sequence[Action], author: str) -> list[Draft]:
    changed = set_by_actions(actions, known(workflow, record))
    return [Draft(VARIABLES_SET, {"variables": changed, "by": author})] if changed else []
