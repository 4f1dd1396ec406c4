"""What is sent to sessions: messages, confirmations, results of custom tools, outcomes, an interrupt.

Everything that can be checked is checked before the first commit. Confirmations are answers to requests and are committed one
by one, first; everything else of a call is one commit, so that it is stored as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.errors import Command, Hint, PersonNeeded, RequestClosed, SessionNotFound, UsageProblem
from fidelio.inbox import ClosedRequest, Inbox, assurance_of, dismiss_request
from fidelio.ledger.long_text import json_text
from fidelio.ledger.model import Event, NewEvent
from fidelio.ledger.unit_of_work import CommittedSession, SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.decisions import plan_outcome
from fidelio.runtime.outcomes.parsing import Author
from fidelio.runtime.record import PERSONAL
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.content import check_content, store_content
from fidelio.runtime.wakes.ending import wake_job
from fidelio.runtime.wakes.record import OpenCall, WakeRecord

MAX_SENT = 100
_TYPES = (e.USER_MESSAGE, e.USER_INTERRUPT, e.USER_CONFIRMATION, e.USER_TOOL_RESULT, e.USER_OUTCOME)


class _Checked(msgspec.Struct, frozen=True):
    """An event that was checked, with the texts that it refers to."""

    event: NewEvent
    blobs: tuple[bytes, ...] = ()

    @property
    def answers(self) -> str:
        """The call that it is the answer to."""
        return str(self.event.body.get("tool_use_id") or self.event.body.get("custom_tool_use_id") or "")


class Sending:
    """Sends events to sessions."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self._inbox = Inbox(context.ledger, clock=context.clock)

    async def send(self, session: str, events: Sequence[Mapping[str, Any]], *, by: str, channel: str) -> tuple[Event, ...]:
        """Send events in the vendors' form. They are checked before any of them is stored."""
        if not events or len(events) > MAX_SENT:
            raise UsageProblem(f"{len(events)} events were sent.", remedy=f"Send 1 to {MAX_SENT}.")
        loaded = await self._load(session)
        checked = [await self._check(loaded, _read_spelling(loaded.record.wakes, event), by, channel) for event in events]
        _refuse_repeated(checked)
        confirmations = [item.event for item in checked if item.event.type == e.USER_CONFIRMATION]
        for confirmation in confirmations:
            await self._check_request(confirmation, channel)
        answered = iter([await self._confirm(confirmation, by, channel) for confirmation in confirmations])
        appended = iter(await self._append(session, [item for item in checked if item.event.type != e.USER_CONFIRMATION]))
        return tuple(next(answered if item.event.type == e.USER_CONFIRMATION else appended) for item in checked)

    async def _load(self, session: str) -> LoadedRuntime:
        loaded = await self._context.unit.load(session)
        refuse_store(loaded)
        _refuse_ended(loaded)
        if not loaded.record.agent_version:
            raise UsageProblem(
                f"Session {session} has no model: an external client uses its tools.", remedy="Send to a session of an agent."
            )
        return loaded

    async def _check(self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str, channel: str) -> _Checked:
        type_ = event.get("type")
        if type_ == e.USER_MESSAGE:
            stored = store_content(check_content(event.get("content"), "The message"))
            new = NewEvent(type=type_, body={"content": stored.content}, actor=by, blobs=stored.digests)
            return _Checked(new, stored.blobs)
        if type_ == e.USER_INTERRUPT:
            return _Checked(NewEvent(type=type_, body={}, actor=by))
        if type_ == e.USER_CONFIRMATION:
            return _Checked(self._check_confirmation(loaded, event, by))
        if type_ == e.USER_TOOL_RESULT:
            return self._check_result(loaded, event, by)
        if type_ == e.USER_OUTCOME:
            # What another agent sends is no person's outcome.
            author: Author = "agent" if channel == "relayed" else "person"
            defined = await plan_outcome(loaded, event, author=author, by=by)
            return _Checked(NewEvent(type=type_, body=defined.body, actor=by))
        raise UsageProblem(f"{type_!r:.80} cannot be sent.", remedy=f"Send one of: {', '.join(_TYPES)}.")

    def _check_confirmation(self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str) -> NewEvent:
        name, result = event.get("tool_use_id"), event.get("result")
        if result not in ("allow", "deny"):
            raise UsageProblem(f"{result!r:.80} is no result of a confirmation.", remedy="Use allow or deny.")
        call = loaded.record.wakes.find_call(str(name))
        approval = loaded.record.approvals.get(call.request) if call is not None else None
        if approval is None or approval.state != "open":
            raise UsageProblem(
                f"The call {name!r:.80} does not wait for a confirmation.", remedy="The idle event names the calls that wait."
            )
        body = {"tool_use_id": name, "result": result, "deny_message": str(event.get("deny_message") or "")[:20_000]}
        return NewEvent(type=e.USER_CONFIRMATION, body={**body, "request": approval.request}, actor=by)

    def _check_result(self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str) -> _Checked:
        name = event.get("custom_tool_use_id")
        call = loaded.record.wakes.find_call(str(name))
        if call is None or call.state != "custom":
            raise UsageProblem(
                f"No custom tool call {name!r:.80} waits for a result.", remedy="The idle event names the calls that wait."
            )
        stored = store_content(check_content(event.get("content") or "(empty)", "The result"))
        body = {"custom_tool_use_id": name, "content": stored.content, "is_error": bool(event.get("is_error"))}
        return _Checked(NewEvent(type=e.USER_TOOL_RESULT, body=body, actor=by, blobs=stored.digests), stored.blobs)

    async def _check_request(self, confirmation: NewEvent, channel: str) -> None:
        """Refuse an answer that the inbox would refuse, while nothing is stored yet."""
        request = await self._context.ledger.request(str(confirmation.body["request"]))
        if assurance_of(channel) not in PERSONAL:
            raise PersonNeeded(
                f"Request {request.id} asks whether a tool may run. Only a person may answer it.",
                remedy=Hint("A person answers with ", Command("answer", request.id, "allow"), "."),
                request=request.id,
            )
        if request.state != "open":
            raise RequestClosed(request.id, request.state)
        if request.expires_at is not None and self._context.clock() >= request.expires_at:
            raise RequestClosed(request.id, "expired")

    async def _confirm(self, new: NewEvent, by: str, channel: str) -> Event:
        """Answer the request of a call. The confirmation is an event of its own, in the same transaction."""
        request, text = str(new.body["request"]), str(new.body["deny_message"])
        body = {key: value for key, value in new.body.items() if key != "request"}
        event = NewEvent(type=new.type, body=body, actor=by)
        option = "allow" if new.body["result"] == "allow" else "deny"
        answered = await self._inbox.answer(request, option, text=text, by=by, channel=channel, events=(event,))
        if answered.repeated:
            raise RequestClosed(request, answered.request.state)
        return answered.events[-1]

    async def _append(self, session: str, items: Sequence[_Checked]) -> tuple[Event, ...]:
        """Commit what was sent as a whole; returns the events that were sent, without those that follow from them."""
        if not items:
            return ()
        events = tuple(event for item in items for event in _expand(item.event))
        blobs = tuple(blob for item in items for blob in item.blobs)
        results = [item.event for item in items if item.event.type == e.USER_TOOL_RESULT]

        def append(current: LoadedRuntime) -> SessionDecision[None]:
            _refuse_ended(current)
            requests = tuple(request for result in results for request in _close_custom(current, result))
            return SessionDecision(None, events=events, blobs=blobs, jobs=wake_job(session), requests=requests)

        done = await self._context.unit.update(session, append)
        assert isinstance(done, CommittedSession)
        return tuple(event for event in done.events if event.type != e.OUTCOME_DEFINED)


