"""The parts of the decoder that have a quicker twin: each pair says the same about any line."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from toon_format import _decoder

from fidelio.definitions.reading.toon.decoding import QUOTED, find_unquoted, split
from tests.support import proves

lines = st.text(alphabet='a,:|"\\ \té', max_size=30)


@proves("reading.whole-or-not")
@given(lines, st.sampled_from(",:|\t"), st.integers(0, 10))
@example('"a,b\\",c",d', ",", 0)
@example('"never closed, and then', ",", 0)
def test_what_stands_in_quotes_is_passed_over_as_by_the_decoder(line: str, char: str, start: int) -> None:
    assert find_unquoted(line, char, start) == _decoder._find_unquoted(line, char, start)


@proves("reading.whole-or-not")
@given(lines, st.sampled_from(",|\t"))
def test_a_row_is_split_as_by_the_decoder(line: str, delimiter: str) -> None:
    assert split(line, delimiter) == _decoder._split(line, delimiter)


@proves("reading.whole-or-not")
@given(lines, st.integers(0, 5))
@example('"a \\" b" c', 0)
@example('"never closed \\', 0)
def test_quotes_end_where_the_decoder_says(line: str, start: int) -> None:
    found = QUOTED.match(line, start)

    assert (found.end() if found else -1) == _decoder._quoted_end(line, start)
