"""Search in the content of files: `grep_text`.

Files are read in blocks and matched line by line; only LF ends a line. A pattern of a caller may take exponential time, so this
runs in a child process of pid 1 that is killed after a deadline. Binary files are counted, not searched.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fidelio.sandbox.inside.failures import Failure, display, flag_argument, number_argument, text_argument
from fidelio.sandbox.inside.ignore import IgnoreRules
from fidelio.sandbox.inside.search import MAX_FOUND, kind_argument
from fidelio.sandbox.inside.tree import Entry, Tree, kind_of, path_argument
from fidelio.sandbox.inside.walk import TreeWalk

Output = dict[str, Any]
_BLOCK = 1 << 20
# A file with a longer line is data, not text.
_LONGEST_LINE = 4 << 20
# What is shown of a long line, and how much of that before the match.
_SHOWN, _BEFORE = 400, 120

# The offset of the first match in a line, or None.
Matcher = Callable[[str], "int | None"]


class MatchingLine(NamedTuple):
    """A line that matches, and where."""

    line: int
    text: str
    offset: int


class Binary(Exception):
    """The file is not text."""


class Search:
    """The state of a search: what was found, and what was passed over."""

    def __init__(self, query: str, *, is_regex: bool, is_case_sensitive: bool, limit: int) -> None:
        self._matcher = _compile(query, is_regex, is_case_sensitive)
        # Most blocks of most files contain nothing: looking for the bytes first spares decoding them.
        self._needle = query.encode("utf-8", "surrogateescape") if is_case_sensitive and not is_regex else b""
        self._limit = limit
        self.matches: list[Output] = []
        self.searched = self.binary = self.unreadable = 0

    @property
    def is_full(self) -> bool:
        return len(self.matches) > self._limit

    def search_file(self, tree: Tree, path: str) -> None:
        """Search a file of a directory; what cannot be searched is counted."""
        try:
            self.search_named(tree, path)
        except (OSError, Failure):
            # Removed meanwhile, not readable, or not a regular file any more.
            self.unreadable += 1

    def search_named(self, tree: Tree, path: str) -> None:
        descriptor, _ = tree.open_file(path)
        self.searched += 1
        shown = display(path)
        try:
            for hit in self._hits(descriptor):
                self.matches.append({"path": shown, "line": hit.line, **_shown_text(hit)})
                if self.is_full:
                    return
        except Binary:
            self.binary += 1
        finally:
            os.close(descriptor)

    def output(self, *, is_complete: bool) -> Output:
        matches = self.matches[: self._limit]
        counts = {"filesSearched": self.searched, "skippedBinary": self.binary}
        more = {"unreadableFiles": self.unreadable} if self.unreadable else {}
        return {"matches": matches, "count": len(matches), "truncated": self.is_full or not is_complete, **counts, **more}

    def _hits(self, descriptor: int) -> Iterator[MatchingLine]:
        line = 1
        for block in _blocks(descriptor):
            if self._needle in block:
                yield from self._hits_in(block, line)
            line += block.count(b"\n")

    def _hits_in(self, block: bytes, line: int) -> Iterator[MatchingLine]:
        lines = block.decode("utf-8", "replace").split("\n")
        if lines[-1] == "":
            lines.pop()
        for number, text in enumerate(lines, line):
            offset = self._matcher(text)
            if offset is not None:
                yield MatchingLine(number, text, offset)


def grep_text(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    hidden, ignores = flag_argument(arguments, "hidden"), flag_argument(arguments, "ignoreFiles")
    search = Search(
        _query(arguments),
        is_regex=flag_argument(arguments, "regex"),
        is_case_sensitive=flag_argument(arguments, "caseSensitive", True),
        limit=number_argument(arguments, "limit", 20, high=MAX_FOUND),
    )
    with tree.failures(path):
        kind = kind_of(tree.stat(path).st_mode)
        _require_kind(path, kind, kind_argument(arguments))
        if kind != "directory":
            search.search_named(tree, path)
            return search.output(is_complete=True)
        return _search_directory(search, TreeWalk(tree, path), hidden, ignores)


def _search_directory(search: Search, walk: TreeWalk, hidden: bool, ignores: bool) -> Output:
    rules = IgnoreRules(walk.tree, walk.top) if ignores else None

    def is_wanted(relative: str, entry: Entry) -> bool:
        verdict = None if rules is None else rules.verdict(relative, entry)
        return not verdict if verdict is not None else hidden or not entry.name.startswith(".")

    for relative, entry in walk.entries(is_wanted):
        if entry.kind == "file" and is_wanted(relative, entry):
            search.search_file(walk.tree, walk.path_of(relative))
            if search.is_full or not walk.has_time():
                break
    return search.output(is_complete=walk.is_complete)


def _query(arguments: Output) -> str:
    query = text_argument(arguments, "query")
    if not query or "\n" in query:
        wrong = "contains a line break" if query else "is empty"
        raise Failure("invalid_arguments", f"query {wrong}. Lines are searched one by one: pass a text or pattern of one line.")
    return query


def _require_kind(path: str, kind: str, wanted: str | None) -> None:
    if wanted is not None and (kind == "directory") != (wanted == "directory"):
        code = "is_directory" if kind == "directory" else "not_a_directory"
        raise Failure(code, f"{display(path)} is a {kind}, but kind is {wanted}. Leave kind away to search it.")


def _compile(query: str, is_regex: bool, is_case_sensitive: bool) -> Matcher:
    if not is_regex and is_case_sensitive:
        return lambda text: None if (found := text.find(query)) < 0 else found
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pattern = re.compile(query if is_regex else re.escape(query), 0 if is_case_sensitive else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "Correct it, or pass regex: false to search for the text itself."
        raise Failure("invalid_regex", f"query is not a regular expression of Python: {error}. {hint}") from None
    return lambda text: None if (found := pattern.search(text)) is None else found.start()


def _blocks(descriptor: int) -> Iterator[bytes]:
    """Blocks of whole lines. Raises Binary at a NUL byte or an endless line."""
    rest = b""
    while True:
        data = os.read(descriptor, _BLOCK)
        if b"\0" in data or len(rest) > _LONGEST_LINE:
            raise Binary
        if not data:
            break
        complete, newline, after = data.rpartition(b"\n")
        if not newline:
            rest += data
            continue
        yield rest + complete + newline
        rest = after
    if rest:
        yield rest


def _shown_text(hit: MatchingLine) -> Output:
    if len(hit.text) <= _SHOWN:
        return {"text": hit.text}
    start = max(0, min(hit.offset - _BEFORE, len(hit.text) - _SHOWN))
    return {"text": hit.text[start : start + _SHOWN], "cut": True, "column": hit.offset + 1, "lineLength": len(hit.text)}
