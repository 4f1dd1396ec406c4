"""Consequences of a move in the navigator dialect: the next request, and the child sessions that the move starts.

The request of the next checkpoint is opened at once, so that it is in the inbox and its timer runs. A child session that a step
or an activity triggers starts in the same transaction as the move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.models import Workflow
from fidelio.engine import phrases
from fidelio.engine.apply_move import MoveRequest
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.moves import Situation, describe_situation
from fidelio.engine.record import CHILD_STARTED, ENTERED, EventDraft, Record, fold_drafts
from fidelio.engine.state import build_refusal
from fidelio.engine.transition_events import draft_transition
from fidelio.engine.transitions import ends_workflow, list_transitions, select_open
from fidelio.engine.triggers import (
    TriggerMatch,
    build_initial_variables,
    build_unstarted,
    draft_child_started,
    find_fired_triggers,
)
from fidelio.engine.variables import check_required_variables, find_missing_required
from fidelio.errors import Command, DefinitionError, Hint, SessionNotFound, WorkflowRefusal
from fidelio.ids import new_session_id
from fidelio.inbox import NewRequest
from fidelio.ledger.paging import all_events
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.refusals import refusal_error
from fidelio.workflows.requests import yield_request
from fidelio.workflows.session_definition import describe_problem
from fidelio.workflows.start import SessionStart, StartService, build_new_call
from fidelio.workflows.unit_of_work import WorkflowCall, WorkflowUnit, build_events

# Workflows that trigger each other at their start would otherwise start sessions without end.
MAX_CHILD_DEPTH = 8


class NextSituation(msgspec.Struct, frozen=True):
    """The possible moves after a move, and the event and request of the next checkpoint, if any."""

    situation: Situation
    drafts: tuple[EventDraft, ...] = ()
    requests: tuple[NewRequest, ...] = ()


class MoveConsequences(msgspec.Struct, frozen=True):
    """The events, requests and linked changes of a move. `child` is the session that it starts and that continues first."""

    drafts: tuple[EventDraft, ...]
    situation: Situation
    requests: tuple[NewRequest, ...] = ()
    linked: tuple[LinkedChange[Record], ...] = ()
    warnings: tuple[str, ...] = ()
    child: str = ""


def yield_next_checkpoint(workflow: Workflow, record: Record, *, person: bool, now: int) -> NextSituation:
    """Open the request of the next checkpoint, unless other moves are possible before it."""
    situation = describe_situation(workflow, record, now=now, person=person)
    checkpoint = find_current_checkpoint(workflow, record, situation.checkpoint) if situation.checkpoint else None
    if record.waiting is not None or checkpoint is None or any(move.target != checkpoint.id for move in situation.offered):
        return NextSituation(situation)
    draft, request = yield_request(workflow, record, checkpoint, person=person)
    return NextSituation(
        describe_situation(workflow, fold_drafts(record, [draft], now), now=now, person=person), (draft,), (request,)
    )


def with_server_level(unit: WorkflowUnit, record: Record) -> Record:
    """Return the record with the effective level, to find the possible moves. The stored record keeps its level."""
    fidelity = unit.effective_fidelity(record)
    return record if fidelity == record.fidelity else replace(record, fidelity=fidelity)


def draft_first_entry(workflow: Workflow, record: Record) -> list[EventDraft]:
    """Draft the entry into the first activity of a new session, if only a single activity can be entered."""
    if build_refusal(check_required_variables(workflow, record), record.fidelity) is not None:
        return []
    candidates = list_transitions(workflow, record)
    entries = () if workflow.independent else select_open(candidates)
    if len(entries) != 1 or ends_workflow(workflow, entries[0].to):
        return []
    return draft_transition(workflow, record, entries[0].to, candidates=candidates)


def refuse_missing_variables(workflow: Workflow, record: Record) -> None:
    """Refuse to start without the required variables: the caller can still supply them."""
    if missing := find_missing_required(workflow, record.variables):
        raise WorkflowRefusal(
            phrases.required_variables(workflow.id, missing),
            remedy=f"Give {' and '.join(missing)} in `initial_variables`.",
            reason="required-variables",
        )


def find_elicited_option(record: Record, act: MoveRequest, elicited: Collection[str]) -> str | None:
    """The option of the answer that this call has elicited from a person, or None."""
    last = record.last
    if last is None or last.checkpoint != act.target or last.request not in elicited:
        return None
    return None if record.find_pending(act.target) else last.option


def is_end(workflow: Workflow, act: MoveRequest) -> bool:
    """Whether a move ends the workflow."""
    return act.action == "transition" and ends_workflow(workflow, act.target)


def circular_wait_error() -> SessionNotFound:
    return SessionNotFound("These sessions wait for each other.", remedy=Hint("Look at them with ", Command("sessions"), "."))


class MovePlanner:
    """Plans the consequences of a move, including those in the child sessions that it starts."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit
        self._starts = StartService(unit)

    def build_start(self, workflow: Workflow, agent: str, variables: Mapping[str, Any], by: str) -> SessionStart:
        """Build the start of a session with initial variables."""
        return self._starts.build_start(workflow, agent, variables=dict(variables), variables_by=by)

    async def plan(
        self, call: WorkflowCall, workflow: Workflow, drafts: Sequence[EventDraft], *, step: str = ""
    ) -> MoveConsequences:
        """Plan the consequences of these drafts; `step` is the step that they complete."""
        after = fold_drafts(call.record, drafts, self._unit.clock())
        triggers = find_fired_triggers(workflow, call.record, after, step)
        due = [trigger for trigger in triggers if trigger.step or not await self._has_started(call, after, trigger)]
        return self._plan_with_children(call, workflow, drafts, after, due, depth=1)

    async def _has_started(self, call: WorkflowCall, after: Record, trigger: TriggerMatch) -> bool:
        """Whether this visit has already started the workflow, as an agent can do itself in another dialect."""
        if after.visit > call.record.visits:
            return False
        events = await all_events(self._unit.ledger, call.session.id, types=[ENTERED, CHILD_STARTED])
        entered = max((event.seq for event in events if event.type == ENTERED), default=0)
        return any(event.seq > entered and event.body.get("workflow") == trigger.workflow for event in events)

    def _plan_with_children(
        self,
        call: WorkflowCall,
        workflow: Workflow,
        drafts: Sequence[EventDraft],
        after: Record,
        due: Sequence[TriggerMatch],
        *,
        depth: int,
    ) -> MoveConsequences:
        """Plan the drafts; `after` is the record after them, `due` are the workflows that they trigger."""
        if not due:
            return self._plan_without_children(workflow, drafts, after)
        started, linked, warnings = list[EventDraft](), list[LinkedChange[Record]](), list[str]()
        for trigger in due:
            try:
                changes = self._start_child(call, workflow, after, trigger, depth)
            except DefinitionError as problem:
                self._refuse_unstarted(after, trigger.workflow, describe_problem(problem))
                warnings.append(f"Workflow '{trigger.workflow}' is to be started here and cannot be: {problem.sentence} Go on.")
                continue
            started.append(draft_child_started(changes[0].session, trigger.workflow, trigger))
            linked += changes
        if not linked:
            return self._plan_without_children(workflow, drafts, after, warnings)
        now = self._unit.clock()
        record = with_server_level(self._unit, fold_drafts(after, started, now))
        situation = describe_situation(workflow, record, now=now, person=self._unit.policy.demands_person)
        return MoveConsequences((*drafts, *started), situation, (), tuple(linked), tuple(warnings), linked[0].session)

    def _refuse_unstarted(self, record: Record, workflow: str, why: str) -> None:
        """Refuse where moves are enforced: otherwise a child could be left out by deleting its files."""
        refusal = build_refusal([build_unstarted(workflow, why)], self._unit.effective_fidelity(record))
        if refusal is not None:
            raise refusal_error(refusal)

    def _plan_without_children(
        self, workflow: Workflow, drafts: Sequence[EventDraft], after: Record, warnings: Sequence[str] = ()
    ) -> MoveConsequences:
        """Plan a move that starts no session."""
        record, person = with_server_level(self._unit, after), self._unit.policy.demands_person
        following = yield_next_checkpoint(workflow, record, person=person, now=self._unit.clock())
        drafts = (*drafts, *following.drafts)
        return MoveConsequences(drafts, following.situation, following.requests, warnings=tuple(warnings))

    def _start_child(
        self, parent: WorkflowCall, workflow: Workflow, record: Record, trigger: TriggerMatch, depth: int
    ) -> tuple[LinkedChange[Record], ...]:
        """Build the changes that start a child session, and the sessions that its own start triggers."""
        definition = self._unit.library.workflow(trigger.workflow)
        inherited = build_initial_variables(workflow, record, trigger, person=self._unit.policy.demands_person)
        current_parent = replace(parent, record=record)
        start = self._starts.build_start(definition, parent.agent, parent=current_parent, **inherited)
        session, first = new_session_id(), [EventDraft(start.event.type, dict(start.event.body))]
        initial = fold_drafts(Record(), first, self._unit.clock())
        entry = draft_first_entry(definition, with_server_level(self._unit, initial))
        child = build_new_call(session, initial, parent.agent)
        after = fold_drafts(initial, entry, self._unit.clock())
        due = find_fired_triggers(definition, initial, after) if depth < MAX_CHILD_DEPTH else []
        planned = self._plan_with_children(child, definition, entry, after, due, depth=depth + 1)
        events = (start.event, *build_events(planned.drafts, parent.agent))
        own = LinkedChange(session, events, Record(), start.create, planned.requests, (start.snapshot,))
        return (own, *planned.linked)
