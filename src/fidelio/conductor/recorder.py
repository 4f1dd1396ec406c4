"""Puts on record what happens in an activity that is led stretch by stretch: reports, passes of loops, workflows that begin.

Each is one transaction, so that whoever goes on after a crash finds it done or not done: a workflow begins together with the
step that starts it, and a report is taken once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fidelio.conductor.context import place_of
from fidelio.conductor.history import started_by_activity, started_in_pass
from fidelio.conductor.plan import TAKEN
from fidelio.conductor.reports import Taken, Wrong, take, without
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.record import Record
from fidelio.engine.state import Refusal
from fidelio.engine.triggers import TriggerMatch, build_initial_variables, draft_child_started, find_fired_triggers
from fidelio.errors import WorkflowRefusal
from fidelio.ids import new_session_id
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.navigator.messages import loop_warnings
from fidelio.workflows.unit_of_work import WorkflowCall, WorkflowDecision, build_events

if TYPE_CHECKING:
    from fidelio.conductor.context import Stage
    from fidelio.conductor.manifests import Manifest
    from fidelio.conductor.segments import Stretch
    from fidelio.conductor.supervisor import Reported
    from fidelio.definitions.models import Workflow

# How the calls stand in the trace: these are the moves that an agent makes where the server leads it.
_TOOL = "nav_action"


class Leading:
    """Writes. Where the session has moved on meanwhile, nothing is written, and whoever called looks again."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._unit = stage.unit

    async def take(self, session: str, reported: Reported, manifest: Manifest, stretch: Stretch) -> tuple[str, ...]:
        """Puts a report on record, together with the workflows that it starts; else says what is wrong with it."""
        worker, record = reported.worker, reported.record
        taken = NewEvent(type=TAKEN, body={"worker": worker.name, "run": worker.run.number}, actor=worker.name)
        wrong: tuple[str, ...] = ()

        async def decide(call: WorkflowCall) -> WorkflowDecision[None]:
            nonlocal wrong
            workflow = self._stage.workflow(call.record)
            found = take(workflow, call.record, stretch, manifest, self._how(), call.agent)
            wrong = found.problems if isinstance(found, Wrong) else ()
            if isinstance(found, Wrong) or place_of(call.record) != place_of(record):
                return WorkflowDecision(None, unfinished=True)
            # A worker is told not to start anything. One that does so all the same has started what would begin now.
            begun = await started_in_pass(self._stage.ledger, session)
            return self._starting(call, workflow, without(workflow, call.record, found, begun), (taken,))

        await self._unit.perform(_TOOL, self._stage.own_token(session, record), decide)
        return wrong

    async def start_own(self, session: str, record: Record) -> bool:
        """Starts what the activity itself starts once its steps are done; False when there is nothing of the kind left."""
        workflow = self._stage.workflow(record)
        own = _own(workflow, record)
        if own:
            started = await started_by_activity(self._stage.ledger, session, record)
            own = [one for one in own if one.workflow not in started]

        async def decide(call: WorkflowCall) -> WorkflowDecision[None]:
            if place_of(call.record) != place_of(record) or call.record.children:
                return WorkflowDecision(None, unfinished=True)
            return self._starting(call, workflow, Taken((), call.record, tuple(own)), ())

        if own:
            await self._unit.perform(_TOOL, self._stage.own_token(session, record), decide)
        return bool(own)

    async def advance(self, session: str, record: Record, loop: str) -> tuple[str, ...]:
        """Goes into the first or the next pass of a loop; what it returns is to be known about it."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[None]:
            if place_of(call.record) != place_of(record):
                return WorkflowDecision(None, unfinished=True)
            workflow = self._stage.workflow(call.record)
            found = apply_move(
                workflow, call.record, MoveRequest("advance_loop", loop), self._how(), MoveActor(f"agent:{call.agent}")
            )
            if isinstance(found, Refusal):
                raise WorkflowRefusal(found.sentence, remedy=found.remedy, reason=found.code)
            return WorkflowDecision(None, events=build_events(found, call.agent), warnings=tuple(loop_warnings(found)))

        return (await self._unit.perform(_TOOL, self._stage.own_token(session, record), decide)).warnings

    def _starting(
        self, call: WorkflowCall, workflow: Workflow, taken: Taken, more: tuple[NewEvent, ...]
    ) -> WorkflowDecision[None]:
        born = [self._child(call, workflow, taken.after, one) for one in taken.starts]
        started = [draft_child_started(child.session, one.workflow, one) for child, one in zip(born, taken.starts, strict=True)]
        return WorkflowDecision(None, events=(*build_events([*taken.drafts, *started], call.agent), *more), linked=tuple(born))

    def _child(self, call: WorkflowCall, workflow: Workflow, record: Record, trigger: TriggerMatch) -> LinkedChange[Record]:
        """A session that has begun and entered nothing yet."""
        definition = self._stage.workflows.library.workflow(trigger.workflow)
        inherited = build_initial_variables(workflow, record, trigger, person=self._unit.policy.demands_person)
        born = self._stage.workflows.sessions.build_start(definition, call.agent, parent=call, **inherited)
        return LinkedChange(new_session_id(), (born.event,), Record(), born.create, blobs=(born.snapshot,))

    def _how(self) -> AnswerContext:
        rules = self._unit.policy
        return AnswerContext(self._unit.clock(), demands_person=rules.demands_person)


def _own(workflow: Workflow, record: Record) -> Sequence[TriggerMatch]:
    """The workflows of the activity, when no step of it is left: as if it had been entered just now, and as it is."""
    return [one for one in find_fired_triggers(workflow, replace(record, visits=record.visit - 1), record) if not one.step]
