"""TOON: read whole, or refused with the line where reading went wrong."""

from __future__ import annotations

import pytest

from fidelio.definitions.findings import Finding
from fidelio.definitions.reading import read_text, toon
from fidelio.errors import UnreadableDefinition
from tests.support import proves


def finding(text: str) -> Finding:
    with pytest.raises(UnreadableDefinition) as caught:
        read_text(text, "x.toon")
    first = caught.value.findings[0]
    assert isinstance(first, Finding)
    return first


@proves("reading.whole-or-not")
def test_text_over_several_lines_is_refused_where_it_begins() -> None:
    found = finding("id: x\n# why\ndescription: |\n  First line.\n  Second line.\nversion: 1.0.0\n")

    assert (found.line, found.rule) == (4, "half-read")
    assert "\\n" in found.remedy


@proves("reading.whole-or-not")
@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("a: 1\n    b: 2\n", 2, "half-read"),
        ("a:\n      b: 2\n", 2, "half-read"),
        ("  a: 1\n", 1, "half-read"),
        ("tags:\n  - a: b\n", 2, "half-read"),
        ("tags:\n  - a\n", 2, "unreadable"),
        ("a[0]:\n- b: c\n", 2, "half-read"),
        ("a:\n\u00a0\u00a0b: 1\n", 2, "half-read"),
        ("a: 1\rb: 2\r", 1, "half-read"),
        ("a: 1\nb\n", 2, "unreadable"),
        ("a:\n\tb: 1\n", 2, "unreadable"),
        ("a:\n   b: 1\n", 2, "unreadable"),
        ('a: "open\nb: 1\n', 1, "unreadable"),
        ('a: "x" y\n', 1, "unreadable"),
        ('a: "\\x"\n', 1, "unreadable"),
        ("a[2]:\n  - b\n\n  - c\n", 3, "unreadable"),
        ("a[1]{b,c}:\n  1\n", 2, "unreadable"),
        ("note [old]: x\n", 1, "unreadable"),
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate-key"),
        ("s[1]:\n  - id: a\n    id: b\n", 3, "duplicate-key"),
        ("t[1]{a,a}:\n  1,2\n", 1, "duplicate-key"),
    ],
)
def test_what_would_be_lost_or_misread_is_refused_with_its_line(text: str, line: int, rule: str) -> None:
    found = finding(text)

    assert (found.line, found.rule) == (line, rule)
    assert found.remedy


@proves("reading.counts")
@pytest.mark.parametrize(
    ("text", "line", "declared", "found"),
    [
        ("a: 1\nsteps[3]:\n  - id: x\n  - id: y\n", 2, 3, 2),
        ("steps[1]:\n  - x\n  - y\n", 1, 1, 2),
        ("tags[3]: a,b\n", 1, 3, 2),
        ("rows[1]{a,b}:\n  1,2\n  3,4\n", 1, 1, 2),
        ("s[1]:\n  - id: x\n    tags[2]:\n      - a\n", 3, 2, 1),
        ("tags[2]:\n  -a\n  -b\n", 1, 2, 0),
        ("steps[2]: # two of them\n  - x\n  - y\n", 1, 2, 1),
    ],
)
def test_a_wrong_count_is_named_with_both_numbers(text: str, line: int, declared: int, found: int) -> None:
    problem = finding(text)

    assert (problem.line, problem.rule) == (line, "wrong-count")
    assert f"declares {declared} " in problem.sentence
    assert f"but {found} " in problem.sentence


@proves("reading.suspicion")
def test_a_trailing_comment_is_warned_about_because_it_belongs_to_the_value() -> None:
    document = read_text('a: 1 # one\nb: "x # y"\nc: issue #5\nl[2]:\n  - p # q\n  - r\n# fine\n', "x.toon")

    assert document.data["a"] == "1 # one"
    assert [(warning.line, warning.severity) for warning in document.warnings] == [(1, "warning"), (5, "warning")]


@proves("reading.whole-or-not")
@pytest.mark.parametrize(
    ("text", "decoded"),
    [("a: |\n  x\nb: 2\n", {"a": "|"}), ("a:\n  - b: 1\n", {"a": {"- b": 1}}), ("a: 1\nb: 2\nc: 3\n", {"a": 1, "b": 2})],
)
def test_a_decoder_that_stops_early_or_misreads_is_found_out(
    monkeypatch: pytest.MonkeyPatch, text: str, decoded: dict[str, object]
) -> None:
    monkeypatch.setattr(toon, "loads", lambda _text: decoded)

    found = finding(text)

    assert found.rule == "half-read"
    assert found.line > 1


@proves("reading.whole-or-not")
def test_a_count_with_a_hash_is_explained() -> None:
    assert "without the hash" in finding("tags[#2]: a,b\n").remedy


@proves("reading.whole-or-not")
def test_typed_scalars_are_those_of_the_format() -> None:
    text = 'a: 01\nb: 1.0\nc: 1e3\nd: -0\ne: True\nf: true\ng: 3.7.0\nh:\ni: ""\nj: []\nk: null\nl.m: 05\n'

    assert read_text(text, "x.toon").data == {
        "a": "01", "b": 1, "c": 1000, "d": 0, "e": "True", "f": True, "g": "3.7.0", "h": {}, "i": "", "j": [],
        "k": None, "l.m": "05",
    }  # fmt: skip


@proves("reading.whole-or-not")
def test_an_empty_file_and_windows_line_ends_are_read() -> None:
    assert read_text("", "x.toon").data == {}
    assert read_text("a: 1\r\nb[2]:\r\n  - x\r\n  - y\r\n", "x.toon").data == {"a": 1, "b": ["x", "y"]}


@proves("reading.bounded")
def test_nesting_without_end_is_refused() -> None:
    assert finding("\n".join(f"{'  ' * depth}a:" for depth in range(70))).rule == "too-large"
    assert finding("\n".join(f"{'  ' * depth}a:" for depth in range(1200))).rule in ("too-large", "unreadable")


@proves("reading.positions")
def test_every_key_and_item_has_a_line_and_a_column() -> None:
    text = (
        "id: x\n\ntags[2]: a,b\nsteps[2]:\n  - id: s\n    actions[1]{action,message}:\n      log,hi\n  - name: t\n    more:\n"
        '      "a b": 1\nplain[1]:\n  - word\nnested[1]:\n  - [2]: p,q\nkeyed[1:]{v}:\n  k: 1\n'
    )

    assert read_text(text, "x.toon").positions == {
        (): (1, 1),
        ("id",): (1, 1),
        ("tags",): (3, 1),
        ("tags", 0): (3, 1),
        ("tags", 1): (3, 1),
        ("steps",): (4, 1),
        ("steps", 0): (5, 3),
        ("steps", 0, "id"): (5, 5),
        ("steps", 0, "actions"): (6, 5),
        ("steps", 0, "actions", 0): (7, 7),
        ("steps", 0, "actions", 0, "action"): (7, 7),
        ("steps", 0, "actions", 0, "message"): (7, 7),
        ("steps", 1): (8, 3),
        ("steps", 1, "name"): (8, 5),
        ("steps", 1, "more"): (9, 5),
        ("steps", 1, "more", "a b"): (10, 7),
        ("plain",): (11, 1),
        ("plain", 0): (12, 3),
        ("nested",): (13, 1),
        ("nested", 0): (14, 3),
        ("nested", 0, 0): (14, 3),
        ("nested", 0, 1): (14, 3),
        ("keyed",): (15, 1),
        ("keyed", "k"): (16, 3),
        ("keyed", "k", "v"): (16, 3),
    }
