"""What is sent to sessions: messages, confirmations, results of custom tools, outcomes, an interrupt.

Everything is checked before anything is stored, and all events of a call are one commit: either all of them are stored or none.
An answer to a call of a child is stored in the session of that child, in the same commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from fidelio.errors import Command, Hint, PersonNeeded, SessionNotFound, UsageProblem
from fidelio.ids import new_id
from fidelio.inbox import ClosedRequest, Inbox, PreparedAnswer, assurance_of, dismiss_request
from fidelio.ledger.long_text import json_text, store_text
from fidelio.ledger.model import Event, NewEvent
from fidelio.ledger.unit_of_work import CommittedSession, LinkedChange, LoadedSession, SessionDecision, blank_session
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.decisions import plan_outcome
from fidelio.runtime.outcomes.parsing import Author
from fidelio.runtime.reading import list_descendants
from fidelio.runtime.record import PERSONAL, RuntimeRecord
from fidelio.runtime.sessions import InitialEvents
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.content import check_content, store_content
from fidelio.runtime.wakes.ending import wake_job
from fidelio.runtime.wakes.record import OpenCall, WakeRecord
from fidelio.runtime.work.results import check_worker_result, use_approvals

MAX_SENT = 100
_TYPES = (
    *(e.USER_MESSAGE, e.USER_INTERRUPT, e.USER_CONFIRMATION, e.USER_TOOL_RESULT, e.USER_OUTCOME),
    *(e.SYSTEM_MESSAGE, e.WORKER_RESULT),
)
# The sessions that an event of a call goes to, by id, the named session first.
_Targets: TypeAlias = dict[str, LoadedRuntime]


class _Checked(msgspec.Struct, frozen=True):
    """An event that was checked, with the texts that it refers to, and the answer to a request that it is."""

    event: NewEvent
    session: str
    blobs: tuple[bytes, ...] = ()
    answer: PreparedAnswer | None = None

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
        """Send events in the vendors' form. They are checked before any of them is stored, and stored together."""
        if not events or len(events) > MAX_SENT:
            raise UsageProblem(f"{len(events)} events were sent.", remedy=f"Send 1 to {MAX_SENT}.")
        targets: _Targets = {session: await self._load(session)}
        routed = [(target, event) for event in events for target in await self._route(session, event, targets)]
        checked = [await self._check(targets[target], event, by, channel) for target, event in routed]
        _refuse_repeated(checked)
        return await self._commit(session, targets, checked)

    async def check_initial(self, events: Sequence[Mapping[str, Any]], *, by: str, channel: str) -> InitialEvents:
        """Check the messages and outcomes that a session begins with. `create_session` commits them."""
        blank: LoadedRuntime = LoadedSession(blank_session("", "runtime"), RuntimeRecord())
        for event in events:
            if event.get("type") not in (e.USER_MESSAGE, e.USER_OUTCOME):
                remedy = f"A session begins with {e.USER_MESSAGE} and {e.USER_OUTCOME}; send other events afterwards."
                raise UsageProblem(f"{event.get('type')!r:.80} cannot be an initial event.", remedy=remedy)
        checked = [await self._check(blank, event, by, channel) for event in events]
        expanded = tuple(event for item in checked for event in _expand(item))
        return InitialEvents(expanded, tuple(blob for item in checked for blob in item.blobs))

    async def _load(self, session: str) -> LoadedRuntime:
        loaded = await self._context.unit.load(session)
        refuse_store(loaded)
        _refuse_ended(loaded)
        if not loaded.record.agent_version:
            raise UsageProblem(
                f"Session {session} has no model: an external client uses its tools.", remedy="Send to a session of an agent."
            )
        return loaded

    async def _route(self, session: str, event: Mapping[str, Any], targets: _Targets) -> list[str]:
        """The sessions that an event is for: that of the call that it answers; an interrupt reaches the children too."""
        type_, thread = event.get("type"), event.get("thread")
        if type_ == e.USER_INTERRUPT:
            busy = [child.id for child in await self._load_children(session, targets) if _is_active(child.record)]
            if thread is None:
                return [session, *busy]
            if thread not in targets:
                raise UsageProblem("The thread is not in this session, or has ended.", remedy="Leave it out to interrupt all.")
            return [str(thread)]
        name = str(event.get("tool_use_id") or event.get("custom_tool_use_id") or "")
        if not name or targets[session].record.wakes.find_call(name) is not None:
            return [session]
        children = await self._load_children(session, targets)
        return [next((child.id for child in children if child.record.wakes.find_call(name) is not None), session)]

    async def _load_children(self, session: str, targets: _Targets) -> list[LoadedRuntime]:
        """The sessions below a session that accept events. They are read once for a call."""
        if len(targets) == 1:
            for child in await list_descendants(self._context, session):
                if child.record.status != "terminated" and not child.record.is_archived:
                    targets[child.id] = child
        return [loaded for id_, loaded in targets.items() if id_ != session]

    async def _check(self, loaded: LoadedRuntime, sent: Mapping[str, Any], by: str, channel: str) -> _Checked:
        event = _read_spelling(loaded.record.wakes, sent)
        type_ = event.get("type")
        if type_ in (e.USER_MESSAGE, e.SYSTEM_MESSAGE):
            _check_sender(type_, channel)
            stored = store_content(_check_blocks(type_, event.get("content")))
            new = NewEvent(type=type_, body={"content": stored.content}, actor=by, blobs=stored.digests)
            return _Checked(new, loaded.id, stored.blobs)
        if type_ == e.USER_INTERRUPT:
            return _Checked(NewEvent(type=type_, body={}, actor=by), loaded.id)
        if type_ == e.USER_CONFIRMATION:
            return await self._check_confirmation(loaded, event, by, channel)
        if type_ == e.USER_TOOL_RESULT:
            return self._check_result(loaded, event, by)
        if type_ == e.WORKER_RESULT:
            new, content = check_worker_result(loaded, event, by, channel)
            return _Checked(new, loaded.id, content.blobs)
        if type_ == e.USER_OUTCOME:
            return await _check_outcome(loaded, event, by, channel)
        raise UsageProblem(f"{type_!r:.80} cannot be sent.", remedy=f"Send one of: {', '.join(_TYPES)}.")

    async def _check_confirmation(self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str, channel: str) -> _Checked:
        name, result, message = event.get("tool_use_id"), event.get("result"), event.get("deny_message")
        if result not in ("allow", "deny"):
            raise UsageProblem(f"{result!r:.80} is no result of a confirmation.", remedy="Use allow or deny.")
        if result == "allow" and message:
            raise UsageProblem("deny_message was sent with the result allow.", remedy="Leave it out, or deny the call.")
        call = loaded.record.wakes.find_call(str(name))
        approval = loaded.record.approvals.get(call.request) if call is not None else None
        if approval is None or approval.state != "open":
            raise UsageProblem(
                f"The call {name!r:.80} does not wait for a confirmation.", remedy="The idle event names the calls that wait."
            )
        if assurance_of(channel) not in PERSONAL:
            raise PersonNeeded(
                f"Request {approval.request} asks whether a tool may run. Only a person may answer it.",
                remedy=Hint("A person answers with ", Command("answer", approval.request, "allow"), "."),
                request=approval.request,
            )
        text = str(message or event.get("note") or "")[:20_000]
        answer = await self._inbox.prepare_answer(approval.request, result, text=text, by=by, channel=channel)
        body = {"tool_use_id": name, "result": result, "deny_message": text}
        return _Checked(NewEvent(type=e.USER_CONFIRMATION, body=body, actor=by), loaded.id, answer=answer)

    def _check_result(self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str) -> _Checked:
        name = event.get("custom_tool_use_id")
        call = loaded.record.wakes.find_call(str(name))
        if call is None or call.state != "custom":
            raise UsageProblem(
                f"No custom tool call {name!r:.80} waits for a result.", remedy="The idle event names the calls that wait."
            )
        stored = store_content(check_content(event.get("content") or "(empty)", "The result"))
        body = {"custom_tool_use_id": name, "content": stored.content, "is_error": bool(event.get("is_error"))}
        new = NewEvent(type=e.USER_TOOL_RESULT, body=body, actor=by, blobs=stored.digests)
        return _Checked(new, loaded.id, stored.blobs)

    async def _commit(self, session: str, targets: _Targets, items: Sequence[_Checked]) -> tuple[Event, ...]:
        """Commit what was sent as a whole; returns the events that were sent, without those that follow from them."""
        named = [msgspec.structs.replace(item, event=_name_event(item.event)) for item in items]
        used = {session, *(item.session for item in named)}
        unit = self._context.unit

        async def load() -> _Targets:
            return {id_: await unit.load(id_) for id_ in targets if id_ in used}

        async def decide(loaded: _Targets) -> SessionDecision[None]:
            own, *others = (
                _decide(current, [item for item in named if item.session == current.id]) for current in loaded.values()
            )
            linked = [_link(loaded[id_], other) for id_, other in zip([*loaded][1:], others, strict=True)]
            return msgspec.structs.replace(own, linked=tuple(linked))

        async def commit(loaded: _Targets, decision: SessionDecision[None]) -> CommittedSession[RuntimeRecord]:
            return await unit.commit(loaded[session], decision)

        first = {id_: loaded for id_, loaded in targets.items() if id_ in used}
        done = await unit.run(load, decide, commit, cached=first)
        return await self._read_back(done, named, first)

    async def _read_back(
        self, done: CommittedSession[RuntimeRecord], items: Sequence[_Checked], before: _Targets
    ) -> tuple[Event, ...]:
        """The committed events in the order in which they were sent, once where an interrupt went to several sessions."""
        stored = {event.id: event for event in done.events}
        for id_, loaded in before.items():
            if id_ != done.id:
                found = await self._context.ledger.events(id_, after=loaded.record.seq)
                stored |= {event.id: event for event in found}
        own = {item.event.type for item in items if item.session == done.id}
        copies = [item for item in items if item.event.type == e.USER_INTERRUPT and item.session != done.id]
        dropped = {item.event.id for item in copies} if e.USER_INTERRUPT in own else set()
        return tuple(stored[str(item.event.id)] for item in items if item.event.id not in dropped)


