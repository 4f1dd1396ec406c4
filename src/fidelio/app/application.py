"""Composition root: opens the ledger, the library, the keys and the services that every surface uses.

Each part is opened by the first call that needs it. Opening reads definitions and the ledger, which costs more than the whole
handshake; a client that only asks for the list of tools should not wait for it. So all imports of this module are lazy.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from fidelio.errors import FidelioError, RequestClosed
from fidelio.settings import Settings
from fidelio.toolkit import AskPerson, Option

if TYPE_CHECKING:
    from fidelio.app.records import Records
    from fidelio.conductor.conductor import Conductor
    from fidelio.conductor.context import Happening
    from fidelio.definitions.library import Library
    from fidelio.inbox import Inbox
    from fidelio.ledger import Ledger
    from fidelio.mcp_client import McpServer
    from fidelio.orchestrator.blueprints.catalogue import BlueprintCatalogue
    from fidelio.orchestrator.service.service import AgentService
    from fidelio.tokens.keyring import KeyRing
    from fidelio.workflows.moves import MoveResult
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.unit_of_work import CallResult


class Application:
    """One home, one ledger and one library, for the life of a server or of one command."""

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
        program: str = "fidelio",
    ) -> None:
        """`handles`: whether the short name of a session opens it, because the caller is authenticated already.

        `worker`: the caller does one activity for an orchestrator that moves the session. `program`: how a person begins a
        command for this home.
        """
        self.settings = settings
        self.program = program
        # Called once with the reason why opening failed. Every call gets the error too, but a model may be its only reader.
        self.complain: Callable[[str], None] | None = None
        # Whether a missing home is made; otherwise a home that somebody has named must exist.
        self.creates_home = True
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
        self._blueprints: BlueprintCatalogue | None = None

    async def workflows(self) -> WorkflowService:
        if self._workflows is not None:
            return self._workflows
        async with self._opening:
            if self._workflows is None:
                with self._complaining():
                    self._workflows = await self._open_workflows()
            return self._workflows

    def shortened(self, text: str) -> str:
        """A text that names the files of the library relative to its roots: their location is no client's business."""
        for root in self._workflows.library.roots if self._workflows is not None else ():
            text = text.replace(f"{root.path}{os.sep}", "")
        return text

    async def agents(self, *, host: bool = True) -> AgentService:
        """The orchestrator. With `host`, this process runs agents from now on, unless another one of this home does.

        A background process takes over whatever is active when the application is closed.
        """
        async with self._opening:
            if self._agents is None:
                with self._complaining():
                    self._agents = await self._open_agents(host=host)
            return self._agents

    async def has_active_agents(self) -> bool:
        """Whether any run is queued or at work."""
        from fidelio.orchestrator.runs.host_process import has_active_runs

        async with self._opening:
            return await has_active_runs(open_agents(self.settings, await self._open_ledger()).context)

    async def work_until_idle(self, seconds: float) -> None:
        """Run agents in this process until there has been nothing to do for so long."""
        from fidelio.orchestrator.runs.host_process import work_until_idle

        async with self._opening:
            service = open_agents(self.settings, await self._open_ledger())
        await work_until_idle(service.context, seconds)

    def blueprints(self) -> BlueprintCatalogue:
        """What agents can be started from. Opens neither ledger nor home."""
        from fidelio.orchestrator.blueprints.catalogue import open_blueprints

        if self._blueprints is None:
            self._blueprints = open_blueprints(self.settings.home)
        return self._blueprints

    async def conductor(self, watch: Callable[[Happening], None]) -> Conductor:
        from fidelio.conductor.conductor import Conductor
        from fidelio.conductor.workers import Workers

        workers, workflows = Workers(await self.agents(), self._workflow_server()), await self.workflows()
        return Conductor(workflows, workflows.unit, workers, self.settings.home, watch=watch)

    async def records(self) -> Records:
        """Sessions and events of every kind, for reading."""
        from fidelio.app.records import Records

        async with self._opening:
            return Records(await self._open_ledger())

    async def inbox(self) -> Inbox:
        """What waits for a person."""
        from fidelio.inbox import Inbox

        async with self._opening:
            return Inbox(await self._open_ledger())

    async def library(self) -> Library:
        """The definitions that the workflow service uses."""
        return (await self.workflows()).library

    def open_library(self) -> Library:
        """The definitions on the search path. Opens neither ledger nor keys nor home."""
        from fidelio.definitions.library.search_path import open_library

        return open_library(self.settings.home, self._directories, with_bundled=self._with_bundled)

    def keys(self) -> KeyRing:
        from fidelio.tokens.keyring import open_keys

        return open_keys(self.settings.home.keys)

    async def end_session(self, name: str, *, by: str) -> CallResult[MoveResult]:
        """End a session whose definition was deleted: one that is missing where it came from, or on our own search path."""
        session = await (await self.records()).find(name)
        return await (await self.workflows()).end_without_definition(session.id, self._library_of, by=by)

    def _library_of(self, place: str) -> Library:
        from fidelio.definitions.library.search_path import open_library_at

        return self.open_library() if self._directories or not place else open_library_at(self.settings.home, place)

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
        from fidelio.ledger import open_ledger

        if self._ledger is None:
            self._prepare_home()
            self._ledger = await self._opened.enter_async_context(await open_ledger(self.settings.ledger))
        return self._ledger

    def _prepare_home(self) -> None:
        home = self.settings.home
        # A ledger that is kept elsewhere is found without the home.
        home.ensure() if self.creates_home or self.settings.ledger != str(home.ledger) else home.require_existing()

    async def _open_workflows(self) -> WorkflowService:
        from fidelio.clock import now_ms
        from fidelio.workflows.service import WorkflowService
        from fidelio.workflows.tokens import SessionTokens
        from fidelio.workflows.unit_of_work import ServerPolicy

        self.settings.home.ensure()
        library = self.open_library()
        rules = ServerPolicy(
            self._fidelity,
            self._person,
            self.settings.min_response_ms,
            adoption=self.settings.adoption,
            handles=self._handles,
            moves=not self._worker,
        )
        keys = self.keys()
        # Read now: without a key no session that is started here could be continued.
        keys.active()
        return WorkflowService(await self._open_ledger(), library, SessionTokens(keys, now_ms), policy=rules)

    async def _open_agents(self, *, host: bool) -> AgentService:
        from fidelio.orchestrator.runs.host_process import host_agents, spawn_worker_if_needed

        service = open_agents(self.settings, await self._open_ledger())
        if host:
            await self._opened.enter_async_context(host_agents(service.context, self.settings))
        else:
            self._opened.push_async_callback(spawn_worker_if_needed, service.context, self.settings)
        return service

    def _workflow_server(self) -> McpServer:
        """How a worker reaches the same workflows and the same record."""
        from fidelio.mcp_client import McpServer

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

    async def ask(self, request_id: str) -> AskPerson:
        """The port `CallContext.ask`, bound to the inbox: puts an open request to the person at the client."""
        inbox = await self.inbox()
        # The request holds the question with its values filled in, the same for everybody who may be asked.
        request = await (await self._open_ledger()).request(request_id)

        async def answered(option: str, who: str) -> None:
            # An answer that was given elsewhere a moment before wins; the call goes on with that one.
            with suppress(RequestClosed):
                await inbox.answer(request_id, option, by=f"person:{who}", channel="elicited")

        async def elsewhere() -> None:
            await inbox.closed(request_id)

        options = tuple(Option(one["id"], one["label"], one["description"]) for one in request.options)
        return AskPerson(request_id, request.question, options, answered, elsewhere=elsewhere, session=request.session)


def open_agents(settings: Settings, ledger: Ledger) -> AgentService:
    """The orchestrator over an open ledger; nothing is run by it."""
    from fidelio.orchestrator.blueprints.catalogue import open_blueprints
    from fidelio.orchestrator.executors.registry import executors
    from fidelio.orchestrator.service.service import AgentService

    return AgentService(
        ledger,
        open_blueprints(settings.home),
        executors(),
        home=settings.home,
        limits=settings.agents,
        executor=settings.executor,
    )


def open_bundled(settings: Settings) -> Application:
    """An application over the bundled workflows alone, so that a demonstration does not depend on anybody's files."""
    from fidelio.definitions.library.search_path import bundled_root

    return Application(settings, [str(bundled_root().path)])
