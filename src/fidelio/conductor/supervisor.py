"""Supervises the worker of a segment: starts it, waits for it and for people, and resumes it when something is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fidelio.conductor import prompts
from fidelio.conductor.context import CONDUCTOR, BlockedRun, RunContext
from fidelio.conductor.history import WorkerHistory, list_finished_children, load_worker_history
from fidelio.conductor.plan import ANSWERS_DELIVERED, count_forgiven_runs
from fidelio.conductor.reports import Manifest, parse_manifest
from fidelio.conductor.segments import ActivitySegment
from fidelio.engine.answers import AnswerChoice
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.record import CheckpointAnswer, Record
from fidelio.errors import AgentSessionNotFound, WorkflowRefusal
from fidelio.inbox import Inbox
from fidelio.ledger.model import NewEvent
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.record.rules import was_cut_off

if TYPE_CHECKING:
    from fidelio.conductor.plan import Plan
    from fidelio.definitions.models import Workflow

POLL_SECONDS = 1.0
# Two kinds of runs do not count as tries of a worker: those that ended with their process, and those whose report was
# recorded but made more work due. Without this limit a worker that always crashes its host, or that never finishes, would run
# for ever.
MAX_EXCUSED_RUNS = 10


class WorkerReport(msgspec.Struct, frozen=True):
    """The result of a worker's run: its manifest, or the reason why it has none."""

    worker: AgentSession
    record: Record
    manifest: Manifest | None
    problem: str = ""


