"""Text of a model in pieces: the directive is not shown, lines are quoted, and the recorded message is recognised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.wakes.directive import DirectiveFilter, parse_reply
from fidelio.surfaces.cli.runtime.text_stream import QuoteStream, match_beginning
from fidelio.surfaces.text import Layout, measure
from tests.support import proves

DIRECTIVE = '<fidelio-loop>{"outcome":"sleep"}</fidelio-loop>'
texts = st.text(st.sampled_from("ab <fid>/\n\t漢\u0301\x1b"), max_size=60)
sizes = st.lists(st.integers(1, 7), min_size=1)


def cut(text: str, lengths: list[int]) -> list[str]:
    pieces, at = list[str](), 0
    while at < len(text):
        size = lengths[len(pieces) % len(lengths)]
        pieces.append(text[at : at + size])
        at += size
    return pieces


def stream(text: str, lengths: list[int]) -> str:
    directive = DirectiveFilter()
    return "".join(directive.feed(piece) for piece in cut(text, lengths))


@proves("runtime-cli.streaming")
@given(texts, texts, sizes)
def test_the_directive_is_never_shown_however_it_is_cut(before: str, after: str, lengths: list[int]) -> None:
    shown = stream(f"{before}{DIRECTIVE}{after} .", lengths)

    assert "fidelio-loop" not in shown
    assert shown == f"{before}{after} ."


@proves("runtime-cli.streaming")
def test_a_tag_that_turns_out_to_be_something_else_is_shown() -> None:
    directive = DirectiveFilter()

    assert directive.feed("a <fidelio") == "a "
    assert directive.feed("-lop> b") == "<fidelio-lop> b"


@proves("runtime-cli.streaming")
def test_a_reply_that_is_cut_inside_of_its_directive_does_not_hide_the_next() -> None:
    directive = DirectiveFilter()
    directive.feed("a<fidelio-loop>{")

    directive.reset()

    assert directive.feed("next") == "next"


@proves("runtime-cli.streaming")
@given(texts, sizes, st.integers(20, 40))
def test_every_line_is_quoted_fits_and_is_the_same_however_the_text_is_cut(text: str, lengths: list[int], width: int) -> None:
    layout = Layout(width)

    def quote(pieces: list[str]) -> str:
        quoted = QuoteStream(layout)
        return "".join(quoted.feed(piece) for piece in pieces) + quoted.end()

    written = quote(cut(text, lengths))
    assert written == quote([text])
    assert not written or written.endswith("\n")
    for line in written.splitlines():
        assert line.startswith(layout.gutter.rstrip())
        assert measure(line) <= width
        assert line.isprintable()


@proves("runtime-cli.streaming")
@pytest.mark.parametrize(
    "text",
    ["one two three four five six", "a\n\n\n  b", "x" * 50, "\n\na\n", "- a\n  - b", "a\x1b[2Jb\rc\r\nd\n\re", "`a b` c"],
)
def test_a_streamed_text_looks_as_the_same_text_does_when_it_is_read_later(text: str) -> None:
    quoted = QuoteStream(Layout(24))

    lines = (quoted.feed(text) + quoted.end()).splitlines()

    assert lines == list(Layout(24).quote_text(text, max_lines=None))


@proves("runtime-cli.streaming")
def test_a_terminal_without_unicode_gets_escapes_that_fit() -> None:
    quoted = QuoteStream(Layout(24, "ascii"))

    lines = (quoted.feed("größe " * 6) + quoted.end()).splitlines()

    assert lines == list(Layout(24, "ascii").quote_text("größe " * 6))
    assert all(line.isascii() and len(line) <= 24 for line in lines)


@proves("runtime-cli.streaming")
@given(texts, texts, sizes)
def test_a_recorded_message_is_found_in_what_was_streamed(text: str, following: str, lengths: list[int]) -> None:
    recorded = parse_reply(f"{text}\n{DIRECTIVE}").message
    streamed = stream(f"{text}\n{DIRECTIVE}", lengths)

    end = match_beginning(streamed + following, recorded)

    assert end is not None
    assert not streamed[end:].strip()


@proves("runtime-cli.streaming")
def test_another_text_is_not_taken_for_the_streamed_one() -> None:
    assert match_beginning("Hello there", "Hello you") is None
    assert match_beginning("Hello", "Hello you") is None
    assert match_beginning("", "") == 0