def _expand(new: NewEvent) -> Iterator[NewEvent]:
    """The event, and what follows from it."""
    yield new
    if new.type == e.USER_OUTCOME:
        yield NewEvent(type=e.OUTCOME_DEFINED, body=new.body, actor=new.actor)


def _refuse_ended(session: LoadedRuntime) -> None:
    record = session.record
    if record.status == "terminated" or record.is_archived:
        state = "has ended" if record.status == "terminated" else "is archived"
        raise SessionNotFound(f"Session {session.id} {state}.", remedy="Begin another session.")


def _refuse_repeated(items: Sequence[_Checked]) -> None:
    """Refuse two answers to the same call: only the first could be stored."""
    answered = [item.answers for item in items if item.answers]
    if len(answered) != len(set(answered)):
        raise UsageProblem("Several answers to the same call were sent.", remedy="Send one answer for each call.")


def _read_spelling(wakes: WakeRecord, event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The event in the vendors' form. Messages, confirmations and results may also be spelt as in our own protocol.

    That is `message` for a text, `requestId`, `allowed` and `note` for a confirmation, `requestId` and `output` for a result.
    """
    type_ = event.get("type")
    if type_ == e.USER_MESSAGE and "content" not in event:
        return {"type": type_, "content": event.get("message")}
    if type_ == e.USER_CONFIRMATION and "requestId" in event and "tool_use_id" not in event:
        if not isinstance(allowed := event.get("allowed"), bool):
            raise UsageProblem(f"{allowed!r:.80} is no answer to a request.", remedy="Set allowed to true or false.")
        call = _find_asking(wakes, event)
        return {"type": type_, "tool_use_id": call, "result": "allow" if allowed else "deny", "deny_message": event.get("note")}
    if type_ == e.USER_TOOL_RESULT and "requestId" in event and "custom_tool_use_id" not in event:
        output = event.get("output")
        content = output if isinstance(output, str) else json_text(output)
        return {"type": type_, "custom_tool_use_id": _find_asking(wakes, event), "content": content}
    return event


def _find_asking(wakes: WakeRecord, event: Mapping[str, Any]) -> str:
    """The call that waits for a request. A tool that is named must be the tool that asks."""
    request, tool = event.get("requestId"), event.get("toolName")
    call: OpenCall | None = next((call for call in wakes.blocking if request in (call.request, call.id)), None)
    if call is None or not request:
        raise UsageProblem(f"No call waits for the request {request!r:.80}.", remedy="The status of the session names them.")
    if tool not in (None, call.name):
        raise UsageProblem(f"The request {request} is of the tool {call.name}, not {tool!r:.80}.", remedy="Look at it again.")
    return call.id


def _close_custom(current: LoadedRuntime, new: NewEvent) -> tuple[ClosedRequest, ...]:
    """The request that shows a custom tool in the inbox is answered by its result."""
    call = current.record.wakes.find_call(str(new.body["custom_tool_use_id"]))
    if call is None or call.state != "custom":
        raise UsageProblem("The custom tool call has a result already.", remedy="Each call takes one result.")
    return (dismiss_request(call.request, by=new.actor),) if call.request else ()