async def _check_outcome(loaded: LoadedRuntime, event: Mapping[str, Any], by: str, channel: str) -> _Checked:
    # What another agent sends is no person's outcome.
    author: Author = "agent" if channel == "relayed" else "person"
    defined = await plan_outcome(loaded, event, author=author, by=by)
    rubric = event.get("rubric")
    content = rubric.get("content") or rubric.get("text") if isinstance(rubric, Mapping) else rubric
    stored = store_text(str(content or ""))
    # As it was sent, for those who read what was sent; the outcome itself is the event that follows.
    sent = {"description": str(event.get("description") or ""), "rubric": stored.body}
    new = NewEvent(type=e.USER_OUTCOME, body={**defined.body, **sent}, actor=by, blobs=stored.digests)
    return _Checked(new, loaded.id, stored.blobs)


def _check_sender(type_: str, channel: str) -> None:
    if type_ == e.SYSTEM_MESSAGE and assurance_of(channel) not in PERSONAL:
        raise PersonNeeded(
            "Only the holder of the key adds to the instructions of a session.", remedy="Send a user.message.", request=""
        )


def _check_blocks(type_: str, content: Any) -> list[dict[str, Any]]:
    blocks = check_content(content, "The message")
    if type_ == e.SYSTEM_MESSAGE and any(block["type"] != "text" for block in blocks):
        raise UsageProblem("A system message has a block that is no text.", remedy="Use text blocks only.")
    return blocks


