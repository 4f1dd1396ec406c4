"""YAML: the scalars of 1.2, every key once, nothing but plain data."""

from __future__ import annotations

import pytest

from fidelio.definitions.reading import read_text
from fidelio.errors import UnreadableDefinition
from tests.support import proves


def read(text: str) -> object:
    return read_text(text, "x.yaml").data


def finding(text: str) -> tuple[int, int, str]:
    with pytest.raises(UnreadableDefinition) as caught:
        read(text)
    first = caught.value.findings[0]
    return first.line, first.column, first.rule


@proves("reading.yaml-scalars")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("190:20", "190:20"),
        ("2026-11-15", "2026-11-15"),
        ("1.10", 1.1),
        ("1.0.0", "1.0.0"),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("+12", 12),
        ("0b11", "0b11"),
        ("~", None),
        ("Null", None),
        ("", None),
        ('"no"', "no"),
        ("'010'", "010"),
        ('"null"', "null"),
        ("! 12", "12"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        (">-\n  one\n  line\n", "one line"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: object) -> None:
    data = read(f"key: {text}")

    assert isinstance(data, dict)
    assert data == {"key": value}
    assert type(data["key"]) is type(value)


@proves("reading.yaml-scalars")
def test_a_key_keeps_its_spelling_whatever_it_looks_like() -> None:
    assert read("1: a\nno: b\n010: c\nnull: d\n") == {"1": "a", "no": "b", "010": "c", "null": "d"}


@proves("reading.yaml-scalars")
@pytest.mark.parametrize("text", [".inf", "-.Inf", ".nan", "1e999", "9" * 5000])
def test_a_number_that_json_cannot_carry_is_refused(text: str) -> None:
    assert finding(f"a: 1\nkey: {text}")[:2] == (2, 6)


@proves("reading.duplicate-keys")
def test_the_second_of_two_equal_keys_is_named() -> None:
    assert finding("a:\n  b: 1\n  c: 2\n  b: 3\n") == (4, 3, "duplicate-key")
    assert finding('{a: 1, "a": 2}') == (1, 8, "duplicate-key")


@proves("reading.yaml-plain")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: !!python/object/apply:os.system [ls]", (1, 4)),
        ("a: !!int '3'", (1, 4)),
        ("b: {x: 1}\na:\n  <<: *b\n", (3, 3)),
        ("a: 1\n---\nb: 2\n", (2, 1)),
        ("? [a, b]\n: c\n", (1, 3)),
        ("a: 1\nb: *nowhere\n", (2, 4)),
        ("a: &x\n  b: *x\n", (2, 6)),
        ("a: [1, 2\nb: 3\n", (2, 2)),
        ("a: b: c\n", (1, 5)),
        ("a:\n\t- b\n", (2, 1)),
    ],
)
def test_what_is_more_than_plain_data_is_refused_with_its_place(text: str, place: tuple[int, int]) -> None:
    assert finding(text)[:2] == place


@proves("reading.yaml-plain")
def test_an_anchor_stands_for_its_value() -> None:
    assert read("a: &x {b: [1, 2]}\nc: *x\n&k d: *k\n") == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": "d"}


@proves("reading.yaml-plain")
def test_an_invisible_line_separator_is_refused() -> None:
    assert finding("a: 1\nb: x\u2028y\n") == (2, 1, "half-read")


@proves("reading.bounded")
def test_a_file_that_grows_when_aliases_are_written_out_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]

    assert finding("\n".join(lines))[2] == "too-large"


@proves("reading.bounded")
@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 9000])
def test_a_number_that_nobody_could_write_again_is_refused(number: str) -> None:
    assert finding(f"n: {number}") == (1, 4, "unreadable")


@proves("reading.bounded")
@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 70 + "1" + "}" * 70, "- " * 70 + "x"])
def test_nesting_without_end_is_refused(text: str) -> None:
    assert finding(text)[2] in ("too-large", "unreadable")


@proves("reading.positions")
def test_every_key_and_item_has_a_line_and_a_column() -> None:
    document = read_text("# a comment\nid: x\nsteps:\n  - id: a\n    name: b\n  - {id: c}\n  - plain\n", "x.yaml")

    assert document.positions == {
        (): (2, 1),
        ("id",): (2, 1),
        ("steps",): (3, 1),
        ("steps", 0): (4, 5),
        ("steps", 0, "id"): (4, 5),
        ("steps", 0, "name"): (5, 5),
        ("steps", 1): (6, 5),
        ("steps", 1, "id"): (6, 6),
        ("steps", 2): (7, 5),
    }
    assert document.at(("steps", 1, "missing", "deeper")) == (6, 5)


@proves("reading.positions")
def test_what_lies_behind_an_alias_stands_where_the_alias_stands() -> None:
    document = read_text("a: &x {b: 1}\nc: *x\n", "x.yaml")

    assert document.at(("c", "b")) == (2, 1)
