"""Stored events as the events of the wire. Pure.

A stored event becomes none, one or two events of the vendor's types. What the vendor has no type for is shown only on request,
with the prefix `fidelio.`. Events of a child are in its own thread, and some of them in the stream of the session too, with the
id of the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from fidelio.clock import format_iso
from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from fidelio.surfaces.http.v1.events.types import (
    DELETED,
    OWN_PREFIX,
    SENT,
    STATUS,
    USAGE,
    USER_TOOL_RESULT,
    Wire,
    to_event_id,
    to_thread,
)

Body: TypeAlias = Mapping[str, Any]
_ERRORS = {
    "model_overloaded_error": "model_overloaded_error",
    "model_rate_limited_error": "model_rate_limited_error",
    "model_request_failed_error": "model_request_failed_error",
    "context_too_long_error": "model_request_failed_error",
    "billing_error": "billing_error",
    "turn_limit_error": "tool_use_limit_reached_error",
}
_STOP_REASONS = ("end_turn", "requires_action", "retries_exhausted", "budget_reached", "refusal")
_MCP = "mcp__"
# Keys of bodies that name directories of this machine.
_HIDDEN = ("project", "directory", "mount_source")
_USAGE = {
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "cache_read_input_tokens": ("cache_read_input_tokens", "cache_read_tokens"),
    "cache_creation_input_tokens": ("cache_creation_input_tokens", "cache_write_tokens"),
}


def _hide_nothing(text: str) -> str:
    return text


class WireView(msgspec.Struct, frozen=True):
    """What the events of a session are shown with.

    `thread` is the id of the thread on the wire, `agent` the name of its agent. `is_child`: the session is a thread of another.
    `processed` has the times at which queued events were processed, by their ids. `hide` removes paths of this machine.
    """

    thread: str
    agent: str = ""
    is_child: bool = False
    processed: Mapping[str, int] = {}
    hide: Callable[[str], str] = _hide_nothing


def render(event: Event, body: Body, view: WireView) -> list[Wire]:
    """The events of the vendor's types that a stored event of a session is."""
    if event.type in STATUS and view.is_child:
        return [_render_thread_status(event, body, view)]
    renderer = _RENDERERS.get(event.type)
    return [] if renderer is None else list(renderer(event, body, view))


def render_posted(event: Event, body: Body, view: WireView) -> list[Wire]:
    """What the stream of a session shows of an event of a child. A call that asks is shown where it begins to ask."""
    if event.type in STATUS:
        return [_render_thread_status(event, body, view)]
    if event.type == e.CHILD_CREATED:
        return [_render_created(event, body, view)]
    found = list(_RENDERERS[event.type](event, body, view)) if event.type in (e.TOOL_USE, e.CUSTOM_TOOL_USE) else []
    return [{**item, "session_thread_id": view.thread} for item in found]


def render_own(event: Event, body: Body, view: WireView) -> Wire:
    """An event of ours, with its body."""
    shown = {name: value for name, value in body.items() if name not in _HIDDEN}
    text = view.hide(msgspec.json.encode(shown, enc_hook=str).decode())
    return {**_common(event), "type": f"{OWN_PREFIX}{event.type}", "body": msgspec.json.decode(text)}


def _common(event: Event, suffix: str = "") -> Wire:
    return {"type": event.type, "id": to_event_id(event.id) + suffix, "processed_at": format_iso(event.time)}


def _plain(event: Event, _: Body, __: WireView) -> Iterator[Wire]:
    yield _common(event)


def _render_message(event: Event, body: Body, view: WireView) -> Iterator[Wire]:
    content = _read_content(event, body)
    if source := body.get("from_session"):
        yield {
            **_common(event),
            "type": "agent.thread_message_received",
            "from_session_thread_id": to_thread(source),
            "content": content,
        }
        return
    yield {**_common(event), "processed_at": _find_processed(event, view), "content": content}


def _render_system(event: Event, body: Body, view: WireView) -> Iterator[Wire]:
    texts = [block for block in _read_content(event, body) if block["type"] == "text"]
    yield {**_common(event), "processed_at": _find_processed(event, view), "content": texts}


