"""One service for workflow sessions; every dialect translates to it.

Its parts share one unit of work, which carries out every call in the same way. Each part is one subject: how sessions begin,
how they move, what agents read, what people are asked, and what can be traced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fidelio.clock import Clock, now_ms
from fidelio.definitions.library import Library
from fidelio.engine.record import Record
from fidelio.errors import FidelioError
from fidelio.ledger import Ledger
from fidelio.workflows.checkpoints import CheckpointService
from fidelio.workflows.content import ContentService
from fidelio.workflows.moves import MoveResult, MoveService
from fidelio.workflows.start import StartService
from fidelio.workflows.tokens import Claims, SessionTokens
from fidelio.workflows.trace import TraceService
from fidelio.workflows.unit_of_work import (
    CallResult,
    ServerPolicy,
    WorkflowCall,
    WorkflowDecision,
    WorkflowRecords,
    WorkflowUnit,
)

if TYPE_CHECKING:
    from fidelio.workflows.navigator.service import NavigatorService

DEFAULT_POLICY = ServerPolicy()


class WorkflowService:
    """Leads agents through workflows."""

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
        from fidelio.workflows.navigator.service import NavigatorService  # noqa: PLC0415  # only one dialect leads, the others start without it

        return NavigatorService(self.unit)

    async def status(self, token: str) -> CallResult[None]:
        """Where the session stands. Never held by the gate."""

        async def decide(_: WorkflowCall) -> WorkflowDecision[None]:
            return WorkflowDecision(None)

        return await self.unit.perform("get_workflow_status", token, decide)

    async def current_record(self, session: str) -> Record:
        """The record of a session with everything that was appended to it."""
        return await self.unit.load_record(await self.unit.ledger.session(session))

    async def note_misuse(self, tool: str, token: str, error: FidelioError, *, session: str = "") -> None:
        """Record a call that was refused before any rule saw it; see `UnitOfWork.note_misuse`."""
        await self.unit.note_misuse(tool, token, error, session=session)

    async def end_without_definition(
        self, session: str, library_of: Callable[[str], Library], *, by: str
    ) -> CallResult[MoveResult]:
        """End a session whose definition was deleted. `library_of` gives the library of the place that a session came from."""
        record = (await self.unit.load_claims(Claims(sid=session))).record
        unit = replace(self.unit, library=library_of(record.found_in), policy=replace(self.unit.policy, chosen_place=True))
        return await MoveService(unit).end(session, by=by)
