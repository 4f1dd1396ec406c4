"""The shared context of the orchestrator: ledger, inbox, blueprints, executors, limits."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from fidelio.clock import Clock
from fidelio.errors import BlueprintNotFound, Command, ExecutorUnavailable, Hint, UsageProblem
from fidelio.home import Home
from fidelio.ids import session_of_run
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.catalogue import read_in_thread
from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint, Permissions, narrow_permissions
from fidelio.orchestrator.blueprints.servers import add_sandbox_server, fill_placeholders
from fidelio.orchestrator.executors.contract import Executor
from fidelio.orchestrator.executors.registry import find_working_executor
from fidelio.orchestrator.record import errors
from fidelio.orchestrator.record.record import AgentRecord
from fidelio.orchestrator.record.unit_of_work import AgentUnitOfWork
from fidelio.processes.caller import identify_process
from fidelio.settings import AgentLimits


class BlueprintSource(Protocol):
    """The lookup of blueprints by name."""

    def get(self, name: str, project: Path) -> Blueprint: ...


class OrchestratorContext(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies and defaults. `project` and `executor` are used where a call names none.

    `is_attended`: this process hosts agents for a person, who may leave them to the background at any moment.
    """

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
    is_attended: bool = False

    async def load_blueprint(self, name: str | None, project: str) -> Blueprint:
        return await read_in_thread(self.blueprints.get, name, Path(project)) if name else DEFAULT_BLUEPRINT

    async def load_session_blueprint(self, record: AgentRecord) -> Blueprint:
        """The blueprint of a session as it is on disk now, with the model and servers that its start added.

        An agent that works in a sandbox also has the server that serves it.
        """
        servers = await self.ledger.blob(record.servers) if record.servers else None
        own = msgspec.json.decode(servers, type=dict[str, McpServer]) if servers else {}
        found = apply_overrides(await self.load_blueprint(record.blueprint, record.project), record.model, own)
        session = record.sandbox or f"agent-{session_of_run(record.run.id)}"
        limited = limit_permissions(found, record.most)
        return add_sandbox_server(limited, home=str(self.home.path), project=record.project, session=session)

    async def load_run_blueprint(self, record: AgentRecord) -> Blueprint:
        """The blueprint that the newest run began with, whatever has changed in its files since.

        For a run that began before blueprints were stored, or were stored in another format, it is the blueprint on disk.
        """
        stored = await self.ledger.blob(record.run.blueprint_blob) if record.run.blueprint_blob else None
        try:
            return (
                await self.load_session_blueprint(record) if stored is None else msgspec.convert(json.loads(stored), Blueprint)
            )
        except msgspec.ValidationError:
            return await self.load_session_blueprint(record)

    def require_executor(self, name: str) -> Executor:
        executor = self.executors.get(name)
        if executor is None:
            known = ", ".join(self.executors)
            raise ExecutorUnavailable(f"There is no executor {name!r:.80}.", remedy=f"Use one of {known}.")
        return executor

    async def _require_available(self, name: str, blueprint: Blueprint) -> Executor:
        """The executor. Raises if it does not work on this machine, even with the environment of the blueprint."""
        executor = self.require_executor(name)
        found = await executor.availability(blueprint.environment)
        if not found.works:
            raise ExecutorUnavailable(
                f"Executor {name} does not work on this machine: {found.why}",
                remedy=Hint(Command("doctor"), " shows which executors work, and why the others do not."),
            )
        return executor

    async def choose_executor(self, blueprint: Blueprint, wanted: str | None = None) -> Executor:
        """The executor that the call, the blueprint or the settings name, else the first that works and fits.

        Raises if there is none.
        """
        name = wanted or blueprint.executor or self.executor
        if name is None:
            return await find_working_executor(blueprint)
        executor = await self._require_available(name, blueprint)
        await read_in_thread(_require_valid_options, executor, blueprint)
        return executor

    async def _refuse_added_servers(self, blueprint: Blueprint, wanted: str | None, added: Collection[str]) -> None:
        """Raise if the blueprint fits its executor without these servers."""
        if not added:
            return
        with suppress(BlueprintNotFound):
            executor = await self.choose_executor(without_servers(blueprint, added), wanted)
            raise ExecutorUnavailable(
                f"Blueprint {blueprint.name} cannot do this work: it needs the MCP server {', '.join(added)}, and the executor "
                f"{executor.name} gives its agents no MCP servers.",
                remedy=Hint("Choose a blueprint with another executor. ", Command("doctor"), " says which work here."),
            )

    async def check_executor(self, blueprint: Blueprint, wanted: str | None = None, *, added: Collection[str] = ()) -> Executor:
        """Choose the executor, and check also that the variables for the servers of the blueprint are set.

        `added` are the servers that are not in the files of the blueprint: they are no mistake of its author.
        """
        try:
            executor = await self.choose_executor(blueprint, wanted)
        except BlueprintNotFound:
            await self._refuse_added_servers(blueprint, wanted, added)
            raise
        # Below an agent most variables are filtered out; the agent host has all of them and checks again.
        if not identify_process().is_agent:
            fill_placeholders(blueprint, os.environ)
        return executor


def without_servers(blueprint: Blueprint, names: Collection[str]) -> Blueprint:
    remaining = {name: server for name, server in blueprint.mcp_servers.items() if name not in names}
    return msgspec.structs.replace(blueprint, mcp_servers=remaining)


def apply_overrides(blueprint: Blueprint, model: str | None, servers: Mapping[str, McpServer]) -> Blueprint:
    """A blueprint with the model and the servers that a session was started with."""
    model, servers = model or blueprint.model, {**blueprint.mcp_servers, **servers}
    return msgspec.structs.replace(blueprint, model=model, mcp_servers=servers)


def limit_permissions(blueprint: Blueprint, most: Permissions | None) -> Blueprint:
    """A blueprint with at most these permissions."""
    permissions = narrow_permissions(blueprint.permissions, most)
    return msgspec.structs.replace(blueprint, permissions=permissions)


def encode_blueprint(blueprint: Blueprint) -> bytes:
    """Encode a blueprint for the ledger: the same bytes for the same blueprint on every machine."""
    # Not by msgspec: it encodes neither an infinite limit nor half a surrogate pair.
    return json.dumps(msgspec.to_builtins(blueprint, str_keys=True), sort_keys=True).encode()


def resolve_project(project: str) -> str:
    """The real path of a project, so that all paths of a directory name the same project; it need not exist."""
    if not os.path.isabs(project):  # noqa: PTH117  # pathlib would normalise the text that is checked
        raise errors.project_not_absolute(project)
    if "\0" in project:
        raise UsageProblem("project_dir contains a NUL character.", remedy="Pass the path of a directory.")
    return os.path.realpath(project)


def require_directory(project: str) -> None:
    if not os.path.isdir(project):  # noqa: PTH112  # Path.is_dir raises without permission
        raise errors.project_missing(project)


def _require_valid_options(executor: Executor, blueprint: Blueprint) -> None:
    """Raise if the executor does not accept the options of the blueprint."""
    problems = executor.problems(blueprint)
    if problems:
        name = blueprint.name or "of this session"
        raise BlueprintNotFound(
            f"Blueprint {name} does not fit its executor {executor.name}: {' '.join(problems)}", remedy="Correct its files."
        )
