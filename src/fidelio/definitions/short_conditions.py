"""Conditions as a line of text: `tests_passed == false`, `count > 3 and not done`. The parser and its inverse.

    condition  = and-part { ("or" | "||") and-part }
    and-part   = operand { ("and" | "&&") operand }
    operand    = ("not" | "!") operand | "(" condition ")" | comparison
    comparison = name [ operator value | "exists" | "notExists" ]
    value      = text in quotes | number | true | false | null

A name alone means that it is true. A name that is a word of the language, or has other signs, is put between backquotes.

Pure: the parser returns plain data of the form that a file may also have, and knows nothing of models or files. Words of the
language are accepted in capitals too, because that is how sessions show conditions to agents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fidelio.definitions.models.condition import Condition, Simple

Parsed = dict[str, Any]

MAX_LENGTH = 10_000
# Deeper than any condition that a person reads, and far below the limit of the interpreter.
MAX_DEPTH = 50
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<name>[^\W\d][\w-]*(?:\.[\w-]+)*)
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<number>-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Infinity))
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign>==|!=|>=|<=|>|<|&&|\|\||[()!])
    )""",
    re.VERBOSE,
)
_CONNECTIVES = {"and": "and", "&&": "and", "or": "or", "||": "or"}
_OPERATORS = frozenset({"==", "!=", ">", "<", ">=", "<="})
_EXISTENCE = {"exists": "exists", "notexists": "notExists"}
_LITERALS = {"true": True, "false": False, "null": None}
_WORDS = frozenset({"and", "or", "not", *_EXISTENCE, *_LITERALS, "infinity"})
_PLAIN_NAME = re.compile(r"[^\W\d][\w-]*(?:\.[\w-]+)*")


