"""What a tool of a runtime session is: its definition, a call of it, and the result.

A tool is carried out in steps (`fidelio.runtime.calls`): `prepare` looks without changing anything and says what an approval is
bound to; the intent is committed; `run` has the effect; the result is committed. A tool that only reads has no intent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from fidelio.clock import Clock
from fidelio.errors import ToolRefused
from fidelio.home import Home
from fidelio.ledger import Ledger
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Change, NewEvent, PutDocument
from fidelio.ledger.unit_of_work import LinkedChange, LoadedSession, UnitOfWork
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.sandbox.model import ActionResult, Ending, SandboxSpec, SandboxState
from fidelio.sandbox.port import Sandboxes
from fidelio.tokens.keyring import KeyRing

Policy = Literal["always_allow", "always_ask", "auto", "proven"]
# `mcp`: the tools of servers of the user. `meta`: the tools that open and call others.
Group = Literal[
    "files",
    "shell",
    "sandbox",
    "resources",
    "permissions",
    "navigation",
    "outcome",
    "delegation",
    "recall",
    "memory",
    "skills",
    "mcp",
    "meta",
]
# The groups whose tools need to know the sandbox of the session.
SANDBOX_GROUPS: frozenset[Group] = frozenset({"files", "shell", "sandbox", "resources", "permissions"})

HIDDEN = "(not recorded)"

LoadedRuntime = LoadedSession[RuntimeRecord]


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a tool, as managed-tools.json, permissions_check and the tool lists show it.

    `is_gated`: a shared mutation that needs a passed outcome where there is one. `output` names the fields of the result.
    """

    name: str
    title: str
    description: str
    parameters: type[msgspec.Struct]
    group: Group
    effects: tuple[str, ...]
    output: tuple[str, ...]
    policy: Policy = "always_allow"
    read_only: bool = False
    destructive: bool = False
    is_gated: bool = False
    interrupt: Literal["block", "cancel"] = "block"
    ownership: Literal["managed", "mcp", "custom"] = "managed"
    # Whether a second effect is the same as the first one: after a crash nobody has to be asked.
    repeatable: bool = False
    # Arguments whose values no event and no request may hold.
    secrets: tuple[str, ...] = ()

    def hide_secrets(self, arguments: Any) -> dict[str, Any]:
        """The arguments of a call as they are recorded and shown."""
        plain: dict[str, Any] = _hide(msgspec.to_builtins(arguments), self.secrets)
        return plain

    @property
    def output_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {} for name in self.output}}


