"""Carries out the tool calls of runtime sessions.

Validate the arguments, look (`prepare`), decide, and where a person has to be asked, wait for the answer. Then commit the
intent, have the effect, commit the result. After a crash between the two commits the record shows a call without a result, and
nothing repeats it. An approval is used up in the commit of the intent: of two calls at once only one can commit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.errors import (
    Command,
    DocumentConflict,
    FidelioError,
    Hint,
    RequestClosed,
    RuntimeProblem,
    SandboxError,
    SessionNotFound,
    ToolRefused,
    UsageProblem,
)
from fidelio.ids import new_id
from fidelio.inbox import PROVEN, expire_request
from fidelio.locks import KeyedLock
from fidelio.runtime import events as e
from fidelio.runtime.artifacts import write_artifacts
from fidelio.runtime.journal import ApprovalChanged, Journal
from fidelio.runtime.memory_stores.mounting import TYPE as MEMORY_STORE
from fidelio.runtime.memory_stores.mounting import sync_stores
from fidelio.runtime.permissions.approvals import bind_to_proof, describe_waiting, digest_call, request_approval
from fidelio.runtime.permissions.policy import decide, find_policy, takes_command
from fidelio.runtime.record import ApprovalRecord
from fidelio.runtime.secrets import compute_keyed_digest
from fidelio.runtime.specs import build_spec
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.catalogue import NO_EXTRA, ExtraTool, ResolvedCall, resolve_call
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import (
    HIDDEN,
    NO_WAKE,
    SANDBOX_GROUPS,
    CallOrigin,
    Implementation,
    LoadedRuntime,
    Preparation,
    RuntimeContext,
    ToolCall,
    ToolDefinition,
    ToolResult,
    event,
)
from fidelio.sandbox.commands.projection import Projection, project
from fidelio.sandbox.model import SandboxSpec

WAIT_SECONDS = 45.0
# A call is decided again after an answer, and when another call used the approval first.
_MAX_ROUNDS = 8
# What a tool raises to refuse a call. Anything else is a defect and is not hidden in a result.
_REFUSALS = (RuntimeProblem, SandboxError, UsageProblem)
# The tools whose results a tool that runs commands shows in place of those of a command that only reads.
READERS = frozenset({"read", "glob", "grep", "bash"})
# The specification of a call that is refused before its sandbox is known.
NO_SANDBOX = SandboxSpec("", "", ())


class Finished(msgspec.Struct, frozen=True):
    """A call that was carried out, or refused (`is_error`)."""

    output: Mapping[str, Any]
    is_error: bool = False
    images: tuple[Mapping[str, Any], ...] = ()


class WaitingForPerson(msgspec.Struct, frozen=True):
    """A call that waits for the answer to a request. Nothing was executed."""

    request: str
    output: Mapping[str, Any]


CallOutcome: TypeAlias = Finished | WaitingForPerson


class Calls:
    """Carries out tool calls."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self._journal = Journal(context)
        self._syncing = KeyedLock()

    async def carry_out(
        self,
        session: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        tools: frozenset[str],
        waits: bool = True,
        origin: CallOrigin = NO_WAKE,
        extra: Mapping[str, ExtraTool] = NO_EXTRA,
    ) -> CallOutcome:
        """Carry out a call. `waits`: a call that repeats an open request waits for the answer.

        `origin`: the call of a model, which is on record. `extra`: tools of this session alone, such as those of MCP servers.
        """
        for _ in range(_MAX_ROUNDS):
            loaded = await self._load(session)
            try:
                _check_input(tool, origin)
                resolved = resolve_call(tool, arguments, tools, extra)
            except _REFUSALS as error:
                return await self._refuse(loaded, tool, arguments, tools, error, origin)
            try:
                return await self._attempt(loaded, resolved, tools, waits=waits, origin=origin)
            except ApprovalChanged:
                continue
        busy = ToolRefused("Other calls changed this session all the time.", reason="busy", retryable=True)
        return await self._refuse(await self._load(session), tool, arguments, tools, busy, origin)

    async def _load(self, session: str) -> LoadedRuntime:
        loaded = await self._context.unit.load(session)
        refuse_store(loaded)
        if loaded.record.status == "terminated":
            erase = Command("sessions", "--delete", session)
            raise SessionNotFound(
                f"Session {session} has ended.", remedy=Hint("Use another name, or free this one with ", erase, ".")
            )
        return loaded

    async def _attempt(
        self, loaded: LoadedRuntime, resolved: ResolvedCall, tools: frozenset[str], *, waits: bool, origin: CallOrigin
    ) -> CallOutcome:
        call = self._begin(loaded, resolved.definition, tools, origin)
        try:
            if resolved.definition.group in SANDBOX_GROUPS and not resolved.implementation.is_elsewhere:
                call.spec = await build_spec(self._context, loaded)
            preparation = await resolved.implementation.prepare(call, resolved.arguments)
        except _REFUSALS as error:
            return await self._finish(call, resolved, describe_error(error))
        command = preparation.command if takes_command(resolved.definition) else ""
        is_auto = find_policy(resolved.definition, call.record, resolved.action) == "auto"
        render = resolved.implementation.render
        readers = tools if render is None else READERS
        projection = _project(command, preparation.cwd or call.record.shell.cwd, readers) if is_auto else None
        is_read_only, now = projection is not None, self._context.clock()
        decision = decide(resolved.definition, call.record, command, is_read_only=is_read_only, now=now, action=resolved.action)
        if origin.is_repeat and not (resolved.is_read_only or resolved.definition.repeatable):
            return await self._ask(call, resolved, _note_repeat(preparation), waits=waits)
        if decision.access == "project" and projection is not None:
            inner = resolve_call(projection.tool, projection.arguments, readers)
            inner = replace(inner, name=resolved.name, called_with=resolved.called_with)
            if render is not None:
                inner = replace(inner, implementation=_render_text(inner.implementation, render))
            return await self._attempt(call.session, inner, tools, waits=waits, origin=origin)
        if decision.access == "allow":
            return await self._run(call, resolved, preparation, None)
        return await self._ask(call, resolved, preparation, waits=waits)

    async def _ask(self, call: ToolCall, resolved: ResolvedCall, preparation: Preparation, *, waits: bool) -> CallOutcome:
        if find_policy(resolved.definition, call.record, resolved.action) == PROVEN:
            preparation = bind_to_proof(preparation)
        digest = digest_call(
            resolved.action or resolved.definition.name, self._digest_secrets(call, resolved), call.record, preparation
        )
        approval = call.record.find_approval(digest, call.tool_use)
        if approval is None:
            return await self._open_request(call, resolved, preparation, digest)
        if approval.state != "denied" and approval.expires <= self._context.clock():
            return await self._end_approval(call, resolved, approval, "expired" if approval.state == "open" else "unused")
        if approval.state == "open":
            if waits and await self._wait_for_answer(approval.request):
                raise ApprovalChanged
            return WaitingForPerson(approval.request, describe_waiting(approval, resolved.name))
        if approval.state == "denied":
            return await self._end_approval(call, resolved, approval, "denied")
        return await self._run(call, resolved, preparation, approval)

    def _digest_secrets(self, call: ToolCall, resolved: ResolvedCall) -> dict[str, Any]:
        """The arguments with keyed digests for secret values: what is stored of the call must not help to guess them."""
        plain: dict[str, Any] = msgspec.to_builtins(resolved.arguments)
        for name in resolved.definition.secrets:
            plain[name] = compute_keyed_digest(self._context.open_keys(), "approval", call.session.id, str(plain[name]))
        return plain

    async def _open_request(
        self, call: ToolCall, resolved: ResolvedCall, preparation: Preparation, digest: str
    ) -> WaitingForPerson:
        cwd, now = preparation.cwd or call.record.shell.cwd, self._context.clock()
        new = request_approval(
            resolved.definition, resolved.arguments, preparation, call.spec, call=call, digest=digest, cwd=cwd, now=now
        )
        await self._journal.open_request(call, digest, new.request, new.event)
        await write_artifacts(call)
        return WaitingForPerson(new.request.id, describe_waiting(call.record.approvals[new.request.id], resolved.name))

    async def _wait_for_answer(self, request: str) -> bool:
        """Wait until the request is closed; False if it is still open after the longest wait of a call."""
        ledger = self._context.ledger
        position = await ledger.wait(after=0, timeout=0)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while (await ledger.request(request)).state == "open":
                    position = await ledger.wait(after=position, timeout=WAIT_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _end_approval(self, call: ToolCall, resolved: ResolvedCall, approval: ApprovalRecord, why: str) -> Finished:
        """Deliver a denial or an expiry, once: the same call afterwards is a new request."""
        call.noted.append(event(e.APPROVAL_ENDED, {"request": approval.request, "reason": why}))
        message = f' They wrote: "{approval.message}".' if approval.message else ""
        if call.origin.is_repeat:
            message += " An earlier attempt of this call began, and it is not known how it ended: look before you go on."
        sentences = {
            "denied": f"A person denied this call; nothing was executed.{message}",
            "expired": "Nobody answered the request within 24 hours, which counts as a denial; nothing was executed.",
            "unused": "A person allowed this call, but it was not made within 24 hours of the request; nothing was executed.",
        }
        reason = "permission_denied" if why == "denied" else "permission_expired"
        error = ToolRefused(sentences[why], remedy="Find another way, or ask the person.", reason=reason)
        closes = (expire_request(approval.request),) if why == "expired" else ()
        result = describe_error(error)
        try:
            await self._journal.commit_result(call, resolved.name, resolved.called_with, result, closes=closes)
        except RequestClosed as closed:
            # Somebody answered, before the request expired, while this call looked at it.
            raise ApprovalChanged from closed
        await write_artifacts(call)
        return Finished(result.output, is_error=True)

    async def _run(
        self, call: ToolCall, resolved: ResolvedCall, preparation: Preparation, approval: ApprovalRecord | None
    ) -> Finished:
        if resolved.implementation.is_elsewhere:
            await self._journal.assign_to_worker(call, approval)
            return Finished({"status": "handed_over"})
        if not resolved.is_read_only or approval is not None:
            await self._journal.commit_intent(call, resolved.name, resolved.called_with, preparation, approval)
        else:
            call.noted.extend(preparation.events)
            call.noted_blobs.extend(preparation.blobs)
        try:
            result = await resolved.implementation.run(call, resolved.arguments, preparation)
        except _REFUSALS as error:
            result = describe_error(error)
        await call.note_connections()
        if call.sandbox is not None and not resolved.is_read_only:
            call.has_changed = True
            await self._sync_stores(call)
        if call.problems:
            result = replace(result, output={**result.output, "memoryStoreProblems": call.problems})
        return await self._finish(call, resolved, result)

    async def _sync_stores(self, call: ToolCall) -> None:
        """Bring the memory stores and their directories in the sandbox to the same state. Calls that only read run at once."""
        if not any(resource.type == MEMORY_STORE for resource in call.record.resources):
            return
        await self._syncing.acquire(call.session.id)
        try:
            await sync_stores(call)
        finally:
            self._syncing.release(call.session.id)

    async def _finish(self, call: ToolCall, resolved: ResolvedCall, result: ToolResult) -> Finished:
        try:
            await self._journal.commit_result(call, resolved.name, resolved.called_with, result)
        except DocumentConflict as conflict:
            # The write of a shared file is this very commit: another session was faster, and nothing of it is stored.
            refused = ToolRefused(conflict.sentence, remedy="Compare again.", reason="precondition_failed", retryable=True)
            result = describe_error(refused)
            await self._journal.commit_result(call, resolved.name, resolved.called_with, result)
        await write_artifacts(call)
        return Finished(result.output, is_error=result.is_error, images=result.images)

    def _begin(self, loaded: LoadedRuntime, definition: ToolDefinition, tools: frozenset[str], origin: CallOrigin) -> ToolCall:
        name = origin.tool_use or new_id("toolu_", 20)
        call = ToolCall(self._context, loaded, name, definition, NO_SANDBOX, tools)
        call.origin, call.build_spec, call.on_start = origin, build_spec, self._sync_stores
        return call

    async def _refuse(
        self,
        loaded: LoadedRuntime,
        tool: str,
        arguments: Mapping[str, Any],
        tools: frozenset[str],
        error: FidelioError,
        origin: CallOrigin,
    ) -> Finished:
        """Record a call that no tool carries out: an unknown name, or wrong arguments."""
        call = self._begin(loaded, DEFINITIONS.get(tool, DEFINITIONS["sandbox_execute"]), tools, origin)
        result = describe_error(error)
        # Nobody knows what the arguments of an unknown tool are; one of a misspelt tool may be a secret.
        known = arguments if tool in DEFINITIONS else dict.fromkeys(arguments, HIDDEN)
        await self._journal.commit_result(call, tool[:200], known, result)
        return Finished(result.output, is_error=True)


def _check_input(tool: str, origin: CallOrigin) -> None:
    if origin.problem:
        raise ToolRefused(
            f"The arguments of {tool:.100} cannot be read: {origin.problem}",
            remedy="Send valid JSON.",
            reason="invalid_arguments",
        )


def _note_repeat(preparation: Preparation) -> Preparation:
    """The approval of a repetition is bound to it: it is no approval of a first attempt."""
    about = "This call began before a process died, and it is not known how it ended. Allow: it is carried out again."
    return replace(preparation, bound={**preparation.bound, "repeat": True}, about=(*preparation.about, about))


def _render_text(implementation: Implementation, render: Callable[[ToolResult], ToolResult]) -> Implementation:
    async def run(call: ToolCall, arguments: Any, preparation: Preparation) -> ToolResult:
        return render(await implementation.run(call, arguments, preparation))

    return replace(implementation, run=run)


def _project(command: str, cwd: str, tools: frozenset[str]) -> Projection | None:
    """The read-only call that does the same as the command, if the caller has that tool."""
    found = project(command, cwd) if command else None
    return found if found is not None and found.tool in tools else None


def describe_error(error: FidelioError) -> ToolResult:
    """The result of a call that was refused or failed. `retryable`: the same call may succeed later."""
    reason = error.reason or error.code
    retryable = isinstance(error, RuntimeProblem) and error.retryable
    body = {"code": reason, "message": str(error), "retryable": retryable}
    more = error.output if isinstance(error, ToolRefused) else {}
    return ToolResult(output={"ok": False, "error": body, **more}, is_error=True)
