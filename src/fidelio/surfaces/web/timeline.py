"""Events in words, for the time line of a session. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.ledger.model import Event

_MAX = 300


class TimelineEntry(msgspec.Struct, frozen=True):
    """A line of the time line: what happened, a detail of the agent or the person, and who did it."""

    seq: int
    time: int
    type: str
    actor: str
    what: str
    detail: str = ""
    is_error: bool = False
    is_minor: bool = False
    # The result of a call of a tool, if it is on the same page; then the call is folded.
    result: TimelineEntry | None = None
    is_call: bool = False


Words = Callable[[Mapping[str, Any]], tuple[str, str]]


def has_words(type_: str) -> bool:
    """Whether events of this type are described by more than their type."""
    return type_ in _WORDS


def list_entries(events: Iterable[Event]) -> list[TimelineEntry]:
    """Events in words, each result under its call."""
    found = list(events)
    results = {key: event for event in found if (key := _find_call(event, _RESULTS))}
    calls = {key for event in found if (key := _find_call(event, _CALLS))}
    return [
        _add_result(describe_event(event), results.get(_find_call(event, _CALLS)))
        for event in found
        if _find_call(event, _RESULTS) not in calls
    ]


# The key of a body that names the call, by the type of the event.
_CALLS = {"agent.tool_use": "id", "agent.custom_tool_use": "id", "agent.called": "call"}
_RESULTS = {"agent.tool_result": "tool_use_id", "user.custom_tool_result": "custom_tool_use_id", "agent.returned": "call"}


def _find_call(event: Event, keys: Mapping[str, str]) -> str:
    """The id of the call that an event makes or answers; empty if it does neither."""
    key = keys.get(event.type)
    return "" if key is None or event.redacted else str(event.body.get(key) or event.body.get("id") or "")


def _add_result(entry: TimelineEntry, result: Event | None) -> TimelineEntry:
    if entry.type not in _CALLS:
        return entry
    found = None if result is None else describe_event(result)
    return replace(entry, is_call=True, result=found, is_error=entry.is_error or (found is not None and found.is_error))


def describe_event(event: Event) -> TimelineEntry:
    """An event in words, or by its type if it has no words, so that nothing that happened is left out."""
    if event.redacted:
        return TimelineEntry(event.seq, event.time, event.type, event.actor, "content erased", event.type, is_minor=True)
    body = event.body
    words = _WORDS.get(event.type)
    what, detail = words(body) if words is not None else (event.type.replace(".", " ").replace("_", " "), "")
    is_error = bool(body.get("is_error")) or body.get("ok") is False or body.get("s") == "error" or event.type in _ERRORS
    return TimelineEntry(
        event.seq, event.time, event.type, event.actor, what, detail[:_MAX], is_error, event.type.startswith(_MINOR)
    )


_ERRORS = frozenset({"session.error", "run.failed", "run.lost"})
_MINOR = ("span.", "tool.called", "content.loaded", "skill.loaded", "sandbox.", "agent.thinking", "workspace.")


def _text(value: Any) -> str:
    """A text of a body: itself, the beginning of a stored text, or JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and "text" in value:
        return str(value.get("start") or value.get("preview") or "")
    return "" if value in (None, {}, [], ()) else msgspec.json.encode(value).decode()


def _content(body: Mapping[str, Any]) -> str:
    """The texts of a message."""
    blocks = body.get("content")
    if not isinstance(blocks, list):
        return _text(blocks)
    return "\n".join(
        str(block.get("text") or f"({block.get('type', 'content')})") for block in blocks if isinstance(block, dict)
    )


def _answer(body: Mapping[str, Any]) -> tuple[str, str]:
    option = body.get("option") or "a text"
    how = f" over {body['channel']}" if body.get("channel") else ""
    if isinstance(proof := body.get("proof"), Mapping):
        how += f", signed with the key {proof.get('fingerprint', '')}"
    # The key of a checkpoint is `activity/checkpoint#visit`; that of an approval is a digest, which says nothing to people.
    _, slash, name = str(body.get("key") or "").partition("#")[0].rpartition("/")
    return f"answered{f' {name}' if slash else ''} with {option}{how}", _text(body.get("text"))


def _loaded(body: Mapping[str, Any]) -> tuple[str, str]:
    loaded = body.get("loaded")
    return f"was given {', '.join(loaded) if isinstance(loaded, Mapping) and loaded else 'a text'}", ""


def _call(body: Mapping[str, Any]) -> tuple[str, str]:
    return f"called {body.get('name') or body.get('tool') or 'a tool'}", _text(body.get("input") or body.get("arguments"))


def _result(body: Mapping[str, Any]) -> tuple[str, str]:
    return f"result of {body.get('name') or 'a tool'}", _text(body.get("result"))


def _idle(body: Mapping[str, Any]) -> tuple[str, str]:
    reason = body.get("stop_reason") or {}
    kind = reason.get("type", "") if isinstance(reason, Mapping) else str(reason)
    return {"requires_action": "waits for a person", "end_turn": "finished its turn"}.get(kind, f"stopped: {kind}"), ""


_WORDS: Mapping[str, Words] = {
    "session.started": lambda body: (f"started {body.get('workflow', 'the workflow')}", ""),
    "activity.entered": lambda body: (f"entered {body.get('activity', '')}", ""),
    "step.completed": lambda body: (f"reported step {body.get('step', '')}", _text(body.get("output"))),
    "checkpoint.yielded": lambda body: (f"stopped at {body.get('checkpoint', '')}", ""),
    "checkpoint.resumed": lambda body: (f"went on after {body.get('checkpoint', '')}", ""),
    "request.answered": _answer,
    "variables.set": lambda body: ("set variables", _text(body.get("variables"))),
    "tool.called": lambda body: (f"called {body.get('name', '')}", _text(body.get("err"))),
    "child.started": lambda body: (f"started {body.get('workflow', 'another workflow')}", ""),
    "child.finished": lambda body: (f"{body.get('workflow', 'the child')} came back", ""),
    "session.completed": lambda _: ("completed the workflow", ""),
    "session.cancelled": lambda body: ("was ended", _text(body.get("reason"))),
    "content.loaded": _loaded,
    "skill.loaded": _loaded,
    "user.message": lambda body: ("message", _content(body)),
    "user.define_outcome": lambda body: ("asked for an outcome", _text(body.get("title"))),
    "user.tool_confirmation": lambda body: (f"said {body.get('result', '')}", _text(body.get("deny_message"))),
    "user.interrupt": lambda _: ("interrupted", ""),
    "outcome.defined": lambda body: ("outcome", _text(body.get("title"))),
    "agent.message": lambda body: ("said", _content(body)),
    "agent.said": lambda body: ("said", _text(body.get("text"))),
    "agent.tool_use": _call,
    "agent.custom_tool_use": _call,
    "agent.called": _call,
    "agent.returned": lambda body: ("returned", _text(body.get("text"))),
    "user.custom_tool_result": lambda body: ("gave the result of a tool", _content(body)),
    "agent.tool_result": _result,
    "session.status_idle": _idle,
    "session.status_running": lambda _: ("works", ""),
    "session.error": lambda body: ("error", _text((body.get("error") or {}).get("message"))),
    "session.status_terminated": lambda body: ("ended", _text(body.get("reason"))),
    "approval.requested": lambda body: (f"asks whether {body.get('tool', 'a tool')} may run", _text(body.get("command"))),
    "run.started": lambda _: ("the run began", ""),
    "run.finished": lambda body: (f"the run ended: {body.get('state', '')}", ""),
}
