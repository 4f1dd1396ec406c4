"""Foreign text for people: text of agents, clients, definitions and files is escaped, wrapped and quoted.

Such text must neither control a terminal nor look like a line of Fidelio's own. An escape sequence is only one way to do
that: blanks that are no spaces push words to the end of a line, and a terminal that wraps a long line begins the next one
without any mark. Therefore Fidelio wraps by itself, to the columns that a terminal shows, and every line of a quoted text
begins with a gutter. A long line of Fidelio's own continues behind another sign. A name inside a line of Fidelio's own is in
quotes unless it is a plain identifier.

Pure functions: the width and the signs of the terminal are passed in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

NARROWEST = 20
MAX_LINES = 12
MAX_NAME = 60
# Columns between the cells of a table, the width below which a cell is not reduced, and the lines that a cell may have.
_CELL_GAP, _SMALLEST_CELL, _CELL_LINES = 2, 8, 3
GUTTER, ASCII_GUTTER = "│ ", "| "
# Before what continues a line of Fidelio's own. It may begin with foreign text, and must not look like a line of its own.
_CONTINUED, _ASCII_CONTINUED = "↳ ", "+ "
# More marks on one letter reach into the lines above and below it.
_MAX_MARKS = 4
_MAX_MARGIN = 16

_JOINERS = frozenset("\u200c\u200d")
# Emoji styles. The second makes some terminals draw a sign of one column in two.
_PLAIN_STYLE, _WIDE_STYLE = "\ufe0e", "\ufe0f"
# Characters that show nothing and that Python calls printable: fillers, a braille pattern without dots, ignored marks.
_FILLERS = "\u2800\u3164\u115f\u1160\uffa0\U0001d159"
_IGNORED_MARKS = ((0x34F, 0x34F), (0x17B4, 0x17B5), (0x180B, 0x180F), (0xFE00, 0xFE0D), (0x16FE4, 0x16FE4), (0xE0100, 0xE01EF))
_INVISIBLE = frozenset(_FILLERS).union(*(map(chr, range(first, last + 1)) for first, last in _IGNORED_MARKS))
# What shows as a blank, or as nothing between two words, and is no white space for Python.
_TO_SPACES = dict.fromkeys(map(ord, f"{_FILLERS}\u180e\u200b\u2060\ufeff"), " ")
_PLAIN_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@+-")
# A command in backticks is not broken where it fits on a line, so that it can be copied. Compiled by its first use.
_WORDS = r"( *)(`[^`]*`\S*|\S+)"


def escape_line(text: str) -> str:
    """Put a text on a single line: runs of blanks become a space, and what does not show is escaped."""
    return escape_text(" ".join(text.translate(_TO_SPACES).split()))


def escape_text(text: str) -> str:
    """Replace control characters and invisible characters, blanks other than a space included, by readable escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(sign if _shows(text, index) else _escape_sign(sign) for index, sign in enumerate(text))


def escape_json(text: str) -> str:
    """Escape what does not show in the text of a JSON document. Its value stays the same."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(sign if _shows_plainly(text, index) else _escape_unit(sign) for index, sign in enumerate(text))


def quote_name(text: str, limit: int = MAX_NAME) -> str:
    """Return a name for a line of Fidelio's own: as it is if it is a plain identifier, else escaped, cut and in quotes."""
    if 0 < len(text) <= limit and _PLAIN_SIGNS.issuperset(text):
        return text
    quoted = shorten(escape_text(text).replace('"', '\\"'), limit)
    return f'"{quoted}"'


