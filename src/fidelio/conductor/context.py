"""Context of a run: services, tokens, progress events, and the exception that ends a run.

Every part of the conductor gets the same `RunContext`. It loads records from the ledger each time, because people, workers and
other processes change a session while the conductor waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.engine.record import Record, fold_drafts
from fidelio.engine.scope import find_running_loop
from fidelio.engine.variables import draft_report
from fidelio.errors import Hint, Text
from fidelio.workflows.session_definition import load_definition

if TYPE_CHECKING:
    from fidelio.clock import Clock
    from fidelio.conductor.workers import Workers
    from fidelio.definitions.models import Step, Workflow
    from fidelio.orchestrator.record.model import AgentSession
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.unit_of_work import WorkflowUnit

CONDUCTOR = "conductor"
# A reason quotes reports of workers, which have no length limit.
MAX_REASON_LENGTH = 2_000
_RUN_AGAIN = "Run the workflow again to continue."


class ProgressEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a run: its current activity and step, the agent at work, time and cost so far.

    `kind` is `entered`, `working`, `waiting`, `resumed`, `left`, `completed` or `failed`. The fields are the JSON keys of
    `fidelio run --json`.
    """

    kind: str
    workflow: str
    session: str
    activity: str = ""
    step: str = ""
    agent: str = ""
    detail: str = ""
    request: str = ""
    elapsed_ms: int = 0
    cost_usd: float = 0.0
    tokens: int = 0


ProgressListener = Callable[[ProgressEvent], None]


def ignore_event(_: ProgressEvent) -> None:
    """Listener for runs whose progress is not displayed."""


class BlockedRun(Exception):
    """The run cannot continue. `worker` is the worker that did not finish its activity, if that is the reason."""

    def __init__(self, reason: Text, record: Record, worker: AgentSession | None = None, *, remedy: Text = _RUN_AGAIN) -> None:
        super().__init__(str(reason))
        self.reason = Hint(reason).map_text(lambda text: text[:MAX_REASON_LENGTH])
        self.record, self.worker, self.remedy = record, worker, remedy


class RunContext:
    """Services and state of a run. `root` is the session it was started with; child workflows belong to the same run."""

    def __init__(
        self,
        workflows: WorkflowService,
        unit: WorkflowUnit,
        workers: Workers,
        on_event: ProgressListener,
        render: Callable[[Text], str],
        clock: Clock,
    ) -> None:
        self.workflows = workflows
        self.unit = unit
        self.ledger = unit.ledger
        self.workers = workers
        self.clock = clock
        self.root = ""
        self._on_event, self._render = on_event, render
        self._started_at = clock()
        self._workflows: dict[str, Workflow] = {}

    async def load_record(self, session: str) -> Record:
        return await self.workflows.current_record(session)

    async def find_workflow(self, session: str, record: Record) -> Workflow:
        """The definition that leads the session. Raises `DefinitionUnavailable` if there is none any more."""
        definition = await load_definition(self.unit, session, record)
        self._workflows[session] = definition.workflow
        return definition.workflow

    async def has_moved(self, session: str, before: Record) -> bool:
        """Whether the session has left the activity or iteration of `before`; decisions based on `before` are then stale."""
        now = await self.load_record(session)
        return now.ended or find_position(now) != find_position(before)

    def with_variables(self, workflow: Workflow, record: Record, variables: Mapping[str, Any]) -> Record:
        """The record as it will be after these variables are reported."""
        drafts = draft_report(workflow, record, variables, f"agent:{CONDUCTOR}", person=self.unit.policy.demands_person)
        return fold_drafts(record, drafts, self.clock())

    def worker_token(self, session: str, record: Record) -> str:
        """Token for the worker of the current activity. It cannot move the session once the session has left that activity."""
        return self.unit.tokens.make(session, record, agent=f"worker-{record.activity}")

    def conductor_token(self, session: str, record: Record) -> str:
        return self.unit.tokens.make(session, record, agent=CONDUCTOR)

    def report_progress(
        self,
        kind: str,
        session: str,
        record: Record,
        *,
        agent: str = "",
        detail: Text = "",
        request: str = "",
        step: str | None = None,
        steps: Sequence[str] = (),
    ) -> None:
        """Report progress. `steps` are those that the worker carries out, if not all of the activity."""
        self._on_event(
            ProgressEvent(
                kind=kind,
                workflow=record.workflow,
                session=session,
                activity=record.activity,
                step=self._find_step(session, record, steps) if step is None else step,
                agent=agent,
                detail=self._render(detail),
                request=request,
                elapsed_ms=self.clock() - self._started_at,
                cost_usd=self.workers.usage.cost_usd,
                tokens=self.workers.usage.input_tokens + self.workers.usage.output_tokens,
            )
        )

    def _find_step(self, session: str, record: Record, steps: Sequence[str]) -> str:
        """The current step; empty if the definition was not needed yet."""
        workflow = self._workflows.get(session)
        return find_current_step(workflow, record, steps) if workflow is not None else ""


def find_position(record: Record) -> tuple[str, int, str, int]:
    """The visit, and the iteration of the loop that runs in it."""
    running = record.here.running
    return record.activity, record.visit, running.loop if running else "", running.iteration if running else 0


def find_current_step(workflow: Workflow, record: Record, among: Sequence[str] = ()) -> str:
    """The step at work, guessed from the worker's calls: that of its open checkpoint, or of the skill it loaded last.

    Without such a call it is the first that is not done: those up to an answered checkpoint, or with a report, are. `among`
    are the steps of the worker; none means all of the activity.
    """
    activity = workflow.activity(record.activity)
    if activity is None:
        return ""
    running = find_running_loop(workflow, record.here)
    loop_steps = (step for loop in activity.loops for step in loop.steps)
    # Steps of the running loop come first: the same skill is often used before the loop and in it.
    steps = (*(running.steps if running is not None else ()), *activity.steps, *loop_steps)
    if record.waiting is not None:
        checkpoint = record.waiting.checkpoint
        return next((step.id for step in steps if step.checkpoint == checkpoint), "")
    open_steps = _list_open_steps([step for step in steps if not among or step.id in among], record)
    loaded = next((step.id for step in open_steps if step.skill and step.skill == record.skill), "")
    return loaded or next((step.id for step in open_steps), "")


def _list_open_steps(steps: Sequence[Step], record: Record) -> Sequence[Step]:
    """The steps after the last whose checkpoint was answered in this visit."""
    here = [answer for answer in record.answers if (answer.activity, answer.visit) == (record.activity, record.visit)]
    answered = {answer.checkpoint for answer in here}
    last = max((at for at, step in enumerate(steps) if step.checkpoint in answered), default=-1)
    return steps[last + 1 :]
