"""Facade of the services for workflow sessions, which every dialect calls.

The services share a unit of work, so that every call is loaded, committed and recorded in the same way. There is a service for
each subject: starts, moves, content, checkpoints, traces, and the navigator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fidelio.clock import Clock, now_ms
from fidelio.definitions.library import Library
from fidelio.engine.moves import Situation, describe_situation
from fidelio.engine.record import ANSWERED, CANCELLED, COMPLETED, Record
from fidelio.engine.transitions import CandidateTransition, list_transitions
from fidelio.errors import DefinitionError, FidelioError
from fidelio.ledger import Ledger
from fidelio.ledger.model import Event
from fidelio.workflows.cancel import Cancellation, cancel_session
from fidelio.workflows.checkpoints import CheckpointService
from fidelio.workflows.content import ContentService
from fidelio.workflows.moves import MoveService
from fidelio.workflows.records import WorkflowRecords
from fidelio.workflows.session_definition import load_definition
from fidelio.workflows.start import StartService
from fidelio.workflows.tokens import SessionTokens
from fidelio.workflows.trace import TraceService
from fidelio.workflows.unit_of_work import (
    CallResult,
    ServerPolicy,
    WorkflowCall,
    WorkflowDecision,
    WorkflowUnit,
)

if TYPE_CHECKING:
    from fidelio.definitions.models import Workflow
    from fidelio.workflows.navigator.service import NavigatorService

DEFAULT_POLICY = ServerPolicy()


class CurrentState(msgspec.Struct, frozen=True):
    """Where a session is and what it may do, for people who look at it."""

    workflow: Workflow
    record: Record
    situation: Situation
    transitions: tuple[CandidateTransition, ...]


class WorkflowService:
    """The services for workflow sessions, over a single unit of work."""

    def __init__(
        self,
        ledger: Ledger,
        library: Library,
        tokens: SessionTokens,
        *,
        clock: Clock = now_ms,
        policy: ServerPolicy = DEFAULT_POLICY,
    ) -> None:
        self.library = library
        self.unit = WorkflowUnit(ledger, clock, WorkflowRecords(), library, tokens, policy)
        self.sessions = StartService(self.unit)
        self.moves = MoveService(self.unit)
        self.reads = ContentService(self.unit)
        self.checkpoints = CheckpointService(self.unit)
        self.traces = TraceService(self.unit)

    @cached_property
    def navigation(self) -> NavigatorService:
        from fidelio.workflows.navigator.service import NavigatorService  # noqa: PLC0415  # only the navigator dialect needs it

        return NavigatorService(self.unit)

    async def status(self, token: str, *, wait_seconds: float = 0.0) -> CallResult[Workflow | None]:
        """Read the record of a session; allowed while requests are open, and without its definition.

        With `wait_seconds`, a session that waits for an answer is read once it was answered, or after this time.
        """
        if wait_seconds:
            await self._wait_for_answer(token, wait_seconds)

        async def decide(call: WorkflowCall) -> WorkflowDecision[Workflow | None]:
            try:
                definition = await load_definition(self.unit, call.session.id, call.record)
            except DefinitionError:
                return WorkflowDecision(None)
            return WorkflowDecision(definition.workflow, definition=definition)

        return await self.unit.perform("get_workflow_status", token, decide, reading="")

    async def _wait_for_answer(self, token: str, seconds: float) -> None:
        call = await self.unit.load_claims(self.unit.open_token(token))
        if call.record.waiting is None:
            return
        ends = (ANSWERED, COMPLETED, CANCELLED)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), aclosing(self._follow(call.id, call.record.seq, ends)) as events:
                async for _ in events:
                    return

    async def _follow(self, session: str, after: int, types: Sequence[str]) -> AsyncGenerator[Event]:
        async for event in self.unit.ledger.follow(session, after=after, types=types):
            yield event

    def session_of(self, token: str) -> str:
        """The session that a genuine token names; nothing is read from the ledger."""
        return self.unit.open_token(token).sid

    async def current_record(self, session: str) -> Record:
        """Load the record of a session, with all events folded in."""
        return await self.unit.load_record(await self.unit.ledger.session(session))

    async def is_enforced(self, token: str, workflow: str) -> bool:
        """Whether moves are enforced in the session of a token, or in a session of this workflow that a call would start."""
        if self.unit.policy.fidelity == "enforce":
            return True
        try:
            if token:
                call = await self.unit.load_claims(self.unit.open_token(token))
                return self.unit.effective_fidelity(call.record) == "enforce"
            return bool(workflow) and self.library.workflow(workflow).fidelity == "enforce"
        except FidelioError:
            # The call itself says what is wrong with its token or its workflow.
            return False

    async def describe(self, session: str) -> CurrentState:
        """The position of a session and its possible moves. Only reads: the record does not show that somebody looked."""
        record = await self.current_record(session)
        workflow = (await load_definition(self.unit, session, record)).workflow
        effective = replace(record, fidelity=self.unit.effective_fidelity(record))
        found = list_transitions(workflow, effective)
        context = self.unit.answer_context()
        situation = describe_situation(workflow, effective, now=context.now, person=context.demands_person, transitions=found)
        return CurrentState(workflow, record, situation, tuple(found))

    async def record_refused_call(self, tool: str, token: str, error: FidelioError, *, session: str = "") -> None:
        """Record a call that was refused outside of `perform`; see `WorkflowUnit.record_refused_call`."""
        await self.unit.record_refused_call(tool, token, error, session=session)

    async def cancel(self, session: str, *, by: str, reason: str = "") -> CallResult[tuple[str, ...]]:
        """End a session for a person; see `cancel_session`."""
        return await cancel_session(self.unit, session, Cancellation(by, reason))
