"""Sentences for the events of an agent session: what happened, without hashes and values of the program.

Pure. An event that is not known here, as of a newer version, is shown by its type and its plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fidelio.ledger.model import Event
from fidelio.surfaces.text import quote_name

_MAX_PATH = 200
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
Body = Mapping[str, Any]


def describe_agent_event(event: Event) -> str:
    """What happened, as an unescaped text; it may have several lines."""
    describe = _SENTENCES.get(event.type)
    return describe_values(event) if describe is None or event.redacted else describe(event.body)


def describe_usage(usage: Body) -> str:
    """What a run has used: `1,200 tokens in, 40 out, 3 turns, $0.25`."""
    tokens = f"{int(usage.get('input_tokens', 0)):,} tokens in, {int(usage.get('output_tokens', 0)):,} out"
    turns, cost = int(usage.get("turns", 0)), float(usage.get("cost_usd", 0.0))
    counted = f", {turns} {'turn' if turns == 1 else 'turns'}" if turns else ""
    return f"{tokens}{counted}{f', ${cost:.2f}' if cost else ''}"


def format_duration(milliseconds: int) -> str:
    """A duration for people: `0.8 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_age(seconds: int) -> str:
    """How long something waits, in the largest unit alone: `3 min`."""
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size} {unit}"


def _text(part: Any) -> str:
    """The text of a body, which is stored with its size if it may be cut."""
    return str(part.get("text", "")) if isinstance(part, Mapping) else str(part or "")


def _created(body: Body) -> str:
    executor = f", executor {quote_name(body['executor'])}" if body.get("executor") else ""
    return f"session from blueprint {quote_name(body.get('blueprint') or 'none')}{executor}"


def _queued(body: Body) -> str:
    return f"run {body.get('number', '')} is queued: {_text(body.get('prompt'))}"


def _returned(body: Body) -> str:
    return f"{'the tool answered' if body.get('ok', True) else 'the tool failed'}: {_text(body.get('text'))}"


def _message(body: Body) -> str:
    return f"a message waits for the next turn: {_text(body.get('text') or body.get('message'))}"


def _delivered(body: Body) -> str:
    count = len(body.get("messages") or ())
    return f"{count} {'message' if count == 1 else 'messages'} delivered"


def _ended(state: str) -> Callable[[Body], str]:
    def describe(body: Body) -> str:
        duration = f" after {format_duration(int(body['ms']))}" if "ms" in body else ""
        text = _text(body.get("detail")) or _text(body.get("result"))
        return f"{state}{duration}{f': {text}' if text else ''}"

    return describe


def describe_values(event: Event) -> str:
    """An event without words: its type and its plain values."""
    if event.redacted:
        return "(erased)"
    plain = {key: value for key, value in event.body.items() if isinstance(value, str | int | float) and key != "run"}
    values = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in plain.items())
    return f"{event.type} {values}".rstrip()


_SENTENCES: dict[str, Callable[[Body], str]] = {
    "session.created": _created,
    "session.deleted": lambda _: "the session is deleted",
    "run.queued": _queued,
    "run.starting": lambda _: "the run begins",
    "run.process": lambda _: "its process has started",
    "run.conversation": lambda _: "the conversation is known, so it can be resumed",
    "run.used": lambda body: f"has used {describe_usage(body.get('usage') or {})}",
    "run.waiting": lambda body: f"waits for a person: {body.get('request', '')}",
    "run.going-on": lambda body: f"goes on after {body.get('request', 'an answer')}",
    "run.stop-requested": lambda body: f"is to be stopped, by {quote_name(str(body.get('by', '')))}",
    "run.again": lambda _: "is asked again, because its result could not be used",
    "run.succeeded": _ended("succeeded"),
    "run.failed": _ended("failed"),
    "run.stopped": _ended("stopped"),
    "run.lost": _ended("lost"),
    "agent.said": lambda body: f"says: {_text(body.get('said')) or _text(body.get('brief'))}",
    "agent.called": lambda body: f"uses {quote_name(str(body.get('tool', 'a tool')))}",
    "agent.returned": _returned,
    "message.queued": _message,
    "message.delivered": _delivered,
    "worktree.created": lambda body: f"works in {quote_name(str(body.get('path', '')), _MAX_PATH)}",
    "callback.delivered": lambda _: "its result was sent to the session that started it",
}
