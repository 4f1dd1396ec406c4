"""A runtime without processes: the file actions of the sandbox run in the test, on the mounts of the specification.

`FileSandboxes` opens paths as the sandbox does at the level without namespaces, so links, `..` and read-only mounts behave as
they do there. `Bench.call` carries a tool out in the steps of `fidelio.runtime.calls`, without asking a person.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import SandboxUnavailable, ToolRefused
from fidelio.home import Home
from fidelio.ids import new_session_id
from fidelio.ledger import Ledger
from fidelio.ledger.model import NewEvent, NewSession
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.resources import IMPLEMENTATIONS
from fidelio.runtime.resources.versions import Substrate, Version
from fidelio.runtime.specs import build_spec, session_directory
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, RuntimeContext, ToolCall, ToolResult
from fidelio.sandbox.directory import create_directory
from fidelio.sandbox.inside.beneath import BeneathTree
from fidelio.sandbox.inside.failures import Failure
from fidelio.sandbox.inside.files import ACTIONS, SCANS
from fidelio.sandbox.model import ActionError, ActionResult, ConnectionPage, LevelReport, SandboxSpec, SandboxState
from fidelio.sandbox.port import Sandboxes
from fidelio.tokens.keyring import FileKeys
from tests.support.ledgers import MovingClock


def change_owner(directory: Path, uid: int) -> None:
    """Give a directory and everything in it to a user. Links are not followed."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, -1, follow_symlinks=False)


ReplyFunction = Callable[[SandboxSpec, Mapping[str, Any]], Mapping[str, Any]]


class FileSandboxes(Sandboxes):
    """Runs file actions in the process. `replies` answer other actions, `before` is called before each action."""

    def __init__(self) -> None:
        self.replies: dict[str, ReplyFunction] = {}
        self.before: Callable[[str, Mapping[str, Any]], None] = lambda _, __: None
        self.calls: list[tuple[str, str]] = []
        self.stopped: list[str] = []

    async def level(self) -> LevelReport:
        return LevelReport("landlock", "a test")

    async def start(self, spec: SandboxSpec) -> SandboxState:
        return SandboxState(spec.session, "first", "landlock", os.getpid())

    async def call(
        self,
        spec: SandboxSpec,
        action: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float = 60.0,  # noqa: ARG002  # part of the port
    ) -> ActionResult:
        self.before(action, arguments)
        self.calls.append((spec.session, action))
        if not Path(spec.directory).is_dir():  # noqa: ASYNC240  # a single stat call
            raise SandboxUnavailable("The directory of the sandbox does not exist.")
        try:
            return ActionResult(ok=True, output=self._run(spec, action, dict(arguments)))
        except Failure as failure:
            return ActionResult(ok=False, error=msgspec.convert(failure.as_error(), ActionError))

    def _run(self, spec: SandboxSpec, action: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        if action in self.replies:
            return self.replies[action](spec, arguments)
        flags = os.O_RDONLY | os.O_DIRECTORY
        table = [(mount.path, os.open(mount.source, flags), mount.access == "read_write") for mount in spec.mounts]
        try:
            return {**ACTIONS, **SCANS}[action](BeneathTree(table), arguments)
        finally:
            for _, handle, _ in table:
                os.close(handle)

    async def state(self, session: str) -> SandboxState | None:  # noqa: ARG002  # part of the port
        return None

    async def connections(self, session: str, after: int = 0, log: str = "") -> ConnectionPage:  # noqa: ARG002  # part of the port
        return ConnectionPage(log)

    async def stop(self, session: str) -> bool:
        self.stopped.append(session)
        return True

    async def close(self) -> None:
        return None


class Bench:
    """A home with a ledger, and sessions whose tools are called directly."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self.home, self.ledger = home, ledger
        self.clock = MovingClock()
        self.sandboxes = FileSandboxes()
        self.keys = FileKeys(home.keys)
        self.context = RuntimeContext(ledger, self.clock, home, self.sandboxes, lambda: self.keys)
        self.project = "/projects/demo"

    async def start(self, name: str = "default", **body: Any) -> str:
        """Create a session."""
        directory = create_directory(self.home.path)
        started = {"agent": "default", "project": self.project, "directory": directory.name, **body}
        session = new_session_id()
        create = NewSession(kind="runtime", namespace="runtime:test", name=name)
        decision = SessionDecision(None, events=(NewEvent(type=e.STARTED, body=started),), create=create)
        await self.context.unit.create(session, RuntimeRecord(), decision)
        return session

    async def load(self, session: str) -> LoadedRuntime:
        return await self.context.unit.load(session)

    async def directory(self, session: str) -> Path:
        return session_directory(self.context, (await self.load(session)).record)

    async def workspace(self, session: str) -> Path:
        return await self.directory(session) / "workspace"

    async def spec(self, session: str) -> SandboxSpec:
        return await build_spec(self.context, await self.load(session))

    async def shared(self) -> Path:
        """The directory of the host that shows the shared files, as it is after the last call."""
        (directory,) = [path for path in (self.home.path / "sandboxes" / "substrates").iterdir() if path.is_dir()]
        return directory

    async def substrate(self) -> Substrate:
        return await Substrate.open(self.context, self.project, "default")

    async def share(self, path: str, content: bytes) -> Version:
        return await (await self.substrate()).store_file(path, content, origin="person", by="anna")

    async def begin(self, session: str, tool: str) -> ToolCall:
        loaded = await self.load(session)
        spec = await build_spec(self.context, loaded)
        return ToolCall(self.context, loaded, "toolu_1", DEFINITIONS[tool], spec, frozenset(DEFINITIONS))

    async def prepare(self, session: str, tool: str, **arguments: Any) -> tuple[ToolCall, Any, Preparation]:
        call = await self.begin(session, tool)
        parsed = msgspec.convert(arguments, DEFINITIONS[tool].parameters)
        return call, parsed, await IMPLEMENTATIONS[tool].prepare(call, parsed)

    async def finish(self, prepared: tuple[ToolCall, Any, Preparation]) -> Mapping[str, Any]:
        """Have the effect of a prepared call and commit it."""
        call, arguments, preparation = prepared
        result = await IMPLEMENTATIONS[call.definition.name].run(call, arguments, preparation)
        await self.commit(call, result)
        return result.output

    async def commit(self, call: ToolCall, result: ToolResult) -> None:
        decision = SessionDecision(
            None, events=result.events, blobs=result.blobs, documents=result.documents, linked=result.linked
        )
        await self.context.unit.update(call.session.id, lambda _: decision)

    async def call(self, session: str, tool: str, **arguments: Any) -> Mapping[str, Any]:
        return await self.finish(await self.prepare(session, tool, **arguments))

    async def refuse(self, session: str, tool: str, **arguments: Any) -> ToolRefused:
        """Call a tool that must refuse the call."""
        try:
            await self.call(session, tool, **arguments)
        except ToolRefused as refused:
            return refused
        raise AssertionError(f"{tool} was not refused")
