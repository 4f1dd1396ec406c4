"""Composition root: opens the ledger, the library, the keys and the services that every surface uses.

Each service is opened by the first call that needs it. Opening reads definitions and the ledger, which takes longer than the
whole MCP handshake, and a client that only calls `tools/list` should not wait for it. So the services with many modules are
imported when they are opened; ledger, library, inbox and keys are small and load no driver and no pydantic by themselves.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from fidelio.app.asking import ask_person
from fidelio.app.erasure import find_unfinished, split_by_kind
from fidelio.app.records import Records, load_person_keys, record_type
from fidelio.clock import now_ms
from fidelio.definitions.library import Library
from fidelio.definitions.library.search_path import bundled_root, open_library
from fidelio.errors import FidelioError, SessionNotFound, Text
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Session
from fidelio.locks import FileLock
from fidelio.mcp_client import McpServer
from fidelio.processes.caller import PERSON, WORKER, Caller, combine_callers, identify_process
from fidelio.settings import POSTGRES, Settings
from fidelio.tokens.keyring import KeyRing, open_keys
from fidelio.toolkit import AskPerson

if TYPE_CHECKING:
    from fidelio.anchors.schedule import AnchorSchedule
    from fidelio.anchors.service import AnchorService
    from fidelio.conductor.conductor import Conductor
    from fidelio.conductor.context import ProgressEvent
    from fidelio.orchestrator.blueprints.catalogue import BlueprintCatalogue
    from fidelio.orchestrator.service.service import AgentService
    from fidelio.runtime.service import RuntimeService
    from fidelio.sandbox.host.client import SandboxClient
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.unit_of_work import CallResult


# `RUN_STARTED` of the conductor, which is not imported for every call: it takes 150 ms.
_CONDUCTED = "conductor.begun"


class Application:
    """The services of a home, for the lifetime of a server or of a command."""

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
        """Store the options. The services open when they are first used.

        `workflows`: directories that replace the search path, with the bundled workflows added by `with_bundled`. `person`:
        checkpoints need an answer from a person. `worker`: the caller carries out one activity; an orchestrator moves the
        session. `handles`: the short name of a session opens it, because the caller is already authenticated. `program`: how a
        command for this home begins in messages to people.
        """
        self.settings = settings
        self.started_at = now_ms()
        self.program = program
        # Called once with the reason why opening failed. Every call returns the error too, but maybe only a model reads it.
        self.on_failure: Callable[[Text], None] | None = None
        # If False, a home that was named explicitly must exist, so that a misspelt path is an error.
        self.creates_missing_home = True
        self._directories = workflows
        self._with_bundled = with_bundled
        self._fidelity: Literal["advise", "enforce"] = fidelity
        self._person = person or worker
        self._worker = worker
        self._handles = handles
        self._open_lock = asyncio.Lock()
        self._resources = AsyncExitStack()
        self._ledger: Ledger | None = None
        self._workflows: WorkflowService | None = None
        self._agents: AgentService | None = None
        self._hosts_agents = False
        self._blueprints: BlueprintCatalogue | None = None
        self._sandboxes: SandboxClient | None = None
        self._runtime: RuntimeService | None = None

    async def workflows(self) -> WorkflowService:
        """The workflow service."""
        if self._workflows is not None:
            return self._workflows
        async with self._open_lock:
            if self._workflows is None:
                with self._reporting_failure():
                    self._workflows = await self._open_workflows()
            return self._workflows

    @property
    def is_worker(self) -> bool:
        """Whether this application serves a worker only."""
        return self._worker

    async def is_conducted(self, session: str) -> bool:
        """Whether the conductor moves this session, or a session above it."""
        ledger, above = await self._open_ledger(), session
        with suppress(SessionNotFound):
            while above:
                if await ledger.events(above, types=(_CONDUCTED,), limit=1):
                    return True
                above = (await ledger.session(above)).parent or ""
        return False

    def identify_self(self) -> Caller:
        """Who runs this process, by its signs and by the option for workers."""
        return combine_callers(identify_process(), WORKER if self._worker else PERSON)

    def remove_root_paths(self, text: str) -> str:
        """Shorten the paths of library files in `text` to paths relative to their root: clients must not see where it is."""
        for root in self._workflows.library.roots if self._workflows is not None else ():
            text = text.replace(f"{root.path}{os.sep}", "")
        return text

    async def agents(self, *, host: bool = True, attended: bool = False) -> AgentService:
        """The agent service. With `host`, this process becomes the agent host of the home, unless the home already has a host.

        When the application is closed while runs are active, a background process takes them over; if `attended`, scripts too.
        """
        async with self._open_lock:
            if self._agents is None or (host and not self._hosts_agents):
                with self._reporting_failure():
                    self._agents = await self._open_agents(host=host, attended=attended)
            return self._agents

    async def runtime(self) -> RuntimeService:
        """The service of runtime sessions. Starts no sandbox by itself."""
        async with self._open_lock:
            if self._runtime is None:
                with self._reporting_failure():
                    self._runtime = await self._open_runtime()
            return self._runtime

    async def has_active_agents(self) -> bool:
        """Whether any run is queued or running."""
        from fidelio.app.agents import has_active_runs, open_agents  # noqa: PLC0415  # brings the orchestrator, 40 ms

        async with self._open_lock:
            service = open_agents(self.settings, await self._open_ledger(), self.runtime, self._resources)
            return await has_active_runs(service.context)

    async def work_until_idle(self, seconds: float) -> None:
        """Run agents and host sandboxes in this process until nothing was left to do for `seconds`."""
        from fidelio.app.agents import open_agents, work_until_idle  # noqa: PLC0415  # brings the orchestrator, 40 ms
        from fidelio.app.runtime import combine, has_queued_wakes, host_runtime  # noqa: PLC0415  # brings the runtime, 80 ms

        async with self._open_lock:
            service = open_agents(self.settings, await self._open_ledger(), self.runtime, self._resources)
        companion = partial(combine, self._open_sandbox_host, partial(host_runtime, await self.runtime()))
        wakes = partial(has_queued_wakes, service.context.ledger)
        await work_until_idle(service.context, seconds, companion, wakes)

    async def host_runtime(self, on_text: Callable[[str, str], None] | None = None) -> None:
        """Carry out the wakes of runtime sessions in this process until the application is closed."""
        from fidelio.app.runtime import host_runtime  # noqa: PLC0415  # brings the runtime, 80 ms

        await self._resources.enter_async_context(host_runtime(await self.runtime(), on_text))

    async def start_runtime_worker(self) -> None:
        """Start the background worker if a wake is queued that no process of this home would carry out."""
        from fidelio.app.runtime import start_worker_for_wakes  # noqa: PLC0415  # brings the runtime, 80 ms

        await start_worker_for_wakes(await self._open_ledger(), self.settings)

    async def host_sandboxes(self) -> None:
        """Host the sandboxes of the home until the application is closed, unless another process does.

        Not below an agent: they would be stopped with it. There the first call starts the background worker.
        """
        if not identify_process().is_agent:
            await self._resources.enter_async_context(self._open_sandbox_host())

    def sandboxes(self) -> SandboxClient:
        """The sandboxes of the home, whichever process hosts them. Starts nothing by itself."""
        from fidelio.app.sandboxes import open_sandboxes  # noqa: PLC0415  # brings the sandboxes, 30 ms

        if self._sandboxes is None:
            self._sandboxes = open_sandboxes(self.settings)
            self._resources.push_async_callback(self._sandboxes.close)
        return self._sandboxes

    def blueprints(self) -> BlueprintCatalogue:
        """The catalogue of agent blueprints. Opens neither ledger nor home."""
        from fidelio.app.agents import open_blueprints  # noqa: PLC0415  # brings the orchestrator, 40 ms

        if self._blueprints is None:
            self._blueprints = open_blueprints(self.settings.home)
        return self._blueprints

    async def conductor(self, watch: Callable[[ProgressEvent], None], render: Callable[[Text], str] = str) -> Conductor:
        """The conductor, which reports its progress to `watch`; `render` renders the commands in it."""
        from fidelio.conductor import conductor, workers  # noqa: PLC0415  # brings pydantic and the engine, 150 ms

        agents, workflows = workers.Workers(await self.agents(), self._workflow_server()), await self.workflows()
        return conductor.Conductor(workflows, workflows.unit, agents, self.settings.home, on_event=watch, render=render)

    async def records(self) -> Records:
        """Sessions and events of every kind."""
        async with self._open_lock:
            return Records(await self._open_ledger(), self.settings.home)

    async def anchors(self) -> AnchorService:
        """Signed heads of all sessions, for storage outside of the ledger."""
        from fidelio.anchors.service import AnchorService  # noqa: PLC0415  # brings cryptography, 50 ms

        async with self._open_lock:
            return AnchorService(await self._open_ledger(), self.settings.home)

    async def keep_anchoring(self, schedule: AnchorSchedule | None) -> None:
        """Write anchors in the background until the application is closed. Raises if the target cannot be used."""
        if schedule is None:
            return
        from fidelio.anchors.schedule import keep_schedule  # noqa: PLC0415  # brings the restart loop and logging, 10 ms

        service = await self.anchors()
        await service.check_target(schedule.target, tsa=schedule.tsa)
        await self._resources.enter_async_context(keep_schedule(service, schedule))

    async def inbox(self) -> Inbox:
        """The requests that wait for a person."""
        async with self._open_lock:
            ledger = await self._open_ledger()
        # The module is loaded by the first signature.
        return Inbox(ledger, check_proof=lambda *answer: load_person_keys().check_signature(ledger, *answer))

    async def library(self) -> Library:
        """The definitions that the workflow service uses."""
        return (await self.workflows()).library

    def open_library(self) -> Library:
        """The definitions on the search path. Opens neither ledger nor keys nor home."""
        untrusted = self.settings.untrusted()
        return open_library(self.settings.home, self._directories, with_bundled=self._with_bundled, untrusted=untrusted)

    def keys(self) -> KeyRing:
        """The keys that seal tokens."""
        return open_keys(self.settings.home.keys)

    async def end_session(self, name: str, *, by: str, reason: str = "") -> CallResult[tuple[str, ...]]:
        """End an unfinished workflow session and those that it has started, for a person."""
        session = await (await self.records()).find(name)
        return await (await self.workflows()).cancel(session.id, by=by, reason=reason)

    @asynccontextmanager
    async def ending_sessions(self, agent: str, workflow: str, *, reason: str) -> AsyncIterator[None]:
        """End what the scripted `agent` starts in the block and leaves unfinished, and before it what a killed process left.

        The process can be stopped at any moment, also while a session starts whose id nobody knows yet. While another process
        is in such a block of this agent, its sessions are not touched, and the next block ends those of this one.
        """
        lock = FileLock(self.settings.home.ensure().lock_path(agent))
        is_alone = lock.acquire()
        try:
            if is_alone:
                await self._end_unfinished(agent, workflow, f"A process was killed. {reason}")
            yield
        finally:
            if is_alone:
                await self._end_unfinished(agent, workflow, reason)
            lock.release()

    async def _end_unfinished(self, agent: str, workflow: str, reason: str) -> None:
        service = await self.workflows()
        for session in await find_unfinished(await self._open_ledger(), agent, workflow):
            await service.cancel(session.id, by=agent, reason=reason)

    async def delete_sessions(self, sessions: Sequence[Session], *, by: str, reason: str) -> tuple[str, ...]:
        """Delete the sessions of a plan, for a person. Returns the worktrees of agents that stay because they hold changes."""
        agents, runtimes, others = split_by_kind(sessions)
        retained: tuple[str, ...] = ()
        # Agents first: if the rest fails, what is left still names what it belonged to.
        if agents:
            service = await self.agents(host=False)
            retained = (await service.delete_sessions(agents, by=by, reason=reason)).retained_worktrees
        for session in runtimes:
            await (await self.runtime()).delete_session(session.id, by=by, reason=reason)
        await (await self.records()).erase_all(others, actor=by, reason=reason)
        return retained

    @contextmanager
    def _reporting_failure(self) -> Iterator[None]:
        try:
            yield
        except FidelioError as problem:
            report, self.on_failure = self.on_failure, None
            if report is not None:
                report(problem.text)
            raise

    async def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            self._prepare_home()
            self._ledger = await self._resources.enter_async_context(await open_ledger(self.settings.ledger))
            self._ledger.record_type = record_type
            if self.settings.ledger == str(self.settings.home.ledger):
                self.settings.home.note_ledger()
        return self._ledger

    def _prepare_home(self) -> None:
        home = self.settings.home
        # A ledger outside the home can be opened although the home is missing.
        home.ensure() if self.creates_missing_home or self.settings.ledger != str(home.ledger) else home.require_existing()

    async def _open_workflows(self) -> WorkflowService:
        from fidelio.workflows import service, tokens, unit_of_work  # noqa: PLC0415  # brings pydantic and the engine, 140 ms

        self.settings.home.ensure()
        library = self.open_library()
        policy = unit_of_work.ServerPolicy(
            self._fidelity,
            self._person,
            self.settings.min_response_ms,
            allows_adoption=self.settings.adoption,
            accepts_handles=self._handles,
            allows_moves=not self._worker,
        )
        keys = self.keys()
        # Fail now: without a key, no token of a session that starts here could be opened again.
        keys.active()
        found = service.WorkflowService(await self._open_ledger(), library, tokens.SessionTokens(keys, now_ms), policy=policy)
        self._resources.push_async_callback(found.unit.close)
        return found

    async def _open_agents(self, *, host: bool, attended: bool) -> AgentService:
        from fidelio.app.agents import host_agents, open_agents, spawn_worker_if_needed  # noqa: PLC0415  # brings the orchestrator, 40 ms

        service = self._agents or open_agents(self.settings, await self._open_ledger(), self.runtime, self._resources)
        if host:
            await self._resources.enter_async_context(host_agents(service.context, self.settings, attended=attended))
            self._hosts_agents = True
        else:
            self._resources.push_async_callback(spawn_worker_if_needed, service.context, self.settings)
        return service

    async def _open_runtime(self) -> RuntimeService:
        from fidelio.app.runtime import open_runtime  # noqa: PLC0415  # brings the runtime and the parser of commands, 80 ms

        service, providers = open_runtime(await self._open_ledger(), self.settings, self.sandboxes(), self.keys)
        self._resources.push_async_callback(providers.close)
        return service

    def _open_sandbox_host(self) -> AbstractAsyncContextManager[Callable[[], bool]]:
        from fidelio.app.sandboxes import host_sandboxes  # noqa: PLC0415  # brings the sandboxes, 30 ms

        return host_sandboxes(self.settings.home)

    def _workflow_server(self) -> McpServer:
        """The MCP server that gives a worker the same workflows and the same ledger."""
        switches = {
            "--with-bundled": self._with_bundled,
            "--enforce": self._fidelity == "enforce",
            "--no-adoption": not self.settings.adoption,
        }
        flags = [flag for flag, on in switches.items() if on]
        directories = [word for path in self._directories for word in ("--workflows", str(Path(path).absolute()))]
        ledger = self.settings.ledger
        # The session of a worker stores its server, and the address of a database may hold a password: the host of the worker
        # passes that on from its own environment when the server starts.
        is_elsewhere = ledger != str(self.settings.home.ledger) and not ledger.startswith(POSTGRES)
        return McpServer(
            command=sys.executable,
            args=("-m", "fidelio", "mcp", "--worker", "--home", str(self.settings.home.path), *directories, *flags),
            env={"FIDELIO_LEDGER": ledger} if is_elsewhere else {},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    async def ask(self, request_id: str) -> AskPerson:
        """Implement the port `CallContext.ask`: put an open request of the inbox to the person at the client."""
        return await ask_person(await self._open_ledger(), self.settings, request_id)


def open_bundled(settings: Settings, *, handles: bool = True) -> Application:
    """An application with only the bundled workflows, so that tour and demo do not depend on the user's files."""
    return Application(settings, [str(bundled_root().path)], handles=handles)
