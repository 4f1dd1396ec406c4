"""The commits of a tool call: its request for a person, its intent, its result, its refusal.

The intent of a call with an effect is committed before the effect, its result after it. A call that only reads is committed as
a whole afterwards. What happened on the way (`ToolCall.noted`) goes with the next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from fidelio.errors import SessionNotFound
from fidelio.inbox import NewRequest, RequestChange
from fidelio.ledger.long_text import StoredText, json_text, store_text
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, RuntimeContext, ToolCall, ToolResult, event
from fidelio.runtime.wakes.content import StoredContent, store_content


class ApprovalChanged(Exception):
    """The approval was used, ended or requested by another call between the decision and the commit: decide again."""


class Journal:
    """Commits what a call does to its session."""

    def __init__(self, context: RuntimeContext) -> None:
        self._unit, self._sandboxes = context.unit, context.sandboxes

    async def open_request(self, call: ToolCall, digest: str, request: NewRequest, requested: NewEvent) -> None:
        def ask_once(current: LoadedRuntime) -> SessionDecision[None]:
            # Of two equal calls at once only one asks.
            if current.record.find_approval(digest, call.tool_use) is not None:
                raise ApprovalChanged
            return SessionDecision(None, events=(*call.noted, requested), requests=(request,))

        await self._update(call, ask_once)

    async def commit_intent(
        self, call: ToolCall, name: str, arguments: Any, preparation: Preparation, approval: ApprovalRecord | None
    ) -> None:
        """Commit that the call begins. It uses up the approval, which only a single call can commit."""
        use, blobs = _describe_begin(call, name, arguments, approval)
        events = (*call.noted, use, *preparation.events)

        def begin(current: LoadedRuntime) -> SessionDecision[None]:
            used: tuple[NewEvent, ...] = ()
            if approval is not None:
                used = (_use_approval(current, approval, call.id),)
            return SessionDecision(None, events=(*used, *events), blobs=(*blobs, *preparation.blobs))

        await self._update(call, begin)
        call.has_intent = True

    async def assign_to_worker(self, call: ToolCall, approval: ApprovalRecord | None) -> None:
        """Commit that a worker of the user may carry out the call. It uses up the approval."""

        def begin(current: LoadedRuntime) -> SessionDecision[None] | None:
            if current.record.wakes.find_call(call.id) is None:
                # The worker has seen the answer of the person too, and was faster.
                return None
            used = () if approval is None else (_use_approval(current, approval, call.id),)
            handed = event(e.CALL_HANDED_OVER, {"tool_use_id": call.id, "wake_id": call.wake})
            return SessionDecision(None, events=(*call.noted, *used, handed))

        await self._update(call, begin)

    async def commit_result(
        self, call: ToolCall, name: str, arguments: Any, result: ToolResult, *, closes: tuple[RequestChange, ...] = ()
    ) -> None:
        """Commit the result, and the beginning too if it is not on record."""
        stored, images = _store_result(result)
        wake = {"wake_id": call.wake} if call.wake else {}
        form = {} if result.text is None else {"form": "text"}
        pictures = {"images": images.content} if images.content else {}
        body = {"tool_use_id": call.id, "name": name, "is_error": result.is_error, "result": stored.body}
        ended = (
            event(e.TOOL_RESULT, {**body, **form, **pictures, **wake}, blobs=(*stored.digests, *images.digests)),
            *_complete_span(call, name, is_error=result.is_error),
        )
        begun, blobs = ((), ()) if call.has_intent else _describe_begun(call, name, arguments)
        decision = SessionDecision(
            None,
            blobs=(*call.noted_blobs, *blobs, *result.blobs, *stored.blobs, *images.blobs),
            documents=result.documents,
            linked=result.linked,
            requests=closes,
        )

        def end(current: LoadedRuntime) -> SessionDecision[None]:
            return replace(decision, events=(*_drop_known(current.record, call.noted), *begun, *result.events, *ended))

        # What has happened is recorded also after the end of the session. A commit that is itself the effect does not happen.
        await self._update(call, end, is_over=call.has_intent and not (result.documents or result.linked))

    async def _update(
        self, call: ToolCall, decide: Callable[[LoadedRuntime], SessionDecision[None] | None], *, is_over: bool = False
    ) -> None:
        """Commit. Raises `SessionNotFound` if the session has ended, unless the effect `is_over`.

        The call may have started the sandbox again after the end had stopped it, so it is stopped here.
        """

        def decide_alive(current: LoadedRuntime) -> SessionDecision[None] | None:
            if current.record.status == "terminated" and not is_over:
                raise SessionNotFound(f"Session {current.id} has ended.", remedy="Begin another session.")
            return decide(current)

        try:
            call.session = await self._unit.update(call.session, decide_alive, assignment=call.origin.assignment)
        except SessionNotFound:
            await self._sandboxes.stop(call.session.id)
            raise
        call.noted, call.noted_blobs = [], []
        if call.session.record.status == "terminated":
            await self._sandboxes.stop(call.session.id)


def _use_approval(current: LoadedRuntime, approval: ApprovalRecord, tool_use: str) -> NewEvent:
    found = current.record.approvals.get(approval.request)
    if found is None or found.state != "allowed":
        raise ApprovalChanged
    return event(e.APPROVAL_USED, {"request": approval.request, "tool_use_id": tool_use})


def _store_result(result: ToolResult) -> tuple[StoredText, StoredContent]:
    text = json_text(result.output) if result.text is None else result.text
    return store_text(text), store_content(result.images)


def _drop_known(record: RuntimeRecord, events: Iterable[NewEvent]) -> Iterator[NewEvent]:
    """The events without the connections that another call has recorded meanwhile."""
    seen = record.sandbox
    return (
        event
        for event in events
        if event.type != e.NETWORK_USED or event.body["log"] != seen.network_log or event.body["number"] > seen.network_seen
    )


def _describe_begun(call: ToolCall, name: str, arguments: Any) -> tuple[tuple[NewEvent, ...], tuple[bytes, ...]]:
    use, blobs = _describe_begin(call, name, arguments, None)
    return (use,), blobs


def _describe_begin(
    call: ToolCall, name: str, arguments: Any, approval: ApprovalRecord | None
) -> tuple[NewEvent, tuple[bytes, ...]]:
    """The event that a call begins. That a model wants it is on record already, so only its span begins."""
    if not call.wake:
        return _describe_use(call, name, arguments, approval)
    allowed = {} if approval is None else {"request": approval.request, "allowed_by": approval.by}
    body = {
        "span_id": call.id,
        "parent_span_id": call.wake,
        "span_kind": "tool",
        "name": name,
        "tool_use_id": call.id,
        "wake_id": call.wake,
        **allowed,
    }
    return event(e.SPAN_STARTED, body), ()


def _complete_span(call: ToolCall, name: str, *, is_error: bool) -> tuple[NewEvent, ...]:
    if not call.wake:
        return ()
    body = {
        "span_id": call.id,
        "parent_span_id": call.wake,
        "span_kind": "tool",
        "name": name,
        "result": "error" if is_error else "success",
        "wake_id": call.wake,
    }
    return (event(e.SPAN_COMPLETED, body),)


def _describe_use(
    call: ToolCall, name: str, arguments: Any, approval: ApprovalRecord | None
) -> tuple[NewEvent, tuple[bytes, ...]]:
    stored = store_text(json_text(call.definition.hide_secrets(arguments)))
    body: Mapping[str, Any] = {
        "id": call.id,
        "name": name,
        "input": stored.body,
        "permission": "allow" if approval is None else "ask",
        **({} if approval is None else {"request": approval.request, "allowed_by": approval.by}),
    }
    return event(e.TOOL_USE, body, blobs=stored.digests), stored.blobs
