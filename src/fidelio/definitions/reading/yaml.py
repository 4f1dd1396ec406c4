"""YAML reader: scalars of YAML 1.2, no tags, no merge keys, no duplicate keys, bounded size.

It uses the events of the parser, not its constructors and composer: the constructors implement YAML 1.1, where `no` is a
boolean and `010` an octal number, silently keep the last of two equal keys, and build objects; the composer recurses without
limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from fidelio.definitions.reading.positions import MAX_DEPTH, MAX_NODES, Path, Position, Positions, make_depth_error, make_error
from fidelio.errors import UnreadableDefinition

_Loader: Callable[[str], Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_A_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# The parser treats these as line ends, YAML 1.2 does not: text with them would be folded silently.
_FALSE_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


def parse(text: str, name: str) -> Any:
    return _Builder(text, name, None).document()


def locate(text: str) -> Positions:
    positions: Positions = {}
    _Builder(text, "", positions).document()
    return positions


class _Builder:
    """Builds plain data from events. `positions` is filled unless it is None."""

    def __init__(self, text: str, name: str, positions: Positions | None) -> None:
        self._name = name
        self._positions = positions
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open: set[str] = set()
        self._nodes = 0
        self._loader = _Loader(text)
        self._text = text

    def document(self) -> Any:
        if stray := _FALSE_LINE_ENDS.search(self._text):
            line = self._text.count("\n", 0, stray.start()) + 1
            sentence = f"There is an invisible line separator (U+{ord(stray.group()):04X}) in the text."
            raise make_error(self._name, "half-read", sentence, "Delete it, or write it as an escape in quotes.", at=(line, 1))
        try:
            return self._whole_stream()
        except yaml.MarkedYAMLError as problem:
            raise _make_syntax_error(self._name, problem) from None
        except yaml.YAMLError as problem:
            raise make_error(self._name, "unreadable", f"This is not YAML: {problem}.") from None

    def _whole_stream(self) -> Any:
        next_event = self._loader.get_event
        next_event()
        event = next_event()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        data = self._node(next_event(), (), 0)
        next_event()
        event = next_event()
        if not isinstance(event, yaml.StreamEndEvent):
            remedy = "Keep one document per file: delete everything from the second `---` on."
            raise self._refuse(event, "unreadable", "A second document begins here.", remedy)
        return data

    def _node(self, event: Any, path: Path, depth: int) -> Any:
        if self._positions is not None:
            self._positions.setdefault(path, _find_position(event))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None and event.tag != "!":
            remedy = "Write the value without a tag, in quotes if it is text."
            raise self._refuse(event, "unreadable", f"Tags such as {event.tag} are not supported.", remedy)
        before = self._count(event, 1)
        if event.anchor is None:
            return self._value(event, path, depth)
        self._open.add(event.anchor)
        data = self._value(event, path, depth)
        self._open.discard(event.anchor)
        self._anchors[event.anchor] = (data, self._nodes - before)
        return data

    def _value(self, event: Any, path: Path, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth >= MAX_DEPTH:
            raise make_depth_error(self._name, _find_position(event))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth + 1)
        return self._mapping(path, depth + 1)

    def _alias(self, event: Any) -> Any:
        if event.anchor in self._open or event.anchor not in self._anchors:
            raise self._refuse(event, "unreadable", f"The anchor of the alias *{event.anchor} is not defined before it.")
        data, size = self._anchors[event.anchor]
        self._count(event, size)
        return data

    def _count(self, event: Any, nodes: int) -> int:
        before = self._nodes
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            sentence = f"With its aliases expanded the file has more than {MAX_NODES} values."
            raise self._refuse(event, "too-large", sentence, "Use fewer aliases.")
        return before

    def _sequence(self, path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._loader.get_event(), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items)), depth))
        return items

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := self._loader.get_event(), yaml.MappingEndEvent):
            key = self._key(event)
            if key in mapping:
                remedy = "Delete one of the two, or put both values under one key."
                raise self._refuse(event, "duplicate-key", f"The key `{key}` is here for the second time.", remedy)
            here = (*path, key)
            if self._positions is not None:
                self._positions[here] = _find_position(event)
            mapping[key] = self._node(self._loader.get_event(), here, depth)
        return mapping

    def _key(self, event: Any) -> str:
        if isinstance(event, yaml.AliasEvent):
            key = self._alias(event)
            if isinstance(key, str):
                return key
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refuse(event, "unreadable", "A key has to be a plain word or text in quotes.")
        self._count(event, 1)
        if event.value == "<<" and event.implicit[0]:
            sentence = "YAML 1.2 has no merge key `<<`."
            raise self._refuse(event, "half-read", sentence, "Write the keys out.")
        if event.anchor is not None:
            self._anchors[event.anchor] = (event.value, 1)
        return str(event.value)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if not event.implicit[0] or event.tag == "!":
            return text
        if text in _WORDS:
            return _WORDS[text]
        return self._number(text, event) if text[0] in "+-.0123456789" else text

    def _number(self, text: str, event: Any) -> Any:
        try:
            if _INTEGER.fullmatch(text):
                return int(text)
            if _BASED.fullmatch(text):
                # Convert to decimal once: writing the number later has the same limit of digits.
                return int(str(int(text, 0)))
        except ValueError:
            raise self._refuse(event, "unreadable", "The number has too many digits.", "Put it in quotes.") from None
        if _FLOAT.fullmatch(text) and abs(value := float(text)) != float("inf"):
            return value
        if _NOT_A_NUMBER.fullmatch(text) or _FLOAT.fullmatch(text):
            raise self._refuse(event, "unreadable", f"{text} is outside of the range of JSON.", "Put it in quotes.")
        return text

    def _refuse(self, event: Any, rule: str, sentence: str, remedy: str = "") -> UnreadableDefinition:
        return make_error(self._name, rule, sentence, remedy, at=_find_position(event))


def _find_position(event: Any) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1)


def _make_syntax_error(name: str, problem: yaml.MarkedYAMLError) -> UnreadableDefinition:
    mark = problem.problem_mark or problem.context_mark
    at = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    what = " ".join(part for part in (problem.context, problem.problem) if part)
    remedy = "Put text with a colon, a hash or a leading special character in quotes, and indent with spaces."
    return make_error(name, "unreadable", f"This is not YAML: {what}.", remedy, at=at)
