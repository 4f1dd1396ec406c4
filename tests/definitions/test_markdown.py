"""Markdown: front matter where it is meant, text everywhere else."""

from __future__ import annotations

import pytest

from fidelio.definitions.reading import read_text
from fidelio.definitions.reading.markdown import find_first_heading
from tests.support import proves


@proves("reading.markdown")
@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        (
            "---\nid: a\nversion: 1.0.0\nmore: [1, no]\n---\n\n# Title\n",
            {"id": "a", "version": "1.0.0", "more": [1, "no"]},
            "\n# Title\n",
        ),
        ("---\r\nid: a\r\n---\r\nText", {"id": "a"}, "Text"),
        ("---\nid: a\n---", {"id": "a"}, ""),
        ("---\n# about\nid: a\n---\nx", {"id": "a"}, "x"),
        ("---\n---\nText", {}, "Text"),
        ("# Title\n---\nid: a\n---\n", {}, "# Title\n---\nid: a\n---\n"),
        ("---\nJust a ruler.\n---\nText", {}, "---\nJust a ruler.\n---\nText"),
        ("---\nid: a\nno end", {}, "---\nid: a\nno end"),
        (" ---\nid: a\n---\n", {}, " ---\nid: a\n---\n"),
        ("", {}, ""),
    ],
)
def test_front_matter_is_what_stands_between_two_rulers_at_the_very_beginning(text: str, front: object, body: str) -> None:
    assert read_text(text, "x.md").data == {"front": front, "body": body}


@proves("reading.markdown", "reading.duplicate-keys")
def test_a_page_whose_front_matter_is_broken_is_read_whole_with_a_warning_at_its_line() -> None:
    text = "---\nid: a\nid: b\n---\nText"
    document = read_text(text, "x.md")
    (finding,) = document.warnings

    assert document.data == {"front": {}, "body": text}
    assert (finding.line, finding.rule, finding.severity) == (3, "front-matter", "warning")
    assert "second time" in finding.sentence
    assert not read_text("---\nid: a\n---\nText", "x.md").warnings


@proves("reading.markdown", "reading.positions")
def test_the_places_are_those_in_the_file() -> None:
    document = read_text("---\nid: a\n---\n\nText", "x.md")

    assert document.positions == {(): (1, 1), ("front",): (2, 1), ("front", "id"): (2, 1), ("body",): (4, 1)}


@proves("reading.markdown")
def test_the_first_heading_is_the_title() -> None:
    assert find_first_heading("Text\n\n# The title #\n\n# Another\n") == "The title"
    assert find_first_heading("## Not this\n") is None
