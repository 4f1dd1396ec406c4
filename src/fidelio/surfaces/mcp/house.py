"""The services behind the tools, opened by the first call that needs them.

Opening reads definitions and the ledger, which costs more than the whole handshake; a client that only asks for the list of
tools should not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from fidelio.settings import Settings

if TYPE_CHECKING:
    from fidelio.ledger import Ledger
    from fidelio.workflows.service import WorkflowService


class House:
    """One home, one ledger and one library for a server's life."""

    def __init__(
        self,
        settings: Settings,
        workflows: Sequence[str] = (),
        *,
        with_bundled: bool = False,
        fidelity: Literal["advise", "enforce"] = "advise",
        person: bool = False,
        handles: bool = True,
    ) -> None:
        """`handles`: whether the short name of a session opens it, because whoever calls is known already."""
        self.settings = settings
        self._directories = workflows
        self._with_bundled = with_bundled
        self._fidelity: Literal["advise", "enforce"] = fidelity
        self._person = person
        self._handles = handles
        self._opening = asyncio.Lock()
        self._ledger: Ledger | None = None
        self._workflows: WorkflowService | None = None

    async def workflows(self) -> WorkflowService:
        async with self._opening:
            if self._workflows is None:
                self._workflows = await self._open()
            return self._workflows

    async def _open(self) -> WorkflowService:
        from fidelio.clock import now_ms  # noqa: PLC0415  # everything heavy waits for the first call
        from fidelio.ledger import open_ledger  # noqa: PLC0415  # waits for the first call
        from fidelio.tokens.keyring import open_keys  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.desk import HouseRules  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.search_path import open_library  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.service import WorkflowService  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.tokens import SessionTokens  # noqa: PLC0415  # waits for the first call

        home = self.settings.home.ensure()
        library = open_library(home, self._directories, with_bundled=self._with_bundled)
        self._ledger = await open_ledger(self.settings.ledger)
        rules = HouseRules(self._fidelity, self._person, self.settings.min_response_ms, handles=self._handles)
        return WorkflowService(self._ledger, library, SessionTokens(open_keys(home.keys), now_ms), rules=rules)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ledger is not None:
            await self._ledger.close()
