"""Format of notes: a line each, `[tag] key=value … nextTool=… nextArgs=… nextWhy=…`. Pure.

Values come from users, files and other sessions. So each stays on its line and cannot close the block that the notes stand in:
a value that is not a plain word is a JSON string, in which `<` is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.ledger.long_text import sanitize_text, shorten_to_line
from fidelio.runtime.tools.definitions import DEFINITIONS

# All notes of a wake together, with the ends of their lines.
MAX_CHARACTERS = 2_400
_MAX_ARGS = 300
_LENGTHS = (120, 60, 30)
_PLAIN = re.compile(r"[\w./:+-]+", re.ASCII)
# Notes that are left out first when all together are too long.
_DISPENSABLE = ("session-candidate", "skill-candidate", "retrieval-candidate", "retrieval-plan", "setup-drift", "read-first")


class Note(msgspec.Struct, frozen=True):
    """A note before it is a line. `step` is the suggested call `{tool, args, rationale}`."""

    tag: str
    fields: Mapping[str, Any]
    step: Mapping[str, Any] | None = None


def render(notes: Sequence[Note], tools: frozenset[str]) -> tuple[str, ...]:
    """The lines of the notes in their order, within the bound for all of them."""
    left = list(notes)
    for length in _LENGTHS:
        lines = _render_all(left, tools, length)
        if _count(lines) <= MAX_CHARACTERS:
            return lines
    for tag in (*_DISPENSABLE, *(note.tag for note in reversed(notes))):
        while any(note.tag == tag for note in left):
            # The last of several is the least useful.
            left.remove(next(note for note in reversed(left) if note.tag == tag))
            lines = _render_all(left, tools, _LENGTHS[-1])
            if _count(lines) <= MAX_CHARACTERS:
                return lines
    return ()


def _count(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _render_all(notes: Iterable[Note], tools: frozenset[str], length: int) -> tuple[str, ...]:
    return tuple(_render_note(note, tools, length) for note in notes)


def _render_note(note: Note, tools: frozenset[str], length: int) -> str:
    fields = [f"{name}={_quote(value, length)}" for name, value in note.fields.items() if value not in (None, "", [], ())]
    step = check_step(note.step, tools)
    if step is not None:
        why = _quote(step["rationale"], length)
        fields += [f"nextTool={step['tool']}", f"nextArgs={_encode(step['args'])}", f"nextWhy={why}"]
    return " ".join((f"[{note.tag}]", *fields))


def check_step(step: Mapping[str, Any] | None, tools: frozenset[str]) -> Mapping[str, Any] | None:
    """The suggested call, if the agent has the tool and the tool accepts the arguments."""
    if step is None or step.get("tool") not in tools:
        return None
    definition = DEFINITIONS.get(step["tool"])
    if definition is None or len(_encode(step["args"])) > _MAX_ARGS:
        return None
    try:
        msgspec.convert(step["args"], definition.parameters)
    except msgspec.ValidationError:
        return None
    return step


def _quote(value: Any, length: int) -> str:
    if isinstance(value, bool) or value is None:
        return _encode(value)
    if isinstance(value, list | tuple):
        return ",".join(_quote(item, length) for item in value)
    text = shorten_to_line(str(value), length)
    return text if _PLAIN.fullmatch(text) else _encode(text)


def _encode(value: Any) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        # A lone surrogate.
        text = msgspec.json.encode(sanitize_text(str(value))).decode()
    return text.replace("<", "\\u003c")
