"""Carries a workflow out with agents, from wherever it stands to its end.

One pass of the loop looks at the record and does the one thing that comes next. Whatever ends the process in between, the next
pass finds the record as it is and goes on: a worker is started under a name that follows from session and visit, so it is
found again instead of started twice, and a move that was made is not made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.clock import Clock, now_ms
from fidelio.conductor import prompts
from fidelio.conductor.choices import NoWay, Onward, Undecided, choose
from fidelio.conductor.context import CONDUCTOR, Stage, Stuck, Watcher, nobody
from fidelio.conductor.history import ended_unchecked_by, was_taken
from fidelio.conductor.limits import refuse_endless, require_passable
from fidelio.conductor.plan import (
    FAILED,
    TRIES,
    WORKER,
    Plan,
    beginning_lock,
    check_beginning,
    check_plan,
    conducting_lock,
    keep,
    last_failure,
    plan_of,
    unfinished,
    with_all_it_starts,
)
from fidelio.conductor.recorder import Leading
from fidelio.conductor.reports import Wrong, on_leaving, owed
from fidelio.conductor.segments import WHOLE, Stretch, Unclear, comes_next, in_doubt, is_led, loop_of, stretches
from fidelio.conductor.supervisor import Attending, Reported
from fidelio.engine.manifests import StepReport, check_step_manifest
from fidelio.engine.progress import ActivityTask
from fidelio.engine.record import Record
from fidelio.engine.variables import check_report
from fidelio.errors import ConductorFailure, FidelioError, LedgerError, UsageProblem, WorkflowRefusal
from fidelio.home import Home
from fidelio.ledger import Ledger
from fidelio.ledger.model import NewEvent
from fidelio.workflows.moves import Move
from fidelio.workflows.start import StartInput

if TYPE_CHECKING:
    from fidelio.conductor.workers import Workers
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.unit_of_work import WorkflowUnit


_SAY_SO = "Name its list in `over`, or give it a condition that can be decided, a breakCondition or maxIterations."


class Found(msgspec.Struct, frozen=True):
    """A run. `goes_on`: it was there already."""

    session: str
    goes_on: bool


class Conductor:
    """Takes the orchestrating agent's part, for one run."""

    def __init__(
        self,
        workflows: WorkflowService,
        unit: WorkflowUnit,
        workers: Workers,
        home: Home,
        *,
        watch: Watcher = nobody,
        clock: Clock = now_ms,
    ) -> None:
        """`unit` is the unit of work that `workflows` uses: what the conductor records is committed in the same way."""
        self._workflows = workflows
        self._ledger = unit.ledger
        self._workers = workers
        self._home = home
        self._stage = Stage(workflows, unit, workers, watch, clock)
        self._attending = Attending(self._stage)
        self._leading = Leading(self._stage)

    async def begin(self, plan: Plan) -> str:
        """A new session with its plan. Everything that can be checked has been checked when it returns."""
        await self.check(plan)
        outcome = await self._workflows.sessions.start(StartInput(plan.workflow, CONDUCTOR))
        await keep(self._ledger, outcome.session, plan)
        return outcome.session

    async def last_failure(self, session: str) -> str:
        """Why the run stopped, when nothing has happened in it since; else empty."""
        return await last_failure(self._ledger, session)

    async def find_or_begin(self, plan: Plan, *, anew: bool) -> Found:
        """The run of this workflow in this project that has not ended, with the plan of now; else, or if `anew`, a new one."""
        await self.check(plan)
        lock = beginning_lock(self._home, plan)
        if not lock.acquire():
            raise ConductorFailure(
                f"Another process begins {plan.workflow} just now.", remedy="Run it again to go on with that."
            )
        try:
            session = None if anew else await unfinished(self._ledger, plan.project, plan.workflow)
            if session is None:
                return Found(await self.begin(plan), goes_on=False)
            await _change_hands(self._ledger, session, plan)
            return Found(session, goes_on=True)
        finally:
            lock.release()

    async def check(self, plan: Plan) -> None:
        """Raises for what cannot work: a workflow, an activity, an input, a blueprint, an agent that is not on this machine."""
        first, *others = with_all_it_starts(plan.workflow, self._workflows.library.workflow)
        check_plan(plan, first)
        for workflow in others:
            check_beginning(workflow)
        await self._workers.check_caller(plan.caller)
        for agent in dict.fromkeys((plan.agent, *plan.activity_agents.values())):
            await self._workers.check(agent, plan.project)

    async def carry_out(self, session: str) -> Record:
        """To the end. Raises `ConductorFailure` when it cannot go on; starting again goes on from there."""
        plan = await plan_of(self._ledger, session)
        if plan is None:
            raise ConductorFailure(
                f"Session {session} was not started by `fidelio run`.", remedy="Start the workflow with `fidelio run WORKFLOW`."
            )
        lock = conducting_lock(self._home, session)
        if not lock.acquire():
            raise ConductorFailure(
                f"Session {session} is being carried out by another process.",
                remedy=f"Watch it with `fidelio events {session} --follow`, or begin another run with --new.",
            )
        self._stage.root = session
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
            raise await self._failure(Stuck(str(error), await self._stage.record(session))) from error

    async def _play(self, session: str, plan: Plan, *, depth: int) -> Record:
        while (record := await self._stage.record(session)).status != "completed":
            await refuse_endless(self._ledger, session, record, depth)
            if record.suspended_by:
                await self._play(record.suspended_by, plan, depth=depth + 1)
            elif not record.activity:
                check_beginning(self._stage.workflow(record))
                # What is given to a run belongs to the workflow it was given for, not to those that it starts.
                await self._leave(session, record, plan.inputs if depth == 0 else {})
            elif is_led(self._stage.workflow(record), record):
                await self._lead(session, record, plan)
            else:
                await self._visit(session, record, plan)
        ender = await ended_unchecked_by(self._ledger, session) if depth == 0 else ""
        if ender:
            reason = f"{record.workflow} was ended by {ender} without its definition: nobody has checked what was done."
            raise Stuck(reason, record, remedy="Running the workflow again begins anew.")
        self._stage.tell("completed", session, record)
        return record

    async def _visit(self, session: str, record: Record, plan: Plan) -> None:
        """One look at an activity that one worker does."""
        reported = await self._attending.report(session, record, plan, WHOLE)
        if reported is not None:
            await self._mend(session, reported, plan, WHOLE, await self._leave_with(session, reported))

    async def _lead(self, session: str, record: Record, plan: Plan) -> None:
        """One look at an activity that starts workflows or goes through others: first what workers do, then what follows."""
        workflow = self._stage.workflow(record)
        for stretch in stretches(workflow, record):
            if not await self._is_done(session, record, plan, stretch):
                return
        if await self._leading.start_own(session, record):
            return
        doubt = in_doubt(workflow, record)
        if doubt is not None:
            await self._is_done(session, record, plan, doubt)
        else:
            await self._follow(session, record)

    async def _is_done(self, session: str, record: Record, plan: Plan, stretch: Stretch) -> bool:
        """Whether everything that the stretch asks for is on record; if not, sees to it."""
        reported = await self._attending.report(session, record, plan, stretch)
        if reported is None:
            return False
        taken = await was_taken(self._ledger, session, reported.worker)
        problems = await self._owed(session, reported, stretch, taken=taken)
        await self._mend(session, reported, plan, stretch, problems)
        return taken and not problems

    async def _owed(self, session: str, reported: Reported, stretch: Stretch, *, taken: bool) -> Sequence[str]:
        """What keeps a stretch from being done. A report that is not on record yet is put there."""
        record, manifest = reported.record, reported.manifest
        if manifest is None:
            return [reported.problem]
        if record.forced:
            # The answer that leads elsewhere takes the rest of the activity out of the way.
            left = on_leaving(record, stretch, manifest)
            return (
                left.problems if isinstance(left, Wrong) else await self._leave_with(session, replace(reported, manifest=left))
            )
        if taken:
            return owed(self._stage.workflow(record), record, stretch)
        return await self._leading.take(session, reported, manifest, stretch)

    async def _mend(self, session: str, reported: Reported, plan: Plan, stretch: Stretch, problems: Sequence[str]) -> None:
        if problems and not await self._stage.has_moved(session, reported.record):
            await self._attending.tell_what_is_missing(session, reported, plan, stretch, problems)

    async def _follow(self, session: str, record: Record) -> None:
        """What comes when no worker has anything to do: a pass of a loop, an activity that it goes through, or the way on."""
        workflow = self._stage.workflow(record)
        match comes_next(workflow, record):
            case Unclear(loop=loop, over=over):
                why = f"{over}, which it goes over, is no list." if over else _SAY_SO
                _require([f"Nobody can tell whether loop {loop} of {record.activity} goes on.", why], record)
            case ActivityTask(kind="loop", id=loop):
                if (found := loop_of(workflow, record, loop)) is not None:
                    require_passable(workflow, record, found)
                self._say(session, record, await self._leading.advance(session, record, loop))
            case ActivityTask(id=activity):
                _require(await self._moved(session, record, Move(activity)), record)
            case None:
                await self._leave(session, record, {})

    async def _leave(self, session: str, record: Record, variables: Mapping[str, Any]) -> None:
        """Goes on where no worker has anything to mend."""
        problems = await self._move(session, record, None, variables)
        if not await self._stage.has_moved(session, record):
            _require(problems, record)

    async def _leave_with(self, session: str, reported: Reported) -> list[str]:
        """Goes on with the report of a whole activity. What keeps it from doing so is for the worker to mend."""
        record, manifest = reported.record, reported.manifest
        if manifest is None:
            return [reported.problem]
        workflow, person = self._stage.workflow(record), self._stage.unit.policy.demands_person
        informed = self._stage.informed(record, manifest.variables)
        said = check_report(workflow, record, manifest.variables, person=person)
        problems = [problem.sentence for problem in (*check_step_manifest(workflow, informed, manifest.steps), *said)]
        return list(dict.fromkeys(problems)) or await self._move(session, record, manifest.steps, manifest.variables)

    async def _move(
        self, session: str, record: Record, steps: Sequence[StepReport] | None, variables: Mapping[str, Any]
    ) -> list[str]:
        """Takes the way that holds."""
        match choose(self._stage.workflow(record), self._stage.informed(record, variables)):
            case Onward(to=target, claim=claim):
                problems = await self._moved(session, record, Move(target, claim, steps, None, variables))
                if record.activity and not problems:
                    self._stage.tell("left", session, record, detail=target)
                return problems
            case Undecided(variables=names):
                return [prompts.undecided(self._stage.workflow(record), names)]
            case NoWay():
                raise Stuck(f"No way leads on from {record.activity or 'the start'} of {record.workflow}.", record)

    async def _moved(self, session: str, record: Record, move: Move) -> list[str]:
        try:
            moved = await self._workflows.moves.move(self._stage.own_token(session, record), move)
        except WorkflowRefusal as no:
            return [str(no)]
        self._say(session, record, moved.warnings)
        return []

    def _say(self, session: str, record: Record, warnings: Sequence[str]) -> None:
        for warning in warnings:
            self._stage.tell("working", session, record, agent=CONDUCTOR, detail=warning)

    async def _failure(self, stuck: Stuck) -> ConductorFailure:
        """Puts the reason on record. Whoever runs the workflow again forgives the worker, and goes on from here."""
        worker, record = stuck.worker, stuck.record
        body: dict[str, Any] = {"workflow": record.workflow, "activity": record.activity, "reason": stuck.reason}
        if worker is not None:
            body |= {"worker": worker.name, "runs": worker.run.number}
        root = self._stage.root
        await self._ledger.append(root, NewEvent(type=FAILED, body=body, actor=CONDUCTOR))
        self._stage.tell("failed", root, record, agent=worker.blueprint if worker else "", detail=stuck.reason)
        look = f"`fidelio events {worker.id}` shows what it did. " if worker else ""
        return ConductorFailure(stuck.reason, remedy=f"{look}{stuck.remedy}")


def _require(problems: Sequence[str], record: Record) -> None:
    """Where nobody is left to mend a problem, the run ends with it."""
    if problems:
        raise Stuck(" ".join(problems), record)


async def _change_hands(ledger: Ledger, session: str, asked: Plan) -> None:
    """What was asked for this time counts from now on; what was left out stays as it was. Workers are of whoever asks now."""
    before = await plan_of(ledger, session)
    if before is None:
        return
    if asked.inputs and asked.inputs != before.inputs:
        raise UsageProblem(
            f"{asked.workflow} has begun already, and inputs are for its beginning.",
            remedy="Leave them out to go on, or begin another run with --new (new: true).",
        )
    after = replace(
        before,
        agent=before.agent if asked.agent == WORKER else asked.agent,
        activity_agents={**before.activity_agents, **asked.activity_agents},
        tries=before.tries if asked.tries == TRIES else asked.tries,
        caller=asked.caller,
    )
    if after != before:
        await keep(ledger, session, after)
