"""Parser for a single simple shell command: the words that bash would run, or nothing.

Whatever could mean more than its words (operators, substitutions, redirections, assignments, wildcards, tilde, braces, history,
comments, keywords) is not parsed. Two independent readers must agree on every word: a lexer that knows only plain and quoted
characters, and the grammar of tree-sitter-bash. Nothing here runs anything.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

MAX_LENGTH = 10_000
_BLANKS = " \t"
# Characters without a meaning of their own in an unquoted word, and in double quotes.
_PLAIN = re.compile(r"""[^\s$`;&|<>(){}*?\[~!'"\\]+""")
_QUOTED = re.compile(r"""[^"$`!\\]+""")
# Control characters but tab and newline, and lone surrogates, which have no bytes.
_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "in", "until", "while", "do", "done", "case", "esac", "select", "function"}
    | {"time", "coproc", "{", "}", "[[", "]]", "!"}
)
_NODES = frozenset(
    {"command", "command_name", "word", "number", "raw_string", "string", "string_content", '"', "concatenation"}
)
_LOCK = threading.Lock()


class Word(NamedTuple):
    """A word after quote removal, and where it is in the text."""

    value: str
    start: int
    end: int


class Unclear(Exception):
    """The text may mean more than its words."""


def parse_command(text: str) -> tuple[str, ...] | None:
    """Return the words of a text that is a single simple command; None for everything else."""
    if len(text) > MAX_LENGTH or _UNREADABLE.search(text):
        return None
    try:
        words = list(_Lexer(text.strip(" \t\n")).words())
    except Unclear:
        return None
    if not words or words[0].value in _KEYWORDS or "=" in words[0].value or words[0].value.startswith(("^", "%")):
        return None
    return tuple(word.value for word in words) if _grammar_agrees(text.strip(" \t\n"), words) else None


class _Lexer:
    """Splits a text at blanks and removes quotes. Raises Unclear at anything that is not a plain or quoted character."""

    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0

    def words(self) -> Iterator[Word]:
        while True:
            while self._peek() and self._peek() in _BLANKS:
                self._position += 1
            if not self._peek():
                return
            if self._peek() == "#":
                raise Unclear
            start = self._position
            value = "".join(self._segments())
            yield Word(value, start, self._position)

    def _segments(self) -> Iterator[str]:
        readers = {"'": self._single_quoted, '"': self._double_quoted, "\\": self._escaped}
        while (character := self._peek()) and character not in _BLANKS:
            reader = readers.get(character)
            yield reader() if reader else self._run(_PLAIN)

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _run(self, allowed: re.Pattern[str]) -> str:
        found = allowed.match(self._text, self._position)
        if found is None:
            raise Unclear
        self._position = found.end()
        return found.group()

    def _escaped(self) -> str:
        character = self._text[self._position + 1 : self._position + 2]
        if not character or character == "\n":
            raise Unclear
        self._position += 2
        return character

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._position + 1)
        if end < 0:
            raise Unclear
        value = self._text[self._position + 1 : end]
        self._position = end + 1
        return value

    def _double_quoted(self) -> str:
        self._position += 1
        value = []
        while (character := self._peek()) != '"':
            value.append(self._escaped_in_quotes() if character == "\\" else self._run(_QUOTED))
        self._position += 1
        return "".join(value)

    def _escaped_in_quotes(self) -> str:
        character = self._text[self._position + 1 : self._position + 2]
        if character in ("", "\n", "!"):
            raise Unclear
        self._position += 2
        return character if character in '$`"\\' else f"\\{character}"


def _grammar_agrees(text: str, words: list[Word]) -> bool:
    source = text.encode("utf-8")
    # A parser is not safe for threads, and building one costs more than a parse.
    with _LOCK:
        tree = _parser().parse(source)
    root = tree.root_node
    if root.has_error or root.type != "program" or root.child_count != 1:
        return False
    command = root.children[0]
    if command.type != "command" or not all(node.type in _NODES for node in _descend(command)):
        return False
    spans = [(child.start_byte, child.end_byte) for child in command.children]
    return spans == [_byte_span(text, word) for word in words]


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def _descend(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending += current.children


def _byte_span(text: str, word: Word) -> tuple[int, int]:
    if text.isascii():
        return word.start, word.end
    return len(text[: word.start].encode("utf-8")), len(text[: word.end].encode("utf-8"))
