"""Helpers for tests of runtime tools: a double of the sandboxes, and calls with all commits but without a permission gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fidelio.clock import Clock
from fidelio.errors import SandboxError, ToolRefused, UsageProblem
from fidelio.home import Home
from fidelio.ids import new_id, new_session_id
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Event, NewEvent, NewSession
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.calls import describe_error
from fidelio.runtime.journal import Journal
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.tools.catalogue import ResolvedCall, resolve_call
from fidelio.runtime.tools.definitions import SANDBOX_TOOL_NAMES
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, RuntimeContext, ToolCall, ToolResult
from fidelio.sandbox.model import (
    ActionError,
    ActionResult,
    ConnectionEntry,
    ConnectionPage,
    Ending,
    Level,
    LevelReport,
    Mount,
    Network,
    SandboxSpec,
    SandboxState,
)
from fidelio.sandbox.port import Sandboxes
from fidelio.tokens.keyring import FixedKeys, KeyRing
from tests.support.ledgers import MovingClock

_REFUSALS = (ToolRefused, SandboxError, UsageProblem)
ReplyFunction = Callable[[dict[str, Any]], Mapping[str, Any] | ActionResult]
KEYS = FixedKeys(b"k" * 32)


def fail(code: str, message: str = "It failed.", *, retryable: bool = False) -> ActionResult:
    """The result of an action that the sandbox did not carry out."""
    return ActionResult(False, error=ActionError(code, message, retryable))


class FakeSandboxes(Sandboxes):
    """Sandboxes without processes: `replies` maps an action to a function of its arguments. `calls` lists what was called."""

    def __init__(self, replies: Mapping[str, ReplyFunction] | None = None, *, level: Level = "bubblewrap") -> None:
        self.replies = dict(replies or {})
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.starts: list[str] = []
        self.used: list[ConnectionEntry] = []
        self._endings: dict[str, Ending] = {}
        self._level = level
        self._live: dict[str, SandboxState] = {}

    @property
    def actions(self) -> list[str]:
        return [action for action, _ in self.calls]

    async def level(self) -> LevelReport:
        return LevelReport(self._level, "as the test says", "Install bubblewrap.")

    async def start(self, spec: SandboxSpec) -> SandboxState:
        if spec.session not in self._live:
            self.starts.append(spec.session)
            self._live[spec.session] = SandboxState(
                spec.session, new_id("box_"), self._level, 1, is_new=True, closed_because=self._endings.get(spec.session)
            )
        return self._live[spec.session]

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        assert timeout > 0
        await self.start(spec)
        # As the host reads it: whatever JSON cannot carry fails here.
        sent = msgspec.json.decode(msgspec.json.encode(arguments))
        self.calls.append((action, sent))
        reply = self.replies[action](sent)
        return reply if isinstance(reply, ActionResult) else ActionResult(True, reply)

    async def state(self, session: str) -> SandboxState | None:
        return self._live.get(session)

    def end(self, session: str, ending: Ending) -> None:
        """End a sandbox; the next start says why."""
        del self._live[session]
        self._endings[session] = ending

    async def connections(self, session: str, after: int = 0, log: str = "") -> ConnectionPage:
        assert session
        return ConnectionPage("log", tuple(entry for entry in self.used if entry.number > after or log != "log"))

    async def stop(self, session: str) -> bool:
        return self._live.pop(session, None) is not None

    async def close(self) -> None:
        """Nothing is open."""


def make_spec(session: str, directory: Path, network: Network = "none") -> SandboxSpec:
    mounts = (Mount("/workspace", str(directory / "workspace"), "read_write", "session_workspace"),)
    return SandboxSpec(session, str(directory), mounts, network)


class ToolBench:
    """Calls of one session. They are committed as real calls are; no person is asked."""

    def __init__(self, context: RuntimeContext, session: str, spec: SandboxSpec, tools: frozenset[str]) -> None:
        self.context, self.session, self.spec, self.tools = context, session, spec, tools

    async def load(self) -> LoadedRuntime:
        return await self.context.unit.load(self.session)

    async def record(self) -> RuntimeRecord:
        return (await self.load()).record

    async def events(self, *types: str) -> tuple[Event, ...]:
        return await self.context.ledger.events(self.session, types=types)

    async def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The output of a call that must work."""
        result = await self.try_tool(tool, **arguments)
        assert not result.is_error, result.output
        return dict(result.output)

    async def refuse(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The error of a call that must be refused."""
        result = await self.try_tool(tool, **arguments)
        assert result.is_error, result.output
        return dict(result.output["error"])

    async def try_tool(self, tool: str, **arguments: Any) -> ToolResult:
        try:
            prepared = await self.prepare(tool, **arguments)
        except RefusedPreparation as refused:
            return await refused.call.commit(refused.result)
        await prepared.commit_intent()
        return await prepared.commit(await prepared.run())

    async def prepare(self, tool: str, **arguments: Any) -> PreparedCall:
        """A call before its effect, for tests that stop it half way. Raises `RefusedPreparation`."""
        resolved = resolve_call(tool, arguments, SANDBOX_TOOL_NAMES)
        call = ToolCall(self.context, await self.load(), new_id("toolu_"), resolved.definition, self.spec, self.tools)
        prepared = PreparedCall(call, resolved)
        try:
            prepared.preparation = await resolved.implementation.prepare(call, resolved.arguments)
        except _REFUSALS as error:
            raise RefusedPreparation(prepared, describe_error(error)) from error
        return prepared


class PreparedCall:
    """A call that was prepared. Its parts are those of `fidelio.runtime.calls`."""

    def __init__(self, call: ToolCall, resolved: ResolvedCall) -> None:
        self.call, self.resolved = call, resolved
        self.preparation = Preparation()
        self._journal = Journal(call.context)

    async def commit_intent(self) -> None:
        if not self.resolved.is_read_only:
            await self._journal.commit_intent(self.call, self.resolved.name, self.resolved.arguments, self.preparation, None)

    async def run(self) -> ToolResult:
        try:
            return await self.resolved.implementation.run(self.call, self.resolved.arguments, self.preparation)
        except _REFUSALS as error:
            return describe_error(error)

    async def commit(self, result: ToolResult) -> ToolResult:
        await self._journal.commit_result(self.call, self.resolved.name, self.resolved.arguments, result)
        return result


class RefusedPreparation(Exception):
    """The tool refused the call before its effect."""

    def __init__(self, call: PreparedCall, result: ToolResult) -> None:
        super().__init__(str(result.output))
        self.call, self.result = call, result


@asynccontextmanager
async def open_context(
    directory: Path, sandboxes: Sandboxes, *, clock: Clock | None = None, keys: KeyRing = KEYS
) -> AsyncIterator[RuntimeContext]:
    """The ports of the tools with a real ledger."""
    now = clock if clock is not None else MovingClock()
    async with await open_ledger(directory / "ledger.db", clock=now) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        yield RuntimeContext(ledger, now, Home(directory), sandboxes, lambda: keys)


async def start_session(
    context: RuntimeContext,
    directory: Path,
    *,
    agent: str = "default",
    project: str = "/project",
    role: str = "session",
    tools: Sequence[str] = tuple(SANDBOX_TOOL_NAMES),
    network: Network = "none",
) -> ToolBench:
    """A new session, ready for calls."""
    session = new_session_id()
    body = {"role": role, "agent": agent, "project": project, "directory": session}
    decision = SessionDecision(
        None, events=(NewEvent(type=e.STARTED, body=body),), create=NewSession(kind="runtime", namespace="runtime:test")
    )
    await context.unit.create(session, RuntimeRecord(), decision)
    return ToolBench(context, session, make_spec(session, directory, network), frozenset(tools))
