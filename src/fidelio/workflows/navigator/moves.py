"""Works out what follows from a move in the navigator dialect: the next request, and child sessions that begin.

A question that is reached is put on record at once, so that it is in the inbox and its clock runs. A workflow that a step or
an activity starts begins with the move that starts it, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.models import Workflow
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.moves import Situation, describe_situation
from fidelio.engine.record import CHILD_STARTED, ENTERED, EventDraft, Record, fold_drafts
from fidelio.engine.transition_events import draft_transition
from fidelio.engine.transitions import ends_workflow, list_open_transitions
from fidelio.engine.triggers import TriggerMatch, build_initial_variables, draft_child_started, find_fired_triggers
from fidelio.errors import DefinitionError
from fidelio.ids import new_session_id
from fidelio.inbox import NewRequest
from fidelio.ledger.paging import all_events
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.requests import yield_request
from fidelio.workflows.start import SessionStart, StartService, new_call
from fidelio.workflows.unit_of_work import WorkflowCall, WorkflowUnit, new_events

# Workflows that start each other as soon as they begin would never come to anything.
DEEPEST = 8


class ReachedCheckpoint(msgspec.Struct, frozen=True):
    """What is possible after a move, and the question that it has come to, as it goes on record; none when it came to none."""

    situation: Situation
    drafts: tuple[EventDraft, ...] = ()
    requests: tuple[NewRequest, ...] = ()


class MoveConsequences(msgspec.Struct, frozen=True):
    """What follows from a move. `child` is the session that begins with it and goes first."""

    drafts: tuple[EventDraft, ...]
    situation: Situation
    requests: tuple[NewRequest, ...] = ()
    linked: tuple[LinkedChange[Record], ...] = ()
    warnings: tuple[str, ...] = ()
    child: str = ""


def reach_checkpoint(workflow: Workflow, record: Record, *, person: bool, now: int) -> ReachedCheckpoint:
    """A question that is all that is possible now waits from now on. Where other work can still come first, it does not yet."""
    found = describe_situation(workflow, record, now=now, person=person)
    checkpoint = find_current_checkpoint(workflow, record, found.checkpoint) if found.checkpoint else None
    if record.waiting is not None or checkpoint is None or any(move.target != checkpoint.id for move in found.offered):
        return ReachedCheckpoint(found)
    draft, request = yield_request(workflow, record, checkpoint, person=person)
    return ReachedCheckpoint(
        describe_situation(workflow, fold_drafts(record, [draft], now), now=now, person=person), (draft,), (request,)
    )


def with_server_level(unit: WorkflowUnit, record: Record) -> Record:
    """The record as strict as this server is, to look at what is possible. What is kept stays as the session began."""
    fidelity = unit.fidelity(record)
    return record if fidelity == record.fidelity else replace(record, fidelity=fidelity)


def first_entry(workflow: Workflow, record: Record) -> list[EventDraft]:
    """The way into a fresh session, where there is exactly one."""
    entries = () if workflow.independent else list_open_transitions(workflow, record)
    if len(entries) != 1 or ends_workflow(workflow, entries[0].to):
        return []
    return draft_transition(workflow, record, entries[0].to)


class Consequences:
    """Works out what follows from a move, down to the sessions that begin with it."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit
        self._starts = StartService(unit)

    def birth(self, workflow: Workflow, agent: str, variables: Mapping[str, Any], by: str) -> SessionStart:
        return self._starts.birth(workflow, agent, variables=dict(variables), variables_by=by)

    async def of(
        self, call: WorkflowCall, workflow: Workflow, drafts: Sequence[EventDraft], *, step: str = ""
    ) -> MoveConsequences:
        """What follows when these drafts are written; `step` is the one that they complete."""
        after = fold_drafts(call.record, drafts, self._unit.clock())
        triggers = find_fired_triggers(workflow, call.record, after, step)
        due = [one for one in triggers if one.step or not await self._started_before(call, after, one)]
        return self._with_children(call, workflow, drafts, after, due, depth=1)

    async def _started_before(self, call: WorkflowCall, after: Record, trigger: TriggerMatch) -> bool:
        """Whether this visit has started the workflow already, as an agent can by itself in another dialect."""
        if after.visit > call.record.visits:
            return False
        events = await all_events(self._unit.ledger, call.session.id, types=[ENTERED, CHILD_STARTED])
        entered = max((one.seq for one in events if one.type == ENTERED), default=0)
        return any(one.seq > entered and one.body.get("workflow") == trigger.workflow for one in events)

    def _with_children(
        self,
        call: WorkflowCall,
        workflow: Workflow,
        drafts: Sequence[EventDraft],
        after: Record,
        due: Sequence[TriggerMatch],
        *,
        depth: int,
    ) -> MoveConsequences:
        """`after` is the record that the drafts lead to, `due` the workflows that begin with them."""
        if not due:
            return self._reaching(workflow, drafts, after)
        started, linked, said = list[EventDraft](), list[LinkedChange[Record]](), list[str]()
        for trigger in due:
            try:
                born = self._child(call, workflow, after, trigger, depth)
            except DefinitionError as problem:
                said.append(f"Workflow '{trigger.workflow}' is to be started here and cannot be: {problem.sentence} Go on.")
                continue
            started.append(draft_child_started(born[0].session, trigger.workflow, trigger))
            linked += born
        if not linked:
            return self._reaching(workflow, drafts, after, said)
        now = self._unit.clock()
        led = with_server_level(self._unit, fold_drafts(after, started, now))
        waits = describe_situation(workflow, led, now=now, person=self._unit.policy.answered_by_person)
        return MoveConsequences((*drafts, *started), waits, (), tuple(linked), tuple(said), linked[0].session)

    def _reaching(
        self, workflow: Workflow, drafts: Sequence[EventDraft], after: Record, said: Sequence[str] = ()
    ) -> MoveConsequences:
        """What follows from a move that no session begins with."""
        led, person = with_server_level(self._unit, after), self._unit.policy.answered_by_person
        asks = reach_checkpoint(workflow, led, person=person, now=self._unit.clock())
        return MoveConsequences((*drafts, *asks.drafts), asks.situation, asks.requests, warnings=tuple(said))

    def _child(
        self, parent: WorkflowCall, workflow: Workflow, record: Record, trigger: TriggerMatch, depth: int
    ) -> tuple[LinkedChange[Record], ...]:
        """The session of a workflow that is started, and those that begin with it in turn."""
        definition = self._unit.library.workflow(trigger.workflow)
        inherited = build_initial_variables(workflow, record, trigger, person=self._unit.policy.answered_by_person)
        standing = replace(parent, record=record)
        born = self._starts.birth(definition, parent.agent, parent=standing, **inherited)
        session, begun = new_session_id(), [EventDraft(born.event.type, dict(born.event.body))]
        fresh = fold_drafts(Record(), begun, self._unit.clock())
        entry = first_entry(definition, fresh)
        child = new_call(session, fresh, parent.agent)
        after = fold_drafts(fresh, entry, self._unit.clock())
        due = find_fired_triggers(definition, fresh, after) if depth < DEEPEST else []
        found = self._with_children(child, definition, entry, after, due, depth=depth + 1)
        events = (born.event, *new_events(found.drafts, parent.agent))
        own = LinkedChange(session, events, Record(), born.create, found.requests, (born.snapshot,))
        return (own, *found.linked)
