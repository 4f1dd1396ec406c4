"""The service of runtime sessions: opens them by name, carries out their tool calls, changes and ends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import SessionExists, SessionNotFound, UsageProblem
from fidelio.ids import new_session_id
from fidelio.ledger.model import Event, NewEvent, NewSession
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.budgets import set_budget
from fidelio.runtime.calls import CallOutcome, Calls, Finished, WaitingForPerson
from fidelio.runtime.closing import archive_session, end_session, return_share
from fidelio.runtime.environments.service import Environments
from fidelio.runtime.forking import fork_session
from fidelio.runtime.permissions.policy import POLICIES, read_pattern
from fidelio.runtime.previews import Previews
from fidelio.runtime.project import parse_mount
from fidelio.runtime.reading import list_descendants
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.resources.projection import AREA as SHARED
from fidelio.runtime.schedules import cancel_schedule, set_schedule
from fidelio.runtime.sending import Sending
from fidelio.runtime.sessions import (
    NewAgentSession,
    create_session,
    describe_session,
    load_agent_policies,
    session_namespace,
)
from fidelio.runtime.snapshots.restoring import restore_snapshot
from fidelio.runtime.snapshots.snapshots import diff_snapshot, list_snapshots
from fidelio.runtime.stores import open_store, refuse_store
from fidelio.runtime.tools.definitions import DEFINITIONS, SANDBOX_TOOL_NAMES, TOOL_OF_ACTION
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.vaults import Vaults
from fidelio.sandbox.actions import ACTIONS
from fidelio.sandbox.directory import create_directory, remove_directory

__all__ = [
    "CallOutcome",
    "Finished",
    "NewAgentSession",
    "RuntimeContext",
    "RuntimeService",
    "SessionRequest",
    "WaitingForPerson",
]

_RANDOM_NAME = re.compile(r"[0-9a-f]{16}")
MAX_PATTERN_SECONDS = 30 * 24 * 60 * 60
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a client wants: found by its name in the project, or created."""

    project: str
    name: str = "default"
    agent: str = "default"
    environment: str | None = None
    mount: str | None = None
    vaults: tuple[str, ...] = ()


