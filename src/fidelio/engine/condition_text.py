"""A condition as one line, to be shown and to be claimed.

Two forms: `text_of` is what we write, with parentheses where the line could be read in two ways; `plain_text_of` is the form
that agents know from elsewhere, which never has them. A claim may use either, with its own spacing and quotes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fidelio.definitions.models.condition import Condition, Simple

_ENCODED = json.JSONEncoder(ensure_ascii=False).encode
_JOINT = {"and": " AND ", "or": " OR "}
_SPELLINGS = ((re.compile(r"\s*&&\s*|\s+and\s+"), " AND "), (re.compile(r"\s*\|\|\s*|\s+or\s+"), " OR "))
_OPERATOR = re.compile(r"\s*(==|!=|>=|<=|>|<)\s*")


def text_of(condition: Condition) -> str:
    if condition.type == "simple":
        return _simple(condition)
    if condition.type == "not":
        return f"NOT ({text_of(condition.condition)})"
    parts = (_part(part, inside=condition.type) for part in condition.conditions)
    return _JOINT[condition.type].join(parts)


def plain_text_of(condition: Condition) -> str:
    if condition.type == "simple":
        return _simple(condition) + (" undefined" if "xists" in condition.operator and condition.value is None else "")
    if condition.type == "not":
        return f"NOT ({plain_text_of(condition.condition)})"
    return _JOINT[condition.type].join(plain_text_of(part) for part in condition.conditions)


def says(claim: str, condition: Condition) -> bool:
    """Whether the claim is this condition, in either form."""
    return _normal(claim) in (_normal(text_of(condition)), _normal(plain_text_of(condition)))


def same_words(claim: str, text: str) -> bool:
    return _normal(claim) == _normal(text)


def _part(condition: Condition, *, inside: str) -> str:
    words = text_of(condition)
    return f"({words})" if condition.type in _JOINT and condition.type != inside else words


def _simple(condition: Simple) -> str:
    if condition.operator in ("exists", "notExists"):
        return f"{condition.variable} {condition.operator}"
    return f"{condition.variable} {condition.operator} {_ENCODED(condition.value)}"


def _normal(text: str) -> str:
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return " ".join(_OPERATOR.sub(r" \1 ", text.replace('"', "").replace("'", "")).split())
