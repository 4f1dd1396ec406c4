"""How events are shown to an agent: bounded, without directories of the host, without data of images. Pure.

A result that shows events is an event itself. Results of tools that read logs are therefore always shortened when they are
shown: otherwise each reading would contain the ones before it, and the log would grow geometrically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.ledger.long_text import shorten_to_line
from fidelio.ledger.model import Event
from fidelio.runtime import events as e

# What all events of a result take together, and one of them at most.
TOTAL_CHARS = 20_000
EVENT_CHARS = 1_500
# What an event may take that is read alone.
WHOLE_CHARS = 12_000
_MIN_CHARS = 160
# Results of these tools consist of parts of logs.
LOG_READERS = frozenset(
    {
        *("session_get_events", "session_get_trace", "session_list_traces", "session_search_traces"),
        *("session_search_context", "session_list", "session_list_children", "session_get_snapshot", "retrieval_search"),
    }
)
_LOG_RESULT_CHARS = 200
# Events that wait for the next wake; the others are processed when they arrive.
PENDING_TYPES = frozenset({e.USER_MESSAGE, e.USER_OUTCOME})
# Directories of the host, and names that lead to them; digests of long texts, which no tool takes.
_HIDDEN_KEYS = frozenset({"project", "directory", "mount_source", "incarnation", "blob"})
EVENT_TYPES = frozenset(value for name, value in vars(e).items() if name.isupper())


class ShownEvent(msgspec.Struct, frozen=True):
    """An event as it is shown. `is_shortened`: something of it is left out."""

    json: dict[str, Any]
    is_shortened: bool


def share_budget(count: int) -> int:
    """The longest that each of this number of events may be, in characters."""
    return max(_MIN_CHARS, min(EVENT_CHARS, TOTAL_CHARS // max(1, count)))


def view_events(events: Sequence[Event], processed: Mapping[int, int | None]) -> list[ShownEvent]:
    """Show events within the bounds of a result. `processed` has the times at which user events were processed, by seq."""
    budget = share_budget(len(events))
    return [
        view_event(event, budget, event.time if event.type not in PENDING_TYPES else processed.get(event.seq))
        for event in events
    ]


def view_event(event: Event, budget: int, processed_at: int | None, *, body: Mapping[str, Any] | None = None) -> ShownEvent:
    """Show an event. `body`: its content with the long texts, if they were loaded."""
    content = dict(event.body if body is None else body)
    wake = content.pop("wake_id", None)
    payload, is_shortened = fit(content, _find_budget(event, content, budget))
    shown = {
        "id": event.id,
        "seq": event.seq,
        "type": event.type,
        "createdAt": format_iso(event.time),
        "processedAt": None if processed_at is None else format_iso(processed_at),
        "wakeId": wake,
        "payload": payload,
        **({"redacted": True} if event.redacted else {}),
        **({"shortened": True} if is_shortened else {}),
    }
    return ShownEvent(shown, is_shortened)


def _find_budget(event: Event, body: Mapping[str, Any], budget: int) -> int:
    is_log = event.type == e.TOOL_RESULT and body.get("name") in LOG_READERS
    return min(budget, _LOG_RESULT_CHARS) if is_log else budget


def fit(body: Mapping[str, Any], budget: int) -> tuple[Mapping[str, Any], bool]:
    """The body with its texts shortened to at most `budget` characters of JSON, and whether something is missing."""
    for length in (budget, budget // 2, budget // 4, 40):
        shown = _shorten(body, max(length, 20))
        if len(msgspec.json.encode(shown).decode()) <= budget:
            return shown, shown != _shorten(body, 1 << 40) or _has_rest(body)
    # Halved, because quotes and backslashes are escaped.
    return {"preview": shorten_to_line(msgspec.json.encode(_shorten(body, 200)).decode(), budget // 2)}, True


def _shorten(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]}… ({len(value) - length} more characters)"
    if isinstance(value, Mapping):
        return {name: _shorten_item(name, inner, length) for name, inner in value.items() if name not in _HIDDEN_KEYS}
    if isinstance(value, list | tuple):
        return [_shorten(inner, length) for inner in value]
    return value


def _shorten_item(name: str, value: Any, length: int) -> Any:
    # Base64 of an image says nothing.
    return f"({len(value)} characters)" if name == "data" and isinstance(value, str) else _shorten(value, length)


def _has_rest(value: Any) -> bool:
    """Whether a text is stored apart, so that only its beginning is here."""
    if isinstance(value, Mapping):
        return bool(value.get("blob")) or any(_has_rest(inner) for inner in value.values())
    return any(_has_rest(inner) for inner in value) if isinstance(value, list | tuple) else False


def summarize_body(body: Mapping[str, Any], length: int = 160) -> str:
    """The essence of an event in a line."""
    words = [str(body[key]) for key in ("name", "span_kind", "state", "status", "reason", "command") if body.get(key)]
    text = _find_text(body)
    return shorten_to_line(" ".join([*words, text]).strip(), length)


def _find_text(body: Mapping[str, Any]) -> str:
    content = body.get("content")
    if isinstance(content, list):
        return " ".join(
            str(item.get("text") or (item.get("stored") or {}).get("text", "")) for item in content if isinstance(item, dict)
        )
    for key in ("summary", "result", "input", "stdout", "text", "message", "note", "title"):
        found = body.get(key)
        text = found.get("text", "") if isinstance(found, Mapping) else found
        if isinstance(text, str) and text:
            return text
    return ""
