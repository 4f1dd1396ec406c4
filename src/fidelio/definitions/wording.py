"""Conditions, effects and amounts in plain words, the same in every place that shows them.

`show`, the drawings and lint speak about the same conditions. A reader who meets one in a picture should find it again in
the text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from fidelio.definitions.models import And, Condition, Effect, Loop, Not, Or, Simple

_EXISTENCE = {"exists": "is known", "notExists": "is not known"}
_COMPARED = {
    "==": "is",
    "!=": "is not",
    ">": "is more than",
    "<": "is less than",
    ">=": "is at least",
    "<=": "is at most",
}


_NEGATED = {
    **dict.fromkeys(("is", "was", "can", "may", "must", "should", "will"), "not"),
    **dict.fromkeys(("has", "needs", "requires", "wants"), "no"),
}
_LIKES = str.maketrans(
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


def in_ascii(text: str) -> str:
    """The text for a terminal that shows nothing else: signs by their likes, letters without their accents."""
    plain = unicodedata.normalize("NFKD", text.translate(_LIKES))
    letters = "".join(character for character in plain if not unicodedata.combining(character))
    return letters.encode("ascii", "replace").decode("ascii")


def spoken(name: str) -> str:
    """A variable or id as words: `needs_research` is "needs research"."""
    return name.replace("_", " ").replace("-", " ").strip() or name


def counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Iterable[str], last: str = "and") -> str:
    """ "a", "a and b", "a, b and c"."""
    *first, final = list(words) or [""]
    return f"{', '.join(first)} {last} {final}" if first else final


def value_in_words(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"“{value}”"
    return str(value)


def condition_in_words(condition: Condition) -> str:
    """The condition as a phrase that can stand after "if"."""
    match condition:
        case Simple():
            return _comparison(condition)
        case Not():
            return f"not ({condition_in_words(condition.condition)})"
        case And():
            return " and ".join(_part(part, beside=Or) for part in condition.conditions)
        case Or():
            return " or ".join(_part(part, beside=And) for part in condition.conditions)


def _part(condition: Condition, *, beside: type[And | Or]) -> str:
    words = condition_in_words(condition)
    return f"({words})" if isinstance(condition, beside) else words


def _comparison(condition: Simple) -> str:
    name, value = spoken(condition.variable), condition.value
    if condition.operator in _EXISTENCE:
        return f"{name} {_EXISTENCE[condition.operator]}"
    if condition.operator == "==" and value is True:
        return name
    if (condition.operator == "==" and value is False) or (condition.operator == "!=" and value is True):
        return _negated(name)
    return f"{name} {_COMPARED[condition.operator]} {value_in_words(value)}"


def _negated(name: str) -> str:
    """ "is ready" becomes "is not ready", "needs research" becomes "needs no research", "tested" becomes "not tested"."""
    verb, _, rest = name.partition(" ")
    if verb not in _NEGATED or not rest:
        return f"not {name}"
    word = "not" if rest.startswith("been ") else _NEGATED[verb]
    return f"{verb} {word} {rest}"


def effect_in_words(effect: Effect) -> str:
    """What choosing an option changes, as one phrase; empty when it changes nothing."""
    parts = [f"sets {name} to {value_in_words(value)}" for name, value in effect.set_variable.items()]
    if effect.skip_activities:
        parts.append(f"skips {listed(effect.skip_activities)}")
    if effect.transition_to:
        parts.append(f"goes to {effect.transition_to}")
    return ", ".join(parts)


def loop_in_words(loop: Loop) -> str:
    """When the loop goes on, as one phrase."""
    match loop.type:
        case "forEach":
            words = f"for each {spoken(loop.variable or 'item')} of {spoken(loop.over or 'a list')}"
        case "while":
            words = f"while {_or_unsaid(loop.condition)}"
        case "doWhile":
            words = f"once, then again while {_or_unsaid(loop.condition)}"
    if loop.break_condition is not None:
        words += f", until {condition_in_words(loop.break_condition)}"
    return f"{words}, at most {counted(loop.max_iterations, 'time')}"


def _or_unsaid(condition: Condition | None) -> str:
    return "needed" if condition is None else condition_in_words(condition)
