"""An application whose runtime service answers as a test says, to test the translation alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fidelio.errors import FidelioError
from fidelio.processes.caller import PERSON, Caller
from fidelio.runtime.calls import CallOutcome, Finished
from fidelio.runtime.service import SessionRequest
from fidelio.runtime.tools.definitions import SANDBOX_TOOL_NAMES
from fidelio.surfaces.mcp.dialects import SandboxSession
from fidelio.surfaces.mcp.endpoint import Identity, RequestStates, ServedTools
from fidelio.surfaces.mcp.protocol import Protocol, RequestContext
from fidelio.surfaces.mcp.toolsets.sandbox.declarations import TOOLS
from fidelio.surfaces.mcp.toolsets.sandbox.handlers import SandboxToolset
from fidelio.tokens.keyring import FixedKeys
from fidelio.toolkit import AnswerOption, AskPerson, ToolTable

OPTIONS = (AnswerOption("allow", "Allow it once"), AnswerOption("deny", "Deny it"))


class FakeRuntime:
    """Records sessions and calls; `replies` are returned in order, the last one for ever. An error is raised."""

    def __init__(self, *replies: CallOutcome | FidelioError) -> None:
        self.replies = list(replies) or [Finished({"ok": True})]
        self.opened: list[SessionRequest] = []
        self.offered: frozenset[str] = frozenset()
        self.calls: list[tuple[str, str, Mapping[str, Any], bool]] = []

    async def open_session(self, request: SessionRequest) -> str:
        self.opened.append(request)
        return f"s_{request.name}"

    async def call(
        self, session: str, tool: str, arguments: Mapping[str, Any], *, tools: frozenset[str], waits: bool = True
    ) -> CallOutcome:
        self.offered = tools
        self.calls.append((session, tool, arguments, waits))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, FidelioError):
            raise reply
        return reply


class FakeApplication:
    """The part of an application that the toolset uses."""

    program = "fidelio --home /h"

    def __init__(self, runtime: FakeRuntime, own: Caller = PERSON) -> None:
        self._runtime, self._own = runtime, own
        self.asked: list[str] = []
        self.answers: list[tuple[str, str]] = []
        self.question = "May the agent run this?"
        self.needs_proof = False

    async def runtime(self) -> FakeRuntime:
        return self._runtime

    def identify_self(self) -> Caller:
        return self._own

    async def ask(self, request: str) -> AskPerson:
        self.asked.append(request)

        async def record_answer(option: str, who: str) -> None:
            self.answers.append((option, who))

        return AskPerson(request, self.question, OPTIONS, record_answer, needs_proof=self.needs_proof)


def serve(app: FakeApplication, session: SandboxSession | None = None) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Call tools of the toolset over the protocol: `call(tool, arguments, request context)` returns the result."""
    toolset = SandboxToolset(app, session or SandboxSession(), SANDBOX_TOOL_NAMES)  # type: ignore[arg-type]  # the part that is used
    tools = ServedTools(ToolTable(TOOLS, lambda: toolset), program=app.program, ask=app.ask, own=app.identify_self())
    protocol = Protocol(Identity("x", "1"), tools, RequestStates(lambda: FixedKeys(b"k" * 32)))

    async def call(tool: str, arguments: Any = None, request: RequestContext | None = None) -> dict[str, Any]:
        params = {"name": tool, "arguments": {} if arguments is None else arguments}
        return await protocol.handle("tools/call", params, request or RequestContext())

    return call