class WorkerSupervisor:
    """Supervises the workers of a run. No two of them run at the same time."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._reported_request = ""

    async def collect_report(self, session: str, record: Record, plan: Plan, segment: ActivitySegment) -> WorkerReport | None:
        """The report of the segment's worker, which is started if necessary. None if the session has to be loaded again."""
        workers = self._context.workers
        worker = await workers.find(session, record, plan.project, segment.key)
        worker = worker or await self._start_worker(session, record, plan, segment)
        try:
            worker = await self._wait_until_ended(session, worker, segment)
        except AgentSessionNotFound:
            # The agent session was deleted; the next attempt does not find it and starts another.
            return None
        if await self._context.has_moved(session, record):
            return None
        record = await self._context.load_record(session)
        if record.waiting is not None:
            await self._wait_until_answered(session, record, worker, segment)
            return None
        return await self._read_report(record, worker)

    async def resume_with_problems(
        self, session: str, report: WorkerReport, plan: Plan, segment: ActivitySegment, problems: Sequence[str]
    ) -> None:
        """Resume the worker with what is missing. Raises `BlockedRun` if it has used up its tries or was stopped."""
        worker, record, context = report.worker, report.record, self._context
        history = await load_worker_history(context.ledger, session, worker)
        answers = _unreported_answers(record, history)
        forgiven = await count_forgiven_runs(context.ledger, context.root, worker.name)
        is_cut_off = was_cut_off(worker.run.state, worker.run.reason)
        if worker.run.state == "stopped" and not is_cut_off and worker.run.number > forgiven:
            raise BlockedRun(f"The worker {worker.name} was stopped.", record, worker)
        # A run that ended to wait for an answer is not a failed try, even if the answer came before the run had ended.
        waited = history.informed_runs | ({worker.run.number} if answers else set())
        runs = [run for run in await context.workers.runs(worker) if run.number > forgiven and run.number not in waited]
        excused = sum(was_cut_off(run.state, run.reason) or run.number in history.recorded_runs for run in runs)
        if len(runs) - excused >= plan.tries or excused >= MAX_EXCUSED_RUNS:
            reason = f"{worker.blueprint or 'The agent'} did not finish {record.activity}: {' '.join(problems)}"
            raise BlockedRun(reason, record, worker)
        await self._resume(session, report, segment, answers, problems)

    async def _start_worker(self, session: str, record: Record, plan: Plan, segment: ActivitySegment) -> AgentSession:
        context, agent = self._context, plan.agent_for(record.activity)
        first_step = segment.step_ids[0] if segment.step_ids else None
        context.report_progress("entered", session, record, agent=agent, step=first_step)
        workflow = await context.find_workflow(session, record)
        activity = workflow.activity(record.activity)
        assert activity is not None, "a definition that leads a session has its current activity"
        children = [] if segment.is_whole else await list_finished_children(context.ledger, session)
        lines = prompts.describe_segment(workflow, record, segment, children)
        prompt = prompts.build_first_prompt(workflow, activity, context.worker_token(session, record), lines)
        return await context.workers.start(session, record, plan, prompt, segment.key)

    async def _wait_until_ended(self, session: str, worker: AgentSession, segment: ActivitySegment) -> AgentSession:
        """Wait for the worker's run to end; report its activity and its open request whenever they change."""
        reported_activity = ""
        while worker.run.is_active:
            now = await self._context.load_record(session)
            if now.ended:
                # A person or agent has ended the session; a running worker would only cost money.
                return await self._context.workers.stop(worker)
            request = now.waiting.request if now.waiting else worker.question or ""
            self._report_request(session, now, worker, request)
            if worker.run.last_activity not in ("", reported_activity) and not request:
                reported_activity = worker.run.last_activity
                self._context.report_progress(
                    "working", session, now, agent=worker.blueprint, detail=reported_activity, steps=segment.step_ids
                )
            await self._apply_default(session, now)
            worker = await self._context.workers.wait(worker, POLL_SECONDS)
        return worker

    async def _wait_until_answered(self, session: str, record: Record, worker: AgentSession, segment: ActivitySegment) -> None:
        """Wait for the answer to a checkpoint, then resume the worker. Its run has ended, so waiting costs nothing."""
        waiting, context = record.waiting, self._context
        assert waiting is not None
        self._report_request(session, record, worker, waiting.request)
        workflow = await context.find_workflow(session, record)
        try:
            async with asyncio.timeout(_seconds_until_default(workflow, record, context.clock())):
                await Inbox(context.ledger).wait_until_closed(waiting.request)
        except TimeoutError:
            await self._apply_default(session, record)
        if not await context.has_moved(session, record):
            record = await context.load_record(session)
            answers = _unreported_answers(record, await load_worker_history(context.ledger, session, worker))
            if record.waiting is None and answers:
                await self._resume(session, WorkerReport(worker, record, None), segment, answers)

    async def _apply_default(self, session: str, record: Record) -> None:
        """Answer a checkpoint that is not blocking with its default, once its time is over."""
        context = self._context
        if record.waiting is None:
            return
        workflow = await context.find_workflow(session, record)
        if _seconds_until_default(workflow, record, context.clock()) != 0:
            return
        try:
            token = context.conductor_token(session, record)
            await context.workflows.checkpoints.respond(token, AnswerChoice(auto_advance=True))
        except WorkflowRefusal:
            # A person answered first, or the policy demands a person.
            return

    async def _read_report(self, record: Record, worker: AgentSession) -> WorkerReport:
        if worker.run.state != "succeeded":
            problem = f"Your last turn ended early: {worker.run.detail or worker.run.reason or worker.run.state}"
            return WorkerReport(worker, record, None, problem)
        result = await self._context.workers.result(worker)
        manifest = parse_manifest(result.text, result.data)
        if isinstance(manifest, str):
            return WorkerReport(worker, record, None, manifest)
        return WorkerReport(worker, record, manifest)

    async def _resume(
        self,
        session: str,
        report: WorkerReport,
        segment: ActivitySegment,
        answers: Sequence[CheckpointAnswer],
        problems: Sequence[str] = (),
    ) -> None:
        worker, record, context = report.worker, report.record, self._context
        if answers:
            body = {"worker": worker.name, "run": worker.run.number}
            await context.ledger.append(session, NewEvent(type=ANSWERS_DELIVERED, body=body, actor=CONDUCTOR))
        context.report_progress("resumed", session, record, agent=worker.blueprint, steps=segment.step_ids)
        prompt = prompts.build_next_prompt(answers, problems, context.worker_token(session, record), segment)
        await context.workers.resume(worker, prompt)

    def _report_request(self, session: str, record: Record, worker: AgentSession, request: str) -> None:
        if request not in ("", self._reported_request):
            self._reported_request = request
            self._context.report_progress("waiting", session, record, agent=worker.blueprint, request=request)


def _unreported_answers(record: Record, history: WorkerHistory) -> list[CheckpointAnswer]:
    """The answers since the worker's last run began that the worker has not resumed from."""
    return [answer for answer in record.answers if not answer.resumed and answer.request in history.answered_requests]


def _seconds_until_default(workflow: Workflow, record: Record, now: int) -> float | None:
    """Time until the open checkpoint may be answered with its default; 0 if it may be now, None if it has no such default."""
    waiting = record.waiting
    checkpoint = find_current_checkpoint(workflow, record, waiting.checkpoint) if waiting else None
    if waiting is None or checkpoint is None or checkpoint.blocking:
        return None
    if checkpoint.auto_advance_ms is None or checkpoint.default_option is None:
        return None
    return max(0, waiting.yielded_at + checkpoint.auto_advance_ms - now) / 1000
