"""What holds for every file, whatever is in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.definitions.reading import ParsedDocument, Path, read_bytes, read_text
from fidelio.errors import UnreadableDefinition
from tests.definitions.libraries import FORMATS, mappings, values, written
from tests.support import proves

_SAMPLE: dict[str, Any] = {
    "id": "sample",
    "version": "1.0.0",
    "tags": ["a", "b c", "d, e"],
    "steps": [{"id": "one", "condition": {"type": "simple", "variable": "x", "value": None}}, {"id": "two", "args": {}}],
    "table": [{"a": 1, "b": "x"}, {"a": 2, "b": "y: z"}],
    "text": 'She said: "no" # twice\nand left.',
}


_WORDS = st.text("abcxyz", min_size=1, max_size=4)


def paths(value: object, here: Path = ()) -> set[Path]:
    found = {here}
    if isinstance(value, dict):
        found |= {path for key, item in value.items() for path in paths(item, (*here, key))}
    elif isinstance(value, list):
        found |= {path for index, item in enumerate(value) for path in paths(item, (*here, index))}
    return found


@proves("reading.round-trip")
@pytest.mark.parametrize("format_", FORMATS)
@given(value=values)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(format_: str, value: object) -> None:
    data = read_text(written(value, format_), f"x.{format_}").data

    # TOON writes whole floats as integers; to the data they are the same number.
    assert data == value
    assert repr(data).replace(".0", "") == repr(value).replace(".0", "") or format_ == "toon"


@proves("reading.positions")
@pytest.mark.parametrize("format_", FORMATS)
@given(value=mappings)
@settings(max_examples=50, deadline=None)
def test_every_key_and_item_of_every_file_has_a_place(format_: str, value: dict[str, Any]) -> None:
    document = read_text(written(value, format_), f"x.{format_}")

    assert set(document.positions) == paths(value)


@proves("reading.positions")
@pytest.mark.parametrize("format_", FORMATS)
@given(value=st.recursive(st.integers(0, 9), lambda inner: st.dictionaries(_WORDS, inner, min_size=1), max_leaves=6))
@settings(max_examples=40, deadline=None)
def test_the_line_of_a_key_contains_the_key(format_: str, value: object) -> None:
    document = read_text(written(value, format_), f"x.{format_}")
    lines = document.text.split("\n")

    for path, (line, column) in document.positions.items():
        if path:
            assert lines[line - 1][column - 1 :].lstrip('"{').startswith(str(path[-1]))


def outcome(raw: bytes, name: str) -> ParsedDocument | UnreadableDefinition:
    try:
        return read_bytes(raw, name)
    except UnreadableDefinition as problem:
        return problem


@proves("reading.no-crash")
@pytest.mark.parametrize("format_", [*FORMATS, "md"])
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_damaged_file_gives_data_or_findings(format_: str, data: st.DataObject) -> None:
    text = f"---\nid: x\n---\n{_SAMPLE['text']}" if format_ == "md" else written(_SAMPLE, format_)
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        cut = data.draw(st.integers(0, 5))
        raw[at : at + cut] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\n", b"  ", b"- ", b": ", b'"', b"[", b"{", b"&a ", b"*a"])
        )

    read = outcome(bytes(raw), f"x.{format_}")

    if isinstance(read, ParsedDocument) and format_ != "md":
        assert paths(read.data) >= set(read.positions) - {()}


@proves("reading.no-crash")
@pytest.mark.parametrize("format_", [*FORMATS, "md"])
@given(text=st.text(alphabet=st.sampled_from("ab01 \n\t-:#\"'[]{},|>&*!%@`\\~."), max_size=60))
@settings(max_examples=100, deadline=None)
def test_punctuation_in_any_order_gives_data_or_findings(format_: str, text: str) -> None:
    read = outcome(text.encode(), f"x.{format_}")

    if isinstance(read, ParsedDocument):
        assert read.positions or format_ == "yaml"
        assert isinstance(read.warnings, tuple)


@proves("reading.whole-or-not")
@given(value=mappings, data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_toon_file_without_one_of_its_lines_is_never_read_as_if_nothing_had_happened(
    value: dict[str, Any], data: st.DataObject
) -> None:
    lines = written(value, "toon").split("\n")
    gone = data.draw(st.integers(0, len(lines) - 1))

    read = outcome("\n".join(lines[:gone] + lines[gone + 1 :]).encode(), "x.toon")

    assert not isinstance(read, ParsedDocument) or read.data != value


@proves("reading.text")
@pytest.mark.parametrize("format_", [*FORMATS, "md"])
def test_bytes_that_are_no_text_are_refused_with_their_place(format_: str) -> None:
    for bad in (b"\xff", b"\xc3\x28", b"\x00", b"\x1b"):
        problem = outcome(b"a: 1\nb: x" + bad, f"x.{format_}")
        assert isinstance(problem, UnreadableDefinition)
        assert (problem.findings[0].line, problem.findings[0].column) == (2, 5)


@proves("reading.text")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_byte_order_mark_is_no_part_of_the_text(format_: str) -> None:
    raw = b"\xef\xbb\xbf" + written({"id": "x"}, format_).encode()

    document = read_bytes(raw, f"x.{format_}")

    assert document.data == {"id": "x"}
    assert document.raw == raw


@proves("reading.text", "reading.bounded")
def test_what_is_no_definition_at_all_is_refused() -> None:
    for raw, name in ((b"x", "x.txt"), (b"x", "x"), (b"a: " + b"x" * 2_000_001, "x.yaml"), ("a: 1".encode("utf-16"), "x.toon")):
        assert isinstance(outcome(raw, name), UnreadableDefinition)
    with pytest.raises(UnreadableDefinition):
        read_text("a: \ud800", "x.yaml")
