"""Values written as TOON are read back as they were, by old readers and new ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toon_format import decode

from fidelio.definitions.toon_writer import encode_toon
from tests.support import proves

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    [
        "",
        "true",
        "-",
        "- a",
        "1",
        "01",
        "1e3",
        "a: b",
        "a,b",
        "[]",
        "[2]: x",
        "{a}",
        "#",
        "a # b",
        '"',
        "\\",
        "a\nb",
        " a",
        "a ",
    ]
)
scalars = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


@proves("reading.written-toon")
@given(st.dictionaries(texts, values, max_size=5) | st.lists(values, max_size=5))
def test_what_is_written_is_read_back_unchanged(value: Any) -> None:
    assert decode(encode_toon(value)) == value


@proves("reading.written-toon")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"rules": []}, "rules[0]:"),
        ({"tags": ["a", "b, c"]}, 'tags[2]: a,"b, c"'),
        ({"steps": [{"id": "a", "name": "A"}]}, "steps[1]:\n  - id: a\n    name: A"),
        ({"errors": {"one": {"cause": "x"}, "two": {"cause": "y"}}}, "errors:\n  one:\n    cause: x\n  two:\n    cause: y"),
        ([{"id": "a", "tags": []}], "[1]:\n  - id: a\n    tags[0]:"),
    ],
)
def test_only_forms_that_every_reader_knows_are_used(value: Any, text: str) -> None:
    assert encode_toon(value) == text
