"""Text that mentions commands. A command is a value: each surface renders it with its own program and home.

The plain form, `str(hint)`, names the program `fidelio`. It is what the record stores.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TypeAlias

PROGRAM = "fidelio"


class _Rendered:
    """Base of values that become text only when their program is known."""

    __slots__ = ()

    def render(self, program: str = PROGRAM, *, tools: bool = True) -> str:
        """Return the text for a surface: commands begin with `program`; `tools` says whether its users call tools."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.render()

    def __format__(self, _: str) -> str:
        raise TypeError("A command in a string cannot be rendered any more. Put it into a `Hint`, or render it first.")


class Command(_Rendered):
    """A command that a person can type. `tool` is the tool with the same effect, for people whose client calls tools."""

    __slots__ = ("tool", "words")

    def __init__(self, *words: str, tool: str = "") -> None:
        self.words, self.tool = words, tool

    def render(self, program: str = PROGRAM, *, tools: bool = True) -> str:
        return f"`{self.tool}`" if tools and self.tool else f"`{program} {shlex.join(self.words)}`"


class Hint(_Rendered):
    """A text with commands in it. Plain text in it stays as it is, also where it looks like a command."""

    __slots__ = ("segments",)

    def __init__(self, *segments: Text | Command) -> None:
        self.segments: tuple[str | Command, ...] = tuple(
            inner for segment in segments for inner in (segment.segments if isinstance(segment, Hint) else (segment,))
        )

    def render(self, program: str = PROGRAM, *, tools: bool = True) -> str:
        return "".join(render(segment, program, tools=tools) for segment in self.segments)

    def __bool__(self) -> bool:
        return any(self.segments)

    def map_text(self, function: Callable[[str], str]) -> Hint:
        """Return the hint with `function` applied to its plain text."""
        return Hint(*(function(segment) if isinstance(segment, str) else segment for segment in self.segments))


Text: TypeAlias = str | Hint


def render(text: Text | Command, program: str = PROGRAM, *, tools: bool = True) -> str:
    """Return a text, or a text with commands, as a surface shows it."""
    return text if isinstance(text, str) else text.render(program, tools=tools)