class Layout(msgspec.Struct, frozen=True):
    """The columns of a terminal or page, and its encoding."""

    width: int = 80
    encoding: str = "utf-8"

    @property
    def gutter(self) -> str:
        return GUTTER if is_utf8(self.encoding) else ASCII_GUTTER

    def quote_text(self, text: str, indent: str = "", *, max_lines: int | None = MAX_LINES) -> Iterator[str]:
        """Yield the lines of a foreign text, each behind the gutter, and the number of lines that are left out."""
        indent = self._limit_indent(indent)
        lines = list(self._wrap_paragraphs(text, self._columns - len(indent) - len(self.gutter)))
        yield from (f"{indent}{self.gutter}{line}".rstrip() for line in lines[:max_lines])
        if max_lines is not None and (hidden := len(lines) - max_lines) > 0:
            yield from self.wrap_line(f"({hidden} more lines; --json shows all)", indent)

    def wrap_line(self, line: str, indent: str = "") -> Iterator[str]:
        """Yield a line of Fidelio's own, in which foreign text is escaped. What does not fit continues behind a sign."""
        indent, line = self._limit_indent(indent), self._encode(line)
        available, sign = self._columns - len(indent), _CONTINUED if is_utf8(self.encoding) else _ASCII_CONTINUED
        margin = " " * min(len(line) - len(line.lstrip(" ")), available // 4)
        first, *rest = [line] if measure(line) <= available else _wrap(line, available - len(sign) - len(margin))
        yield f"{indent}{margin if rest else ''}{first}"
        yield from (f"{indent}{sign}{part}" for part in rest)

    def shorten(self, text: str, width: int) -> str:
        """Put a text on a single line of at most `width` columns."""
        return shorten(self._encode(escape_line(text)), width, self._ellipsis)

    def format_table(
        self,
        rows: Sequence[Mapping[str, str]],
        columns: Sequence[str],
        flexible: Sequence[str],
        paint: Callable[[str, str], str] = lambda _, text: text,
    ) -> Iterator[str]:
        """Yield the lines of a table of escaped texts, with a header. Cells of `flexible` columns are wrapped where needed.

        If that does not suffice, each row becomes a block: the first cell, and below it a line for each other cell. `paint`
        gives a cell of a column its color; it must not change the width.
        """
        wanted = {name: max([len(name), *(measure(self._encode(row[name])) for row in rows)]) for name in columns}
        widths = _fit_columns(wanted, flexible, self._columns)
        if sum(widths.values()) + _CELL_GAP * (len(widths) - 1) > self._columns:
            yield from self._format_blocks(rows, columns)
            return
        for row in ({name: name.upper() for name in columns}, *rows):
            cells = {name: self._fit_cell(row[name], widths[name]) for name in columns}
            for at in range(max(map(len, cells.values()))):
                texts = {name: lines[at] if at < len(lines) else "" for name, lines in cells.items()}
                padded = (paint(name, text) + " " * (widths[name] - measure(text)) for name, text in texts.items())
                yield (" " * _CELL_GAP).join(padded).rstrip()

    def _fit_cell(self, text: str, width: int) -> list[str]:
        """The lines of a cell, wrapped at spaces. A word that is too long, such as a path, loses its middle."""
        if measure(self._encode(text)) <= width:
            return [self._encode(text)]
        # A line that continues a cell may be the first of its row, so it is behind the gutter, as all foreign text is.
        inner = width - len(self.gutter)
        words = (self._shorten_middle(word, inner) for word in self._encode(text).split(" "))
        first, *rest = _wrap(" ".join(words), inner)
        lines = [first, *(f"{self.gutter}{line}" for line in rest)]
        if len(lines) <= _CELL_LINES:
            return lines
        last = lines[_CELL_LINES - 1] + self._ellipsis
        return [*lines[: _CELL_LINES - 1], last if measure(last) <= width else self.shorten(last, width)]

    def _shorten_middle(self, word: str, width: int) -> str:
        if measure(word) <= width:
            return word
        ellipsis = self._ellipsis
        start, end = _split_columns(word, (width - len(ellipsis)) // 2)[0], word[-((width - len(ellipsis)) // 2) :]
        return start + ellipsis + end if measure(start + ellipsis + end) <= width else self.shorten(word, width)

    def _format_blocks(self, rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> Iterator[str]:
        first, *others = columns
        margin = max(map(len, others), default=0)
        for row in rows:
            yield from self.wrap_line(row[first])
            for name in others:
                yield from self.wrap_line(f"{pad(name, margin)}  {row[name]}", "  ")

    @property
    def _ellipsis(self) -> str:
        return "…" if is_utf8(self.encoding) else "..."

    def _wrap_paragraphs(self, text: str, width: int) -> Iterator[str]:
        is_empty = True
        for paragraph in text.rstrip().splitlines():
            line = self._encode(escape_line(paragraph))
            if line or not is_empty:
                margin = " " * min(len(paragraph) - len(paragraph.lstrip(" ")), _MAX_MARGIN, width // 4)
                yield from (f"{margin}{part}" for part in _wrap(line, width - len(margin)))
            is_empty = not line

    @property
    def _columns(self) -> int:
        return max(self.width, NARROWEST)

    def _limit_indent(self, indent: str) -> str:
        return indent[: self._columns // 4]

    def _encode(self, text: str) -> str:
        # Escapes take more columns than the characters, so they must be there before the text is wrapped.
        return text if is_utf8(self.encoding) else text.encode(self.encoding, "backslashreplace").decode(self.encoding)


def _fit_columns(widths: dict[str, int], flexible: Sequence[str], available: int) -> dict[str, int]:
    """Reduce the widest of the flexible columns until all columns fit or none can be reduced further."""
    fitted = dict(widths)
    excess = sum(fitted.values()) + _CELL_GAP * (len(fitted) - 1) - available
    for _ in range(excess):
        widest = max(flexible, key=fitted.__getitem__)
        fitted[widest] = max(fitted[widest] - 1, min(widths[widest], _SMALLEST_CELL))
    return fitted


def is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "") == "utf8"


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Put a text on a single line of at most `width` columns."""
    line = escape_line(text)
    return line if measure(line) <= width else _split_columns(line, width - len(ellipsis))[0].rstrip() + ellipsis


def pad(text: str, width: int) -> str:
    """Fill a text with spaces up to `width` columns."""
    return text + " " * (width - measure(text))


def measure(text: str) -> int:
    """The number of columns that an escaped text takes, and never less than a terminal uses for it."""
    return len(text) if text.isascii() else sum(map(_measure_sign, text))


def _wrap(line: str, width: int) -> list[str]:
    """Split an escaped line into lines of at most `width` columns, at spaces where a word fits. Other spaces stay: columns."""
    lines, current = list[str](), ""
    for gap, word in _split_words(line, width):
        joined = f"{current}{gap}{word}" if current else word
        if measure(joined) <= width:
            current = joined
            continue
        *whole, last = _break_word(word, width)
        lines += [*([current] if current else []), *whole]
        current = last
    return [*lines, current]


def _split_words(line: str, width: int) -> Iterator[tuple[str, str]]:
    """The words of a line, each with the spaces before it."""
    for match in re.finditer(_WORDS, line):
        gap, word = match[1], match[2]
        first, *rest = [word] if measure(word) <= width else word.split(" ")
        yield gap, first
        yield from ((" ", part) for part in rest)


def _break_word(word: str, width: int) -> Iterator[str]:
    while measure(word) > width:
        start, word = _split_columns(word, width)
        yield start
    yield word


def _split_columns(text: str, width: int) -> tuple[str, str]:
    """Split off as many characters as fit into `width` columns. A mark stays with its letter."""
    columns = 0
    for index, sign in enumerate(text):
        columns += _measure_sign(sign)
        if columns > width:
            end = index - 1 if sign == _WIDE_STYLE and index > 1 else index
            return text[:end], text[end:]
    return text, ""


def _measure_sign(sign: str) -> int:
    if " " <= sign <= "~":
        return 1
    if sign == _WIDE_STYLE or sign in _JOINERS:
        return int(sign == _WIDE_STYLE)
    return 0 if _is_mark(sign) else 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def _is_mark(sign: str) -> bool:
    return unicodedata.category(sign) in ("Mn", "Me")


def _is_visible(sign: str) -> bool:
    return sign.isprintable() and sign not in _INVISIBLE


def _shows(text: str, index: int) -> bool:
    sign = text[index]
    if sign in _JOINERS:
        return _joins(text, index)
    return _is_attached(text, index) if _is_visible(sign) and _is_mark(sign) else _is_visible(sign)


def _shows_plainly(text: str, index: int) -> bool:
    return text[index] == "\n" or (text[index] not in _JOINERS and _shows(text, index))


def _is_attached(text: str, index: int) -> bool:
    """Whether a mark belongs to a letter that shows. Emoji styles do not change letters, so they hide differences there."""
    before = text[max(0, index - _MAX_MARKS) : index]
    base = next((sign for sign in reversed(before) if not _is_mark(sign)), " ")
    return base != " " and _is_visible(base) and not (text[index] in (_PLAIN_STYLE, _WIDE_STYLE) and base.isalpha())


def _joins(text: str, index: int) -> bool:
    """Whether a joiner stands between two characters of a script, or of an emoji, that needs it."""
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if not before or not after or before.isascii() or after.isascii() or _is_mark(after):
        return False
    return before not in _JOINERS and _shows(text, index - 1) and _is_visible(after)


def _escape_sign(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def _escape_unit(sign: str) -> str:
    """The escape of JSON, which writes a character beyond the first plane as two."""
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
