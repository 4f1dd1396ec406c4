"""One run, carried out by the agent host: begun once, watched to its end, and ended once.

The order is what makes it safe. That a run begins is durable before its executor is called; whoever finds it later in any state
but `queued` does not begin it again, but goes on with its process where there is one, and else says that it was lost.
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
from fidelio.ledger.model import Retry
from fidelio.orchestrator.blueprints.model import Limits
from fidelio.orchestrator.executors.contract import TurnResult
from fidelio.orchestrator.record.record import AGAIN, GOING_ON, STARTING, WORKTREE
from fidelio.orchestrator.record.rules import CANNOT_BEGIN, LOST_WITH_HOST, LOST_WITH_PROCESS, STOPPED_WITH_PARENT, is_active
from fidelio.orchestrator.record.unit_of_work import AgentDecision, Decide, EventDraft, LoadedAgent
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.cleanup import spool_of, was_deleted
from fidelio.orchestrator.runs.context import OrchestratorContext, encode_blueprint
from fidelio.orchestrator.runs.lineage import is_left_over
from fidelio.orchestrator.runs.preparation import Prepared, prepare, ready, recall
from fidelio.orchestrator.runs.queueing import original_prompt
from fidelio.orchestrator.runs.reporter import RunReporter
from fidelio.orchestrator.runs.results import Ending, bring_to_end, fitting, of_failure, of_stop, reminder
from fidelio.orchestrator.runs.supervisor import Left, Stopped, Supervisor
from fidelio.processes.ending import end_processes
from fidelio.processes.spooled import is_alive
from fidelio.retry import retry_transient

# What keeps a run from beginning may pass, such as a full disk; after this many tries it counts as a failure.
_BEGINNINGS = 6
# Each host that takes a run up is one; so is each time that watching it fails in a way that nobody has foreseen.
_ADOPTIONS = 100

Working = Coroutine[Any, Any, TurnResult | None]

_log = logging.getLogger(__name__)


class RunController:
    """One run, from the moment a host has it in hand until it has ended or is left to the next host."""

    def __init__(self, context: OrchestratorContext, host: str, work: Assignment) -> None:
        self.run = str(work.lease.payload["run"])
        self._context, self._host, self._work = context, host, work
        self._watch = Supervisor(context.clock)
        self._reporter: RunReporter | None = None
        self._resume_lost = False

    @property
    def has_process(self) -> bool:
        return self._reporter is not None and self._reporter.at.record.run.process is not None

    def stop(self) -> None:
        self._watch.stop()

    def leave(self) -> None:
        self._watch.leave()

    async def carry_out(self) -> None:
        try:
            await self._carry_out()
        except SessionNotFound:
            _log.info("The session of run %s was deleted.", self.run)
            await end_processes(self.run)
        except (asyncio.CancelledError, StaleLease):
            await self._give_up()
            raise

    async def _carry_out(self) -> None:
        at = await self._context.unit.load(self._work.lease.session)
        if at.record.run.id != self.run or not is_active(at.record.run.state):
            return
        try:
            await (self._begin(at) if at.record.run.state == "queued" else self._recover(at))
        except Left:
            await self._hand_over()

    async def _begin(self, at: LoadedAgent) -> None:
        if self._work.lease.attempt > _BEGINNINGS:
            await self._end(at, Ending(state="failed", reason=CANNOT_BEGIN, detail=f"It could not begin.{await self._words()}"))
            return
        if await is_left_over(self._context, at):
            await self._end(at, Ending(state="stopped", reason=STOPPED_WITH_PARENT, detail="Who started it was stopped."))
            return
        try:
            prepared = await prepare(self._context, at)
        except (AgentError, UsageProblem) as error:
            await self._end(at, of_failure(error))
            return
        at = await self._record_beginning(at, prepared)
        run = at.record.run
        if run.state == "starting" and run.fence == self._work.lease.fence:
            reporter = self._new_reporter(at, prepared)
            working = prepared.executor.carry_out(prepared.turn, reporter)
            await self._conclude(prepared, working, prepared.blueprint.limits)
        elif run.stop_by:
            await self._end(at, of_stop(run))

    async def _record_beginning(self, at: LoadedAgent, prepared: Prepared) -> LoadedAgent:
        """Records that the run begins, or finds that it must not: then a worktree that was made for it goes again."""
        try:
            now = await self._context.unit.update(at, self._starting(prepared), actor="host", work=self._work)
        except FidelioError:
            await worktrees.settle(at.record, prepared.made)
            raise
        await worktrees.settle(now.record, prepared.made)
        return now

    def _starting(self, prepared: Prepared) -> Decide:
        kept = encode_blueprint(prepared.blueprint)
        body = {
            "run": self.run,
            "fresh": prepared.turn.fresh,
            "host": self._host,
            "fence": self._work.lease.fence,
            "blueprint_hash": prepared.blueprint.hash,
            "blueprint_blob": hash_blob(kept),
        }
        begun = EventDraft(STARTING, body, (hash_blob(kept),))
        made = (EventDraft(WORKTREE, msgspec.structs.asdict(prepared.made)),) if prepared.made else ()

        def decide(now: LoadedAgent) -> AgentDecision | None:
            run = now.record.run
            if run.id != self.run or run.state != "queued" or run.stop_by:
                return None
            return AgentDecision(drafts=(*made, begun), blobs=(kept,))

        return decide

    async def _recover(self, at: LoadedAgent) -> None:
        """Goes on with a run that somebody else began: its process, or what that has left, or the fact that it is gone."""
        if self._work.lease.attempt > _ADOPTIONS:
            await self._abandon(at, f"It was taken up {_ADOPTIONS} times.{await self._words()}")
            return
        try:
            prepared = await recall(self._context, at)
        except (AgentError, UsageProblem) as error:
            await self._abandon(at, str(error))
            return
        reporter = self._new_reporter(await self._without_answered(at), prepared)
        process = at.record.run.process
        if at.record.run.stop_by or process is None:
            await end_processes(self.run)
            await self._end(reporter.at, of_stop(at.record.run) if at.record.run.stop_by else await self._lost(LOST_WITH_HOST))
            return
        reporter.replay()
        limits = prepared.blueprint.limits
        if not is_alive(process):
            # It has ended, perhaps long ago. What it left is read, however late that is.
            limits = msgspec.structs.replace(limits, wall_seconds=math.inf)
        await self._conclude(prepared, prepared.executor.adopt(prepared.turn, process, reporter), limits)

    async def _abandon(self, at: LoadedAgent, why: str) -> None:
        await end_processes(self.run)
        await self._end(at, Ending(state="lost", reason=LOST_WITH_HOST, detail=f"It cannot be watched any more: {why}"))

    async def _without_answered(self, at: LoadedAgent) -> LoadedAgent:
        """Questions that were answered while nobody watched no longer keep the run waiting."""
        for request in at.record.run.questions:
            if (await self._context.ledger.request(request)).state != "open":
                at = await self._write(at, EventDraft(GOING_ON, {"run": self.run, "request": request}))
        return at

    def _new_reporter(self, at: LoadedAgent, prepared: Prepared) -> RunReporter:
        self._resume_lost = prepared.blueprint.resume_lost
        self._reporter = RunReporter(self._context, at, self._work, prepared.blueprint.limits, self._watch.look)
        return self._reporter

    async def _conclude(self, prepared: Prepared, working: Working, limits: Limits) -> None:
        reporter = self._reporter
        assert reporter is not None
        try:
            ending = await self._outcome(prepared, working, limits, reporter)
        except Stopped:
            ending = of_stop((await self._context.unit.load(reporter.at.id)).record.run)
        except AgentError as error:
            ending = of_failure(error)
        if ending.state != "succeeded" and self.has_process:
            await end_processes(self.run)
        await self._end(reporter.at, msgspec.structs.replace(ending, usage=reporter.usage))

    async def _outcome(self, prepared: Prepared, working: Working, limits: Limits, reporter: RunReporter) -> Ending:
        try:
            finished = await self._watch.over(working, reporter, limits)
        except ConversationLost:
            record = reporter.at.record
            if not record.run.resumes or record.run.part > 1 or record.proven:
                raise
            # No turn has ever ended in this conversation, and the agent does not know it: the lost one never began. So it is
            # begun now, as it was asked for.
            prompt = await original_prompt(self._context.ledger, reporter.at.id, reporter.at.record.run)
            finished = await self._again(prepared, reporter, prompt=prompt, fresh=str(uuid.uuid4()))
        if finished is None:
            return await self._lost(LOST_WITH_PROCESS)
        checked = await fitting(prepared.blueprint, finished)
        if checked.problem and reporter.at.record.conversation and reporter.at.record.run.part == 1:
            finished = await self._again(prepared, reporter, prompt=reminder(prepared.blueprint, checked.problem))
            checked = await fitting(prepared.blueprint, finished or checked.finished)
        return checked.ending()

    async def _again(self, prepared: Prepared, reporter: RunReporter, *, prompt: str, fresh: str = "") -> TurnResult | None:
        """Calls the executor once more within the run. That it does so is durable first, as with the first call."""
        body = {"run": self.run, **reporter.spent, **({"fresh": fresh} if fresh else {})}
        reporter.at = await self._write(reporter.at, EventDraft(AGAIN, body))
        reporter.begin_part()
        run = reporter.at.record.run
        turn = msgspec.structs.replace(
            prepared.turn,
            prompt=prompt,
            # An adopted turn has never had the values that its servers need, and this one is begun.
            blueprint=ready(self._context, prepared.blueprint, self.run),
            conversation=reporter.at.record.conversation or None,
            fresh=run.fresh,
            spool=spool_of(self._context.home, reporter.at.id, run.number, run.part),
        )
        return await self._watch.over(prepared.executor.carry_out(turn, reporter), reporter, prepared.blueprint.limits)

    async def _write(self, at: LoadedAgent, draft: EventDraft) -> LoadedAgent:
        decision = AgentDecision(drafts=(draft,))
        return await retry_transient(lambda: self._context.unit.update(at, lambda _: decision, actor="host", work=self._work))

    async def _lost(self, reason: str) -> Ending:
        why = f"The process that carried it out ended before it had finished.{await self._words()}"
        return Ending(state="lost", reason=reason, detail=why)

    async def _words(self) -> str:
        """The last words of whoever had the run in hand before."""
        jobs = await self._context.ledger.jobs(session=self._work.lease.session)
        error = next((job.error for job in jobs if job.id == self._work.lease.job), "")
        return f" The last that was heard: {error}" if error else ""

    async def _end(self, at: LoadedAgent, ending: Ending) -> None:
        await bring_to_end(self._context, at, ending, actor="host", work=self._work, resume_lost=self._resume_lost)

    async def _hand_over(self) -> None:
        """The next host claims the run at once and adopts its process."""
        now = self._context.clock()
        await self._context.ledger.settle(self._work.lease, Retry(due=now, error="The host of this run has ended."))
        self._work.is_settled = True

    async def _give_up(self) -> None:
        """The host ends, or has lost its right to the run. A turn in this process ends with it; a process lives on.

        Unless its session was deleted: then nobody takes the run up after us, and nobody could stop it any more.
        """
        if await was_deleted(self._context.ledger, self._work.lease.session):
            await end_processes(self.run)
            return
        if self._reporter is None or self.has_process:
            return
        ending = Ending(
            state="lost", reason=LOST_WITH_HOST, detail="The process it ran in was ended.", usage=self._reporter.usage
        )
        with suppress(StaleLease):
            await self._end(self._reporter.at, ending)
