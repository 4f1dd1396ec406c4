"""Describe effects, loops and counts in plain English.

The text view, the drawings and lint use the same wording. Conditions are shown in their short form, as a file may have them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from fidelio.definitions.models import Condition, Effect, Loop
from fidelio.definitions.short_conditions import render_short_condition

_ASCII_SIGNS = str.maketrans(
    {
        "\N{EM DASH}": "-",
        "\N{EN DASH}": "-",
        "\N{MIDDLE DOT}": "-",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHTWARDS ARROW}": "->",
        "\N{RIGHTWARDS DOUBLE ARROW}": "=>",
        "\N{CLOCKWISE OPEN CIRCLE ARROW}": "@",
        "\N{WHITE DIAMOND}": "<>",
    }
)


def to_ascii(text: str) -> str:
    """Convert to ASCII: signs to similar ones, letters without accents."""
    plain = unicodedata.normalize("NFKD", text.translate(_ASCII_SIGNS))
    letters = "".join(character for character in plain if not unicodedata.combining(character))
    return letters.encode("ascii", "replace").decode("ascii")


def describe_name(name: str) -> str:
    """A variable name or id as words: `needs_research` becomes "needs research"."""
    return name.replace("_", " ").replace("-", " ").strip() or name


def describe_count(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def join_words(words: Iterable[str], last: str = "and") -> str:
    """Join with commas and a last word: "a", "a and b", "a, b and c"."""
    *first, final = list(words) or [""]
    return f"{', '.join(first)} {last} {final}" if first else final


def describe_value(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"“{value}”"
    return str(value)


def describe_effect(effect: Effect) -> str:
    """The effect of an option as a phrase; empty if it has none."""
    phrases = [f"sets {name} to {describe_value(value)}" for name, value in effect.set_variable.items()]
    if effect.skip_activities:
        phrases.append(f"skips {join_words(effect.skip_activities)}")
    if effect.transition_to:
        phrases.append(f"goes to {effect.transition_to}")
    return ", ".join(phrases)


def describe_loop(loop: Loop) -> str:
    """The condition of the loop as a phrase."""
    match loop.type:
        case "forEach":
            words = f"for each {describe_name(loop.variable or 'item')} of {describe_name(loop.over or 'a list')}"
        case "while":
            words = f"while {_describe_optional(loop.condition)}"
        case "doWhile":
            words = f"once, then again while {_describe_optional(loop.condition)}"
    if loop.break_condition is not None:
        words += f", until {render_short_condition(loop.break_condition)}"
    return f"{words}, at most {describe_count(loop.max_iterations, 'time')}"


def _describe_optional(condition: Condition | None) -> str:
    return "needed" if condition is None else render_short_condition(condition)
