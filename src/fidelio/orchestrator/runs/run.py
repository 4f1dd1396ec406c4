"""The controller of a run in the agent host: begins it once, supervises it to its end, and ends it once.

The start is durable before the executor is called. A host that finds the run later in another state than `queued` does not
begin it again: it adopts its process if there is one, and otherwise records the run as lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from fidelio.errors import (
    AgentError,
    ConversationLost,
    FidelioError,
    SessionNotFound,
    StaleLease,
    UsageProblem,
)
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import NewEvent, Retry
from fidelio.orchestrator.blueprints.model import Limits
from fidelio.orchestrator.executors.contract import TurnResult
from fidelio.orchestrator.record.record import RUN_AGAIN, RUN_GOING_ON, RUN_STARTING, WORKTREE_CREATED
from fidelio.orchestrator.record.rules import (
    BEGIN_FAILED,
    LOST_WITH_HOST,
    LOST_WITH_PROCESS,
    STOPPED_WITH_HOST,
    STOPPED_WITH_PARENT,
    is_active,
)
from fidelio.orchestrator.record.unit_of_work import AgentDecision, Decide, LoadedAgent, draft_event
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.cleanup import is_deleted, spool_directory
from fidelio.orchestrator.runs.context import OrchestratorContext, encode_blueprint
from fidelio.orchestrator.runs.lineage import has_stopped_parent
from fidelio.orchestrator.runs.preparation import PreparedTurn, prepare_turn, resolve_blueprint, restore_turn
from fidelio.orchestrator.runs.queueing import load_original_prompt
from fidelio.orchestrator.runs.reporter import RunReporter
from fidelio.orchestrator.runs.results import RunEnd, check_result, end_from_failure, end_from_stop, finish_run, render_reminder
from fidelio.orchestrator.runs.supervisor import StopRequested, Supervisor, WatcherDetached
from fidelio.processes.ending import end_processes
from fidelio.processes.spooled import is_alive
from fidelio.processes.table import ProcessIdentity
from fidelio.retry import retry_transient

# A run that cannot begin, for example because of a full disk, is tried this often before it fails.
_MAX_STARTS = 6
# Each host that adopts a run counts, and each unexpected failure of the supervision.
_MAX_ADOPTIONS = 100

_STOPPED_WITH_HOST = RunEnd(
    state="stopped", reason=STOPPED_WITH_HOST, detail="The process that it worked in was told to end, and it ended with it."
)
# Executors whose agents are sessions of this ledger and live without a process.
DURABLE = frozenset({"fidelio"})
NO_PROCESS = ProcessIdentity(0, "")

ExecutorCall = Coroutine[Any, Any, TurnResult | None]

_log = logging.getLogger(__name__)


class RunController:
    """Carries out a run, until it has ended or is left to the next host."""

    def __init__(self, context: OrchestratorContext, host: str, work: Assignment) -> None:
        self.run = str(work.lease.payload["run"])
        self._context, self._host, self._work = context, host, work
        self.supervisor = Supervisor(context.clock)
        self._reporter: RunReporter | None = None
        self._resume_lost = False

    @property
    def has_process(self) -> bool:
        return self._reporter is not None and self._reporter.agent.record.run.process is not None

    @property
    def outlives_host(self) -> bool:
        """Whether another host can go on with the run."""
        return self._reporter is not None and _can_be_adopted(self._reporter.agent)

    @property
    def is_waiting(self) -> bool:
        return self._reporter is not None and self._reporter.agent.record.run.state == "waiting"

    async def carry_out(self) -> None:
        try:
            await self._carry_out()
        except SessionNotFound:
            _log.info("The session of run %s was deleted.", self.run)
            await end_processes(self.run)
        except (asyncio.CancelledError, StaleLease):
            await self._handle_interruption()
            raise

    async def _carry_out(self) -> None:
        agent = await self._context.unit.load(self._work.lease.session)
        if agent.record.run.id != self.run or not is_active(agent.record.run.state):
            return
        try:
            await (self._begin(agent) if agent.record.run.state == "queued" else self._recover(agent))
        except WatcherDetached:
            await self._return_job()

    async def _begin(self, agent: LoadedAgent) -> None:
        if self._work.lease.attempt > _MAX_STARTS:
            await self._finish(
                agent, RunEnd(state="failed", reason=BEGIN_FAILED, detail=f"It could not begin.{self._last_job_error}")
            )
            return
        if await has_stopped_parent(self._context, agent):
            await self._finish(agent, RunEnd(state="stopped", reason=STOPPED_WITH_PARENT, detail="Its parent was stopped."))
            return
        try:
            prepared = await prepare_turn(self._context, agent)
        except (AgentError, UsageProblem) as error:
            await self._finish(agent, end_from_failure(error))
            return
        agent = await self._record_start(agent, prepared)
        run = agent.record.run
        if run.state == "starting" and run.fence == self._work.lease.fence:
            reporter = self._new_reporter(agent, prepared)
            call = prepared.executor.carry_out(prepared.turn, reporter)
            await self._conclude(prepared, call, prepared.blueprint.limits)
        elif run.stop_by:
            await self._finish(agent, end_from_stop(run))

    async def _record_start(self, agent: LoadedAgent, prepared: PreparedTurn) -> LoadedAgent:
        """Record the start of the run. If it must not begin, remove the worktree that was created for it."""
        try:
            current = await self._context.unit.update(agent, self._decide_start(prepared), actor="host", work=self._work)
        except FidelioError:
            await worktrees.settle(agent.record, prepared.new_worktree)
            raise
        await worktrees.settle(current.record, prepared.new_worktree)
        return current

    def _decide_start(self, prepared: PreparedTurn) -> Decide:
        encoded = encode_blueprint(prepared.blueprint)
        body = {
            "run": self.run,
            "fresh": prepared.turn.fresh,
            "host": self._host,
            "fence": self._work.lease.fence,
            "blueprint_hash": prepared.blueprint.hash,
            "blueprint_blob": hash_blob(encoded),
        }
        begun = draft_event(RUN_STARTING, body, (hash_blob(encoded),))
        made = (draft_event(WORKTREE_CREATED, msgspec.structs.asdict(prepared.new_worktree)),) if prepared.new_worktree else ()

        def decide(current: LoadedAgent) -> AgentDecision | None:
            run = current.record.run
            if run.id != self.run or run.state != "queued" or run.stop_by:
                return None
            return AgentDecision(None, events=(*made, begun), blobs=(encoded,))

        return decide

    async def _recover(self, agent: LoadedAgent) -> None:
        """Continue a run that another host began: adopt its process or its output, or record it as lost."""
        if self._work.lease.attempt > _MAX_ADOPTIONS:
            await self._abandon(agent, f"It was adopted {_MAX_ADOPTIONS} times.{self._last_job_error}")
            return
        try:
            prepared = await restore_turn(self._context, agent)
        except (AgentError, UsageProblem) as error:
            await self._abandon(agent, str(error))
            return
        reporter = self._new_reporter(await self._drop_answered_questions(agent), prepared)
        process = agent.record.run.process
        if process is None and prepared.executor.name in DURABLE:
            # The agent itself has survived its host.
            process = NO_PROCESS
        if agent.record.run.stop_by or process is None:
            await end_processes(self.run)
            await self._finish(
                reporter.agent,
                end_from_stop(agent.record.run) if agent.record.run.stop_by else self._lost_end(LOST_WITH_HOST),
            )
            return
        reporter.replay()
        limits = prepared.blueprint.limits
        if process is not NO_PROCESS and not is_alive(process):
            # The process has ended, perhaps long ago: its output is read without a time limit.
            limits = msgspec.structs.replace(limits, wall_seconds=math.inf)
        await self._conclude(prepared, prepared.executor.adopt(prepared.turn, process, reporter), limits)

    async def _abandon(self, agent: LoadedAgent, why: str) -> None:
        await end_processes(self.run)
        await self._finish(
            agent, RunEnd(state="lost", reason=LOST_WITH_HOST, detail=f"It cannot be supervised any more: {why}")
        )

    async def _drop_answered_questions(self, agent: LoadedAgent) -> LoadedAgent:
        """Record the answers to questions that were closed while the run had no host."""
        for request in agent.record.run.questions:
            if (await self._context.ledger.request(request)).state != "open":
                agent = await self._write(agent, draft_event(RUN_GOING_ON, {"run": self.run, "request": request}))
        return agent

    def _new_reporter(self, agent: LoadedAgent, prepared: PreparedTurn) -> RunReporter:
        self._resume_lost = prepared.blueprint.resume_lost
        self._reporter = RunReporter(self._context, agent, self._work, prepared.blueprint, self.supervisor.recheck)
        return self._reporter

    async def _conclude(self, prepared: PreparedTurn, call: ExecutorCall, limits: Limits) -> None:
        reporter = self._reporter
        assert reporter is not None
        try:
            ending = await self._await_end(prepared, call, limits, reporter)
        except StopRequested:
            ending = end_from_stop((await self._context.unit.load(reporter.agent.id)).record.run)
        except AgentError as error:
            ending = end_from_failure(error)
        if ending.state != "succeeded" and self.has_process:
            await end_processes(self.run)
        await self._finish(reporter.agent, msgspec.structs.replace(ending, usage=reporter.usage))

    async def _await_end(self, prepared: PreparedTurn, call: ExecutorCall, limits: Limits, reporter: RunReporter) -> RunEnd:
        try:
            finished = await self.supervisor.supervise(call, reporter, limits)
        except ConversationLost:
            record = reporter.agent.record
            if not record.run.resumes or record.run.part > 1 or record.proven:
                raise
            # No run has succeeded in this conversation, and the agent does not know it: the lost run never began. So it begins
            # now, with its original prompt.
            prompt = await load_original_prompt(self._context.ledger, reporter.agent.id, reporter.agent.record.run)
            finished = await self._call_again(prepared, reporter, prompt=prompt, fresh=str(uuid.uuid4()))
        if finished is None:
            return self._lost_end(LOST_WITH_PROCESS)
        checked = await check_result(prepared.blueprint, finished)
        if checked.problem and reporter.agent.record.conversation and reporter.agent.record.run.part == 1:
            finished = await self._call_again(prepared, reporter, prompt=render_reminder(prepared.blueprint, checked.problem))
            checked = await check_result(prepared.blueprint, finished or checked.finished)
        return checked.to_run_end()

    async def _call_again(
        self, prepared: PreparedTurn, reporter: RunReporter, *, prompt: str, fresh: str = ""
    ) -> TurnResult | None:
        """Call the executor again within the run. As with the first call, that is durable first."""
        body = {"run": self.run, **reporter.spent, **({"fresh": fresh} if fresh else {})}
        reporter.agent = await self._write(reporter.agent, draft_event(RUN_AGAIN, body))
        reporter.begin_part()
        run = reporter.agent.record.run
        turn = msgspec.structs.replace(
            prepared.turn,
            prompt=prompt,
            # An adopted turn has no secrets in its blueprint, and this call needs them.
            blueprint=resolve_blueprint(self._context, prepared.blueprint, self.run),
            conversation=reporter.agent.record.conversation or None,
            fresh=run.fresh,
            spool=spool_directory(self._context.home, reporter.agent.id, run.number, run.part),
        )
        return await self.supervisor.supervise(prepared.executor.carry_out(turn, reporter), reporter, prepared.blueprint.limits)

    async def _write(self, agent: LoadedAgent, draft: NewEvent) -> LoadedAgent:
        decision = AgentDecision(None, events=(draft,))
        return await retry_transient(
            lambda: self._context.unit.update(agent, lambda _: decision, actor="host", work=self._work)
        )

    def _lost_end(self, reason: str) -> RunEnd:
        why = f"The process that carried it out ended before it had finished.{self._last_job_error}"
        return RunEnd(state="lost", reason=reason, detail=why)

    @property
    def _last_job_error(self) -> str:
        """The error of the previous attempt, as a sentence."""
        error = self._work.lease.error
        return f" Last error: {error}" if error else ""

    async def _finish(self, agent: LoadedAgent, ending: RunEnd) -> None:
        await finish_run(self._context, agent, ending, actor="host", work=self._work, resume_lost=self._resume_lost)

    async def _return_job(self) -> None:
        """Release the job, so that the next host claims it at once and adopts the process."""
        now = self._context.clock()
        await self._context.ledger.settle(self._work.lease, Retry(due=now, error="The host of this run has ended."))
        self._work.is_settled = True

    async def _handle_interruption(self) -> None:
        """Handle the end of the host or of its lease. A turn inside this process is stopped; another host adopts the others.

        If the session was deleted, its processes are ended: no host would adopt the run, and no call could stop it.
        """
        if await is_deleted(self._context.ledger, self._work.lease.session):
            await end_processes(self.run)
            return
        agent = await self._context.unit.load(self._work.lease.session)
        run = agent.record.run
        if run.id != self.run or run.state == "queued" or not is_active(run.state) or _can_be_adopted(agent):
            return
        ending = end_from_stop(run) if run.stop_by else _STOPPED_WITH_HOST
        usage = self._reporter.usage if self._reporter is not None else None
        with suppress(StaleLease):
            await self._finish(agent, msgspec.structs.replace(ending, usage=usage))


def _can_be_adopted(agent: LoadedAgent) -> bool:
    return agent.record.run.process is not None or agent.record.executor in DURABLE
