"""Windows of lines in a file of any size, read in chunks.

Only LF ends a line. `newline_count` is what `wc -l` prints; an unterminated last line counts as a line. At most the part
that is returned is in memory.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from fidelio.sandbox.inside.failures import Failure, display, number_argument, optional_number

CHUNK = 1 << 18
# Larger files are not counted: 64 MiB take about 50 ms, and pid 1 serves nobody else meanwhile.
HUGE = 64 << 20
MAX_CHARS = 200_000
MAX_LINES = 1 << 31
_SNIFFED = 8192
# The last lines of a huge file are looked for in as many bytes at its end.
_TAIL = 4 << 20


class Window(NamedTuple):
    """Lines `first` to `last`, counted from 1; `tail` counts from the end instead. None means no limit."""

    first: int = 1
    last: int | None = None
    tail: int | None = None

    @property
    def is_whole(self) -> bool:
        return self.first == 1 and self.last is None and self.tail is None


class Selection(NamedTuple):
    """Bytes of a window and the counts of its file. `is_cut` says that the window has more than `cap` bytes."""

    data: bytes
    is_cut: bool
    newline_count: int
    ends_open: bool
    is_binary: bool

    @property
    def line_count(self) -> int:
        return self.newline_count + int(self.ends_open)


def window_argument(arguments: dict[str, Any]) -> Window:
    start = number_argument(arguments, "startLine", 1, high=MAX_LINES)
    count = optional_number(arguments, "lineCount", high=MAX_LINES)
    tail = optional_number(arguments, "tailLines", high=MAX_LINES)
    if tail is not None and (count is not None or arguments.get("startLine") is not None):
        raise Failure("invalid_arguments", "tailLines cannot be combined with startLine or lineCount. Pass only one of them.")
    return Window(start, None if count is None else start + count - 1, tail)


def read_window(descriptor: int, path: str, size: int, window: Window, max_chars: int) -> dict[str, Any]:
    """Return the fields of `read_text` for an open file."""
    cap = 4 * max_chars + 4
    if size > HUGE:
        return _read_huge(descriptor, path, size, window, cap)
    selection = select(descriptor, window, cap)
    first = window.first
    if window.tail is not None and not selection.is_binary:
        first = max(1, selection.line_count - window.tail + 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
        selection = select(descriptor, Window(first), cap)
    counts = {"totalLineCount": selection.line_count, "newlineCount": selection.newline_count}
    if selection.is_binary:
        return {"binary": True, "size": size, "content": "", "truncated": True, "charCount": 0, **counts}
    last = min(selection.line_count, window.last or selection.line_count)
    return {**_content(selection, max_chars), **counts, **_window_fields(window, first, last)}


def select(descriptor: int, window: Window, cap: int) -> Selection:
    """Read a file to its end; keep at most `cap` bytes of the lines of the window."""
    data, newlines, last_byte, is_binary, is_cut = bytearray(), 0, b"", False, False
    for number, chunk in enumerate(_chunks(descriptor)):
        if number == 0:
            is_binary = b"\0" in chunk[:_SNIFFED]
        count = chunk.count(b"\n")
        wanted = b"" if is_binary or window.tail is not None else _lines_in_chunk(chunk, newlines + 1, count, window)
        room = cap - len(data)
        is_cut = is_cut or len(wanted) > room
        data += wanted[:room]
        newlines += count
        last_byte = chunk[-1:]
    return Selection(bytes(data), is_cut, newlines, last_byte not in (b"", b"\n"), is_binary)


def _chunks(descriptor: int, most: int = HUGE) -> Iterator[bytes]:
    """Chunks up to the end; at most `most` bytes, because a file of /proc may be endless and a file may grow."""
    total = 0
    while total < most:
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            return
        total += len(chunk)
        yield chunk


def _lines_in_chunk(chunk: bytes, line: int, newlines: int, window: Window) -> bytes:
    """The part of a chunk that is in the window; `line` is the number of its first line, of which a part may be earlier."""
    if line + newlines < window.first or (window.last is not None and line > window.last):
        return b""
    start = _after_newline(chunk, window.first - line)
    end = len(chunk) if window.last is None else _after_newline(chunk, window.last - line + 1)
    return chunk[start:end]


def _after_newline(chunk: bytes, count: int) -> int:
    """The offset after the newline number `count`, or the end of the chunk."""
    position = 0
    for _ in range(count):
        found = chunk.find(b"\n", position)
        if found < 0:
            return len(chunk)
        position = found + 1
    return position


def _content(selection: Selection, max_chars: int) -> dict[str, Any]:
    text, is_lossy = _decode(selection.data, is_complete=not selection.is_cut)
    is_long = selection.is_cut or len(text) > max_chars
    fields: dict[str, Any] = {"content": text[:max_chars], "truncated": is_long, "charCount": min(len(text), max_chars)}
    return {**fields, "lossy": True} if is_lossy else fields


def _decode(data: bytes, *, is_complete: bool) -> tuple[str, bool]:
    decoder = codecs.getincrementaldecoder("utf-8")
    try:
        return decoder("strict").decode(data, is_complete), False
    except UnicodeDecodeError:
        return decoder("replace").decode(data, is_complete), True


def _window_fields(window: Window, first: int, last: int) -> dict[str, Any]:
    count = max(0, last - first + 1)
    if window.is_whole:
        return {"selectedLineCount": count, "lineWindow": None}
    return {"selectedLineCount": count, "lineWindow": {"startLine": first, "endLine": last} if count else None}


def _read_huge(descriptor: int, path: str, size: int, window: Window, cap: int) -> dict[str, Any]:
    """Only lines near the beginning or the end of a huge file are read; its lines are not counted."""
    unknown = {"huge": True, "size": size, "totalLineCount": None, "newlineCount": None}
    if window.is_whole or b"\0" in os.pread(descriptor, _SNIFFED, 0):
        is_binary = {} if window.is_whole else {"binary": True}
        return {
            **unknown,
            **is_binary,
            "content": "",
            "truncated": True,
            "charCount": 0,
            "selectedLineCount": 0,
            "lineWindow": None,
        }
    data, is_cut = _tail_of(descriptor, size, window.tail, cap) if window.tail else _head_of(descriptor, path, window, cap)
    count = data.count(b"\n") + int(data[-1:] not in (b"", b"\n"))
    content = _content(Selection(data, is_cut, 0, False, False), cap // 4 - 1)
    lines = None if window.tail else {"startLine": window.first, "endLine": window.first + count - 1}
    return {**unknown, **content, "selectedLineCount": count, "lineWindow": lines}


def _head_of(descriptor: int, path: str, window: Window, cap: int) -> tuple[bytes, bool]:
    selection = select(descriptor, window, cap)
    if window.first > selection.line_count:
        limit = f"Lines after the first {HUGE >> 20} MiB are not looked for."
        raise Failure("too_large", f"{display(path)} is too large for startLine {window.first}. {limit} Use sed in the shell.")
    return selection.data, selection.is_cut


def _tail_of(descriptor: int, size: int, lines: int, cap: int) -> tuple[bytes, bool]:
    data = os.pread(descriptor, _TAIL, size - _TAIL)
    start = len(data) - int(data.endswith(b"\n"))
    for _ in range(lines):
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            return data[:cap], True
    return data[start + 1 : start + 1 + cap], len(data) - start - 1 > cap
