"""One service for workflow sessions; every dialect translates to it.

Its parts share one desk, which carries out every call in the same way. Each part is one subject: how sessions begin, how they
move, what agents read, what people are asked, and what can be traced.
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
from fidelio.workflows.checkpoints import Asking
from fidelio.workflows.content import Reading
from fidelio.workflows.moves import Moved, Moving
from fidelio.workflows.start import Starting
from fidelio.workflows.tokens import Claims, SessionTokens
from fidelio.workflows.trace import Tracing
from fidelio.workflows.unit_of_work import Decision, Desk, HouseRules, Opened, Outcome

if TYPE_CHECKING:
    from fidelio.workflows.navigator.service import Navigating

NO_RULES = HouseRules()


class WorkflowService:
    """Leads agents through workflows."""

    def __init__(
        self,
        ledger: Ledger,
        library: Library,
        tokens: SessionTokens,
        *,
        clock: Clock = now_ms,
        rules: HouseRules = NO_RULES,
    ) -> None:
        self.library = library
        self.desk = Desk(ledger, library, tokens, clock, rules)
        self.sessions = Starting(self.desk)
        self.moves = Moving(self.desk)
        self.reads = Reading(self.desk)
        self.checkpoints = Asking(self.desk)
        self.traces = Tracing(self.desk)

    @cached_property
    def navigation(self) -> Navigating:
        from fidelio.workflows.navigator.service import Navigating  # noqa: PLC0415  # only one dialect leads, the others start without it

        return Navigating(self.desk)

    async def status(self, token: str) -> Outcome[None]:
        """Where the session stands. Never held by the gate."""

        async def decide(_: Opened) -> Decision[None]:
            return Decision(None)

        return await self.desk.perform("get_workflow_status", token, decide)

    async def current_record(self, session: str) -> Record:
        """The record of a session with everything that was appended to it."""
        return await self.desk.caught_up(await self.desk.ledger.session(session))

    async def note_misuse(self, tool: str, token: str, error: FidelioError, *, session: str = "") -> None:
        """Record a call that was refused before any rule saw it; see `UnitOfWork.note_misuse`."""
        await self.desk.note_misuse(tool, token, error, session=session)

    async def end_without_definition(self, session: str, library_of: Callable[[str], Library], *, by: str) -> Outcome[Moved]:
        """End a session whose definition was deleted. `library_of` gives the library of the place that a session came from."""
        record = (await self.desk.open_claims(Claims(sid=session))).record
        desk = replace(self.desk, library=library_of(record.found_in), rules=replace(self.desk.rules, chosen_place=True))
        return await Moving(desk).end(session, by=by)