class RuntimeContext(msgspec.Struct, frozen=True):
    """The ports that the tools use. `open_keys` is called by the first tool that needs a key."""

    ledger: Ledger
    clock: Clock
    home: Home
    sandboxes: Sandboxes
    open_keys: Callable[[], KeyRing]
    ports: RuntimePorts = RuntimePorts()

    @property
    def unit(self) -> UnitOfWork[RuntimeRecord]:
        return UnitOfWork(self.ledger, self.clock, RuntimeRecords())


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known before the effect.

    `bound`: what an approval is bound to beside tool, arguments, directory, variables and environment. `command`: the exact
    text that would run, `cwd` its directory. `about`: further lines for the person. `events` and `blobs` are committed with
    the intent, those of a tool that only reads with its result.
    """

    bound: Mapping[str, Any] = msgspec.field(default_factory=dict)
    command: str = ""
    cwd: str = ""
    about: tuple[str, ...] = ()
    events: tuple[NewEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call: `output` for the model, and what is committed with it.

    `text`: what the model gets in place of `output` as JSON; `images`: blocks that follow it.
    """

    output: Mapping[str, Any]
    text: str | None = None
    images: tuple[Mapping[str, Any], ...] = ()
    events: tuple[NewEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()
    documents: tuple[PutDocument, ...] = ()
    linked: tuple[Change | LinkedChange[RuntimeRecord], ...] = ()
    is_error: bool = False


class CallOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call of a model comes from: its `agent.tool_use` is on record already, with this id.

    `assignment` is the job of the wake: every commit fails if another worker has claimed it. `grade` asks a model for a
    verdict, within the budget of the session.
    """

    wake: str = ""
    tool_use: str = ""
    # An earlier attempt began and nobody knows how it ended: a person decides, unless the tool can be repeated.
    is_repeat: bool = False
    # Why the input of the model cannot be read; the call is refused with it.
    problem: str = ""
    assignment: Assignment | None = None
    grade: Callable[[ModelRequest], Awaitable[ModelReply]] | None = None


NO_WAKE = CallOrigin()


class ToolCall(msgspec.Struct):
    """A call of a tool. `noted` collects what happens meanwhile, for the next commit."""

    context: RuntimeContext
    session: LoadedRuntime
    id: str
    definition: ToolDefinition
    spec: SandboxSpec
    # The tools that this caller has: suggestions name no others.
    tools: frozenset[str]
    noted: list[NewEvent] = msgspec.field(default_factory=list)
    noted_blobs: list[bytes] = msgspec.field(default_factory=list)
    sandbox: SandboxState | None = None
    # Whether the intent is on record, so that only the result is missing.
    has_intent: bool = False
    # The wake that the call is part of; empty for the call of an external client.
    origin: CallOrigin = msgspec.field(default_factory=lambda: NO_WAKE)
    # Builds the specification of the sandbox, for a tool that needs one only sometimes.
    build_spec: Callable[[RuntimeContext, LoadedRuntime], Awaitable[SandboxSpec]] | None = None
    # Called when the call has started the sandbox, before it uses it. `has_changed`: it may have changed files by now.
    on_start: Callable[[ToolCall], Awaitable[None]] | None = None
    has_changed: bool = False
    # What the caller has to know besides the result.
    problems: list[str] = msgspec.field(default_factory=list)
    # The record when the call began.
    before: RuntimeRecord = msgspec.field(default_factory=RuntimeRecord)

    def __post_init__(self) -> None:
        self.before = self.session.record

    @property
    def record(self) -> RuntimeRecord:
        return self.session.record

    @property
    def wake(self) -> str:
        return self.origin.wake

    @property
    def tool_use(self) -> str:
        """The id of the model's call; empty for the call of an external client, which has a new id each time."""
        return self.id if self.wake else ""

    async def start_sandbox(self) -> SandboxState:
        """The live sandbox; that it was started or restarted is noted."""
        if not self.spec.session and self.build_spec is not None:
            self.spec = await self.build_spec(self.context, self.session)
        if self.sandbox is None:
            self.sandbox = await self.context.sandboxes.start(self.spec)
            if self.sandbox.incarnation != self.record.sandbox.incarnation:
                self._note_ending(self.sandbox.closed_because)
                body = {"level": self.sandbox.level, "incarnation": self.sandbox.incarnation}
                self.noted.append(NewEvent(type=e.SANDBOX_STARTED, body=body))
            if self.on_start is not None:
                await self.on_start(self)
        return self.sandbox

    def _note_ending(self, ending: Ending | None) -> None:
        """Note why the sandbox of the record ended, if the host has seen it."""
        if ending is not None and ending.incarnation == self.record.sandbox.incarnation:
            body = {"incarnation": ending.incarnation, "reason": ending.reason, "message": ending.message}
            self.noted.append(NewEvent(type=e.SANDBOX_CLOSED, body=body))

    async def note_connections(self) -> None:
        """Note the connections that commands have made through the proxy since the last ones on record."""
        if self.sandbox is None or self.spec.network not in ("limited", "unrestricted"):
            return
        seen = self.record.sandbox
        page = await self.context.sandboxes.connections(self.session.id, seen.network_seen, seen.network_log)
        for entry in page.entries:
            body = {"log": page.log, "missed": page.missed, **msgspec.to_builtins(entry)}
            self.noted.append(NewEvent(type=e.NETWORK_USED, body=body))

    async def try_action(self, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0) -> ActionResult:
        """Run an action of the sandbox and return its result, whatever it is."""
        await self.start_sandbox()
        return await self.context.sandboxes.call(self.spec, action, arguments, timeout=timeout)

    async def act(self, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0) -> dict[str, Any]:
        """Run an action of the sandbox; an error of it refuses the call."""
        result = await self.try_action(action, arguments, timeout=timeout)
        if result.error is not None:
            raise ToolRefused(result.error.message, reason=result.error.code, retryable=result.error.retryable)
        return dict(result.output)


def _hide(value: Any, secrets: tuple[str, ...]) -> Any:
    """Hide the named values, also in the arguments of a call that is only planned."""
    if isinstance(value, dict):
        return {name: HIDDEN if name in secrets else _hide(inner, secrets) for name, inner in value.items()}
    return [_hide(inner, secrets) for inner in value] if isinstance(value, list | tuple) else value


Prepare = Callable[[ToolCall, Any], Awaitable[Preparation]]
Run = Callable[[ToolCall, Any, Preparation], Awaitable[ToolResult]]


async def prepare_nothing(_: ToolCall, __: Any) -> Preparation:
    return Preparation()


class Implementation(msgspec.Struct, frozen=True):
    """How a tool is carried out.

    `render`: for a tool that runs commands and returns text, the text of the read-only call that does the same as a command.
    `is_elsewhere`: a worker of the user carries it out, and sends the result.
    """

    run: Run
    prepare: Prepare = prepare_nothing
    render: Callable[[ToolResult], ToolResult] | None = None
    is_elsewhere: bool = False


def event(type_: str, body: Mapping[str, Any], *, blobs: tuple[str, ...] = ()) -> NewEvent:
    return NewEvent(type=type_, body=body, blobs=blobs, actor="agent")
