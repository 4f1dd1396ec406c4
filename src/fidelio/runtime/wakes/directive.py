"""The loop directive: how an agent says at the end of its answer what happens next. Pure.

It is a JSON object between `<fidelio-loop>` and `</fidelio-loop>`. The last one counts; the rest of the text is the message.
Nothing in it is dropped silently: what is not accepted is told to the model in its next wake.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from fidelio.ledger.long_text import sanitize_text
from fidelio.runtime.wakes.record import Priority

OPENING, CLOSING = "<fidelio-loop>", "</fidelio-loop>"
MAX_WAKES = 3
MAX_DELAY_SECONDS = 86_400
MAX_LEARNINGS = 3
DEFAULT_FOLLOW_UP_SECONDS = 300
SUMMARY_LENGTH = 400
REASON_LENGTH = 200
MAX_REJECTED = 20
_FIELDS = frozenset({"outcome", "summary", "followUpSeconds", "queuedWakes", "learnings", "customToolRequest"})
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)", re.DOTALL)


class WakeRequest(msgspec.Struct, frozen=True):
    """A later wake that the agent asks for."""

    reason: str
    delay_seconds: int
    note: str = ""
    key: str = ""
    priority: Priority = "normal"


class CustomToolRequest(msgspec.Struct, frozen=True):
    """A tool of the caller that the agent wants to be carried out."""

    name: str
    input: Mapping[str, Any]


class Directive(msgspec.Struct, frozen=True, kw_only=True):
    """What happens after the wake. `rejected` names every field that was not accepted, and why."""

    outcome: Literal["continue", "sleep"] = "sleep"
    summary: str = ""
    follow_up_seconds: int = DEFAULT_FOLLOW_UP_SECONDS
    wakes: tuple[WakeRequest, ...] = ()
    learnings: tuple[Mapping[str, Any], ...] = ()
    custom_tool: CustomToolRequest | None = None
    rejected: tuple[str, ...] = ()


class ParsedReply(msgspec.Struct, frozen=True):
    """A reply without its directive. `raw` is the directive with its tags, as the model wrote it."""

    message: str
    raw: str
    directive: Directive


def parse_reply(text: str) -> ParsedReply:
    """Split a reply into message and directive. Without a directive the agent sleeps, and its first sentence is the summary."""
    # A linear scan: a pattern over a text of a model could take quadratic time.
    end = text.rfind(CLOSING)
    start = text.rfind(OPENING, 0, end) if end >= 0 else -1
    if start < 0 and OPENING in text:
        message = text[: text.rfind(OPENING)].strip()
        rejected = (f"The directive has no {CLOSING}: nothing of it was read.",)
        return ParsedReply(message, text[text.rfind(OPENING) :], Directive(summary=summarize(message), rejected=rejected))
    if start < 0:
        return ParsedReply(text.strip(), "", Directive(summary=summarize(text)))
    after = end + len(CLOSING)
    message = f"{text[:start].rstrip()}\n{text[after:].lstrip()}".strip()
    raw = text[start:after]
    return ParsedReply(message, raw, _read(text[start + len(OPENING) : end], message))


def summarize(text: str) -> str:
    """The first sentence of a text, shortened."""
    line = " ".join(text.split())[: SUMMARY_LENGTH * 2]
    found = _SENTENCE.match(line)
    return (found.group(1) if found else line)[:SUMMARY_LENGTH]


def _read(raw: str, message: str) -> Directive:
    fallback = summarize(message)
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return Directive(summary=fallback, rejected=(f"The directive is not valid JSON: {error}.",))
    if not isinstance(data, dict):
        return Directive(summary=fallback, rejected=("The directive is not a JSON object.",))
    rejected = [f"{name[:80]}: unknown field." for name in data if name not in _FIELDS]
    wakes = tuple(_read_wakes(data.get("queuedWakes"), rejected))
    return Directive(
        outcome=_read_outcome(data.get("outcome"), rejected),
        summary=_read_summary(data.get("summary"), rejected) or fallback,
        follow_up_seconds=_read_follow_up(data.get("followUpSeconds"), rejected),
        wakes=wakes,
        learnings=tuple(_read_learnings(data.get("learnings"), rejected)),
        custom_tool=_read_custom_tool(data.get("customToolRequest"), rejected),
        rejected=tuple(_limit(rejected)),
    )


def _limit(rejected: list[str]) -> Iterator[str]:
    """The sentences for the model, each shortened. The last says how many were left out."""
    yield from (sanitize_text(text)[:300] for text in rejected[:MAX_REJECTED])
    if len(rejected) > MAX_REJECTED:
        yield f"The directive has {len(rejected) - MAX_REJECTED} more problems like these."


def _read_outcome(value: Any, rejected: list[str]) -> Literal["continue", "sleep"]:
    if value not in ("continue", "sleep", None):
        rejected.append("outcome: use continue or sleep; sleep was taken.")
    return "continue" if value == "continue" else "sleep"


def _read_summary(value: Any, rejected: list[str]) -> str:
    if value is not None and not isinstance(value, str):
        rejected.append("summary: not a text.")
    return " ".join(value.split())[:SUMMARY_LENGTH] if isinstance(value, str) else ""


def _read_follow_up(value: Any, rejected: list[str]) -> int:
    seconds = _read_seconds(value)
    if value is not None and seconds is None:
        rejected.append("followUpSeconds: not a number above 0.")
    if seconds is not None and value > MAX_DELAY_SECONDS:
        rejected.append("followUpSeconds: reduced to 24 hours.")
    return DEFAULT_FOLLOW_UP_SECONDS if seconds is None else seconds


def _read_seconds(value: Any) -> int | None:
    """Whole seconds from 1 to the longest delay; None for anything that is no positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    # Compared before it is rounded: an integer of a model may have more digits than any float.
    return MAX_DELAY_SECONDS if value >= MAX_DELAY_SECONDS else max(1, math.floor(value))


