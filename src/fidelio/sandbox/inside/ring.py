"""Bounded buffers for the output of commands, addressed by byte offset.

A command may write any amount: `Ring` keeps the newest bytes, `Head` the first ones. Offsets count from the first byte that was
ever written, so a reader can go on where it stopped, and notices what was overwritten. Text is UTF-8; bytes that are not, and
characters that a cut has split, become U+FFFD.
"""

from __future__ import annotations

from typing import NamedTuple

RING_BYTES = 1 << 20
# A character has at most so many bytes in UTF-8.
_WIDEST = 4


class Text(NamedTuple):
    """A part of the output. `offset` is where it begins, `end` where the output after it begins."""

    text: str
    offset: int
    end: int
    truncated: bool


class Ring:
    """The newest bytes of a stream. Shows the last characters: an error message is at the end."""

    def __init__(self, capacity: int = RING_BYTES) -> None:
        self._data = bytearray()
        self._capacity = capacity
        # The number of bytes that were ever written.
        self.end = 0

    @property
    def oldest(self) -> int:
        return self.end - len(self._data)

    def append(self, data: bytes) -> None:
        self.end += len(data)
        self._data += data[-self._capacity :]
        self._drop_oldest()

    def shrink(self, capacity: int) -> None:
        """Keep fewer bytes from now on."""
        self._capacity = min(capacity, self._capacity)
        self._drop_oldest()

    def read(self, offset: int, max_bytes: int, *, is_complete: bool) -> Text:
        """Decode from an offset, or from the oldest byte that is left. A character that is not complete yet comes later."""
        start = min(max(offset, self.oldest), self.end)
        data = bytes(self._data[start - self.oldest : start - self.oldest + max_bytes])
        is_last = start + len(data) == self.end
        if not (is_last and is_complete):
            whole = data[: len(data) - _split_tail(data)]
            # Fewer bytes were asked for than the character has: a part of it is better than none for ever.
            data = whole if whole or is_last else data
        return Text(data.decode("utf-8", "replace"), start, start + len(data), start + len(data) < self.end)

    def view(self, max_chars: int) -> Text:
        data = self._data[-max_chars * _WIDEST :]
        if len(data) < self.end:
            data = data[_split_head(data) :]
        # Every byte that is not UTF-8 becomes one surrogate and back again, so characters can be counted without losing bytes.
        exact = bytes(data).decode("utf-8", "surrogateescape")[-max_chars:].encode("utf-8", "surrogateescape")
        offset = self.end - len(exact)
        return Text(exact.decode("utf-8", "replace"), offset, self.end, offset > 0)

    def _drop_oldest(self) -> None:
        if len(self._data) > self._capacity:
            del self._data[: len(self._data) - self._capacity]


class Head:
    """The first bytes of a stream, for commands whose output is read from the beginning."""

    def __init__(self, max_chars: int) -> None:
        self._data = bytearray()
        self.end = 0
        # One more than is shown, to know whether anything follows.
        self._capacity = (max_chars + 1) * _WIDEST

    def append(self, data: bytes) -> None:
        self.end += len(data)
        if len(self._data) < self._capacity:
            self._data += data[: self._capacity - len(self._data)]

    def view(self, max_chars: int) -> Text:
        data = self._data
        is_whole = len(data) == self.end
        text = (data if is_whole else data[: len(data) - _split_tail(data)]).decode("utf-8", "replace")
        return Text(text[:max_chars], 0, self.end, not is_whole or len(text) > max_chars)


def _split_head(data: bytes | bytearray) -> int:
    """The number of bytes at the beginning that continue a character before them."""
    count = 0
    while count < min(len(data), _WIDEST - 1) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


def _split_tail(data: bytes | bytearray) -> int:
    """The number of bytes at the end that begin a character which is not complete."""
    for back in range(1, min(_WIDEST, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        wanted = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if wanted > back else 0
    return 0
