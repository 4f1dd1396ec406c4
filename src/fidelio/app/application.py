"""The services behind the tools, opened by the first call that needs them.

Opening reads definitions and the ledger, which costs more than the whole handshake; a client that only asks for the list of
tools should not wait for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from fidelio.errors import FidelioError
from fidelio.settings import Settings
from fidelio.surfaces.commands import PROGRAM

if TYPE_CHECKING:
    from fidelio.app.records import Records
    from fidelio.conductor.conductor import Conductor
    from fidelio.conductor.context import Happening
    from fidelio.definitions.library import Library
    from fidelio.inbox import Inbox
    from fidelio.ledger import Ledger
    from fidelio.mcp_client import McpServer
    from fidelio.orchestrator.blueprints.catalogue import Blueprints
    from fidelio.orchestrator.service.service import AgentService
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
        worker: bool = False,
        handles: bool = True,
        program: str = PROGRAM,
    ) -> None:
        """`handles`: whether the short name of a session opens it, because whoever calls is known already.

        `worker`: whoever calls does one activity for somebody else, who moves the session. `program`: how a person begins a
        command that is meant for this house.
        """
        self.settings = settings
        self.program = program
        # Told once why the house cannot be opened. Every call is told too, but whoever reads those may be a model.
        self.complain: Callable[[str], None] | None = None
        self._directories = workflows
        self._with_bundled = with_bundled
        self._fidelity: Literal["advise", "enforce"] = fidelity
        self._person = person or worker
        self._worker = worker
        self._handles = handles
        self._opening = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._ledger: Ledger | None = None
        self._workflows: WorkflowService | None = None
        self._agents: AgentService | None = None
        self._blueprints: Blueprints | None = None

    async def workflows(self) -> WorkflowService:
        if self._workflows is not None:
            return self._workflows
        async with self._opening:
            if self._workflows is None:
                with self._complaining():
                    self._workflows = await self._open_workflows()
            return self._workflows

    def shortened(self, text: str) -> str:
        """A text that names the files of the library from its roots on: where those lie is no client's business."""
        for root in self._workflows.library.roots if self._workflows is not None else ():
            text = text.replace(f"{root.path}{os.sep}", "")
        return text

    async def agents(self) -> AgentService:
        """The orchestrator. From now on this process carries out agents, unless another one of this home does."""
        async with self._opening:
            if self._agents is None:
                with self._complaining():
                    self._agents = await self._open_agents()
            return self._agents

    def blueprints(self) -> Blueprints:
        """What agents can be started from. Nothing has to be opened to look."""
        from fidelio.orchestrator.blueprints.catalogue import open_blueprints  # noqa: PLC0415  # waits for the first call

        if self._blueprints is None:
            self._blueprints = open_blueprints(self.settings.home)
        return self._blueprints

    async def conductor(self, watch: Callable[[Happening], None]) -> Conductor:
        from fidelio.conductor.conductor import Conductor  # noqa: PLC0415  # waits for the first call
        from fidelio.conductor.workers import Workers  # noqa: PLC0415  # waits for the first call

        workers = Workers(await self.agents(), self._workflow_server())
        return Conductor(await self.workflows(), workers, self.settings.home, watch=watch)

    async def records(self) -> Records:
        """Sessions and events of every kind, for reading."""
        from fidelio.app.records import Records  # noqa: PLC0415  # waits for the first call

        async with self._opening:
            return Records(await self._open_ledger())

    async def inbox(self) -> Inbox:
        """What waits for a person."""
        from fidelio.inbox import Inbox  # noqa: PLC0415  # waits for the first call

        async with self._opening:
            return Inbox(await self._open_ledger())

    async def library(self) -> Library:
        """The definitions that this application serves."""
        return (await self.workflows()).library

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except FidelioError as problem:
            complain, self.complain = self.complain, None
            if complain is not None:
                complain(str(problem))
            raise

    async def _open_ledger(self) -> Ledger:
        from fidelio.ledger import open_ledger  # noqa: PLC0415  # everything heavy waits for the first call

        if self._ledger is None:
            self.settings.home.ensure()
            self._ledger = await self._opened.enter_async_context(await open_ledger(self.settings.ledger))
        return self._ledger

    async def _open_workflows(self) -> WorkflowService:
        from fidelio.clock import now_ms  # noqa: PLC0415  # everything heavy waits for the first call
        from fidelio.definitions.library.search_path import open_library  # noqa: PLC0415  # waits for the first call
        from fidelio.tokens.keyring import open_keys  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.service import WorkflowService  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.tokens import SessionTokens  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.unit_of_work import HouseRules  # noqa: PLC0415  # waits for the first call

        home = self.settings.home.ensure()
        library = open_library(home, self._directories, with_bundled=self._with_bundled)
        rules = HouseRules(
            self._fidelity,
            self._person,
            self.settings.min_response_ms,
            adoption=self.settings.adoption,
            handles=self._handles,
            moves=not self._worker,
        )
        keys = open_keys(home.keys)
        # Read now: without a key nothing that is begun here could be gone on with.
        keys.active()
        return WorkflowService(await self._open_ledger(), library, SessionTokens(keys, now_ms), rules=rules)

    async def _open_agents(self) -> AgentService:
        from fidelio.orchestrator.runs.host_process import hosting  # noqa: PLC0415  # waits for the first call
        from fidelio.orchestrator.service.service import open_agents  # noqa: PLC0415  # waits for the first call

        service = open_agents(self.settings, await self._open_ledger())
        await self._opened.enter_async_context(hosting(service.context, self.settings))
        return service

    def _workflow_server(self) -> McpServer:
        """How a worker reaches the same workflows and the same record."""
        from fidelio.mcp_client import McpServer  # noqa: PLC0415  # waits for the first call

        switches = {
            "--with-bundled": self._with_bundled,
            "--enforce": self._fidelity == "enforce",
            "--no-adoption": not self.settings.adoption,
        }
        flags = [flag for flag, on in switches.items() if on]
        places = [word for one in self._directories for word in ("--workflows", str(Path(one).absolute()))]
        ledger = self.settings.ledger
        return McpServer(
            command=sys.executable,
            args=("-m", "fidelio", "mcp", "--worker", "--home", str(self.settings.home.path), *places, *flags),
            env={} if ledger == str(self.settings.home.ledger) else {"FIDELIO_LEDGER": ledger},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()
