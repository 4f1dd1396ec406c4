"""Commits for activities that are done in segments: reports of workers, iterations of loops, start of child workflows.

Each is one transaction, so that after a crash it is either done or not done: a child workflow is started together with the step
that starts it, and a report is recorded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fidelio.conductor.context import find_position
from fidelio.conductor.history import count_children_of_iteration, find_children_of_activity
from fidelio.conductor.plan import REPORT_RECORDED
from fidelio.conductor.reports import AcceptedReport, RejectedReport, drop_started_workflows, validate_report
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.record import Record
from fidelio.engine.state import Refusal
from fidelio.engine.triggers import TriggerMatch, build_initial_variables, draft_child_started, find_fired_triggers
from fidelio.errors import Text, WorkflowRefusal
from fidelio.ids import new_session_id
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.navigator.messages import loop_warnings
from fidelio.workflows.unit_of_work import WorkflowCall, WorkflowDecision, build_events

if TYPE_CHECKING:
    from fidelio.conductor.context import RunContext
    from fidelio.conductor.reports import Manifest
    from fidelio.conductor.segments import ActivitySegment
    from fidelio.conductor.supervisor import WorkerReport
    from fidelio.definitions.models import Workflow

# The name of these calls in the trace: an agent that uses the navigator dialect makes the same moves with this tool.
_TOOL = "nav_action"


class ActivityRecorder:
    """Records moves in a session. If the session has moved meanwhile, nothing is committed and the caller loads it again."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._unit = context.unit

    async def record_report(
        self, session: str, report: WorkerReport, manifest: Manifest, segment: ActivitySegment
    ) -> tuple[str, ...]:
        """Record a report together with the workflows that it starts; return what is wrong with it if it is rejected."""
        worker, record = report.worker, report.record
        recorded = NewEvent(type=REPORT_RECORDED, body={"worker": worker.name, "run": worker.run.number}, actor=worker.name)
        problems: tuple[str, ...] = ()

        async def decide(call: WorkflowCall) -> WorkflowDecision[None]:
            nonlocal problems
            workflow = await self._context.find_workflow(session, call.record)
            validated = validate_report(workflow, call.record, segment, manifest, self._answer_context(), call.agent)
            problems = validated.problems if isinstance(validated, RejectedReport) else ()
            if isinstance(validated, RejectedReport) or find_position(call.record) != find_position(record):
                return WorkflowDecision(None, unfinished=True)
            # A worker must not start child workflows. If it did, they must not be started a second time.
            started = await count_children_of_iteration(self._context.ledger, session)
            accepted = drop_started_workflows(workflow, call.record, validated, started)
            return self._decide_with_children(call, workflow, accepted, (recorded,))

        await self._unit.perform(_TOOL, self._context.conductor_token(session, record), decide)
        return problems

    async def start_children(self, session: str, record: Record) -> bool:
        """Start the workflows that the activity itself starts after its steps; False if all of them are started."""
        workflow = await self._context.find_workflow(session, record)
        triggers = _find_activity_triggers(workflow, record)
        if triggers:
            started = await find_children_of_activity(self._context.ledger, session, record)
            triggers = [trigger for trigger in triggers if trigger.workflow not in started]

        async def decide(call: WorkflowCall) -> WorkflowDecision[None]:
            if find_position(call.record) != find_position(record) or call.record.children:
                return WorkflowDecision(None, unfinished=True)
            return self._decide_with_children(call, workflow, AcceptedReport((), call.record, tuple(triggers)), ())

        if triggers:
            await self._unit.perform(_TOOL, self._context.conductor_token(session, record), decide)
        return bool(triggers)

    async def advance_loop(self, session: str, record: Record, loop: str) -> tuple[Text, ...]:
        """Enter the first or the next iteration of a loop; return the warnings of that move."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[None]:
            if find_position(call.record) != find_position(record):
                return WorkflowDecision(None, unfinished=True)
            workflow = await self._context.find_workflow(session, call.record)
            request, actor = MoveRequest("advance_loop", loop), MoveActor(f"agent:{call.agent}")
            drafts = apply_move(workflow, call.record, request, self._answer_context(), actor)
            if isinstance(drafts, Refusal):
                raise WorkflowRefusal(drafts.sentence, remedy=drafts.remedy, reason=drafts.code)
            return WorkflowDecision(None, events=build_events(drafts, call.agent), warnings=tuple(loop_warnings(drafts)))

        return (await self._unit.perform(_TOOL, self._context.conductor_token(session, record), decide)).warnings

    def _decide_with_children(
        self, call: WorkflowCall, workflow: Workflow, report: AcceptedReport, more: tuple[NewEvent, ...]
    ) -> WorkflowDecision[None]:
        """The events of a report, and its child sessions as linked changes of the same transaction."""
        children = [self._create_child(call, workflow, report.record, trigger) for trigger in report.triggers]
        started = [
            draft_child_started(child.session, trigger.workflow, trigger)
            for child, trigger in zip(children, report.triggers, strict=True)
        ]
        events = (*build_events([*report.drafts, *started], call.agent), *more)
        return WorkflowDecision(None, events=events, linked=tuple(children))

    def _create_child(
        self, call: WorkflowCall, workflow: Workflow, record: Record, trigger: TriggerMatch
    ) -> LinkedChange[Record]:
        """A child session that is started but has not entered an activity."""
        definition = self._context.workflows.library.workflow(trigger.workflow)
        variables = build_initial_variables(workflow, record, trigger, person=self._unit.policy.demands_person)
        created = self._context.workflows.sessions.build_start(definition, call.agent, parent=call, **variables)
        return LinkedChange(new_session_id(), (created.event,), Record(), created.create, blobs=(created.snapshot,))

    def _answer_context(self) -> AnswerContext:
        return AnswerContext(self._unit.clock(), demands_person=self._unit.policy.demands_person)


def _find_activity_triggers(workflow: Workflow, record: Record) -> Sequence[TriggerMatch]:
    """The triggers of the activity itself. They fire when no step is left, compared with the record before this visit."""
    fired = find_fired_triggers(workflow, replace(record, visits=record.visit - 1), record)
    return [trigger for trigger in fired if not trigger.step]
