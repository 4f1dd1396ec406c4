"""How a session moves from activity to activity, and to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fidelio.definitions.library import Version
from fidelio.definitions.models import Activity, Workflow
from fidelio.engine.claims import check_drift, check_transition
from fidelio.engine.leaving import departure
from fidelio.engine.manifests import ActivityDone, StepDone, check_activities, check_steps, for_event
from fidelio.engine.record import VARIABLES_SET, Draft, Record, foreseen
from fidelio.engine.transitions import ends_workflow
from fidelio.engine.triggers import child_finished
from fidelio.engine.variables import check_variables, too_much
from fidelio.engine.verdicts import refusal, warnings
from fidelio.errors import SessionNotFound, WorkflowRefusal
from fidelio.ledger.model import NewEvent
from fidelio.workflows.desk import Beside, Decision, Desk, Opened, Outcome, written
from fidelio.workflows.gate import refuse_while_waiting, refused
from fidelio.workflows.tokens import Claims, bounded


class Move(msgspec.Struct, frozen=True):
    """What next_activity was asked for."""

    to: str
    claim: str | None = None
    steps: Sequence[StepDone] | None = None
    activities: Sequence[ActivityDone] | None = None
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Moved(msgspec.Struct, frozen=True):
    """Where the session is now. `activity` is None at the end."""

    workflow: Workflow
    activity: Activity | None
    left: str
    first_event: int


class Moving:
    """Everything that next_activity does."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def move(self, token: str, move: Move) -> Outcome[Moved]:
        async def decide(opened: Opened) -> Decision[Moved]:
            _refuse_unmovable(opened, move.to)
            version = self._desk.library.version(opened.record.workflow)
            ends = ends_workflow(version.workflow, move.to)
            activity = None if ends else self._activity(version.workflow, move.to)
            told = _reported(move.variables, opened.agent)
            informed = foreseen(opened.record, told, self._desk.clock())
            said = _weigh(version, opened.record, informed, move)
            steps = None if move.steps is None else for_event(move.steps)
            drafts = departure(version.workflow, informed, move.to, condition=move.claim, manifest=steps, warnings=said)
            moved = Moved(version.workflow, activity, opened.record.activity, opened.record.since)
            beside = await self._returning(opened, informed) if ends else ()
            events = written([*told, *drafts], opened.agent)
            return Decision(moved, events=events, warnings=said, beside=beside, closes=True)

        return await self._desk.perform("next_activity", token, decide)

    def _activity(self, workflow: Workflow, name: str) -> Activity:
        # The library words the refusal: it knows near names, and why an activity cannot be read.
        return workflow.activity(name) or self._desk.library.activity(workflow.id, name)

    async def _returning(self, opened: Opened, record: Record) -> tuple[Beside, ...]:
        """The end of a child that its parent waits for gives the parent its outcome and the variables back."""
        if record.parent is None:
            return ()
        try:
            parent = await self._desk.open_claims(Claims(sid=record.parent.session))
        except SessionNotFound:
            return ()
        child = next((one for one in parent.record.children if one.session == opened.session.id), None)
        if child is None:
            return ()
        events = written([child_finished(child, record.variables)], opened.agent)
        return (Beside(parent.session.id, events, parent.record),)


def reported(variables: Mapping[str, Any], agent: str) -> tuple[NewEvent, ...]:
    """The event that puts an agent's variables on record; none when it reported none."""
    return written(_reported(variables, agent), agent)


def _reported(variables: Mapping[str, Any], agent: str) -> list[Draft]:
    return [Draft(VARIABLES_SET, {"variables": dict(variables), "by": f"agent:{agent}"})] if variables else []


def _weigh(version: Version, record: Record, informed: Record, move: Move) -> tuple[str, ...]:
    """The warnings of the move; raises where they amount to a refusal. What is reported with the call is known to it."""
    workflow = version.workflow
    problems = [
        *check_transition(workflow, informed, move.to, move.claim),
        *check_drift(record, workflow.version, version.hash),
        *check_steps(workflow, informed, move.steps, leaving=move.to != record.activity),
        *check_activities(workflow, move.activities),
        *check_variables(workflow, move.variables),
    ]
    no = too_much(record.variables, move.variables) or refusal(problems, record.fidelity)
    if no is not None:
        raise refused(no)
    return tuple(warnings(problems))


def _refuse_unmovable(opened: Opened, target: str) -> None:
    record = opened.record
    refuse_while_waiting(record, f"enter '{target}'", remedy="The orchestrator resolves it with respond_checkpoint first.")
    if record.status == "completed":
        raise WorkflowRefusal("This session is completed.", remedy="Start a new one with start_session.")
    claimed = opened.claims.act
    if claimed is not None and claimed != bounded(record.activity):
        raise WorkflowRefusal(
            f"This token is stale: it stands at '{claimed or 'the start'}', the session at '{record.activity or 'the start'}'.",
            remedy="Somebody else moved the session. Read get_workflow_status and go on with the token it returns.",
        )
    if record.suspended_by:
        raise WorkflowRefusal(
            f"This session waits for its child {record.children[0].workflow} to end.",
            remedy="Carry the child session to its end; then this one goes on.",
        )
