"""Runs a workflow with agents, from its current state to its end.

The main loop loads the record and makes the one move that comes next. If the process ends in between, the next process finds
the same record and continues: the name of a worker depends only on session and visit, so it is found again instead of started
twice, and a move that is recorded is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.clock import Clock, now_ms
from fidelio.conductor import prompts
from fidelio.conductor.context import CONDUCTOR, BlockedRun, ProgressListener, RunContext, ignore_event
from fidelio.conductor.history import count_visits_outside_loops, describe_cancellation, is_report_recorded
from fidelio.conductor.plan import (
    LINT_HINT,
    RUN_FAILED,
    RUN_INTERRUPTED,
    Plan,
    acquire_run_lock,
    check_can_start,
    check_plan,
    check_required_inputs,
    find_unfinished_run,
    list_reachable_workflows,
    load_last_failure,
    load_plan,
    save_plan,
    start_lock,
    update_plan,
)
from fidelio.conductor.recorder import ActivityRecorder
from fidelio.conductor.reports import RejectedReport, list_missing, reduce_manifest_on_exit
from fidelio.conductor.segments import (
    WHOLE_ACTIVITY,
    ActivitySegment,
    ChosenTransition,
    NoTransition,
    UndecidableLoop,
    UndecidedTransition,
    choose_transition,
    find_decision_segment,
    find_loop,
    find_next_task,
    is_segmented,
    list_segments,
)
from fidelio.conductor.supervisor import WorkerReport, WorkerSupervisor
from fidelio.engine.due_iterations import find_due_items
from fidelio.engine.manifests import StepReport, check_step_manifest
from fidelio.engine.progress import ActivityTask
from fidelio.engine.record import Record
from fidelio.engine.scope import collect_values
from fidelio.engine.variables import check_report
from fidelio.errors import Command, ConductorFailure, FidelioError, Hint, LedgerError, Text, WorkflowRefusal
from fidelio.home import Home
from fidelio.ledger.model import NewEvent
from fidelio.workflows.moves import Move
from fidelio.workflows.start import StartInput

if TYPE_CHECKING:
    from fidelio.conductor.workers import Workers
    from fidelio.definitions.models import Loop, Workflow
    from fidelio.ledger import Ledger
    from fidelio.orchestrator.record.model import AgentSession
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.unit_of_work import WorkflowUnit

# Limits of a run: a workflow that never ends, or that starts itself, must not cost money for ever. Counted is what may have no
# end: visits, and iterations of loops with a condition. A loop over a list ends by itself, and so do the activities it goes
# through; there only the length of the list is checked, before the first iteration.
MAX_REPETITIONS, MAX_DEPTH = 1_000, 8
_START_NEW = "Running it again would end here again. Correct the workflow, then start a new run with --new (new: true)."
_DEFINE_LOOP = "Name its list in `over`, or give it a condition that can be decided, a breakCondition or maxIterations."


class ConductedRun(msgspec.Struct, frozen=True):
    """A run by its session. `is_resumed`: it had been started before."""

    session: str
    is_resumed: bool


class Conductor:
    """Moves the sessions of a run, and assigns their activities to workers."""

    def __init__(
        self,
        workflows: WorkflowService,
        unit: WorkflowUnit,
        workers: Workers,
        home: Home,
        *,
        on_event: ProgressListener = ignore_event,
        render: Callable[[Text], str] = str,
        clock: Clock = now_ms,
    ) -> None:
        """`unit` must be the unit of work of `workflows`: the conductor commits through it as well. `render` is for events."""
        self._workflows = workflows
        self._ledger = unit.ledger
        self._workers = workers
        self._home = home
        self._context = RunContext(workflows, unit, workers, on_event, render, clock)
        self._supervisor = WorkerSupervisor(self._context)
        self._recorder = ActivityRecorder(self._context)

    async def start(self, plan: Plan) -> str:
        """Start a new session with its plan, after all checks that are possible before a worker runs."""
        await self.check(plan)
        check_required_inputs(plan, self._workflows.library.workflow(plan.workflow))
        outcome = await self._workflows.sessions.start(StartInput(plan.workflow, CONDUCTOR))
        await save_plan(self._ledger, outcome.session, plan)
        return outcome.session

    async def load_last_failure(self, session: str) -> str:
        """Why the run failed, if that is its last event; else empty."""
        return await load_last_failure(self._ledger, session)

    async def find_or_start(self, plan: Plan, *, force_new: bool) -> ConductedRun:
        """Find the unfinished run of this workflow in this project and update its plan. Start a run if none or `force_new`."""
        await self.check(plan)
        lock = start_lock(self._home, plan)
        if not lock.acquire():
            raise ConductorFailure(
                f"Another process is starting {plan.workflow} in this project.", remedy="Run it again to continue that run."
            )
        try:
            session = None if force_new else await find_unfinished_run(self._ledger, plan.project, plan.workflow)
            if session is None:
                return ConductedRun(await self.start(plan), is_resumed=False)
            record = await self._context.load_record(session)
            await update_plan(self._ledger, session, plan, await self._context.find_workflow(session, record), record)
            return ConductedRun(session, is_resumed=True)
        finally:
            lock.release()

    async def check(self, plan: Plan) -> None:
        """Raise for a plan that cannot work: a wrong workflow, activity, input or blueprint, or an agent not installed."""
        first, *children = list_reachable_workflows(plan.workflow, self._workflows.library.workflow)
        check_plan(plan, first)
        for workflow in children:
            check_can_start(workflow)
        await self._workers.check_caller(plan.caller)
        for agent in dict.fromkeys((plan.agent, *plan.activity_agents.values())):
            await self._workers.check(agent, plan.project)

    async def run(self, session: str) -> Record:
        """Run the session to its end. Raises `ConductorFailure` if it cannot continue; calling again resumes it there."""
        plan = await load_plan(self._ledger, session)
        if plan is None:
            raise ConductorFailure(
                f"Session {session} is not the run of a workflow by agents.",
                remedy=Hint("Start one with ", Command("run", "WORKFLOW"), "."),
            )
        lock = acquire_run_lock(self._home, session)
        self._context.root = session
        try:
            return await self._run_and_record_failure(session, plan)
        finally:
            lock.release()

    def require_free_run(self, session: str) -> None:
        """Raise if another process carries out the session now, so that none can go on with it in the background."""
        acquire_run_lock(self._home, session).release()

    async def request_stop(self, session: str, *, by: str) -> list[AgentSession]:
        """Record the stop of the workers, which happens even if this process ends and is no failed try, and return them."""
        workers = await self._list_workers(session)
        for worker in workers:
            body = {"worker": worker.name, "runs": worker.run.number}
            # First, because a worker that was stopped without it would block the next start.
            await self._ledger.append(session, NewEvent(type=RUN_INTERRUPTED, body=body, actor=by))
            await self._workers.request_stop(worker, by=by)
        return workers

    async def wait_until_stopped(self, workers: Sequence[AgentSession], *, by: str) -> list[AgentSession]:
        """Wait until these workers have stopped; the wait is bounded."""
        return [await self._workers.stop(worker, by=by) for worker in workers]

    async def _list_workers(self, session: str) -> list[AgentSession]:
        """The workers that work for a session, or for those that it waits for."""
        plan = await load_plan(self._ledger, session)
        found: list[AgentSession] = []
        current: str | None = session
        while plan is not None and current:
            found += await self._workers.list_active(current, plan.project)
            current = (await self._context.load_record(current)).suspended_by
        return found

    async def _run_and_record_failure(self, session: str, plan: Plan) -> Record:
        try:
            return await self._run_session(session, plan, depth=0)
        except BlockedRun as blocked:
            raise await self._record_failure(blocked) from blocked
        except LedgerError:
            raise
        except FidelioError as error:
            record = await self._context.load_record(session)
            raise await self._record_failure(BlockedRun(error.text, record)) from error

    async def _run_session(self, session: str, plan: Plan, *, depth: int) -> Record:
        """The main loop of a session; a child session is run inside the loop of its parent."""
        while not (record := await self._context.load_record(session)).ended:
            await _check_run_limits(self._ledger, session, record, depth)
            if record.suspended_by:
                await self._run_session(record.suspended_by, plan, depth=depth + 1)
            elif not record.activity:
                check_can_start(await self._context.find_workflow(session, record))
                # The inputs of a run are for its own workflow, not for those that it starts.
                await self._exit_activity(session, record, plan.inputs if depth == 0 else {}, author=plan.inputs_by)
            elif is_segmented(await self._context.find_workflow(session, record), record):
                await self._run_segments(session, record, plan)
            else:
                await self._run_activity(session, record, plan)
        if record.status == "cancelled" and depth == 0:
            cancellation = (await describe_cancellation(self._ledger, session)).rstrip(".")
            reason = f"{record.workflow} was ended by {cancellation}."
            raise BlockedRun(reason, record, remedy="Running the workflow again starts a new run.")
        self._context.report_progress("completed", session, record)
        return record

    async def _run_activity(self, session: str, record: Record, plan: Plan) -> None:
        """Advance an activity that a single worker does as a whole."""
        report = await self._supervisor.collect_report(session, record, plan, WHOLE_ACTIVITY)
        if report is not None:
            problems = await self._exit_with_report(session, report)
            await self._return_problems(session, report, plan, WHOLE_ACTIVITY, problems)

    async def _run_segments(self, session: str, record: Record, plan: Plan) -> None:
        """Advance an activity done in segments: first the steps of workers, then child workflows, loops and the transition."""
        workflow = await self._context.find_workflow(session, record)
        for segment in list_segments(workflow, record):
            if not await self._complete_segment(session, record, plan, segment):
                return
        if await self._recorder.start_children(session, record):
            return
        undecided = find_decision_segment(workflow, record)
        if undecided is not None:
            await self._complete_segment(session, record, plan, undecided)
        else:
            await self._do_next_task(session, record)

    async def _complete_segment(self, session: str, record: Record, plan: Plan, segment: ActivitySegment) -> bool:
        """Whether the segment is completely recorded; if not, its worker is started or resumed."""
        report = await self._supervisor.collect_report(session, record, plan, segment)
        if report is None:
            return False
        was_recorded = await is_report_recorded(self._ledger, session, report.worker)
        problems = await self._record_segment(session, report, segment, was_recorded=was_recorded)
        await self._return_problems(session, report, plan, segment, problems)
        return was_recorded and not problems

    async def _record_segment(
        self, session: str, report: WorkerReport, segment: ActivitySegment, *, was_recorded: bool
    ) -> Sequence[Text]:
        """Record the report of a segment if it is not recorded yet; return what is missing in the segment."""
        record, manifest = report.record, report.manifest
        if manifest is None:
            return [report.problem]
        if record.forced:
            # An answer has forced a transition: the remaining steps of the activity are skipped.
            reduced = reduce_manifest_on_exit(record, segment, manifest)
            if isinstance(reduced, RejectedReport):
                return reduced.problems
            return await self._exit_with_report(session, replace(report, manifest=reduced))
        if was_recorded:
            return list_missing(await self._context.find_workflow(session, record), record, segment)
        return await self._recorder.record_report(session, report, manifest, segment)

    async def _return_problems(
        self, session: str, report: WorkerReport, plan: Plan, segment: ActivitySegment, problems: Sequence[Text]
    ) -> None:
        if problems and not await self._context.has_moved(session, report.record):
            await self._supervisor.resume_with_problems(session, report, plan, segment, [str(problem) for problem in problems])

    async def _do_next_task(self, session: str, record: Record) -> None:
        """Make the move after the segments: an iteration of a loop, an activity of the loop, or the transition."""
        workflow = await self._context.find_workflow(session, record)
        match find_next_task(workflow, record):
            case UndecidableLoop(loop=name, over=over):
                cause = f"{over}, which it goes over, is not a list." if over else _DEFINE_LOOP
                _require_none([f"No rule decides whether loop {name} of {record.activity} continues.", cause], record)
            case ActivityTask(kind="loop", id=name):
                if (loop := find_loop(workflow, record, name)) is not None:
                    _check_loop(workflow, record, loop)
                self._report_warnings(session, record, await self._recorder.advance_loop(session, record, name))
            case ActivityTask(id=activity):
                _require_none(await self._move(session, record, Move(activity)), record)
            case None:
                await self._exit_activity(session, record, {})

    async def _exit_activity(self, session: str, record: Record, variables: Mapping[str, Any], *, author: str = "") -> None:
        """Follow the transition when no worker can correct a problem: a problem ends the run."""
        problems = await self._follow_transition(session, record, None, variables, author=author)
        if not await self._context.has_moved(session, record):
            _require_none(problems, record)

    async def _exit_with_report(self, session: str, report: WorkerReport) -> Sequence[Text]:
        """Check the report of a whole activity and follow the transition; return the problems that the worker must correct."""
        record, manifest = report.record, report.manifest
        if manifest is None:
            return [report.problem]
        workflow, person = await self._context.find_workflow(session, record), self._context.unit.policy.demands_person
        informed = self._context.with_variables(workflow, record, manifest.variables)
        invalid_variables = check_report(workflow, record, manifest.variables, person=person)
        invalid_steps = check_step_manifest(workflow, informed, manifest.steps)
        problems = list(dict.fromkeys(problem.sentence for problem in (*invalid_steps, *invalid_variables)))
        return problems or await self._follow_transition(session, record, manifest.steps, manifest.variables)

    async def _follow_transition(
        self,
        session: str,
        record: Record,
        steps: Sequence[StepReport] | None,
        variables: Mapping[str, Any],
        *,
        author: str = "",
    ) -> Sequence[Text]:
        """Follow the first transition whose condition is true; return what prevents it."""
        workflow = await self._context.find_workflow(session, record)
        match choose_transition(workflow, self._context.with_variables(workflow, record, variables)):
            case ChosenTransition(to=target, claim=claim):
                problems = await self._move(session, record, Move(target, claim, steps, None, variables, author))
                if record.activity and not problems:
                    self._context.report_progress("left", session, record, detail=target)
                return problems
            case UndecidedTransition(variables=names):
                return [prompts.request_variables(workflow, names)]
            case NoTransition():
                raise BlockedRun(
                    f"{record.workflow} has no transition from {record.activity or 'its start'}.",
                    record,
                    remedy=LINT_HINT,
                )

    async def _move(self, session: str, record: Record, move: Move) -> list[Text]:
        try:
            outcome = await self._workflows.moves.move(self._context.conductor_token(session, record), move)
        except WorkflowRefusal as refusal:
            return [refusal.text]
        self._report_warnings(session, record, outcome.warnings)
        return []

    def _report_warnings(self, session: str, record: Record, warnings: Sequence[Text]) -> None:
        for warning in warnings:
            self._context.report_progress("working", session, record, agent=CONDUCTOR, detail=warning)

    async def _record_failure(self, blocked: BlockedRun) -> ConductorFailure:
        """Record why the run failed. The number of the worker's runs is stored, so that the next start gives it new tries."""
        worker, record = blocked.worker, blocked.record
        body: dict[str, Any] = {"workflow": record.workflow, "activity": record.activity, "reason": str(blocked.reason)}
        if worker is not None:
            body |= {"worker": worker.name, "runs": worker.run.number}
        root = self._context.root
        await self._ledger.append(root, NewEvent(type=RUN_FAILED, body=body, actor=CONDUCTOR))
        agent = worker.blueprint if worker else ""
        self._context.report_progress("failed", root, record, agent=agent, detail=blocked.reason)
        hint = Hint(Command("events", worker.id), " shows what it did. ") if worker else ""
        return ConductorFailure(blocked.reason, remedy=Hint(hint, blocked.remedy))


