"""Layout of foreign text: escaped, wrapped to the columns of the terminal, and behind a gutter on every line."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.surfaces.text import Layout, escape_json, escape_line, escape_text, measure, quote_name, shorten
from tests.support import proves

BLANKS = "\t\u00a0\u115f\u1160\u1680\u2003\u200b\u2060\u2800\u3000\u3164\ufeff\uffa0"
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
CONTROLS = "\x00\x07\x08\x1b\x7f\x85\x9b\u2028\u2029"
WIDE = "世界\u0301👩\u200d🚀☀\ufe0f\u1100\u1161"
# Full Unicode, and the characters that attacks are made of, in unusual numbers.
texts = st.text(max_size=300) | st.text(alphabet=f"ab `\n\r{BLANKS}{BIDI}{CONTROLS}{WIDE}", max_size=300)
layouts = st.builds(Layout, st.integers(20, 120), st.sampled_from(["utf-8", "latin-1", "ascii"]))
indents = st.sampled_from(["", "  ", " " * 4, " " * 27])


def columns(line: str) -> int:
    """The columns of a line, counted apart from the code under test: wide signs take two, marks and joiners none."""
    zero = ("Mn", "Me", "Cf")
    widths = (2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line if unicodedata.category(sign) not in zero)
    return sum(widths)


def uncontrolled(text: str) -> list[str]:
    """Characters that steer a terminal, reorder a line or show as nothing."""
    return [sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or sign in BIDI + BLANKS]


def joined(lines: list[str], start: str) -> str:
    return "".join("".join(f"{line} ".removeprefix(start).split()) for line in lines)


@proves("cli.gutter")
@given(texts, layouts, indents)
def test_every_line_of_a_foreign_text_is_behind_the_gutter_and_fits(text: str, layout: Layout, indent: str) -> None:
    lines = list(layout.quote_text(text, indent, max_lines=None))

    start = indent[: layout.width // 4] + layout.gutter
    assert all(f"{line} ".startswith(start) for line in lines)
    assert all(columns(line) <= layout.width for line in lines)
    assert [sign for line in lines for sign in uncontrolled(line)] == []
    assert all("\n" not in line for line in lines)


@proves("cli.gutter")
@given(texts, st.integers(20, 120))
def test_the_words_survive_in_their_order(text: str, width: int) -> None:
    lines = list(Layout(width).quote_text(text, max_lines=None))

    assert joined(lines, "│ ") == "".join("".join(escape_line(line).split()) for line in text.splitlines())


@proves("cli.gutter")
@given(texts, st.integers(1, 5))
def test_a_long_text_is_cut_and_the_rest_is_counted_outside_the_gutter(text: str, limit: int) -> None:
    whole = list(Layout(40).quote_text(text, max_lines=None))
    lines = list(Layout(40).quote_text(text, max_lines=limit))

    assert lines[:limit] == whole[:limit]
    hidden = len(whole) - limit
    assert lines[limit:] == ([f"({hidden} more lines; --json shows all)"] if hidden > 0 else [])


@proves("cli.gutter")
@given(texts, layouts)
def test_a_line_with_a_foreign_name_continues_behind_a_sign(text: str, layout: Layout) -> None:
    first, *rest = layout.wrap_line(f"Session s_1 of {quote_name(text)} holds: 3 events", "  ")

    assert first.startswith("  Session s_1")
    assert all(line.startswith("  ↳ " if layout.encoding == "utf-8" else "  + ") for line in rest)
    assert all(columns(line) <= layout.width for line in [first, *rest])


@proves("cli.gutter")
@given(texts)
def test_a_name_ends_where_its_quotes_end(text: str) -> None:
    name = quote_name(text)

    assert name == text or (name[0] == name[-1] == '"' and '"' not in name[1:-1].replace('\\"', ""))
    assert uncontrolled(name) == []
    assert measure(name) <= 62


@proves("cli.gutter")
def test_names_that_differ_only_in_what_does_not_show_are_told_apart() -> None:
    names = ["admin", "admin\u200b", "admin\u2800", "admin\ufe0f", "admin\u200d", "\u202eadmin"]

    assert len({quote_name(name) for name in names}) == len(names)
    assert quote_name("admin") == "admin"


@proves("cli.gutter")
@given(texts, st.integers(5, 80))
def test_a_shortened_text_fits(text: str, width: int) -> None:
    assert columns(shorten(text, width)) <= width


@proves("cli.gutter")
def test_blanks_of_every_kind_become_a_space() -> None:
    for blank in BLANKS:
        assert escape_line(f"{blank}left{blank * 200}right{blank}") == "left right"


@proves("cli.gutter")
def test_marks_do_not_pile_up_over_other_lines() -> None:
    assert escape_line("e" + "\u0301" * 6) == "e" + "\u0301" * 4 + "\\u0301" * 2
    assert escape_line("\u0301e \u0301e") == "\\u0301e \\u0301e"


@proves("cli.gutter")
def test_a_command_is_not_broken_where_it_fits() -> None:
    lines = list(Layout(40).wrap_line("It waits. Answer with `fidelio answer r_1 OPTION`, please."))

    assert lines == ["It waits. Answer with", "↳ `fidelio answer r_1 OPTION`, please."]


@proves("cli.gutter")
def test_a_line_that_is_wrapped_keeps_its_columns() -> None:
    lines = list(Layout(40).wrap_line("12:30:01   play    A step of the activity has ended, and the next begins."))

    assert lines == ["12:30:01   play    A step of the", "↳ activity has ended, and the next", "↳ begins."]


@proves("cli.json-escaped")
@given(st.recursive(texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5))
def test_json_shows_nothing_raw_and_keeps_its_value(value: object) -> None:
    for indent in (None, 2):
        text = escape_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(text) == value
        assert [sign for sign in uncontrolled(text) if sign != "\n"] == []


@proves("cli.gutter")
@pytest.mark.parametrize("text", ["Grüße, 世界", "👩‍🚀 in orbit", "می‌خواهم", "⚠️ careful", "क्षि", "❤️‍🔥"])
def test_text_in_every_script_stays_as_it_is(text: str) -> None:
    assert escape_text(text) == text
