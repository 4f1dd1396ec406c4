"""Handler of the toolsets `sandbox` and `runtime`: every tool is a call of the runtime service.

Translation only: the service validates, asks and records. A refused call is a result with `isError` whose text is JSON with a
stable code, as a model expects it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.errors import Command, FidelioError, RuntimeProblem, SessionNotFound, UsageProblem
from fidelio.inbox.inbox import LONGEST_IN_FORM
from fidelio.runtime.calls import Finished, WaitingForPerson
from fidelio.runtime.project import parse_mount
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.surfaces.mcp.dialects import SandboxSession
from fidelio.toolkit import CallContext, Done, Outcome, Tool, ToolHandlers, unknown_agent


class SandboxToolset(ToolHandlers):
    """Carries out the calls of all tools. `session` is the session of this server; over HTTP a request may name another.

    `tools` are the names that this server offers: a result suggests no others.
    """

    def __init__(self, app: Application, session: SandboxSession, tools: frozenset[str]) -> None:
        self._app = app
        self._session = session
        self._tools = tools
        self._session_ids: dict[str, str] = {}
        self._opening = asyncio.Lock()
        self._left_to_inbox: set[str] = set()

    async def call(self, tool: Tool[Any], arguments: Mapping[str, Any], context: CallContext) -> Outcome:
        if not tool.read_only and (await context.identify()).kind == "unknown":
            raise unknown_agent()
        service = await self._app.runtime()
        name = context.session or self._session.name
        await self._check_mount(name)
        session = await self._open(service, name)
        # A client that can ask its user does so at once. Another repeats the call, which then waits for the inbox.
        asks = context.can_elicit and not await context.explain_silence()
        try:
            outcome = await service.call(session, tool.name, arguments, tools=self._tools, waits=not asks)
            if isinstance(outcome, WaitingForPerson) and outcome.request in self._left_to_inbox:
                # Its question is too long for the client. The call is repeated, so it waits for the inbox.
                outcome = await service.call(session, tool.name, arguments, tools=self._tools, waits=True)
        except SessionNotFound:
            # It was deleted or ended while this server runs: the next call looks its name up again.
            self._session_ids.pop(name, None)
            raise
        if isinstance(outcome, Finished):
            return render_output(outcome.output, is_error=outcome.is_error)
        return await self._ask(outcome, context)

    async def _check_mount(self, name: str) -> None:
        """Refuse a mount that is wrong, or whose directory no longer exists. A model does not get paths of the host."""
        mount = self._session.mount if name == self._session.name else None
        # A copy that was made does not need its source.
        if mount is None or (name in self._session_ids and not mount.endswith((":ro", ":rw"))):
            return
        try:
            await asyncio.to_thread(parse_mount, mount, Path(find_project()))
        except UsageProblem:
            # Without its cause, which names the path.
            raise UsageProblem(
                "The directory of this server's option --mount is missing, or cannot be mounted in this way.",
                remedy="Ask the person who has set up this server to correct --mount.",
            ) from None

    def describe_failure(self, error: FidelioError, context: CallContext) -> Done:
        retryable = isinstance(error, RuntimeProblem) and error.retryable
        body = {"code": error.reason or error.code, "message": context.render(error.text), "retryable": retryable}
        return render_output({"ok": False, "error": body}, is_error=True)

    async def _open(self, service: RuntimeService, name: str) -> str:
        if name not in self._session_ids:
            async with self._opening:
                self._session_ids[name] = self._session_ids.get(name) or await service.open_session(self._describe(name))
        return self._session_ids[name]

    def _describe(self, name: str) -> SessionRequest:
        wanted = self._session
        mount = wanted.mount if name == wanted.name else None
        if mount is not None and mount.endswith(":rw") and self._app.identify_self().is_agent:
            raise UsageProblem(
                "An agent cannot mount a directory of this machine for writing.",
                remedy="Mount it as a copy, and let a person apply the changes.",
            )
        environment, project = wanted.environment, find_project()
        return SessionRequest(name=name, agent=wanted.agent, project=project, environment=environment, mount=mount)

    async def _ask(self, waiting: WaitingForPerson, context: CallContext) -> Outcome:
        """Put the request to the person at the client; the reply for a client that cannot ask says how to answer.

        A form cuts a long question, and nobody should allow what they have not seen: it is left to the command line. What
        must be signed is left to the web page.
        """
        question = await context.ask(waiting.request)
        command = Command("open") if question.needs_proof else Command("answer", waiting.request, "allow")
        how = context.render(command).strip("`")
        reply = render_output({**waiting.output, "answerWith": how})
        if len(question.message) <= LONGEST_IN_FORM and not question.needs_proof:
            return replace(question, waiting_reply=reply)
        self._left_to_inbox.add(waiting.request)
        return reply


def find_project() -> str:
    """The project of this server: its working directory."""
    try:
        return os.path.realpath(os.getcwd())  # noqa: PTH109  # the service takes paths as text
    except OSError as error:
        raise UsageProblem(
            "The working directory was deleted.", remedy="Start the server in a directory that exists."
        ) from error


def render_output(output: Mapping[str, Any], *, is_error: bool = False) -> Done:
    """A result as compact JSON: it fills a model's context."""
    return Done(msgspec.json.encode(output).decode(), is_error=is_error)
