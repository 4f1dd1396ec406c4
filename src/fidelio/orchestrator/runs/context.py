"""The context that all parts of the orchestrator share: ledger, inbox, blueprints, executors, limits."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from fidelio.clock import Clock
from fidelio.errors import BlueprintNotFound, ExecutorUnavailable, UsageProblem
from fidelio.home import Home
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.catalogue import read_in_thread
from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint
from fidelio.orchestrator.blueprints.servers import fill_placeholders
from fidelio.orchestrator.executors.contract import Executor
from fidelio.orchestrator.executors.registry import first_working
from fidelio.orchestrator.record import errors
from fidelio.orchestrator.record.record import AgentRecord
from fidelio.orchestrator.record.unit_of_work import AgentUnitOfWork
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import AgentLimits


class BlueprintSource(Protocol):
    """Where blueprints come from."""

    def get(self, name: str, project: Path) -> Blueprint: ...


class OrchestratorContext(msgspec.Struct, frozen=True, kw_only=True):
    """`project` is the directory that is meant where none is named, `executor` the kind of agent where none is named."""

    ledger: Ledger
    unit: AgentUnitOfWork
    inbox: Inbox
    blueprints: BlueprintSource
    executors: Mapping[str, Executor]
    home: Home
    project: str
    limits: AgentLimits
    executor: str | None
    clock: Clock

    async def load_blueprint(self, name: str | None, project: str) -> Blueprint:
        return await read_in_thread(self.blueprints.get, name, Path(project)) if name else DEFAULT_BLUEPRINT

    async def load_session_blueprint(self, record: AgentRecord) -> Blueprint:
        """The blueprint of a session as it is on disk now, with what its start asked for beside it."""
        servers = await self.ledger.blob(record.servers) if record.servers else None
        own = msgspec.json.decode(servers, type=dict[str, McpServer]) if servers else {}
        return apply_overrides(await self.load_blueprint(record.blueprint, record.project), record.model, own)

    async def load_run_blueprint(self, record: AgentRecord) -> Blueprint:
        """The blueprint that the newest run has begun with, whatever has become of its files since.

        A run that began when blueprints were not kept yet, or were kept in another shape, has the one on disk.
        """
        kept = await self.ledger.blob(record.run.blueprint_blob) if record.run.blueprint_blob else None
        try:
            return await self.load_session_blueprint(record) if kept is None else msgspec.convert(json.loads(kept), Blueprint)
        except msgspec.ValidationError:
            return await self.load_session_blueprint(record)

    def require_executor(self, name: str) -> Executor:
        executor = self.executors.get(name)
        if executor is None:
            known = ", ".join(self.executors)
            raise ExecutorUnavailable(f"There is no executor {name!r:.80}.", remedy=f"Use one of {known}.")
        return executor

    async def _require_available(self, name: str, blueprint: Blueprint) -> Executor:
        """Raises where agents of this kind do not work, not even with what the blueprint adds to the environment."""
        executor = self.require_executor(name)
        found = await executor.availability(blueprint.environment)
        if not found.works:
            raise ExecutorUnavailable(
                f"Executor {name} does not work on this machine: {found.why}",
                remedy="`fidelio doctor` says which do, and why the others do not.",
            )
        return executor

    async def choose_executor(self, blueprint: Blueprint, wanted: str | None = None) -> Executor:
        """Who carries it out: the kind that the call, the blueprint or the settings name, else the first that works and fits.

        Raises where nobody can.
        """
        name = wanted or blueprint.executor or self.executor
        if name is None:
            return await first_working(blueprint)
        executor = await self._require_available(name, blueprint)
        await read_in_thread(_require_valid_options, executor, blueprint)
        return executor

    async def check_executor(self, blueprint: Blueprint, wanted: str | None = None) -> Executor:
        """The same before anything is promised: what the servers of the blueprint need has to be there as well."""
        executor = await self.choose_executor(blueprint, wanted)
        # Below an agent we see little of the environment, and whoever carries it out sees all of it.
        if not os.environ.get(AGENT_MARKER):
            fill_placeholders(blueprint, os.environ)
        return executor


def apply_overrides(blueprint: Blueprint, model: str | None, servers: Mapping[str, McpServer]) -> Blueprint:
    """A blueprint with the model and the servers that one session was started with."""
    model, servers = model or blueprint.model, {**blueprint.mcp_servers, **servers}
    return msgspec.structs.replace(blueprint, model=model, mcp_servers=servers)


def encode_blueprint(blueprint: Blueprint) -> bytes:
    """A blueprint as it is kept with a run: the same bytes for the same blueprint, whoever runs it."""
    # Not by the faster encoder: it has no word for a limit that is infinite, and none for half a surrogate pair.
    return json.dumps(msgspec.to_builtins(blueprint, str_keys=True), sort_keys=True).encode()


def resolve_project(project: str) -> str:
    """One directory is one project, whichever of its paths it is called by; it need not exist."""
    if not os.path.isabs(project):  # noqa: PTH117  # a path that only looks like one is the point
        raise errors.project_not_absolute(project)
    if "\0" in project:
        raise UsageProblem("project_dir has a NUL in it.", remedy="Give the path of a directory.")
    return os.path.realpath(project)


def require_directory(project: str) -> None:
    if not os.path.isdir(project):  # noqa: PTH112  # Path.is_dir raises where we may not look
        raise errors.project_missing(project)


def _require_valid_options(executor: Executor, blueprint: Blueprint) -> None:
    """Raises for a blueprint whose options its executor cannot take."""
    problems = executor.problems(blueprint)
    if problems:
        name = blueprint.name or "of this session"
        raise BlueprintNotFound(
            f"Blueprint {name} does not fit its executor {executor.name}: {' '.join(problems)}", remedy="Mend its files."
        )