def _name_event(event: NewEvent) -> NewEvent:
    return msgspec.structs.replace(event, id=new_id("evt_", 20))


def _decide(current: LoadedRuntime, items: Sequence[_Checked]) -> SessionDecision[None]:
    """What is committed of the events for a session."""
    _refuse_ended(current)
    results = [item.event for item in items if item.event.type == e.USER_TOOL_RESULT]
    requests = [request for result in results for request in _close_custom(current, result)]
    used = use_approvals(current, [item.event for item in items if item.event.type == e.WORKER_RESULT])
    answers = [item.answer for item in items if item.answer is not None]
    others = [item for item in items if item.answer is None]
    return SessionDecision(
        None,
        events=(*used, *(event for item in items for event in _expand(item))),
        blobs=tuple(blob for item in items for blob in item.blobs),
        requests=(*requests, *(answer.close for answer in answers)),
        jobs=(*(wake_job(current.id) if others else ()), *(job for answer in answers for job in answer.jobs)),
    )


def _link(current: LoadedRuntime, decision: SessionDecision[None]) -> LinkedChange[RuntimeRecord]:
    return LinkedChange(
        current.id,
        decision.events,
        current.record,
        requests=decision.requests,
        blobs=decision.blobs,
        jobs=decision.jobs,
    )


def _is_active(record: RuntimeRecord) -> bool:
    """Whether there is something that an interrupt would end."""
    return record.status != "idle" or bool(record.wakes.open_calls or record.wakes.queued)


def _expand(item: _Checked) -> Iterator[NewEvent]:
    """The event, with what it follows from and what follows from it."""
    new = item.event
    if item.answer is not None:
        yield item.answer.event
    yield new
    if new.type == e.USER_OUTCOME:
        body = {key: value for key, value in new.body.items() if key not in ("description", "rubric")}
        yield NewEvent(type=e.OUTCOME_DEFINED, body=body, actor=new.actor)


def _refuse_ended(session: LoadedRuntime) -> None:
    record = session.record
    if record.status == "terminated" or record.is_archived:
        state = "has ended" if record.status == "terminated" else "is archived"
        raise SessionNotFound(f"Session {session.id} {state}.", remedy="Begin another session.")


def _refuse_repeated(items: Sequence[_Checked]) -> None:
    """Refuse two answers to the same call: only the first could be stored."""
    answered = Counter(item.answers for item in items if item.answers)
    if repeated := next((name for name, count in answered.items() if count > 1), ""):
        raise UsageProblem(f"Several answers to the same call {repeated} were sent.", remedy="Send one answer for each.")


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
        return {"type": type_, "tool_use_id": call, "result": "allow" if allowed else "deny", "note": event.get("note")}
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
