"""Render a condition as one line of text, and compare an agent's claim with it.

`render_condition` writes parentheses where the line would be ambiguous. `render_plain_condition` never does; it is the form
that agents know from other servers. A claim may use either form, with its own spacing and quotes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fidelio.definitions.models.condition import Condition, Simple

_encode = json.JSONEncoder(ensure_ascii=False).encode
_CONNECTIVES = {"and": " AND ", "or": " OR "}
_SPELLINGS = ((re.compile(r"\s*&&\s*|\s+and\s+"), " AND "), (re.compile(r"\s*\|\|\s*|\s+or\s+"), " OR "))
_OPERATOR = re.compile(r"\s*(==|!=|>=|<=|>|<)\s*")


def render_condition(condition: Condition) -> str:
    if condition.type == "simple":
        return _render_simple(condition)
    if condition.type == "not":
        return f"NOT ({render_condition(condition.condition)})"
    parts = (_render_operand(part, inside=condition.type) for part in condition.conditions)
    return _CONNECTIVES[condition.type].join(parts)


def render_plain_condition(condition: Condition) -> str:
    if condition.type == "simple":
        return _render_simple(condition) + (" undefined" if "xists" in condition.operator and condition.value is None else "")
    if condition.type == "not":
        return f"NOT ({render_plain_condition(condition.condition)})"
    return _CONNECTIVES[condition.type].join(render_plain_condition(part) for part in condition.conditions)


def matches_condition(claim: str, condition: Condition) -> bool:
    """Whether the claim states this condition, in either form."""
    return _normalize(claim) in (_normalize(render_condition(condition)), _normalize(render_plain_condition(condition)))


def matches_text(claim: str, text: str) -> bool:
    return _normalize(claim) == _normalize(text)


def _render_operand(condition: Condition, *, inside: str) -> str:
    words = render_condition(condition)
    return f"({words})" if condition.type in _CONNECTIVES and condition.type != inside else words


def _render_simple(condition: Simple) -> str:
    if condition.operator in ("exists", "notExists"):
        return f"{condition.variable} {condition.operator}"
    return f"{condition.variable} {condition.operator} {_encode(condition.value)}"


def _normalize(text: str) -> str:
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return " ".join(_OPERATOR.sub(r" \1 ", text.replace('"', "").replace("'", "")).split())