class ShortConditionError(ValueError):
    """A condition that cannot be read. `offset` counts the characters before the error, `remedy` says what to write."""

    def __init__(self, offset: int, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.offset, self.sentence, self.remedy = offset, sentence, remedy


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int

    @property
    def word(self) -> str:
        """The token as a word of the language; empty for a name in backquotes and for a text."""
        return self.text.casefold() if self.kind in ("name", "sign") else ""


def parse_short_condition(text: str) -> Parsed:
    """Parse a condition; raise `ShortConditionError` with the offset of the error."""
    if len(text) > MAX_LENGTH:
        raise ShortConditionError(0, f"It has more than {MAX_LENGTH} characters.", "Split it, or write it as a mapping.")
    parser = _Parser(_split(text), len(text))
    condition = parser.condition(0)
    parser.expect_end()
    return condition


def _split(text: str) -> list[_Token]:
    tokens, offset, end = list[_Token](), 0, len(text.rstrip())
    while offset < end:
        match = _TOKEN.match(text, offset)
        if match is None or match.lastgroup is None:
            offset += len(text[offset:]) - len(text[offset:].lstrip())
            raise _explain_sign(text, offset)
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        offset = match.end()
    return tokens


def _explain_sign(text: str, offset: int) -> ShortConditionError:
    sign = text[offset]
    if sign == "=":
        return ShortConditionError(offset, "A single = compares nothing.", "Write == for equal and != for not equal.")
    if sign in "\"'`":
        return ShortConditionError(offset, f"The {sign} is not closed.", f"Put a {sign} at the end of the text.")
    return ShortConditionError(offset, f"{sign!r} means nothing here.", "Compare with ==, !=, >, <, >= or <=.")


class _Parser:
    """Recursive descent over the tokens of a condition."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = [*tokens, _Token("end", "", end)]
        self._at = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _advance(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def condition(self, depth: int) -> Parsed:
        return self._join("or", lambda: self._join("and", lambda: self._operand(depth)))

    def _join(self, connective: str, read: Callable[[], Parsed]) -> Parsed:
        operands = [read()]
        while _CONNECTIVES.get(self._next.word) == connective:
            self._advance()
            operands.append(read())
        return operands[0] if len(operands) == 1 else {"type": connective, "conditions": operands}

    def _operand(self, depth: int) -> Parsed:
        token = self._next
        if depth > MAX_DEPTH:
            raise ShortConditionError(token.offset, "It is nested too deeply.", "Split the condition.")
        if token.word in ("not", "!"):
            self._advance()
            return {"type": "not", "condition": self._operand(depth + 1)}
        if token.word != "(":
            return self._comparison()
        self._advance()
        inner = self.condition(depth + 1)
        if self._advance().word != ")":
            raise ShortConditionError(token.offset, "This parenthesis is not closed.", "Add ) where it ends.")
        return inner

    def _comparison(self) -> Parsed:
        name = _read_name(self._advance())
        if (operator := _EXISTENCE.get(self._next.word)) is not None:
            self._advance()
            return {"type": "simple", "variable": name, "operator": operator}
        if self._next.word not in _OPERATORS:
            return {"type": "simple", "variable": name, "operator": "==", "value": True}
        operator = self._advance().word
        return {"type": "simple", "variable": name, "operator": operator, "value": _read_value(self._advance())}

    def expect_end(self) -> None:
        token = self._next
        if token.kind == "end":
            return
        if token.word == ")":
            raise ShortConditionError(token.offset, "Nothing is open that this ) could close.", "Delete it.")
        raise ShortConditionError(
            token.offset, f"{token.text!r} stands where the condition ends.", "Join two conditions with `and` or `or`."
        )


def _read_name(token: _Token) -> str:
    if token.kind == "quoted":
        return token.text[1:-1].replace("``", "`")
    if token.kind == "name" and token.word not in _WORDS:
        return token.text
    found = repr(token.text) if token.text else "the end"
    raise ShortConditionError(
        token.offset,
        f"The name of a variable is expected here, not {found}.",
        "Write the variable first, such as `count > 3`; put a name like this one between backquotes.",
    )


def _read_value(token: _Token) -> Any:
    if token.kind == "number":
        return _read_number(token)
    if token.kind == "text":
        return _read_text(token)
    if token.word in _LITERALS:
        return _LITERALS[token.word]
    if token.word == "infinity":
        return float("inf")
    if token.kind == "name":
        remedy = f'Put text in quotes: "{token.text}". A condition compares a variable with a value, not with another variable.'
        raise ShortConditionError(token.offset, f"{token.text!r} is not a value.", remedy)
    raise ShortConditionError(
        token.offset, "A value is expected here.", "Compare with text in quotes, a number, true, false or null."
    )


def _read_number(token: _Token) -> int | float:
    try:
        return int(token.text) if token.text.lstrip("-").isdecimal() else float(token.text.replace("Infinity", "inf"))
    except ValueError as error:
        raise ShortConditionError(token.offset, "This number has too many digits.", "Write a smaller number.") from error


def _read_text(token: _Token) -> str:
    text = token.text
    if text.startswith("'"):
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        return str(json.loads(text, strict=False))
    except ValueError as error:
        raise ShortConditionError(
            token.offset, "A backslash in this text does not begin an escape.", "Write two backslashes for one."
        ) from error


def render_short_condition(condition: Condition) -> str:
    """The condition as the line that parses to it, up to the grouping of nested `and` and `or`."""
    if condition.type == "simple":
        return _render_comparison(condition)
    if condition.type == "not":
        inner = render_short_condition(condition.condition)
        return f"not {inner}" if _is_flag(condition.condition) else f"not ({inner})"
    return f" {condition.type} ".join(_render_operand(part, condition.type) for part in condition.conditions)


def _render_operand(part: Condition, inside: str) -> str:
    text = render_short_condition(part)
    return f"({text})" if part.type in ("and", "or") and part.type != inside else text


def _render_comparison(condition: Simple) -> str:
    name = render_name(condition.variable)
    if condition.operator in ("exists", "notExists"):
        return f"{name} {condition.operator}"
    return name if _is_flag(condition) else f"{name} {condition.operator} {_encode(condition.value)}"


def _is_flag(condition: Condition) -> bool:
    return condition.type == "simple" and condition.operator == "==" and condition.value is True


def render_name(name: str) -> str:
    """A variable as a condition names it."""
    if _PLAIN_NAME.fullmatch(name) and name.casefold() not in _WORDS:
        return name
    return f"`{name.replace('`', '``')}`"


_encode = json.JSONEncoder(ensure_ascii=False).encode
