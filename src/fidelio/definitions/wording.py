"""Describe conditions, effects, loops and counts in plain English.

The text view, the drawings and lint use the same wording for the same condition.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from fidelio.definitions.models import And, Condition, Effect, Loop, Or, Simple

_EXISTENCE = {"exists": "is known", "notExists": "is not known"}
_OPERATORS = {
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


def describe_condition(condition: Condition) -> str:
    """The condition as a phrase that can stand after "if"."""
    # By the type that it declares: looking at the class of a model takes longer than the rest.
    match condition.type:
        case "simple":
            return _describe_comparison(condition)
        case "not":
            return f"not ({describe_condition(condition.condition)})"
        case "and":
            return " and ".join(_describe_operand(part, other=Or) for part in condition.conditions)
        case "or":
            return " or ".join(_describe_operand(part, other=And) for part in condition.conditions)


def _describe_operand(condition: Condition, *, other: type[And | Or]) -> str:
    words = describe_condition(condition)
    return f"({words})" if isinstance(condition, other) else words


def _describe_comparison(condition: Simple) -> str:
    name, value = describe_name(condition.variable), condition.value
    if condition.operator in _EXISTENCE:
        return f"{name} {_EXISTENCE[condition.operator]}"
    if condition.operator == "==" and value is True:
        return name
    if (condition.operator == "==" and value is False) or (condition.operator == "!=" and value is True):
        return _negate_name(name)
    return f"{name} {_OPERATORS[condition.operator]} {describe_value(value)}"


def _negate_name(name: str) -> str:
    """Negate a phrase: "is ready" becomes "is not ready", "needs research" "needs no research", "tested" "not tested"."""
    verb, _, rest = name.partition(" ")
    if verb not in _NEGATED or not rest:
        return f"not {name}"
    word = "not" if rest.startswith("been ") else _NEGATED[verb]
    return f"{verb} {word} {rest}"


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
        words += f", until {describe_condition(loop.break_condition)}"
    return f"{words}, at most {describe_count(loop.max_iterations, 'time')}"


def _describe_optional(condition: Condition | None) -> str:
    return "needed" if condition is None else describe_condition(condition)
