"""Carries a workflow out with agents, from wherever it stands to its end.

One pass of the loop looks at the record and does the one thing that comes next. Whatever ends the process in between, the next
pass finds the record as it is and goes on: a worker is started under a name that follows from session and visit, so it is
found again instead of started twice, and a move that was made is not made again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fidelio.clock import Clock, now_ms
from fidelio.conductor import prompts
from fidelio.conductor.choosing import NoWay, Onward, Undecided, choose
from fidelio.conductor.keeping import FAILED, conducting_lock, keep, plan_of, runs_before_failure
from fidelio.conductor.manifests import Manifest, read_manifest
from fidelio.conductor.plan import Plan, check_plan
from fidelio.conductor.progress import Happening, Watcher, nobody
from fidelio.conductor.questions import seconds_to_default, step_at
from fidelio.conductor.triggers import children_to_start
from fidelio.conductor.workers import Workers
from fidelio.engine.manifests import check_steps
from fidelio.engine.record import VARIABLES_SET, Answer, Draft, Record, foreseen
from fidelio.engine.resolving import Choice
from fidelio.engine.variables import check_report
from fidelio.errors import AgentSessionNotFound, ConductorFailure, FidelioError, LedgerError, WorkflowRefusal
from fidelio.inbox import Inbox
from fidelio.ledger.model import NewEvent
from fidelio.workflows.moving import Move
from fidelio.workflows.starting import Asked

if TYPE_CHECKING:
    from fidelio.definitions.models import Workflow
    from fidelio.home import Home
    from fidelio.orchestrator.model import AgentSession
    from fidelio.workflows.service import WorkflowService

CONDUCTOR = "conductor"
GLANCE_SECONDS = 1.0
# A workflow that goes round for ever, or that starts itself, costs money with every round.
MOST_VISITS, DEEPEST = 1_000, 8
# A worker that was lost with its process is not to blame; one that always is, takes its host with it.
MOST_LOST = 10


class Stuck(Exception):
    """The run cannot go on. `worker` is who did not finish, where one did not."""

    def __init__(self, reason: str, record: Record, worker: AgentSession | None = None) -> None:
        super().__init__(reason)
        self.reason, self.record, self.worker = reason, record, worker


class Conductor:
    """Takes the orchestrating agent's part, for one run."""

    def __init__(
        self, workflows: WorkflowService, workers: Workers, home: Home, *, watch: Watcher = nobody, clock: Clock = now_ms
    ) -> None:
        self._workflows = workflows
        self._desk = workflows.desk
        self._workers = workers
        self._home = home
        self._watch = watch
        self._clock = clock
        self._began = clock()
        self._root = ""
        self._asked_for = ""

    async def begin(self, plan: Plan) -> str:
        """A new session with its plan. Everything that can be checked has been checked when it returns."""
        await self.check(plan)
        outcome = await self._workflows.sessions.start(Asked(plan.workflow, CONDUCTOR))
        await keep(self._desk.ledger, outcome.session, plan)
        return outcome.session

    async def check(self, plan: Plan) -> None:
        """Raises for what cannot work: an activity, an input, a blueprint, an agent that is not on this machine."""
        check_plan(plan, self._workflows.library.workflow(plan.workflow))
        await self._workers.check_caller(plan.caller)
        for agent in dict.fromkeys((plan.agent, *plan.activity_agents.values())):
            await self._workers.check(agent, plan.project)

    async def carry_out(self, session: str) -> Record:
        """To the end. Raises `ConductorFailure` when it cannot go on; starting again goes on from there."""
        plan = await plan_of(self._desk.ledger, session)
        if plan is None:
            raise ConductorFailure(
                f"Session {session} was not started by `fidelio run`.", remedy="Start the workflow with `fidelio run WORKFLOW`."
            )
        lock = conducting_lock(self._home, session)
        if not lock.take():
            raise ConductorFailure(
                f"Session {session} is being carried out by another process.",
                remedy=f"Watch it with `fidelio events {session} --follow`, or begin another run with --new.",
            )
        self._root = session
        try:
            return await self._with_failure_on_record(session, plan)
        finally:
            lock.release()

    async def _with_failure_on_record(self, session: str, plan: Plan) -> Record:
        try:
            return await self._play(session, plan, depth=0)
        except Stuck as stuck:
            raise await self._failure(stuck) from stuck
        except LedgerError:
            raise
        except FidelioError as error:
            raise await self._failure(Stuck(str(error), await self._record(session))) from error

    async def _play(self, session: str, plan: Plan, *, depth: int) -> Record:
        while (record := await self._record(session)).status != "completed":
            if record.visits >= MOST_VISITS or depth > DEEPEST:
                raise Stuck(f"{record.workflow} goes round and round: {record.visits} visits, {depth} levels deep.", record)
            if record.suspended_by:
                await self._play(record.suspended_by, plan, depth=depth + 1)
            elif not record.activity:
                # What is given to a run belongs to the workflow it was given for, not to those that it starts.
                await self._enter(session, record, Manifest(variables=plan.inputs if depth == 0 else {}))
            else:
                await self._visit(session, record, plan)
        self._tell("completed", session, record)
        return record

    async def _enter(self, session: str, record: Record, manifest: Manifest) -> None:
        problems = await self._move(session, record, manifest)
        if problems and not await self._has_moved(session, record):
            raise Stuck(" ".join(problems), record)

    async def _visit(self, session: str, record: Record, plan: Plan) -> None:
        """One look at the current activity and its worker, and the one thing that comes next."""
        worker = await self._workers.find(session, record, plan.project) or await self._hire(session, record, plan)
        try:
            worker = await self._until_ended(session, worker)
        except AgentSessionNotFound:
            # Somebody has deleted it; the next look finds nobody and starts another.
            return
        if await self._has_moved(session, record):
            return
        record = await self._record(session)
        if record.waiting is not None:
            await self._until_answered(session, record, worker)
        else:
            await self._weigh(session, record, worker, plan)

    async def _hire(self, session: str, record: Record, plan: Plan) -> AgentSession:
        agent = plan.agent_for(record.activity)
        self._tell("entered", session, record, agent=agent)
        workflow = self._workflows.library.workflow(record.workflow)
        activity = self._workflows.library.activity(workflow.id, record.activity)
        brief = prompts.brief(workflow, activity, self._token(session, record))
        return await self._workers.start(session, record, plan, brief)

    async def _until_ended(self, session: str, worker: AgentSession) -> AgentSession:
        """Watches the worker, and says what it does and what it waits for whenever that changes."""
        doing = ""
        while worker.run.is_active:
            now = await self._record(session)
            request = now.waiting.request if now.waiting else worker.question or ""
            self._tell_question(session, now, worker, request)
            if worker.run.last_activity not in ("", doing) and not request:
                doing = worker.run.last_activity
                self._tell("working", session, now, agent=worker.blueprint, detail=doing)
            await self._take_default(session, now)
            worker = await self._workers.wait(worker, GLANCE_SECONDS)
        return worker

    async def _until_answered(self, session: str, record: Record, worker: AgentSession) -> None:
        """A worker that stopped at a checkpoint costs nothing while people think."""
        waiting = record.waiting
        assert waiting is not None
        self._tell_question(session, record, worker, waiting.request)
        try:
            async with asyncio.timeout(seconds_to_default(self._workflow(record), record, self._clock())):
                await Inbox(self._desk.ledger).closed(waiting.request)
        except TimeoutError:
            await self._take_default(session, record)
        record = await self._record(session)
        if record.waiting is None:
            await self._go_on(session, record, worker, prompts.answered(_news(record), self._token(session, record)))

    async def _take_default(self, session: str, record: Record) -> None:
        """Answers a question that does not insist on an answer, once its time is over."""
        if seconds_to_default(self._workflow(record), record, self._clock()) != 0:
            return
        try:
            await self._workflows.checkpoints.respond(self._own_token(session, record), Choice(auto_advance=True))
        except WorkflowRefusal:
            # Somebody was faster, or a person is demanded after all.
            return

    async def _weigh(self, session: str, record: Record, worker: AgentSession, plan: Plan) -> None:
        """The worker has ended: its report leads on, or it is told what is missing."""
        manifest, problems = await self._report(record, worker)
        if manifest is not None and not problems:
            if await self._start_child(session, record):
                return
            problems = await self._move(session, record, manifest)
        if problems and not await self._has_moved(session, record):
            await self._tell_what_is_missing(session, record, worker, plan, problems)

    async def _report(self, record: Record, worker: AgentSession) -> tuple[Manifest | None, list[str]]:
        if worker.run.state != "succeeded":
            return None, [f"Your last turn ended early: {worker.run.detail or worker.run.reason or worker.run.state}"]
        result = await self._workers.result(worker)
        manifest = read_manifest(result.text, result.data)
        if isinstance(manifest, str):
            return None, [manifest]
        workflow, informed = self._workflow(record), self._informed(record, manifest)
        person = self._desk.rules.answered_by_person
        said = check_report(workflow, record, manifest.variables, person=person)
        found = [*check_steps(workflow, informed, manifest.steps), *said]
        return manifest, list(dict.fromkeys(problem.sentence for problem in found))

    async def _start_child(self, session: str, record: Record) -> bool:
        """Starts the next workflow that the activity triggers; the loop carries it out before the activity is left."""
        for name in await children_to_start(self._desk.ledger, session, self._workflow(record), record):
            await self._workflows.sessions.start(Asked(name, CONDUCTOR, parent_token=self._own_token(session, record)))
            return True
        return False

    async def _move(self, session: str, record: Record, manifest: Manifest) -> list[str]:
        """Takes the way that holds. What keeps it from doing so is for the worker to mend."""
        match choose(self._workflow(record), self._informed(record, manifest)):
            case Onward(to=target, claim=claim):
                steps = manifest.steps if record.activity else None
                return await self._moved(session, record, Move(target, claim, steps, None, manifest.variables))
            case Undecided(variables=names):
                return [prompts.undecided(names)]
            case NoWay():
                raise Stuck(f"No way leads on from {record.activity or 'the start'} of {record.workflow}.", record)

    async def _moved(self, session: str, record: Record, move: Move) -> list[str]:
        try:
            await self._workflows.moves.move(self._own_token(session, record), move)
        except WorkflowRefusal as no:
            return [str(no)]
        if record.activity:
            self._tell("left", session, record, detail=move.to)
        return []

    async def _has_moved(self, session: str, before: Record) -> bool:
        """Whether the session stands elsewhere than it did: then what was found out about its place is of no use any more."""
        now = await self._record(session)
        return now.status == "completed" or (now.activity, now.visit) != (before.activity, before.visit)

    async def _tell_what_is_missing(
        self, session: str, record: Record, worker: AgentSession, plan: Plan, problems: list[str]
    ) -> None:
        forgiven = await runs_before_failure(self._desk.ledger, self._root, worker.name)
        if worker.run.state == "stopped" and worker.run.number > forgiven:
            raise Stuck(f"The worker {worker.name} was stopped.", record, worker)
        runs = [run for run in await self._workers.runs(worker) if run.number > forgiven]
        lost = sum(run.state == "lost" for run in runs)
        if len(runs) - lost - len(record.answers) >= plan.tries or lost >= MOST_LOST:
            reason = f"{worker.blueprint or 'The agent'} did not finish {record.activity}: {' '.join(problems)}"
            raise Stuck(reason, record, worker)
        token, news = self._token(session, record), _news(record)
        prompt = prompts.answered(news, token) if news else prompts.missing(problems, token)
        await self._go_on(session, record, worker, prompt)

    async def _failure(self, stuck: Stuck) -> ConductorFailure:
        """Puts the reason on record. Whoever runs the workflow again forgives the worker, and goes on from here."""
        worker, record = stuck.worker, stuck.record
        body: dict[str, Any] = {"workflow": record.workflow, "activity": record.activity, "reason": stuck.reason[:2000]}
        if worker is not None:
            body |= {"worker": worker.name, "runs": worker.run.number}
        await self._desk.ledger.append(self._root, NewEvent(type=FAILED, body=body, actor=CONDUCTOR))
        self._tell("failed", self._root, record, agent=worker.blueprint if worker else "", detail=stuck.reason)
        look = f"`fidelio events {worker.id}` shows what it did. " if worker else ""
        return ConductorFailure(stuck.reason, remedy=f"{look}Running the workflow again goes on from here.")

    async def _go_on(self, session: str, record: Record, worker: AgentSession, prompt: str) -> None:
        self._tell("resumed", session, record, agent=worker.blueprint)
        await self._workers.resume(worker, prompt)

    async def _record(self, session: str) -> Record:
        return await self._desk.caught_up(await self._desk.ledger.session(session))

    def _workflow(self, record: Record) -> Workflow:
        return self._workflows.library.workflow(record.workflow)

    def _informed(self, record: Record, manifest: Manifest) -> Record:
        """The record as it will be when the worker's variables are in it."""
        told = Draft(VARIABLES_SET, {"variables": dict(manifest.variables), "by": f"agent:{CONDUCTOR}"})
        return foreseen(record, [told], self._clock()) if manifest.variables else record

    def _token(self, session: str, record: Record) -> str:
        """A worker's key: it stands at this activity, and is stale for moving as soon as the session stands elsewhere."""
        return self._desk.tokens.make(session, record, agent=f"worker-{record.activity}")

    def _own_token(self, session: str, record: Record) -> str:
        return self._desk.tokens.make(session, record, agent=CONDUCTOR)

    def _tell_question(self, session: str, record: Record, worker: AgentSession, request: str) -> None:
        if request not in ("", self._asked_for):
            self._asked_for = request
            self._tell("waiting", session, record, agent=worker.blueprint, request=request)

    def _tell(self, kind: str, session: str, record: Record, *, agent: str = "", detail: str = "", request: str = "") -> None:
        self._watch(
            Happening(
                kind=kind,
                workflow=record.workflow,
                session=session,
                activity=record.activity,
                step=step_at(self._workflow(record), record),
                agent=agent,
                detail=detail,
                request=request,
                elapsed_ms=self._clock() - self._began,
                cost_usd=self._workers.cost_usd,
            )
        )


def _news(record: Record) -> list[Answer]:
    """Answers of this visit that the worker has not taken note of."""
    return [answer for answer in record.answers if not answer.resumed]