def _read_list(value: Any, name: str, most: int, rejected: list[str]) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        rejected.append(f"{name}: not a list.")
        return []
    if len(value) > most:
        rejected.append(f"{name}: only the first {most} of {len(value)} were taken.")
    return value[:most]


def _read_wakes(value: Any, rejected: list[str]) -> Iterator[WakeRequest]:
    for number, item in enumerate(_read_list(value, "queuedWakes", MAX_WAKES, rejected), 1):
        reason = item.get("reason") if isinstance(item, dict) else None
        seconds = _read_seconds(item.get("delaySeconds")) if isinstance(item, dict) else None
        if not isinstance(reason, str) or not reason.strip() or seconds is None:
            rejected.append(f"queuedWakes {number}: it needs a reason and a delaySeconds above 0.")
            continue
        if item["delaySeconds"] > MAX_DELAY_SECONDS:
            rejected.append(f"queuedWakes {number}: the delay was reduced to 24 hours.")
        priority = item.get("priority", "normal")
        if priority not in ("low", "normal", "high"):
            rejected.append(f"queuedWakes {number}: priority is low, normal or high; normal was taken.")
            priority = "normal"
        note, key = (_read_text(item, name, number, rejected) for name in ("note", "dedupeKey"))
        yield WakeRequest(_shorten(reason), seconds, note, key, priority)


def _read_text(item: Mapping[str, Any], name: str, number: int, rejected: list[str]) -> str:
    value = item.get(name)
    if value is not None and not isinstance(value, str):
        rejected.append(f"queuedWakes {number}: {name} is not a text; it was left out.")
    return _shorten(value) if isinstance(value, str) else ""


def _shorten(value: str) -> str:
    return sanitize_text(" ".join(value.split()))[:REASON_LENGTH]


def _read_learnings(value: Any, rejected: list[str]) -> Iterator[Mapping[str, Any]]:
    for number, item in enumerate(_read_list(value, "learnings", MAX_LEARNINGS, rejected), 1):
        texts = [item.get(name) for name in ("title", "detail")] if isinstance(item, dict) else [None]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            rejected.append(f"learnings {number}: it needs a title and a detail.")
            continue
        yield item


def _read_custom_tool(value: Any, rejected: list[str]) -> CustomToolRequest | None:
    if value is None:
        return None
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name.strip()):
        rejected.append("customToolRequest: it needs the name of a tool.")
        return None
    sent = value.get("input")
    if sent is not None and not isinstance(sent, dict):
        rejected.append("customToolRequest: input is not an object; an empty one was taken.")
    return CustomToolRequest(name.strip()[:64], sent if isinstance(sent, dict) else {})


class DirectiveFilter:
    """Removes the loop directive, which only the runtime reads. What could be the beginning of its tag is held back."""

    def __init__(self) -> None:
        self._held = ""
        self._is_inside = False

    def feed(self, text: str) -> str:
        """The text that can be shown after this piece."""
        self._held += text
        shown = ""
        while True:
            tag = CLOSING if self._is_inside else OPENING
            before, found, after = self._held.partition(tag)
            if not found:
                break
            shown += "" if self._is_inside else before
            self._held, self._is_inside = after, not self._is_inside
        keep = _count_beginning(self._held, tag)
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown + ("" if self._is_inside else ready)

    def reset(self) -> None:
        """Begin with another reply: a directive that was cut off must not hide the next text."""
        self._held, self._is_inside = "", False


def _count_beginning(text: str, tag: str) -> int:
    """How many characters at the end of the text are the beginning of the tag."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if text.endswith(tag[:size])), 0)
