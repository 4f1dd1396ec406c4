"""JSON: strictly, and with positions."""

from __future__ import annotations

import pytest

from fidelio.definitions.reading import read_text
from fidelio.errors import UnreadableDefinition
from tests.support import proves


def finding(text: str) -> tuple[int, int, str]:
    with pytest.raises(UnreadableDefinition) as caught:
        read_text(text, "x.json")
    first = caught.value.findings[0]
    return first.line, first.column, first.rule


@proves("reading.json-strict")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n  "a": 1,\n}', 3),
        ('{"a": 1 /* why */}', 1),
        ("{\n'a': 1}", 2),
        ('{"a": NaN}', 0),
        ('{"a": 1e999}', 0),
        ('{"a": ' + "9" * 5000 + "}", 0),
        ('{"a": "\\ud800"}', 0),
        ('{"a": "x\ty"}', 1),
        ('{"a": 01}', 1),
        ("", 1),
        ('{"a": 1} {"b": 2}', 1),
    ],
)
def test_what_is_no_json_is_refused(text: str, line: int) -> None:
    assert finding(text)[0] == line


@proves("reading.json-strict")
def test_escapes_and_whole_numbers_of_any_size_are_read() -> None:
    data = read_text('{"a": "\\u00e9\\ud83d\\ude00\\/", "b": 123456789012345678901234567890, "c": -0.5}', "x.json").data

    assert data == {"a": "é😀/", "b": 123456789012345678901234567890, "c": -0.5}


@proves("reading.duplicate-keys")
def test_the_second_of_two_equal_keys_is_named() -> None:
    assert finding('{\n  "a": {"x": 1},\n  "b": {\n    "x": 2,\n    "\\u0078": 3\n  }\n}') == (5, 5, "duplicate-key")
    assert finding('{"a": {"x": 1},\n "a": {"x": 1}}') == (2, 2, "duplicate-key")


@proves("reading.bounded")
@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "[" * 70 + "]" * 70])
def test_nesting_without_end_is_refused(text: str) -> None:
    assert finding(text)[2] == "too-large"


@proves("reading.positions")
def test_every_key_and_item_has_a_line_and_a_column() -> None:
    document = read_text(
        '{\n  "id": "x",\n  "steps": [\n    {"id": "a", "tags": []},\n    {},\n    ["p", 2, null]\n  ]\n}', "x.json"
    )

    assert document.positions == {
        (): (1, 1),
        ("id",): (2, 3),
        ("steps",): (3, 3),
        ("steps", 0): (4, 5),
        ("steps", 0, "id"): (4, 6),
        ("steps", 0, "tags"): (4, 17),
        ("steps", 1): (5, 5),
        ("steps", 2): (6, 5),
        ("steps", 2, 0): (6, 6),
        ("steps", 2, 1): (6, 11),
        ("steps", 2, 2): (6, 14),
    }