class RuntimeService:
    """Opens, uses, changes and ends runtime sessions."""

    def __init__(self, context: RuntimeContext) -> None:
        self.context = context
        self.environments = Environments(context)
        self.vaults = Vaults(context)
        self._calls = Calls(context)
        self._sending = Sending(context)
        # What arrives of the models whose wakes this process carries out.
        self.previews = Previews()

    async def open_session(self, request: SessionRequest) -> str:
        """The id of the session with this name in the project; created if there is none."""
        check_name(request.name)
        check_name(request.agent)
        namespace = session_namespace(request.project)
        try:
            found = await self.context.ledger.session_by_name(request.name, namespace=namespace)
        except SessionNotFound:
            return await self._create(request, namespace)
        await self._check_same(found.id, request)
        return found.id

    async def call(
        self,
        session: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        tools: frozenset[str] | None = None,
        waits: bool = True,
    ) -> CallOutcome:
        """Carry out a tool call. `waits`: a call that repeats an open request waits for its answer."""
        offered = SANDBOX_TOOL_NAMES if tools is None else tools
        return await self._calls.carry_out(session, tool, arguments, tools=offered, waits=waits)

    async def start_session(
        self, request: NewAgentSession, initial: Sequence[Mapping[str, Any]] = (), *, by: str = "", channel: str = ""
    ) -> str:
        """Begin a session of an agent. Raises `SessionExists` if the name is taken in the project.

        `initial`: messages and outcomes in the vendors' form, sent by somebody over a channel, in the same commit.
        """
        if request.name is not None:
            check_name(request.name)
        check_name(request.agent)
        checked = await self._sending.check_initial(initial, by=by, channel=channel)
        return await create_session(self.context, request, checked)

    async def send(self, session: str, events: Sequence[Mapping[str, Any]], *, by: str, channel: str) -> tuple[Event, ...]:
        """Send events in the vendors' form: messages, confirmations, results of custom tools, outcomes, an interrupt."""
        return await self._sending.send(session, events, by=by, channel=channel)

    async def describe(self, session: str) -> dict[str, Any]:
        """What a session is, does, waits for and has used."""
        return await describe_session(self.context, session)

    def follow(self, session: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events of a session, then every new event as it is committed by any process."""
        return self.context.ledger.follow(session, after=after)

    async def archive_session(self, session: str, *, by: str) -> None:
        """Keep a session as it is: nothing is sent to it, it is not woken any more, and what it asks for is dismissed."""
        await archive_session(self.context, session, by=by)

    async def fork(self, session: str, *, wake: str | None = None, model: str = "", version: int | None = None, by: str) -> str:
        """Begin a session with the conversation of another session up to a wake, by default its last; returns its id.

        `model` and `version` of the agent may differ. The source stays as it is.
        """
        return await fork_session(self.context, session, wake=wake, model=model, version=version, by=by)

    async def set_schedule(self, session: str, name: str, every_seconds: int, note: str = "", *, by: str) -> None:
        """Wake a session every so many seconds, at least 60. The same name replaces a schedule. Only a person may."""
        await set_schedule(self.context, session, name, every_seconds, note, by=by)

    async def cancel_schedule(self, session: str, name: str, *, by: str) -> None:
        """End a schedule of a session. Only a person may."""
        await cancel_schedule(self.context, session, name, by=by)

    async def set_budget(self, session: str, budget: Mapping[str, float], *, by: str) -> None:
        """Change limits of a session: `tokens`, `usd`, `wakes_per_day`, `wall_seconds`. Only a person may.

        A session that has stopped at its budget goes on, if the new one allows it.
        """
        await set_budget(self.context, session, budget, by=by)

    async def list_snapshots(self, session: str) -> list[dict[str, Any]]:
        """The snapshots of the workspace of a session, newest first: `snapshotId`, `wakeId`, `takenAt`, `files`, `bytes`."""
        return await list_snapshots(self.context, session)

    async def diff_snapshot(self, session: str, snapshot: str, other: str | None = None) -> dict[str, Any]:
        """What has changed from a snapshot to another, or to the present state: `changes` of `path` and `kind`."""
        return await diff_snapshot(self.context, session, snapshot, other)

    async def restore_snapshot(self, session: str, snapshot: str, *, by: str, discard: bool = False) -> dict[str, Any]:
        """Make the workspace of an idle session what it was; its sandbox is stopped. Only a person may.

        The present state becomes a snapshot first. `discard`: also if it is too large for one.
        """
        return await restore_snapshot(self.context, session, snapshot, by=by, discard=discard)

    async def load(self, session: str) -> LoadedRuntime:
        return await self.context.unit.load(session)

    async def end_session(self, session: str, *, by: str) -> None:
        """End a session: its sandbox and everything in it, and what it asks for. Its record stays."""
        await end_session(self.context, session, by=by)
        await self.context.sandboxes.stop(session)

    async def delete_session(self, session: str, *, by: str, reason: str) -> None:
        """End a session, erase its record, then remove its files: as long as the record names them, they can be found."""
        context, record = self.context, (await self.load(session)).record
        if record.role == "session":
            await self.end_session(session, by=by)
            # A wake that was cut off a moment ago has nothing left to return it with.
            await return_share(context, session, by=by)
        last_seq = (await context.ledger.session(session)).last_seq
        await context.ledger.erase([session], actor=by, reason=reason, expect={session: last_seq})
        await asyncio.to_thread(_remove_files, context.home.path / "sandboxes", record.directory)

    async def delete_family(self, session: str, *, by: str, reason: str) -> None:
        """Delete a session with those that it has delegated to, which end with it."""
        below = await list_descendants(self.context, session)
        for child in (*(loaded.id for loaded in reversed(below)), session):
            await self.delete_session(child, by=by, reason=reason)

    async def allow_pattern(self, session: str, pattern: str, *, by: str, seconds: int) -> None:
        """Let commands that match a pattern run without asking in this session, for a time. Only a person may."""
        words = read_pattern(pattern)
        if not 0 < seconds <= MAX_PATTERN_SECONDS:
            raise UsageProblem(f"{seconds} seconds is not a valid time.", remedy=f"Use 1 to {MAX_PATTERN_SECONDS}.")
        body = {"pattern": " ".join(words), "expires": self.context.clock() + seconds * 1000, "by": by}
        await self._append(session, NewEvent(type=e.PERMISSION_ALLOWED, body=body, actor=by))

    async def set_policy(self, session: str, tool: str, policy: str, *, by: str) -> None:
        """Change the policy of a tool or of an action in a session. Only a person may."""
        await self._append(session, _describe_policy(tool, policy, by))

    async def set_agent_policy(self, project: str, agent: str, tool: str, policy: str, *, by: str) -> None:
        """Change the policy of a tool or an action for the sessions of an agent that begin from now on. Only a person may."""
        check_name(agent)
        event = _describe_policy(tool, policy, by)
        store = await open_store(self.context, "substrate", project=project, agent=agent)
        await self.context.unit.update(store.id, lambda _: SessionDecision(None, events=(event,)))

    async def _append(self, session: str, event: NewEvent) -> None:
        def append(current: LoadedRuntime) -> SessionDecision[None]:
            refuse_store(current)
            return SessionDecision(None, events=(event,))

        await self.context.unit.update(session, append)

    async def _create(self, request: SessionRequest, namespace: str) -> str:
        await self.vaults.require(request.vaults)
        environment = await self.environments.resolve(request.environment, request.project)
        mount = parse_mount(request.mount, Path(request.project))
        directory = await asyncio.to_thread(create_directory, self.context.home.ensure().path)
        body = {
            "agent": request.agent,
            "project": request.project,
            "directory": directory.name,
            "environment": environment.name,
            "environment_version": environment.version,
            "vaults": list(request.vaults),
            "policies": await load_agent_policies(self.context, request.project, request.agent),
            **({"mount_mode": mount.mode, "mount_source": mount.source} if mount is not None else {}),
        }
        session = new_session_id()
        create = NewSession(kind="runtime", namespace=namespace, name=request.name)
        decision = SessionDecision(None, events=(NewEvent(type=e.STARTED, body=body),), create=create)
        try:
            await self.context.unit.create(session, RuntimeRecord(), decision)
        except SessionExists:
            # Another process created it a moment earlier.
            await asyncio.to_thread(remove_directory, directory)
            return (await self.context.ledger.session_by_name(request.name, namespace=namespace)).id
        return session

    async def _check_same(self, session: str, request: SessionRequest) -> None:
        """Refuse a request that names another agent, environment or mount than the session has: nothing is changed silently."""
        record = (await self.load(session)).record
        mount = parse_mount(request.mount, Path(request.project))
        compared = {
            "agent": (request.agent, record.agent),
            "environment": (request.environment or record.environment, record.environment),
            "mount": ((mount.mode, mount.source), (record.mount_mode, record.mount_source)) if mount else ("", ""),
        }
        differing = [name for name, (wanted, current) in compared.items() if wanted != current]
        if differing:
            raise UsageProblem(
                f"Session {request.name!r} exists with another {' and '.join(differing)}.",
                remedy="Choose another name with --session, or leave the option out.",
            )


def _remove_files(sandboxes: Path, name: str) -> None:
    """Remove the directory of a session, or that in which a store shows its files."""
    # The name comes from a record, which could be forged.
    if _RANDOM_NAME.fullmatch(name):
        for directory in (sandboxes / name, sandboxes / SHARED / name):
            remove_directory(directory)


def _describe_policy(tool: str, policy: str, by: str) -> NewEvent:
    """The event of a changed policy. An action that is a tool has the policy of that tool, whatever name it is called by."""
    name = TOOL_OF_ACTION.get(tool, tool)
    if name not in DEFINITIONS and name not in ACTIONS:
        known = ", ".join(sorted({*DEFINITIONS, *ACTIONS}))
        raise UsageProblem(f"There is no tool or action {tool!r:.100}.", remedy=f"Use one of: {known}.")
    if policy not in POLICIES:
        raise UsageProblem(f"{policy!r:.100} is not a policy.", remedy=f"Use one of: {', '.join(POLICIES)}.")
    return NewEvent(type=e.CONFIGURED, body={"policies": {name: policy}}, actor=by)


def check_name(name: str) -> None:
    """The same names as those of agents."""
    if not _NAME.fullmatch(name):
        raise UsageProblem(f"{name!r:.80} is not a name.", remedy="Use 1 to 60 letters, digits, '-' and '_'.")
