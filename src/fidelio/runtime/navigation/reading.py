"""Tools that read logs: session_get_events, session_get_trace, session_list_traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fidelio.clock import format_iso
from fidelio.errors import ToolRefused
from fidelio.ledger import Ledger
from fidelio.ledger.long_text import load_text, shorten_to_line
from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from fidelio.runtime.navigation.event_views import EVENT_TYPES, PENDING_TYPES, WHOLE_CHARS, ShownEvent, view_event, view_events
from fidelio.runtime.navigation.log import (
    Accept,
    WakeRange,
    find_event,
    find_wake,
    list_wakes,
    read_after,
    read_back,
    read_between,
    read_wake,
    read_wake_id,
)
from fidelio.runtime.navigation.parameters import ListTraces, ReadEvents, ReadTrace
from fidelio.runtime.navigation.visibility import load_visible
from fidelio.runtime.shell.plans import suggest
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, ToolCall, ToolResult
from fidelio.runtime.wakes.record import SUMMARY

# Events of a wake that a list of wakes looks at to count them and to name their types.
_COUNTED = 1_000
# No event has it.
_NO_TYPE = "-"


async def get_events(call: ToolCall, arguments: ReadEvents, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    _check_types(arguments.types)
    _check_anchors(arguments)
    found, has_more = await _select(call, session, arguments)
    is_single = arguments.aroundEventId is not None and len(found) == 1
    views = [await _view_whole(call.context.ledger, session, found[0])] if is_single else await _view(call, session, found)
    step = _plan_next(call, session, arguments, views, has_more=has_more)
    return ToolResult(output={**_describe(session, views), "hasMore": has_more, "nextStep": step})


async def get_trace(call: ToolCall, arguments: ReadTrace, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    _check_types(arguments.types)
    ledger, last = call.context.ledger, session.session.last_seq
    wake = await _require_wake(call, session, arguments.wakeId)
    found = await read_wake(ledger, wake, last, arguments.limit + 1, types=arguments.types)
    views = await _view(call, session, found[: arguments.limit])
    has_more = len(found) > arguments.limit
    step = _suggest_following(call, session, views, {}) if has_more else _suggest_whole(call, session, views)
    shown = {**_describe(session, views), "wakeId": arguments.wakeId}
    return ToolResult(output={**shown, "hasMore": has_more, "nextStep": step})


async def list_traces(call: ToolCall, arguments: ListTraces, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    ledger, last = call.context.ledger, session.session.last_seq
    wakes = reversed(await list_wakes(ledger, session.id, last, arguments.limit))
    traces = [describe_trace(wake, await read_wake(ledger, wake, last, _COUNTED)) for wake in wakes]
    for trace in traces:
        args = {"sessionId": session.id, "wakeId": trace["wakeId"]}
        trace["nextStep"] = suggest(call.tools, "session_get_trace", args, "Read what happened in this wake.")
    return ToolResult(output={"sessionId": session.id, "count": len(traces), "traces": traces})


def describe_trace(wake: WakeRange, events: Sequence[Event]) -> dict[str, Any]:
    """A wake in a few fields. `events` are those of the wake."""
    newest = wake.ended or (events[-1] if events else wake.started)
    return {
        "wakeId": wake.wake,
        "startedAt": format_iso(wake.started.time),
        "updatedAt": format_iso(newest.time),
        "isFinished": wake.ended is not None,
        "eventCount": len(events),
        "eventTypes": list(dict.fromkeys(event.type for event in events)),
        "latestSummary": _summarize(wake, events),
    }


def _summarize(wake: WakeRange, events: Sequence[Event]) -> str | None:
    """What the wake said at its end, else the last thing that it did."""
    text = _find_last(events, e.SPAN_COMPLETED, "summary") if wake.ended is not None else ""
    if not text:
        used = _find_last(events, e.TOOL_USE, "name")
        text = (
            _find_last(events, e.STATUS_IDLE, "summary") or wake.started.body.get("summary") or (f"tool:{used}" if used else "")
        )
    return shorten_to_line(str(text), SUMMARY) or None


def _find_last(events: Sequence[Event], type_: str, key: str) -> str:
    return next((str(event.body.get(key) or "") for event in reversed(events) if event.type == type_), "")


def _check_types(types: Sequence[str]) -> None:
    unknown = [name for name in types if name not in EVENT_TYPES]
    if unknown:
        raise ToolRefused(
            f"types has {unknown[0]!r:.80}, which is no type of an event.",
            remedy=f"Use: {', '.join(sorted(EVENT_TYPES))}.",
            reason="invalid_arguments",
        )


def _check_anchors(arguments: ReadEvents) -> None:
    if arguments.aroundEventId is not None and (arguments.afterEventId or arguments.beforeEventId):
        raise ToolRefused(
            "aroundEventId was given together with afterEventId or beforeEventId.",
            remedy="Use aroundEventId with beforeLimit and afterLimit, or the other two.",
            reason="invalid_arguments",
        )


async def _select(call: ToolCall, session: LoadedRuntime, arguments: ReadEvents) -> tuple[list[Event], bool]:
    """The selected events in log order, and whether there are more in that direction."""
    ledger, accept = call.context.ledger, _build_filter(session, arguments)
    types, limit = _narrow_types(arguments), arguments.limit
    if arguments.aroundEventId is not None:
        return await _select_around(ledger, session, arguments, accept), False
    after, before = await _find_range(call, session, arguments)
    if arguments.afterEventId is not None:
        found = await read_after(ledger, session.id, after, before - 1, limit + 1, types=types, accept=accept)
        return found[:limit], len(found) > limit
    found = await read_back(ledger, session.id, before, limit + 1, until=after, types=types, accept=accept)
    return found[-limit:], len(found) > limit


async def _select_around(ledger: Ledger, session: LoadedRuntime, arguments: ReadEvents, accept: Accept) -> list[Event]:
    anchor = await _require_event(ledger, session, arguments.aroundEventId or "")
    types, last = _narrow_types(arguments), session.session.last_seq
    before = await read_back(ledger, session.id, anchor.seq, arguments.beforeLimit, types=types, accept=accept)
    after = await read_after(ledger, session.id, anchor.seq, last, arguments.afterLimit, types=types, accept=accept)
    return [*before, anchor, *after]


async def _find_range(call: ToolCall, session: LoadedRuntime, arguments: ReadEvents) -> tuple[int, int]:
    """The sequence numbers between which the events lie, both excluded."""
    ledger, after, before = call.context.ledger, 0, session.session.last_seq + 1
    if arguments.wakeId is not None:
        wake = await _require_wake(call, session, arguments.wakeId)
        after, before = wake.started.seq - 1, min(before, wake.last_seq + 1)
    if arguments.afterEventId is not None:
        after = max(after, (await _require_event(ledger, session, arguments.afterEventId)).seq)
    if arguments.beforeEventId is not None:
        before = min(before, (await _require_event(ledger, session, arguments.beforeEventId)).seq)
    return after, before


def _narrow_types(arguments: ReadEvents) -> Sequence[str]:
    """The types to read. Only two types of events can be pending; without them nothing matches."""
    if arguments.includeProcessed:
        return arguments.types
    return sorted(PENDING_TYPES.intersection(arguments.types or PENDING_TYPES)) or (_NO_TYPE,)


def _build_filter(session: LoadedRuntime, arguments: ReadEvents) -> Accept:
    processed, wake = session.record.wakes.processed_seq, arguments.wakeId

    def accept(event: Event) -> bool:
        if not arguments.includeProcessed and event.seq <= processed:
            return False
        return wake is None or (event.raw is not None and wake in event.raw and event.body.get("wake_id") == wake)

    return accept


async def _require_event(ledger: Ledger, session: LoadedRuntime, event_id: str) -> Event:
    found = await find_event(ledger, session.id, session.session.last_seq, event_id)
    if found is None:
        raise ToolRefused(
            f"Session {session.id} has no event {event_id!r:.80}.",
            remedy="Take an id of this session's events; pass its sessionId for one of another session.",
            reason="event_not_found",
        )
    return found


async def _require_wake(call: ToolCall, session: LoadedRuntime, wake: str) -> WakeRange:
    found = await find_wake(call.context.ledger, session.id, session.session.last_seq, wake)
    if found is None:
        known = "session_list_traces lists them." if "session_list_traces" in call.tools else ""
        raise ToolRefused(f"Session {session.id} has no wake {wake!r:.80}.", remedy=known, reason="wake_not_found")
    return found


async def _view(call: ToolCall, session: LoadedRuntime, events: Sequence[Event]) -> list[ShownEvent]:
    return view_events(events, await find_processing(call.context.ledger, session, events))


async def _view_whole(ledger: Ledger, session: LoadedRuntime, event: Event) -> ShownEvent:
    """An event that is read alone, with its long texts."""
    processed = (await find_processing(ledger, session, (event,))).get(event.seq)
    body = await _load_texts(ledger, event.body)
    return view_event(event, WHOLE_CHARS, event.time if event.type not in PENDING_TYPES else processed, body=body)


async def _load_texts(ledger: Ledger, value: Any) -> Any:
    if isinstance(value, list):
        return [await _load_texts(ledger, inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.get("blob") and "text" in value:
        return {"text": await load_text(ledger, value), "size": value.get("size", 0)}
    return {name: await _load_texts(ledger, inner) for name, inner in value.items()}


async def find_processing(ledger: Ledger, session: LoadedRuntime, events: Iterable[Event]) -> Mapping[int, int | None]:
    """When user events were processed: at the start of the wake that took them. Pending ones are missing."""
    processed = session.record.wakes.processed_seq
    waiting = sorted(event.seq for event in events if event.type in PENDING_TYPES and event.seq <= processed)
    found: dict[int, int | None] = {}
    if not waiting:
        return found
    async for start in read_between(ledger, session.id, waiting[0], session.session.last_seq, types=(e.SPAN_STARTED,)):
        if not waiting:
            break
        taken = int(start.body.get("processed_seq", start.seq)) if read_wake_id(start) else 0
        found.update({seq: start.time for seq in waiting if seq <= taken})
        waiting = [seq for seq in waiting if seq > taken]
    return found


def _describe(session: LoadedRuntime, views: Sequence[ShownEvent]) -> dict[str, Any]:
    return {"sessionId": session.id, "count": len(views), "events": [view.json for view in views]}


def _plan_next(
    call: ToolCall, session: LoadedRuntime, arguments: ReadEvents, views: Sequence[ShownEvent], *, has_more: bool
) -> dict[str, Any] | None:
    """The next part of the log, else an event that was shortened."""
    if not has_more or not views:
        return _suggest_whole(call, session, views)
    more = {name: getattr(arguments, name) for name in ("wakeId", "types", "limit") if getattr(arguments, name)}
    more = {name: list(value) if isinstance(value, tuple) else value for name, value in more.items()}
    if not arguments.includeProcessed:
        more["includeProcessed"] = False
    if arguments.afterEventId is not None:
        return _suggest_following(call, session, views, more)
    args = {"sessionId": session.id, "beforeEventId": views[0].json["id"], **more}
    return suggest(call.tools, "session_get_events", args, "Read the events before these.")


def _suggest_following(
    call: ToolCall, session: LoadedRuntime, views: Sequence[ShownEvent], more: Mapping[str, Any]
) -> dict[str, Any] | None:
    args = {"sessionId": session.id, "afterEventId": views[-1].json["id"], **more}
    return suggest(call.tools, "session_get_events", args, "Read the events after these.")


def _suggest_whole(call: ToolCall, session: LoadedRuntime, views: Sequence[ShownEvent]) -> dict[str, Any] | None:
    short = next((view for view in views if view.is_shortened), None)
    if short is None:
        return None
    args = {"sessionId": session.id, "aroundEventId": short.json["id"]}
    return suggest(call.tools, "session_get_events", args, "An event that is read alone is given whole.")
