"""What a session that is led move by move shows of itself, and what its moves bring with them beyond the rules.

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
from fidelio.ledger.model import OpenRequest
from fidelio.ledger.paging import all_events
from fidelio.workflows.requests import put
from fidelio.workflows.start import Birth, Starting, unborn
from fidelio.workflows.tokens import Claims
from fidelio.workflows.unit_of_work import Beside, Desk, Opened, written

# Workflows that start each other as soon as they begin would never come to anything.
DEEPEST = 8


class Reached(msgspec.Struct, frozen=True):
    """What is possible after a move, and the question that it has come to, as it goes on record; none when it came to none."""

    situation: Situation
    drafts: tuple[EventDraft, ...] = ()
    requests: tuple[OpenRequest, ...] = ()


class Aftermath(msgspec.Struct, frozen=True):
    """What follows from a move. `child` is the session that begins with it and goes first."""

    drafts: tuple[EventDraft, ...]
    situation: Situation
    requests: tuple[OpenRequest, ...] = ()
    beside: tuple[Beside, ...] = ()
    warnings: tuple[str, ...] = ()
    child: str = ""


def reached(workflow: Workflow, record: Record, *, person: bool, now: int) -> Reached:
    """A question that is all that is possible now waits from now on. Where other work can still come first, it does not yet."""
    found = describe_situation(workflow, record, now=now, person=person)
    checkpoint = find_current_checkpoint(workflow, record, found.checkpoint) if found.checkpoint else None
    if record.waiting is not None or checkpoint is None or any(move.target != checkpoint.id for move in found.offered):
        return Reached(found)
    draft, request = put(workflow, record, checkpoint, person=person)
    return Reached(
        describe_situation(workflow, fold_drafts(record, [draft], now), now=now, person=person), (draft,), (request,)
    )


def as_led(desk: Desk, record: Record) -> Record:
    """The record as strict as this server is, to look at what is possible. What is kept stays as the session began."""
    fidelity = desk.fidelity(record)
    return record if fidelity == record.fidelity else replace(record, fidelity=fidelity)


def first_entry(workflow: Workflow, record: Record) -> list[EventDraft]:
    """The way into a fresh session, where there is exactly one."""
    entries = () if workflow.independent else list_open_transitions(workflow, record)
    if len(entries) != 1 or ends_workflow(workflow, entries[0].to):
        return []
    return draft_transition(workflow, record, entries[0].to)


class Consequences:
    """Works out what follows from a move, down to the sessions that begin with it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._starting = Starting(desk)

    def birth(self, workflow: Workflow, agent: str, variables: Mapping[str, Any], by: str) -> Birth:
        return self._starting.birth(workflow, agent, variables=dict(variables), variables_by=by)

    async def of(self, opened: Opened, workflow: Workflow, drafts: Sequence[EventDraft], *, step: str = "") -> Aftermath:
        """What follows when these drafts are written; `step` is the one that they complete."""
        after = fold_drafts(opened.record, drafts, self._desk.clock())
        triggers = find_fired_triggers(workflow, opened.record, after, step)
        due = [one for one in triggers if one.step or not await self._started_before(opened, after, one)]
        return self._with_children(opened, workflow, drafts, after, due, depth=1)

    async def _started_before(self, opened: Opened, after: Record, trigger: TriggerMatch) -> bool:
        """Whether this visit has started the workflow already, as an agent can by itself in another dialect."""
        if after.visit > opened.record.visits:
            return False
        events = await all_events(self._desk.ledger, opened.session.id, types=[ENTERED, CHILD_STARTED])
        entered = max((one.seq for one in events if one.type == ENTERED), default=0)
        return any(one.seq > entered and one.body.get("workflow") == trigger.workflow for one in events)

    def _with_children(
        self,
        opened: Opened,
        workflow: Workflow,
        drafts: Sequence[EventDraft],
        after: Record,
        due: Sequence[TriggerMatch],
        *,
        depth: int,
    ) -> Aftermath:
        """`after` is the record that the drafts lead to, `due` the workflows that begin with them."""
        if not due:
            return self._reaching(workflow, drafts, after)
        started, beside, said = list[EventDraft](), list[Beside](), list[str]()
        for trigger in due:
            try:
                born = self._child(opened, workflow, after, trigger, depth)
            except DefinitionError as problem:
                said.append(f"Workflow '{trigger.workflow}' is to be started here and cannot be: {problem.sentence} Go on.")
                continue
            started.append(draft_child_started(born[0].session, trigger.workflow, trigger))
            beside += born
        if not beside:
            return self._reaching(workflow, drafts, after, said)
        now = self._desk.clock()
        led = as_led(self._desk, fold_drafts(after, started, now))
        waits = describe_situation(workflow, led, now=now, person=self._desk.rules.answered_by_person)
        return Aftermath((*drafts, *started), waits, (), tuple(beside), tuple(said), beside[0].session)

    def _reaching(self, workflow: Workflow, drafts: Sequence[EventDraft], after: Record, said: Sequence[str] = ()) -> Aftermath:
        """What follows from a move that no session begins with."""
        led, person = as_led(self._desk, after), self._desk.rules.answered_by_person
        asks = reached(workflow, led, person=person, now=self._desk.clock())
        return Aftermath((*drafts, *asks.drafts), asks.situation, asks.requests, warnings=tuple(said))

    def _child(
        self, parent: Opened, workflow: Workflow, record: Record, trigger: TriggerMatch, depth: int
    ) -> tuple[Beside, ...]:
        """The session of a workflow that is started, and those that begin with it in turn."""
        definition = self._desk.library.workflow(trigger.workflow)
        inherited = build_initial_variables(workflow, record, trigger, person=self._desk.rules.answered_by_person)
        standing = replace(parent, record=record)
        born = self._starting.birth(definition, parent.agent, parent=standing, **inherited)
        session, begun = new_session_id(), [EventDraft(born.event.type, dict(born.event.body))]
        fresh = fold_drafts(Record(), begun, self._desk.clock())
        entry = first_entry(definition, fresh)
        unwritten = Opened(unborn(session), fresh, Claims(sid=session), parent.agent)
        after = fold_drafts(fresh, entry, self._desk.clock())
        due = find_fired_triggers(definition, fresh, after) if depth < DEEPEST else []
        found = self._with_children(unwritten, definition, entry, after, due, depth=depth + 1)
        events = (born.event, *written(found.drafts, parent.agent))
        own = Beside(session, events, Record(), born.create, found.requests, (born.snapshot,))
        return (own, *found.beside)