def _require_none(problems: Sequence[Text], record: Record) -> None:
    """Raise `BlockedRun` with the problems, if there are any: no worker is left that could correct them."""
    if problems:
        raise BlockedRun(Hint(*(part for problem in problems for part in (problem, " "))), record)


async def _check_run_limits(ledger: Ledger, session: str, record: Record, depth: int) -> None:
    """Raise `BlockedRun` if the run has repeated itself too often or is nested too deep."""
    running_loops = (visit.running for visit in (*record.outer, record.here))
    iterations = max((loop.iteration for loop in running_loops if loop is not None and loop.items is None), default=0)
    visits = 0 if record.outer else record.visits
    if visits > MAX_REPETITIONS:
        # Only now, because it reads the whole log: visits made by a loop do not count.
        visits = await count_visits_outside_loops(ledger, session)
    if max(visits, iterations) > MAX_REPETITIONS or depth > MAX_DEPTH:
        reason = (
            f"{record.workflow} repeats without end: {visits} visits, {iterations} iterations of a loop, {depth} levels deep. "
            f"The limits are {MAX_REPETITIONS} repetitions and {MAX_DEPTH} levels."
        )
        raise BlockedRun(reason, record, remedy=_START_NEW)


def _check_loop(workflow: Workflow, record: Record, loop: Loop) -> None:
    """Raise `BlockedRun` for a loop that cannot be run to its end."""
    missing = [name for name in loop.activities if workflow.activity(name) is None]
    if missing:
        reason = f"Loop {loop.id} of {record.activity} goes through {missing[0]!r}, which is no activity of {workflow.id}."
        raise BlockedRun(reason, record, remedy=LINT_HINT)
    iterations = min(len(find_due_items(loop, record, collect_values(workflow, record)) or ()), loop.max_iterations)
    if iterations > MAX_REPETITIONS:
        reason = f"Loop {loop.id} of {record.activity} needs {iterations} iterations; the limit is {MAX_REPETITIONS}."
        raise BlockedRun(reason, record, remedy="Give it a smaller maxIterations, or several lists.")
