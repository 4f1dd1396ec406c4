"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.conductor.choices import step_at
from fidelio.engine.record import VARIABLES_SET, EventDraft, Record, fold_drafts
from fidelio.errors import DefinitionDeleted, DefinitionError
from fidelio.workflows.missing import describe_missing

if TYPE_CHECKING:
    from fidelio.clock import Clock
    from fidelio.conductor.workers import Workers
    from fidelio.definitions.models import Workflow
    from fidelio.orchestrator.record.model import AgentSession
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.unit_of_work import WorkflowUnit


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a run: where it is, who is at work, and what there is to know about it.

    `kind` is `entered`, `working`, `waiting`, `resumed`, `left`, `completed` or `failed`.
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


Watcher = Callable[[Happening], None]


def nobody(_: Happening) -> None:
    """Nobody watches."""


CONDUCTOR = "conductor"
# What workers hand in is part of it, and may be of any length.
LONGEST_REASON = 2_000
_AGAIN = "Running the workflow again goes on from here."


class Stuck(Exception):
    """The run cannot go on. `worker` is who did not finish, where one did not."""

    def __init__(self, reason: str, record: Record, worker: AgentSession | None = None, *, remedy: str = _AGAIN) -> None:
        super().__init__(reason)
        self.reason, self.record, self.worker, self.remedy = reason[:LONGEST_REASON], record, worker, remedy


class Stage:
    """One run. `root` is the session that it was begun with; the workflows that it starts belong to it."""

    def __init__(self, workflows: WorkflowService, unit: WorkflowUnit, workers: Workers, watch: Watcher, clock: Clock) -> None:
        self.workflows = workflows
        self.unit = unit
        self.ledger = unit.ledger
        self.workers = workers
        self.clock = clock
        self.root = ""
        self._watch = watch
        self._began = clock()

    async def record(self, session: str) -> Record:
        return await self.workflows.current_record(session)

    def workflow(self, record: Record) -> Workflow:
        try:
            return self.workflows.library.workflow(record.workflow)
        except DefinitionError as problem:
            raise DefinitionDeleted(
                f"The definition of {record.workflow} is gone: {describe_missing(problem)}", remedy="Put its files back."
            ) from problem

    async def has_moved(self, session: str, before: Record) -> bool:
        """Whether the session stands elsewhere than it did: then what was found out about its place is of no use any more."""
        now = await self.record(session)
        return now.status == "completed" or place_of(now) != place_of(before)

    def informed(self, record: Record, variables: Mapping[str, Any]) -> Record:
        """The record as it will be when these variables are in it."""
        told = EventDraft(VARIABLES_SET, {"variables": dict(variables), "by": f"agent:{CONDUCTOR}"})
        return fold_drafts(record, [told], self.clock()) if variables else record

    def token(self, session: str, record: Record) -> str:
        """A worker's key: it stands at this activity, and is stale for moving as soon as the session stands elsewhere."""
        return self.unit.tokens.make(session, record, agent=f"worker-{record.activity}")

    def own_token(self, session: str, record: Record) -> str:
        return self.unit.tokens.make(session, record, agent=CONDUCTOR)

    def tell(
        self,
        kind: str,
        session: str,
        record: Record,
        *,
        agent: str = "",
        detail: str = "",
        request: str = "",
        step: str | None = None,
    ) -> None:
        self._watch(
            Happening(
                kind=kind,
                workflow=record.workflow,
                session=session,
                activity=record.activity,
                step=self._step(record) if step is None else step,
                agent=agent,
                detail=detail,
                request=request,
                elapsed_ms=self.clock() - self._began,
                cost_usd=self.workers.cost_usd,
            )
        )

    def _step(self, record: Record) -> str:
        """Where nobody can read any more what the steps are, there is still something to tell."""
        try:
            return step_at(self.workflow(record), record)
        except DefinitionDeleted:
            return ""


def place_of(record: Record) -> tuple[str, int, str, int]:
    """A visit, and the pass of a loop in it."""
    running = record.here.running
    return record.activity, record.visit, running.loop if running else "", running.iteration if running else 0
