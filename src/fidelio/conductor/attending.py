"""Looks after the worker of a stretch: starts it, waits for it and for the people it asks, and tells it what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.conductor import prompts
from fidelio.conductor.keeping import runs_before_failure
from fidelio.conductor.manifests import Manifest, read_manifest
from fidelio.conductor.questions import seconds_to_default
from fidelio.conductor.stage import Stage, Stuck
from fidelio.conductor.stretches import Stretch
from fidelio.engine.record import Answer, Record
from fidelio.engine.resolving import Choice
from fidelio.errors import AgentSessionNotFound, WorkflowRefusal
from fidelio.inbox import Inbox
from fidelio.orchestrator.model import AgentSession

if TYPE_CHECKING:
    from fidelio.conductor.plan import Plan

GLANCE_SECONDS = 1.0
# A worker that was lost with its process is not to blame; one that always is, takes its host with it.
MOST_LOST = 10


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

    async def report(
        self, session: str, record: Record, plan: Plan, stretch: Stretch, ended: Sequence[Mapping[str, Any]] = ()
    ) -> Reported | None:
        """What the worker of the stretch has handed in. None when the session has to be looked at again.

        `ended` are the workflows that have come back since the last report.
        """
        workers = self._stage.workers
        worker = await workers.find(session, record, plan.project, stretch.key)
        worker = worker or await self._hire(session, record, plan, stretch, ended)
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

    async def _hire(
        self, session: str, record: Record, plan: Plan, stretch: Stretch, ended: Sequence[Mapping[str, Any]]
    ) -> AgentSession:
        stage, agent = self._stage, plan.agent_for(record.activity)
        stage.tell("entered", session, record, agent=agent, step=stretch.names[0] if stretch.names else None)
        workflow = stage.workflow(record)
        activity = stage.workflows.library.activity(workflow.id, record.activity)
        part = prompts.part_of(workflow, record, stretch, ended)
        prompt = prompts.brief(workflow, activity, stage.token(session, record), part)
        return await stage.workers.start(session, record, plan, prompt, stretch.key)

    async def _until_ended(self, session: str, worker: AgentSession) -> AgentSession:
        """Watches the worker, and says what it does and what it waits for whenever that changes."""
        doing = ""
        while worker.run.is_active:
            now = await self._stage.record(session)
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
                await Inbox(stage.desk.ledger).closed(waiting.request)
        except TimeoutError:
            await self._take_default(session, record)
        record = await stage.record(session)
        if record.waiting is None:
            prompt = prompts.answered(_news(record), stage.token(session, record), stretch)
            await self._go_on(session, record, worker, prompt)

    async def _take_default(self, session: str, record: Record) -> None:
        """Answers a question that does not insist on an answer, once its time is over."""
        stage = self._stage
        if seconds_to_default(stage.workflow(record), record, stage.clock()) != 0:
            return
        try:
            await stage.workflows.checkpoints.respond(stage.own_token(session, record), Choice(auto_advance=True))
        except WorkflowRefusal:
            # Somebody was faster, or a person is demanded after all.
            return

    async def tell_what_is_missing(
        self, session: str, reported: Reported, plan: Plan, stretch: Stretch, problems: Sequence[str]
    ) -> None:
        worker, record, stage = reported.worker, reported.record, self._stage
        forgiven = await runs_before_failure(stage.desk.ledger, stage.root, worker.name)
        if worker.run.state == "stopped" and worker.run.number > forgiven:
            raise Stuck(f"The worker {worker.name} was stopped.", record, worker)
        runs = [run for run in await stage.workers.runs(worker) if run.number > forgiven]
        lost = sum(run.state == "lost" for run in runs)
        if len(runs) - lost - _times_answered(record, stretch) >= plan.tries or lost >= MOST_LOST:
            reason = f"{worker.blueprint or 'The agent'} did not finish {record.activity}: {' '.join(problems)}"
            raise Stuck(reason, record, worker)
        token, news = stage.token(session, record), _news(record)
        prompt = prompts.answered(news, token, stretch) if news else prompts.missing(problems, token, stretch)
        await self._go_on(session, record, worker, prompt)

    async def _go_on(self, session: str, record: Record, worker: AgentSession, prompt: str) -> None:
        self._stage.tell("resumed", session, record, agent=worker.blueprint)
        await self._stage.workers.resume(worker, prompt)

    def _tell_question(self, session: str, record: Record, worker: AgentSession, request: str) -> None:
        if request not in ("", self._asked_for):
            self._asked_for = request
            self._stage.tell("waiting", session, record, agent=worker.blueprint, request=request)


def _news(record: Record) -> list[Answer]:
    """Answers of this visit, and of the pass that is running, that the worker has not taken note of."""
    return [answer for answer in record.answers if not answer.resumed and _is_of_this_pass(record, answer)]


def _times_answered(record: Record, stretch: Stretch) -> int:
    """How often the worker was called again because somebody had answered. That is nothing that it has to be forgiven.

    One that does all passes of a loop by itself is called once for each of them.
    """
    if stretch.whole:
        return sum(max(1, answer.iteration) for answer in record.answers)
    return sum(_is_of_this_pass(record, answer) for answer in record.answers)


def _is_of_this_pass(record: Record, answer: Answer) -> bool:
    running = record.here.running
    return running is None or answer.iteration in (0, running.iteration)
