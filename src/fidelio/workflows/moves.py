"""Moves of a session between activities, and its end: the service behind `next_activity`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.models import Activity, Workflow
from fidelio.engine.loops import assign_iterations, check_loops, draft_loop_entry, enters_loop_activity
from fidelio.engine.manifests import (
    ActivityReport,
    StepReport,
    check_activity_manifest,
    check_manifest_size,
    check_step_manifest,
    check_unasked_checkpoints,
    draft_reported_steps,
    encode_manifest,
)
from fidelio.engine.person_checkpoints import refuse_unanswered
from fidelio.engine.record import EventDraft, Record, fold_drafts
from fidelio.engine.state import Problem
from fidelio.engine.transition_events import check_transition, draft_transition, starts_new_visit
from fidelio.engine.transitions import CandidateTransition, ends_workflow, list_transitions
from fidelio.engine.triggers import check_unstarted_triggers, collect_returned_variables, draft_child_finished
from fidelio.engine.variables import check_required_variables
from fidelio.errors import DefinitionError, WorkflowRefusal
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.cancel import find_waiting_parent
from fidelio.workflows.refusals import refusal_error, refuse_ended, refuse_while_pending, refuse_while_waiting
from fidelio.workflows.requests import arm_checkpoints
from fidelio.workflows.session_definition import SessionDefinition, explain_unavailable, find_activity, load_definition
from fidelio.workflows.tokens import Segment, shorten_claim
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit, build_events


class Move(msgspec.Struct, frozen=True):
    """The input of `next_activity`. `author` has set the variables, if it is not the calling agent."""

    to: str
    claim: str | None = None
    steps: Sequence[StepReport] | None = None
    activities: Sequence[ActivityReport] | None = None
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)
    author: str = ""


class MoveResult(msgspec.Struct, frozen=True):
    """The position of the session after a move. `activity` is None at the end of the workflow."""

    workflow: Workflow
    activity: Activity | None
    left: str
    first_event: int


class MoveService:
    """Carries out `next_activity`."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    def make_trace_token(self, outcome: CallResult[MoveResult]) -> str:
        """Make a token that commits to the events between entering an activity and leaving it."""
        moved, last = outcome.result, outcome.events[-1]
        segment = Segment(outcome.session, moved.left, moved.first_event, last.seq, last.hash, last.time // 1000)
        return self._unit.tokens.make_trace(segment)

    async def move(self, token: str, move: Move) -> CallResult[MoveResult]:
        """Enter an activity or end the workflow. Its checkpoints are yielded later, by the agent."""

        async def decide(call: WorkflowCall, definition: SessionDefinition) -> WorkflowDecision[MoveResult]:
            how = "The orchestrator resolves it with respond_checkpoint first."
            refuse_while_waiting(call.record, f"enter '{move.to}'", remedy=how)
            return await self._decide_move(call, definition, move)

        return await self._perform(token, move, decide)

    async def enter(self, token: str, move: Move) -> CallResult[MoveResult]:
        """Enter an activity, open a request for each of its checkpoints, and hold the session until all are answered.

        Entering the current activity again while requests are open is no move: it returns the activity and opens requests for
        the checkpoints that this visit has not opened yet.
        """

        async def decide(call: WorkflowCall, definition: SessionDefinition) -> WorkflowDecision[MoveResult]:
            record = call.record
            if move.to != record.activity:
                refuse_while_pending(record, f"enter '{move.to}'")
            new_visit = False if record.pending else None
            decision = await self._decide_move(call, definition, move, new_visit=new_visit, per_iteration=False)
            if decision.result.activity is None:
                return decision
            after = fold_drafts(record, decision.events, self._unit.clock())
            armed = arm_checkpoints(decision.result.workflow, after, person=self._unit.policy.requests_demand_person)
            events = (*decision.events, *build_events(armed.drafts, call.agent))
            return replace(decision, events=events, requests=armed.requests)

        return await self._perform(token, move, decide)

    async def _perform(
        self,
        token: str,
        move: Move,
        decide: Callable[[WorkflowCall, SessionDefinition], Awaitable[WorkflowDecision[MoveResult]]],
    ) -> CallResult[MoveResult]:
        async def decide_with_definition(call: WorkflowCall) -> WorkflowDecision[MoveResult]:
            definition = await load_definition(self._unit, call.session.id, call.record, target=move.to)
            return replace(await decide(call, definition), definition=definition)

        return await self._unit.perform("next_activity", token, decide_with_definition)

    def _refuse_move(self, call: WorkflowCall) -> None:
        if not self._unit.policy.allows_moves:
            raise move_not_allowed()
        _refuse_unmovable(call)

    async def _decide_move(
        self,
        call: WorkflowCall,
        definition: SessionDefinition,
        move: Move,
        *,
        new_visit: bool | None = None,
        per_iteration: bool = True,
    ) -> WorkflowDecision[MoveResult]:
        self._refuse_move(call)
        if (too_large := check_manifest_size(move.steps or ())) is not None:
            raise refusal_error(too_large)
        ends = ends_workflow(definition.workflow, move.to)
        activity = None if ends else find_activity(self._unit, definition, move.to)
        # The library accepts variants of an id. The record must hold the canonical one, or later comparisons would fail.
        move = replace(move, to=activity.id) if activity is not None and activity.id != move.to else move
        report = self._unit.draft_report(definition.workflow, call, move.variables, author=move.author)
        if move.steps and move.to != call.record.activity:
            report += draft_reported_steps(definition.workflow, fold_drafts(call.record, report, 0), move.steps)
        reported = fold_drafts(call.record, report, self._unit.clock())
        entry = draft_loop_entry(definition.workflow, reported, move.to, move.steps or ())
        informed = fold_drafts(reported, entry, self._unit.clock())
        candidates = list_transitions(definition.workflow, informed)
        warnings = self._check_move(
            definition, call.record, informed, move, candidates, new_visit=new_visit, per_iteration=per_iteration
        )
        steps = None if move.steps is None else encode_manifest(assign_iterations(definition.workflow, informed, move.steps))
        drafts = draft_transition(
            definition.workflow,
            informed,
            move.to,
            condition=move.claim,
            manifest=steps,
            warnings=warnings,
            new_visit=new_visit,
            candidates=candidates,
        )
        self._refuse_unanswered(
            definition.workflow, call.record, reported, [*entry, *drafts], move, per_iteration=per_iteration
        )
        moved = MoveResult(definition.workflow, activity, call.record.activity, call.record.since)
        linked = await self.finish_in_parent(call, fold_drafts(informed, drafts, self._unit.clock())) if ends else ()
        events = build_events([*report, *entry, *drafts], call.agent)
        return WorkflowDecision(moved, events=events, warnings=warnings, linked=linked, closes=True)

    def _refuse_unanswered(
        self,
        workflow: Workflow,
        earlier: Record,
        record: Record,
        drafts: Sequence[EventDraft],
        move: Move,
        *,
        per_iteration: bool,
    ) -> None:
        """Refuse, at every level, to end a visit with a checkpoint that only a person answers and that none has answered."""
        steps = [entry.step_id for entry in move.steps or ()]
        if per_iteration:
            remedy = "Yield it with yield_checkpoint. A person answers it; then go on."
        else:
            steps = list(dict.fromkeys(steps))
            remedy = (
                f"Call next_activity with '{record.activity}' and the same `variables`: it opens the questions that are left. "
                "A person answers them; then go on."
            )
        server = self._unit.policy.demands_person
        refusal = refuse_unanswered(workflow, record, drafts, reported=steps, earlier=earlier, server=server, remedy=remedy)
        if refusal is not None:
            raise refusal_error(refusal)

    def _check_move(
        self,
        definition: SessionDefinition,
        record: Record,
        informed: Record,
        move: Move,
        candidates: Sequence[CandidateTransition],
        *,
        new_visit: bool | None,
        per_iteration: bool,
    ) -> tuple[str, ...]:
        """Return the warnings of a move; raise if it is refused.

        `informed` is the record with the reports of this call, and `candidates` are its transitions.
        """
        workflow, leaving = definition.workflow, move.to != record.activity
        steps = [entry.step_id for entry in move.steps or ()]
        again = not leaving and new_visit is not False and starts_new_visit(workflow, informed, move.claim, candidates)
        inward = enters_loop_activity(workflow, informed, move.to)
        problems = [
            *check_transition(workflow, informed, move.to, move.claim, candidates=candidates),
            *check_required_variables(workflow, informed),
            *definition.drift,
            *check_step_manifest(workflow, informed, move.steps, leaving=leaving, per_iteration=per_iteration, inward=inward),
            # A new visit of the same activity ends the old one: its loops must not be left behind unfinished.
            *(check_loops(workflow, informed, move.steps or ()) if again else ()),
            *(check_unasked_checkpoints(workflow, informed) if leaving else ()),
            *(self._check_unstarted(workflow, informed, steps, doubt=not per_iteration) if leaving else ()),
            *check_activity_manifest(workflow, move.activities),
        ]
        return self._unit.check_report(workflow, record, move.variables, problems)

    def _check_unstarted(self, workflow: Workflow, record: Record, steps: Sequence[str], *, doubt: bool) -> list[Problem]:
        explain = partial(explain_unavailable, self._unit)
        return check_unstarted_triggers(workflow, record, steps, doubt=doubt, explain=explain)

    async def finish_in_parent(self, call: WorkflowCall, record: Record) -> tuple[LinkedChange[Record], ...]:
        """Build the change that returns the variables of a completed child to the parent that waits for it."""
        if (waiting := await find_waiting_parent(self._unit, call)) is None:
            return ()
        parent, child = waiting
        returned = await self._collect_returned_variables(parent, record)
        events = build_events([draft_child_finished(child, returned)], call.agent)
        return (LinkedChange(parent.session.id, events, parent.record),)

    async def _collect_returned_variables(self, parent: WorkflowCall, ended: Record) -> dict[str, Any]:
        try:
            workflow = (await load_definition(self._unit, parent.session.id, parent.record)).workflow
        except DefinitionError:
            workflow = None
        return collect_returned_variables(workflow, parent.record, ended, person=self._unit.policy.demands_person)


def move_not_allowed() -> WorkflowRefusal:
    return WorkflowRefusal(
        "You carry out one activity of this workflow; the agent that assigned it to you moves the session.",
        remedy="End your turn with the manifest of what you did.",
        reason="session.not-yours",
    )


def _refuse_unmovable(call: WorkflowCall) -> None:
    record = call.record
    refuse_ended(record)
    claimed = call.claims.act
    if claimed is not None and claimed != shorten_claim(record.activity):
        raise WorkflowRefusal(
            f"This token is stale: it was made at '{claimed or 'the start'}', "
            f"the session is at '{record.activity or 'the start'}'.",
            remedy="Another call moved the session. Continue it with start_session and this token; it returns a current one.",
            reason="token.stale",
        )
    if record.children:
        waits_for = " and ".join(f"{child.workflow} ({child.session})" for child in record.children)
        raise WorkflowRefusal(
            f"This session waits for its child {waits_for} to end.",
            remedy="Complete the child session; then this session continues.",
            reason="session.suspended",
        )
