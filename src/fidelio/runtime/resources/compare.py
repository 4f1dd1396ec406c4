"""Differences between two texts by lines: a shortest edit script (Myers), its size, a preview, and unified text.

The texts are an agent's, so the work is bounded: beyond a number of edits everything between the first and the last difference
counts as replaced. (`difflib` takes minutes for texts that are made for it.) Only LF ends a line, and a missing last LF is a
difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

MAX_EDITS = 1_000
# A page shows several comparisons, and their time grows with the square of the edits.
PAGE_EDITS = 100
CONTEXT = 3
MAX_SHOWN = 400
Kind = Literal["equal", "replaced", "removed", "added"]


class LineBlock(msgspec.Struct, frozen=True):
    """Lines `old_start` to `old_end` of the old text became `new_start` to `new_end` of the new; counted from 0."""

    kind: Kind
    old_start: int
    old_end: int
    new_start: int
    new_end: int

    @property
    def size(self) -> int:
        """The number of differing lines. A replaced line counts once."""
        return 0 if self.kind == "equal" else max(self.old_end - self.old_start, self.new_end - self.new_start)


class Comparison(msgspec.Struct, frozen=True):
    """The differences of two texts. `is_exact` is False where the bound was reached."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    blocks: tuple[LineBlock, ...]
    is_exact: bool = True

    @property
    def differing_lines(self) -> int:
        return sum(block.size for block in self.blocks)


def compare_texts(old: str, new: str, *, most_edits: int = MAX_EDITS) -> Comparison:
    before, after = split_lines(old), split_lines(new)
    start = _count_equal(before, after)
    end = _count_equal(before[start:][::-1], after[start:][::-1])
    inner_old, inner_new = before[start : len(before) - end], after[start : len(after) - end]
    matches = _find_matches(inner_old, inner_new, most_edits)
    pairs = [(index, index) for index in range(start)]
    pairs += [(start + a, start + b) for a, b in matches or ()]
    pairs += [(len(before) - end + index, len(after) - end + index) for index in range(end)]
    return Comparison(before, after, tuple(_build_blocks(pairs, len(before), len(after))), matches is not None)


def split_lines(text: str) -> tuple[str, ...]:
    """The lines with their LF."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return (*lines, last) if last else tuple(lines)


def preview(comparison: Comparison, limit: int) -> list[dict[str, Any]]:
    """The first differing lines, each with its numbers from 1."""
    found: list[dict[str, Any]] = []
    for block in comparison.blocks:
        for offset in range(min(block.size, limit - len(found))):
            old, new = block.old_start + offset, block.new_start + offset
            has_old, has_new = old < block.old_end, new < block.new_end
            found.append(
                {
                    "change": "replaced" if has_old and has_new else "removed" if has_old else "added",
                    "substrateLine": old + 1 if has_old else None,
                    "sessionLine": new + 1 if has_new else None,
                    "substrate": _shorten(comparison.old[old]) if has_old else None,
                    "session": _shorten(comparison.new[new]) if has_new else None,
                }
            )
    return found


def render_unified(comparison: Comparison, old_name: str, new_name: str) -> Iterator[str]:
    """Unified diff, line by line without line ends; nothing for equal texts."""
    for number, group in enumerate(_group(comparison.blocks)):
        if number == 0:
            yield f"--- {old_name}"
            yield f"+++ {new_name}"
        first, last = group[0], group[-1]
        old, new = (first.old_start, last.old_end), (first.new_start, last.new_end)
        yield f"@@ -{_describe_range(*old)} +{_describe_range(*new)} @@"
        for block in group:
            yield from _render_block(comparison, block)


def _render_block(comparison: Comparison, block: LineBlock) -> Iterator[str]:
    removed, added = comparison.old[block.old_start : block.old_end], comparison.new[block.new_start : block.new_end]
    if block.kind == "equal":
        yield from (line for text in removed for line in _render_line(" ", text))
        return
    yield from (line for text in removed for line in _render_line("-", text))
    yield from (line for text in added for line in _render_line("+", text))


def _render_line(sign: str, text: str) -> Iterator[str]:
    yield sign + text.removesuffix("\n")
    if not text.endswith("\n"):
        yield "\\ No newline at end of file"


def _describe_range(start: int, end: int) -> str:
    length = end - start
    # As diff does: an empty range names the line before it, and a length of 1 is left out.
    return f"{start + 1}" if length == 1 else f"{start + 1 if length else start},{length}"


def _group(blocks: Sequence[LineBlock]) -> Iterator[list[LineBlock]]:
    """Changes with the equal lines around them; changes that are near each other share a group."""
    group: list[LineBlock] = []
    for block in blocks:
        if block.kind != "equal":
            group.append(block)
            continue
        length = block.old_end - block.old_start
        if not group:
            skipped = max(0, length - CONTEXT)
            group = [_cut(block, skipped, length)] if length else []
        elif length > 2 * CONTEXT:
            yield [*group, _cut(block, 0, CONTEXT)]
            group = [_cut(block, length - CONTEXT, length)]
        else:
            group.append(block)
        if all(each.kind == "equal" for each in group):
            group = group[-1:]
    if any(block.kind != "equal" for block in group):
        yield _cut_end(group)


def _cut_end(group: list[LineBlock]) -> list[LineBlock]:
    last = group[-1]
    if last.kind != "equal":
        return group
    return [*group[:-1], _cut(last, 0, min(CONTEXT, last.old_end - last.old_start))]


def _cut(block: LineBlock, start: int, end: int) -> LineBlock:
    old, new = block.old_start, block.new_start
    return LineBlock("equal", old + start, old + end, new + start, new + end)


def _count_equal(old: Sequence[str], new: Sequence[str]) -> int:
    return next((index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _find_matches(old: Sequence[str], new: Sequence[str], most_edits: int) -> list[tuple[int, int]] | None:
    """Pairs of equal lines of a shortest edit script; None if it has more than `most_edits` edits."""
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(len(old) + len(new), most_edits) + 1):
        history.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            is_down = diagonal == -edits or (
                diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
            )
            x = furthest[diagonal + 1] if is_down else furthest[diagonal - 1] + 1
            x = _follow(old, new, x, x - diagonal)
            furthest[diagonal] = x
            if x >= len(old) and x - diagonal >= len(new):
                return _trace_back(history, len(old), len(new))
    return None


def _follow(old: Sequence[str], new: Sequence[str], x: int, y: int) -> int:
    while x < len(old) and 0 <= y < len(new) and old[x] == new[y]:
        x, y = x + 1, y + 1
    return x


def _trace_back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, 0, -1):
        furthest, diagonal = history[edits], x - y
        is_down = diagonal == -edits or (diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1))
        before = diagonal + 1 if is_down else diagonal - 1
        old_x, old_y = furthest[before], furthest[before] - before
        while x > old_x and y > old_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = old_x, old_y
    pairs += [(index, index) for index in range(x - 1, -1, -1)]
    return pairs[::-1]


def _build_blocks(pairs: list[tuple[int, int]], old_length: int, new_length: int) -> Iterator[LineBlock]:
    old = new = 0
    run: LineBlock | None = None
    for a, b in [*pairs, (old_length, new_length)]:
        if run is not None and (a > old or b > new or (a, b) == (old_length, new_length)):
            yield run
            run = None
        if a > old or b > new:
            yield LineBlock("replaced" if a > old and b > new else "removed" if a > old else "added", old, a, new, b)
        run = LineBlock("equal", run.old_start if run else a, a + 1, run.new_start if run else b, b + 1)
        old, new = a + 1, b + 1


def _shorten(line: str) -> str:
    text = line.removesuffix("\n")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