def _find_processed(event: Event, view: WireView) -> str | None:
    time = view.processed.get(event.id)
    return None if time is None else format_iso(time)


def _render_interrupt(event: Event, _: Body, view: WireView) -> Iterator[Wire]:
    yield {**_common(event), **_name_thread(view)}


def _render_confirmation(event: Event, body: Body, view: WireView) -> Iterator[Wire]:
    result = "allow" if body.get("result") == "allow" else "deny"
    message = {"deny_message": body["deny_message"]} if result == "deny" and body.get("deny_message") else {}
    call = {"tool_use_id": to_event_id(str(body.get("tool_use_id", ""))), "result": result}
    yield {**_common(event), **call, **message, **_name_thread(view)}


def _render_answer(key: str) -> Callable[[Event, Body, WireView], Iterator[Wire]]:
    """The result that a client sends of a call that it has carried out."""

    def render_answer(event: Event, body: Body, view: WireView) -> Iterator[Wire]:
        call = {key: to_event_id(str(body.get(key, "")))}
        content = [block for block in _read_content(event, body) if block["type"] != "redacted"]
        yield {**_common(event), **call, "content": content, "is_error": bool(body.get("is_error")), **_name_thread(view)}

    return render_answer


def _render_outcome(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    title, detail = str(body.get("title", "")), str(body.get("detail", ""))
    items = [str(item.get("text", "")) for item in body.get("criteria", ()) if isinstance(item, Mapping)]
    rubric = body.get("rubric") or "\n".join(f"- {item}" for item in items)
    yield {
        **_common(event),
        "outcome_id": str(body.get("outcome_id", "")),
        "description": body.get("description") or "\n\n".join(filter(None, (title, detail))),
        "rubric": {"type": "text", "content": str(rubric)},
        "max_iterations": body.get("max_iterations", 3),
    }


def _render_agent_message(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    content = [block for block in _read_content(event, body) if block["type"] == "redacted" or block.get("text")]
    # A reply that is only a directive says nothing to anybody.
    if content:
        yield {**_common(event), "content": content}


def _render_use(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    name, sent = str(body.get("name", "")), _read_object(body.get("input"))
    if inner := body.get("tool"):
        # A call through another tool is shown as the call that it is.
        name, sent = str(inner), _read_object(sent.get("arguments"))
    allowed = _read_permission(body)
    if name.startswith(_MCP):
        server, _sep, tool = name.removeprefix(_MCP).partition("__")
        named = {"mcp_server_name": server, "name": tool or name}
        yield {**_common(event), "type": "agent.mcp_tool_use", **named, "input": sent, **allowed}
        return
    yield {**_common(event), "name": name, "input": sent, **allowed}


def _read_permission(body: Body) -> Wire:
    """Whether the call was allowed, and by which policy. Unknown for calls that were recorded before it was decided."""
    permission, policy = body.get("permission"), body.get("policy")
    if permission not in ("allow", "ask", "deny"):
        return {}
    evaluation: Wire = {"type": "always_ask" if permission == "ask" else "always_allow"}
    if policy == "auto":
        reason = {} if permission == "allow" else {"reason_code": "indeterminate"}
        evaluation = {"type": "auto", "evaluated_permission": {"type": permission, **reason}}
    return {"evaluated_permission": permission, **({"evaluation": evaluation} if permission != "deny" else {})}


def _render_custom_use(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    yield {**_common(event), "name": str(body.get("name", "")), "input": _read_object(body.get("input"))}


def _render_result(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    call = to_event_id(str(body.get("tool_use_id", "")))
    is_mcp = str(body.get("name", "")).startswith(_MCP)
    named = {"type": "agent.mcp_tool_result", "mcp_tool_use_id": call} if is_mcp else {"tool_use_id": call}
    text = body.get("result")
    content = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
    images = [dict(image) for image in body.get("images", ()) if isinstance(image, Mapping)]
    yield {**_common(event), **named, "content": [*content, *images], "is_error": bool(body.get("is_error"))}


def _render_idle(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    yield {**_common(event), **_read_stop(body)}


def _read_stop(body: Body) -> Wire:
    stop = _read_object(body.get("stop_reason"))
    reason = stop.get("type") if stop.get("type") in _STOP_REASONS else "end_turn"
    waiting = {"event_ids": [to_event_id(str(id_)) for id_ in stop.get("event_ids", ())]} if reason == "requires_action" else {}
    details = {"type": "refusal", "explanation": body.get("summary") or None} if reason == "refusal" else None
    return {"stop_reason": {"type": reason, **waiting}, "stop_details": details}


def _render_thread_status(event: Event, body: Body, view: WireView) -> Wire:
    thread = {"session_thread_id": view.thread, "agent_name": view.agent}
    stop = _read_stop(body) if event.type == e.STATUS_IDLE else {}
    return {**_common(event), "type": f"session.thread_status_{STATUS[event.type]}", **thread, **stop}


def _render_created(event: Event, body: Body, view: WireView) -> Wire:
    thread = {"session_thread_id": to_thread(str(body.get("childSessionId", ""))), "agent_name": view.agent}
    return {**_common(event), "type": "session.thread_created", **thread}


def _render_child(event: Event, body: Body, view: WireView) -> Iterator[Wire]:
    created = _render_created(event, body, view)
    yield created
    if message := body.get("message"):
        yield {
            **_common(event, SENT),
            "type": "agent.thread_message_sent",
            "to_session_thread_id": created["session_thread_id"],
            "to_agent_name": view.agent,
            "content": [{"type": "text", "text": str(message)}],
        }


def _render_error(event: Event, body: Body, view: WireView) -> Iterator[Wire]:
    error = _read_object(body.get("error"))
    kind = _ERRORS.get(str(error.get("type")), "unknown_error")
    retry = _read_object(error.get("retry_status")).get("type")
    sentences = (str(error.get("message") or "An error occurred."), str(error.get("remedy") or ""))
    # A session of ours outlives every error: what the runtime calls terminal ends only the turn.
    status = "retrying" if retry == "retrying" else "exhausted"
    message = view.hide(" ".join(filter(None, sentences)))
    yield {**_common(event), "error": {"type": kind, "message": message, "retry_status": {"type": status}}}


def _render_request_end(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    start = to_event_id(str(body.get("model_request_start_id", "")))
    usage = _read_usage(body.get("model_usage"))
    yield {**_common(event), "model_request_start_id": start, "model_usage": usage, "is_error": bool(body.get("is_error"))}


def _render_evaluation_start(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    yield {**_common(event), **_read_evaluation(body)}


def _render_evaluation_end(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    yield {
        **_common(event),
        **_read_evaluation(body),
        "outcome_evaluation_start_id": to_event_id(str(body.get("outcome_evaluation_start_id", ""))),
        "result": str(body.get("result", "needs_revision")),
        "explanation": str(body.get("explanation", "")),
        "usage": _read_usage(body.get("usage")),
    }


def _read_evaluation(body: Body) -> Wire:
    return {"outcome_id": str(body.get("outcome_id", "")), "iteration": int(body.get("iteration", 0))}


def _render_updated(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    """The fields of a session that were changed; changes that the vendor does not know are events of ours."""
    changed = body.get("updated")
    if isinstance(changed, Mapping) and changed:
        yield {**_common(event), "type": "session.updated", **changed}


def _render_wake_end(event: Event, body: Body, _: WireView) -> Iterator[Wire]:
    usage = body.get("usage")
    if body.get("span_kind") == "wake" and isinstance(usage, Mapping):
        budget = body.get("budget")
        limit = {} if budget is None else {"budget": budget}
        yield {**_common(event, USAGE), "type": "session.usage", "usage": render_usage(usage), **limit}


def render_usage(usage: Mapping[str, Any]) -> Wire:
    """The tokens, seconds and cost of a session or a thread, from its totals."""
    return {
        "input_tokens": usage.get("input_tokens", 0),
        "output_tokens": usage.get("output_tokens", 0),
        "cache_read_input_tokens": usage.get("cache_read_tokens", 0),
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.get("cache_write_tokens", 0),
            "ephemeral_1h_input_tokens": 0,
        },
        "active_seconds": usage.get("active_ms", 0) / 1000,
        "list_cost": render_amount(usage.get("cost_micros", 0)),
        "server_tool_use": {
            "web_fetch_requests": usage.get("web_fetches", 0),
            "web_search_requests": usage.get("web_searches", 0),
        },
    }


def render_amount(micros: int) -> Wire:
    """An amount in whole cents, rounded to the nearest. `micros` are millionths of a US dollar."""
    return {"amount": str((micros + 5_000) // 10_000), "currency": "USD"}


def _name_thread(view: WireView) -> Wire:
    return {"session_thread_id": view.thread} if view.is_child else {}


def _read_content(event: Event, body: Body) -> list[Wire]:
    """The blocks of a message; an erased message has a placeholder."""
    if event.redacted:
        return [{"type": "redacted"}]
    content = body.get("content")
    return [dict(block) for block in content] if isinstance(content, list) else []


def _read_object(value: Any) -> Wire:
    return dict(value) if isinstance(value, Mapping) else {}


def _read_usage(value: Any) -> Wire:
    usage = _read_object(value)
    return {name: next((usage[key] for key in keys if key in usage), 0) for name, keys in _USAGE.items()}


_RENDERERS: Mapping[str, Callable[[Event, Body, WireView], Iterator[Wire]]] = {
    e.USER_MESSAGE: _render_message,
    e.SYSTEM_MESSAGE: _render_system,
    e.USER_INTERRUPT: _render_interrupt,
    e.USER_CONFIRMATION: _render_confirmation,
    e.USER_TOOL_RESULT: _render_answer("custom_tool_use_id"),
    USER_TOOL_RESULT: _render_answer("tool_use_id"),
    e.USER_OUTCOME: _render_outcome,
    e.AGENT_MESSAGE: _render_agent_message,
    e.AGENT_THINKING: _plain,
    e.TOOL_USE: _render_use,
    e.TOOL_RESULT: _render_result,
    e.CUSTOM_TOOL_USE: _render_custom_use,
    e.CONTEXT_COMPACTED: _plain,
    e.STATUS_RUNNING: _plain,
    e.STATUS_IDLE: _render_idle,
    e.STATUS_RESCHEDULED: _plain,
    e.ENDED: _plain,
    e.SESSION_ERROR: _render_error,
    e.MODEL_REQUEST_STARTED: _plain,
    e.MODEL_REQUEST_ENDED: _render_request_end,
    e.EVALUATION_STARTED: _render_evaluation_start,
    e.EVALUATION_ENDED: _render_evaluation_end,
    e.CHILD_CREATED: _render_child,
    e.CONFIGURED: _render_updated,
    e.SPAN_COMPLETED: _render_wake_end,
    DELETED: _plain,
}

_BY_WIRE_TYPE: Mapping[str, tuple[str, ...]] = {
    "agent.thread_message_received": (e.USER_MESSAGE,),
    "agent.thread_message_sent": (e.CHILD_CREATED,),
    "agent.mcp_tool_use": (e.TOOL_USE,),
    "agent.mcp_tool_result": (e.TOOL_RESULT,),
    "session.thread_created": (e.CHILD_CREATED,),
    "session.updated": (e.CONFIGURED,),
    "session.usage": (e.SPAN_COMPLETED,),
    **{f"session.thread_status_{name}": (type_,) for type_, name in STATUS.items()},
}


def list_stored_types(types: Collection[str]) -> tuple[str, ...]:
    """The stored types that events of these types are rendered from; without types those of all of the vendor's."""
    if not types:
        return tuple(_RENDERERS)
    return tuple({stored for type_ in types for stored in _BY_WIRE_TYPE.get(type_, (type_.removeprefix(OWN_PREFIX),))})
