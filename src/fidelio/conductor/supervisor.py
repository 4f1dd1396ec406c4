"""Looks after the worker of a stretch: starts it, waits for it and for the people it asks, and tells it what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fidelio.conductor import prompts
from fidelio.conductor.choices import seconds_to_default
from fidelio.conductor.context import CONDUCTOR, Stage, Stuck
from fidelio.conductor.history import Past, came_back, past_of
from fidelio.conductor.manifests import Manifest, read_manifest
from fidelio.conductor.plan import TOLD, runs_before_failure
from fidelio.conductor.segments import Stretch
from fidelio.engine.answers import AnswerChoice
from fidelio.engine.record import CheckpointAnswer, Record
from fidelio.errors import AgentSessionNotFound, WorkflowRefusal
from fidelio.inbox import Inbox
from fidelio.ledger.model import NewEvent
from fidelio.orchestrator.record.model import AgentSession

if TYPE_CHECKING:
    from fidelio.conductor.plan import Plan

GLANCE_SECONDS = 1.0
# A worker is not to blame for being lost with its process, nor for what became due when its report was taken. But one that is
# always lost takes its host with it, and one that never comes to an end costs money.
MOST_EXCUSED = 10


class Reported(msgspec.Struct, frozen=True):
    """What a worker has ended with: its manifest, or why it has none."""

    worker: AgentSession
    record: Record
    manifest: Manifest | None
    problem: str = ""


class Attending:
    """One worker at a time, for one run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._asked_for = ""

    async def report(self, session: str, record: Record, plan: Plan, stretch: Stretch) -> Reported | None:
        """What the worker of the stretch has handed in. None when the session has to be looked at again."""
        workers = self._stage.workers
        worker = await workers.find(session, record, plan.project, stretch.key)
        worker = worker or await self._hire(session, record, plan, stretch)
        try:
            worker = await self._until_ended(session, worker)
        except AgentSessionNotFound:
            # Somebody has deleted it; the next look finds nobody and starts another.
            return None
        if await self._stage.has_moved(session, record):
            return None
        record = await self._stage.record(session)
        if record.waiting is not None:
            await self._until_answered(session, record, worker, stretch)
            return None
        return await self._read(record, worker)

    async def _read(self, record: Record, worker: AgentSession) -> Reported:
        if worker.run.state != "succeeded":
            why = f"Your last turn ended early: {worker.run.detail or worker.run.reason or worker.run.state}"
            return Reported(worker, record, None, why)
        result = await self._stage.workers.result(worker)
        manifest = read_manifest(result.text, result.data)
        return Reported(worker, record, None, manifest) if isinstance(manifest, str) else Reported(worker, record, manifest)

    async def _hire(self, session: str, record: Record, plan: Plan, stretch: Stretch) -> AgentSession:
        stage, agent = self._stage, plan.agent_for(record.activity)
        stage.tell("entered", session, record, agent=agent, step=stretch.names[0] if stretch.names else None)
        workflow = stage.workflow(record)
        activity = stage.workflows.library.activity(workflow.id, record.activity)
        ended = [] if stretch.whole else await came_back(stage.ledger, session)
        part = prompts.part_of(workflow, record, stretch, ended)
        prompt = prompts.brief(workflow, activity, stage.token(session, record), part)
        return await stage.workers.start(session, record, plan, prompt, stretch.key)

    async def _until_ended(self, session: str, worker: AgentSession) -> AgentSession:
        """Watches the worker, and says what it does and what it waits for whenever that changes."""
        doing = ""
        while worker.run.is_active:
            now = await self._stage.record(session)
            if now.status == "completed":
                # Somebody has ended the session; whatever the worker still does is for nobody.
                return await self._stage.workers.stop(worker)
            request = now.waiting.request if now.waiting else worker.question or ""
            self._tell_question(session, now, worker, request)
            if worker.run.last_activity not in ("", doing) and not request:
                doing = worker.run.last_activity
                self._stage.tell("working", session, now, agent=worker.blueprint, detail=doing)
            await self._take_default(session, now)
            worker = await self._stage.workers.wait(worker, GLANCE_SECONDS)
        return worker

    async def _until_answered(self, session: str, record: Record, worker: AgentSession, stretch: Stretch) -> None:
        """A worker that stopped at a checkpoint costs nothing while people think."""
        waiting, stage = record.waiting, self._stage
        assert waiting is not None
        self._tell_question(session, record, worker, waiting.request)
        try:
            async with asyncio.timeout(seconds_to_default(stage.workflow(record), record, stage.clock())):
                await Inbox(stage.ledger).wait_until_closed(waiting.request)
        except TimeoutError:
            await self._take_default(session, record)
        if not await stage.has_moved(session, record):
            record = await stage.record(session)
            news = _news(record, await past_of(stage.ledger, session, worker))
            if record.waiting is None and news:
                await self._go_on(session, Reported(worker, record, None), stretch, news)

    async def _take_default(self, session: str, record: Record) -> None:
        """Answers a question that does not insist on an answer, once its time is over."""
        stage = self._stage
        if record.waiting is None or seconds_to_default(stage.workflow(record), record, stage.clock()) != 0:
            return
        try:
            await stage.workflows.checkpoints.respond(stage.own_token(session, record), AnswerChoice(auto_advance=True))
        except WorkflowRefusal:
            # Somebody was faster, or a person is demanded after all.
            return

    async def tell_what_is_missing(
        self, session: str, reported: Reported, plan: Plan, stretch: Stretch, problems: Sequence[str]
    ) -> None:
        """Has the worker go on, as long as it has not failed too often: with runs that did not do their part, for no reason."""
        worker, record, stage = reported.worker, reported.record, self._stage
        past = await past_of(stage.ledger, session, worker)
        news, forgiven = _news(record, past), await runs_before_failure(stage.ledger, stage.root, worker.name)
        if worker.run.state == "stopped" and worker.run.number > forgiven:
            raise Stuck(f"The worker {worker.name} was stopped.", record, worker)
        # One that ended for a question has not failed, even if the answer was quicker than its end.
        asked = past.told | ({worker.run.number} if news else set())
        runs = [run for run in await stage.workers.runs(worker) if run.number > forgiven and run.number not in asked]
        excused = sum(run.state == "lost" or run.number in past.taken for run in runs)
        if len(runs) - excused >= plan.tries or excused >= MOST_EXCUSED:
            reason = f"{worker.blueprint or 'The agent'} did not finish {record.activity}: {' '.join(problems)}"
            raise Stuck(reason, record, worker)
        await self._go_on(session, reported, stretch, news, problems)

    async def _go_on(
        self, session: str, reported: Reported, stretch: Stretch, news: Sequence[CheckpointAnswer], problems: Sequence[str] = ()
    ) -> None:
        worker, record, stage = reported.worker, reported.record, self._stage
        if news:
            told = NewEvent(type=TOLD, body={"worker": worker.name, "run": worker.run.number}, actor=CONDUCTOR)
            await stage.ledger.append(session, told)
        stage.tell("resumed", session, record, agent=worker.blueprint)
        await stage.workers.resume(worker, prompts.go_on(news, problems, stage.token(session, record), stretch))

    def _tell_question(self, session: str, record: Record, worker: AgentSession, request: str) -> None:
        if request not in ("", self._asked_for):
            self._asked_for = request
            self._stage.tell("waiting", session, record, agent=worker.blueprint, request=request)


def _news(record: Record, past: Past) -> list[CheckpointAnswer]:
    """The answers that have come in the worker's turn, and that it has not taken note of."""
    return [answer for answer in record.answers if not answer.resumed and answer.request in past.answered]
