"""Text of a model as it arrives: without its directive, quoted line by line, and matched with the message on record later.

The parts are pure. Text of a model is foreign text: every line of it begins with the gutter, and what does not show is escaped,
also when it arrives in pieces of a few characters.
"""

from __future__ import annotations

import sys

from fidelio.surfaces.text import Layout, measure

_MAX_MARGIN = 16
# Those of `str.splitlines`.
_LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


class QuoteStream:
    """Quotes a text that arrives in pieces, wrapped at words. A word follows when it is complete."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._width = max(layout.width, 20) - len(layout.gutter)
        self._word = ""
        self._column = 0
        self._margin = 0
        self._is_first = True
        self._blank_lines = 0
        self._after_return = False

    def feed(self, text: str) -> str:
        """What to write for this piece."""
        output = ""
        for sign in text:
            is_second = sign == "\n" and self._after_return
            self._after_return = sign == "\r"
            if sign in _LINE_ENDS:
                output += "" if is_second else self._end_line()
            elif sign.isspace():
                output += self._end_word()
                self._margin += sign == " " and not self._column
            else:
                self._word += sign
        return output

    def end(self) -> str:
        """What to write at the end of the text: the last word, and the end of its line."""
        output = self._end_word()
        output += "\n" if self._column else ""
        self._column, self._margin, self._is_first, self._blank_lines = 0, 0, True, 0
        return output

    def _end_line(self) -> str:
        output = self._end_word()
        if self._column:
            output += "\n"
        elif not self._is_first:
            # Written with the next word: blank lines at the end of a text are not shown, and several become one.
            self._blank_lines = 1
        self._column, self._margin = 0, 0
        return output

    def _end_word(self) -> str:
        # Escaped, and with the escapes that the encoding of the terminal needs; a word is never cut.
        word, self._word = self._layout.shorten(self._word, sys.maxsize), ""
        if not word:
            return ""
        output = ""
        if self._column and self._column + 1 + measure(word) <= self._width:
            self._column += 1 + measure(word)
            return f" {word}"
        if self._column:
            output, self._column = "\n", 0
        return output + self._begin_line(word)

    def _begin_line(self, word: str) -> str:
        gutter = self._layout.gutter
        blank = f"{gutter.rstrip()}\n" if self._blank_lines else ""
        margin = " " * min(self._margin, _MAX_MARGIN, self._width // 4)
        pieces = list(_split_word(word, self._width - len(margin)))
        self._column, self._is_first, self._blank_lines = len(margin) + measure(pieces[-1]), False, 0
        return blank + "\n".join(f"{gutter}{margin}{piece}" for piece in pieces)


def _split_word(word: str, width: int) -> list[str]:
    pieces, current = list[str](), ""
    for sign in word:
        if current and measure(current + sign) > width:
            pieces.append(current)
            current = ""
        current += sign
    return [*pieces, current]


def match_beginning(streamed: str, text: str) -> int | None:
    """Where in the streamed text a recorded text ends, if it begins with it; blanks do not count. None if it does not."""
    at = 0
    for sign in text:
        if sign.isspace():
            continue
        while at < len(streamed) and streamed[at].isspace():
            at += 1
        if at == len(streamed) or streamed[at] != sign:
            return None
        at += 1
    return at
