"""Moves a session from activity to activity, and to its end: `next_activity`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.library import WorkflowVersion
from fidelio.definitions.models import Activity, Workflow
from fidelio.engine.manifests import (
    ActivityReport,
    StepReport,
    check_activity_manifest,
    check_step_manifest,
    check_unasked_checkpoints,
    draft_reported_steps,
    encode_manifest,
)
from fidelio.engine.record import Record, fold_drafts
from fidelio.engine.state import build_refusal, list_warnings
from fidelio.engine.transition_events import check_drift, check_transition, draft_transition
from fidelio.engine.transitions import TERMINAL, ends_workflow
from fidelio.engine.triggers import collect_returned_variables, draft_child_finished
from fidelio.engine.variables import check_report, check_size, draft_report
from fidelio.errors import DefinitionDeleted, DefinitionError, SessionNotFound, WorkflowRefusal
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.missing import (
    ENDED_BY_PERSON,
    ENDED_WITHOUT_DEFINITION,
    EndedBy,
    deleted_activity_error,
    dismiss_pending,
    load_definition,
    placeholder_workflow,
    unchecked_end_event,
    unchecked_warnings,
)
from fidelio.workflows.requests import arm_checkpoints
from fidelio.workflows.tokens import Claims, Segment, shorten_claim
from fidelio.workflows.unit_of_work import (
    CallResult,
    WorkflowCall,
    WorkflowDecision,
    WorkflowUnit,
    new_events,
    refusal_error,
    refuse_unanswered_end,
    refuse_while_pending,
    refuse_while_waiting,
)


class Move(msgspec.Struct, frozen=True):
    """What next_activity was asked for."""

    to: str
    claim: str | None = None
    steps: Sequence[StepReport] | None = None
    activities: Sequence[ActivityReport] | None = None
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)


class MoveResult(msgspec.Struct, frozen=True):
    """Where the session is now. `activity` is None at the end."""

    workflow: Workflow
    activity: Activity | None
    left: str
    first_event: int


class MoveService:
    """Everything that next_activity does."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    def make_trace_token(self, outcome: CallResult[MoveResult]) -> str:
        """A token that commits to the events from entering an activity to leaving it."""
        moved, last = outcome.result, outcome.events[-1]
        segment = Segment(outcome.session, moved.left, moved.first_event, last.seq, last.hash, last.time // 1000)
        return self._unit.tokens.make_trace(segment)

    async def move(self, token: str, move: Move) -> CallResult[MoveResult]:
        async def decide(call: WorkflowCall, version: WorkflowVersion) -> WorkflowDecision[MoveResult]:
            how = "The orchestrator resolves it with respond_checkpoint first."
            refuse_while_waiting(call.record, f"enter '{move.to}'", remedy=how)
            return await self._decided(call, version, move)

        return await self._performed(token, move, decide)

    async def enter(self, token: str, move: Move) -> CallResult[MoveResult]:
        """The same where an activity asks all its questions at the door, and holds the session until they are answered.

        Entering the current activity while something waits is no move: it shows the activity again and asks what this visit has
        not asked yet.
        """

        async def decide(call: WorkflowCall, version: WorkflowVersion) -> WorkflowDecision[MoveResult]:
            record = call.record
            if move.to != record.activity:
                refuse_while_pending(record, f"enter '{move.to}'")
            again = False if record.pending else None
            decision = await self._decided(call, version, move, new_visit=again, per_iteration=False)
            if decision.result.activity is None:
                return decision
            after = fold_drafts(record, decision.events, self._unit.clock())
            armed = arm_checkpoints(decision.result.workflow, after, person=self._unit.policy.asks_person)
            events = (*decision.events, *new_events(armed.drafts, call.agent))
            return replace(decision, events=events, requests=armed.requests)

        return await self._performed(token, move, decide)

    async def end(self, session: str, *, by: str) -> CallResult[MoveResult]:
        """A person ends a session whose definition is gone, whatever level it is led at. One that has it is left alone."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[MoveResult]:
            _refuse_unmovable(call)
            try:
                gone = deleted_activity_error(self._unit, call, load_definition(self._unit, call).workflow)
            except DefinitionDeleted as whole:
                gone = whole
            if gone is None:
                raise _has_definition(call.record)
            return await self._parting(call, Move(TERMINAL), gone, EndedBy(by, "cli"))

        return await self._unit.perform(ENDED_BY_PERSON, Claims(sid=session), decide, agent=by)

    async def _performed(
        self, token: str, move: Move, decide: Callable[[WorkflowCall, WorkflowVersion], Awaitable[WorkflowDecision[MoveResult]]]
    ) -> CallResult[MoveResult]:
        async def decide_or_end(call: WorkflowCall) -> WorkflowDecision[MoveResult]:
            try:
                version = load_definition(self._unit, call)
            except DefinitionDeleted as gone:
                return await self.last_move(call, move, gone)
            lost = (
                deleted_activity_error(self._unit, call, version.workflow) if ends_workflow(version.workflow, move.to) else None
            )
            if lost is not None:
                return await self.last_move(call, replace(move, to=TERMINAL), lost)
            return await decide(call, version)

        return await self._unit.perform("next_activity", token, decide_or_end)

    async def last_move(self, call: WorkflowCall, move: Move, gone: DefinitionDeleted) -> WorkflowDecision[MoveResult]:
        """The one move of an agent that takes no definition."""
        self._refuse(call)
        if move.to != TERMINAL or self._unit.fidelity(call.record) == "enforce":
            raise gone
        refuse_unanswered_end(call.record, call.session.id)
        return await self._parting(call, move, gone, EndedBy(f"agent:{call.agent}"))

    async def _parting(
        self, call: WorkflowCall, move: Move, gone: DefinitionDeleted, who: EndedBy
    ) -> WorkflowDecision[MoveResult]:
        """The end of a session that nobody can check, and what it means for a parent that waits for it."""
        record = call.record
        said = tuple(unchecked_warnings(record, gone, move.variables))
        steps = None if move.steps is None else encode_manifest(move.steps)
        drafts = [unchecked_end_event(record, who, condition=move.claim, manifest=steps, warnings=said)]
        after = fold_drafts(record, drafts, self._unit.clock())
        return WorkflowDecision(
            MoveResult(placeholder_workflow(record), None, record.activity, record.since),
            events=new_events(drafts, call.agent),
            requests=dismiss_pending(record, who),
            warnings=said,
            linked=await self.finish_in_parent(call, after, outcome=ENDED_WITHOUT_DEFINITION),
            closes=True,
        )

    def _refuse(self, call: WorkflowCall) -> None:
        if not self._unit.policy.moves:
            raise move_not_allowed()
        _refuse_unmovable(call)

    async def _decided(
        self,
        call: WorkflowCall,
        version: WorkflowVersion,
        move: Move,
        *,
        new_visit: bool | None = None,
        per_iteration: bool = True,
    ) -> WorkflowDecision[MoveResult]:
        self._refuse(call)
        ends = ends_workflow(version.workflow, move.to)
        activity = None if ends else self._activity(version.workflow, move.to)
        # The library is lenient about how an id is written. The record is not: it has the activity's own.
        move = replace(move, to=activity.id) if activity is not None and activity.id != move.to else move
        person = self._unit.policy.answered_by_person
        told = draft_report(version.workflow, call.record, move.variables, call.agent, person=person)
        if move.steps and move.to != call.record.activity:
            told += draft_reported_steps(version.workflow, fold_drafts(call.record, told, 0), move.steps)
        informed = fold_drafts(call.record, told, self._unit.clock())
        said = self._weigh(version, call.record, informed, move, per_iteration=per_iteration)
        steps = None if move.steps is None else encode_manifest(move.steps)
        drafts = draft_transition(
            version.workflow, informed, move.to, condition=move.claim, manifest=steps, warnings=said, new_visit=new_visit
        )
        moved = MoveResult(version.workflow, activity, call.record.activity, call.record.since)
        linked = await self.finish_in_parent(call, fold_drafts(informed, drafts, self._unit.clock())) if ends else ()
        events = new_events([*told, *drafts], call.agent)
        return WorkflowDecision(moved, events=events, warnings=said, linked=linked, closes=True)

    def _weigh(
        self, version: WorkflowVersion, record: Record, informed: Record, move: Move, *, per_iteration: bool
    ) -> tuple[str, ...]:
        """The warnings of the move; raises where they amount to a refusal. What is reported with the call is known to it."""
        workflow, person = version.workflow, self._unit.policy.answered_by_person
        leaving = move.to != record.activity
        problems = [
            *check_transition(workflow, informed, move.to, move.claim),
            *check_drift(record, workflow.version, version.hash),
            *check_step_manifest(workflow, informed, move.steps, leaving=leaving, per_iteration=per_iteration),
            *(check_unasked_checkpoints(workflow, informed) if leaving else ()),
            *check_activity_manifest(workflow, move.activities),
            *check_report(workflow, record, move.variables, person=person),
        ]
        no = check_size(record.variables, move.variables) or build_refusal(problems, self._unit.fidelity(record))
        if no is not None:
            raise refusal_error(no)
        return tuple(list_warnings(problems))

    def _activity(self, workflow: Workflow, name: str) -> Activity:
        # The library words the refusal: it knows near names, and why an activity cannot be read.
        return workflow.activity(name) or self._unit.library.activity(workflow.id, name)

    async def finish_in_parent(
        self, call: WorkflowCall, record: Record, *, outcome: str = "completed"
    ) -> tuple[LinkedChange[Record], ...]:
        """The end of a child that its parent waits for gives the parent its outcome and the variables back."""
        if record.parent is None:
            return ()
        try:
            parent = await self._unit.load_claims(Claims(sid=record.parent.session))
        except SessionNotFound:
            return ()
        child = next((one for one in parent.record.children if one.session == call.session.id), None)
        if child is None:
            return ()
        back = self._brought_back(parent.record, record)
        events = new_events([draft_child_finished(child, back, outcome)], call.agent)
        return (LinkedChange(parent.session.id, events, parent.record),)

    def _brought_back(self, parent: Record, ended: Record) -> dict[str, Any]:
        try:
            workflow = self._unit.library.workflow(parent.workflow)
        except DefinitionError:
            workflow = None
        return collect_returned_variables(workflow, parent, ended, person=self._unit.policy.answered_by_person)


def move_not_allowed() -> WorkflowRefusal:
    return WorkflowRefusal(
        "You do one activity of this workflow; whoever gave it to you moves the session.",
        remedy="End your turn with the manifest of what you did.",
        reason="session.not-yours",
    )


def _has_definition(record: Record) -> WorkflowRefusal:
    return WorkflowRefusal(
        f"The definition of workflow '{record.workflow}' can be read, so the session can be led to its end.",
        remedy="Let its agent go on; nothing was changed.",
        reason="definition.there",
    )


def _refuse_unmovable(call: WorkflowCall) -> None:
    record = call.record
    if record.status == "completed":
        raise WorkflowRefusal(
            "This session is completed.", remedy="Start a new one with start_session.", reason="session.completed"
        )
    claimed = call.claims.act
    if claimed is not None and claimed != shorten_claim(record.activity):
        raise WorkflowRefusal(
            f"This token is stale: it stands at '{claimed or 'the start'}', the session at '{record.activity or 'the start'}'.",
            remedy="Somebody else moved the session. Continue it with start_session and this token; it returns a current one.",
            reason="token.stale",
        )
    if record.children:
        waits_for = " and ".join(f"{child.workflow} ({child.session})" for child in record.children)
        raise WorkflowRefusal(
            f"This session waits for its child {waits_for} to end.",
            remedy="Carry the child session to its end; then this one goes on.",
            reason="session.suspended",
        )
