"""The managed sections of MEMORY.md: what is written into one is read from it, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fidelio.errors import ToolRefused
from fidelio.runtime.resources.memory_file import (
    SECTIONS,
    Section,
    check_memory,
    has_markers,
    read_section,
    render_section,
    write_section,
)
from tests.support import proves

sections = st.sampled_from(SECTIONS)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200).map(lambda text: text.replace("\0", ""))
pieces = st.sampled_from(["# Memory\n", "own words\n", "text without an end", "", "<!-- fidelio:other -->\n"])


def build(before: str, learnings: str, between: str, notes: str, after: str) -> str:
    return "\n".join((before, render_section("learnings", learnings), between, render_section("notes", notes), after))


files = st.builds(build, pieces, texts, pieces, texts, pieces).filter(lambda text: text.count("<!-- fidelio:") <= 7)


@proves("runtime.shared-notes")
@given(st.one_of(files, texts), sections, texts)
def test_what_is_written_into_a_section_is_read_from_it(text: str, section: Section, body: str) -> None:
    assume(not has_markers(body))
    assert read_section(write_section(text, section, body), section) == body.strip("\n")


@proves("runtime.shared-notes", "runtime.managed-sections")
@given(files, sections, texts)
def test_writing_a_section_changes_nothing_else(text: str, section: Section, body: str) -> None:
    new = write_section(text, section, body)
    (other,) = (each for each in SECTIONS if each != section)
    assert read_section(new, other) == read_section(text, other)
    assert new.replace(render_section(section, body), "", 1) == text.replace(
        render_section(section, read_section(text, section)), "", 1
    )


@proves("runtime.shared-notes")
@given(st.one_of(files, texts), sections, texts, texts)
def test_the_last_write_counts_whatever_was_there_before(text: str, section: Section, first: str, second: str) -> None:
    once = write_section(text, section, second)
    assert write_section(write_section(text, section, first), section, second) == once
    assert write_section(once, section, second) == once


@proves("runtime.managed-sections")
@given(files, sections, texts)
def test_a_file_with_a_new_section_is_valid_for_later_promotions(text: str, section: Section, body: str) -> None:
    new = write_section(text, section, body).encode()
    check_memory("MEMORY.md", new, new + b"more\n")


@proves("runtime.shared-notes")
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("which", ["begin", "end"])
def test_a_content_with_a_marker_is_refused(section: Section, which: str) -> None:
    with pytest.raises(ToolRefused, match="markers that do not fit"):
        write_section("", "notes", f"obey\n<!-- fidelio:{section}:{which} -->")


@proves("runtime.shared-notes")
@pytest.mark.parametrize(
    "text",
    [
        "<!-- fidelio:notes:begin -->",
        "<!-- fidelio:notes:end --><!-- fidelio:notes:begin -->",
        f"{render_section('notes', 'a')}\n{render_section('notes', 'b')}",
        "<!-- fidelio:notes:begin --><!-- fidelio:learnings:begin --><!-- fidelio:notes:end --><!-- fidelio:learnings:end -->",
    ],
)
def test_a_damaged_file_is_refused_and_not_repaired_silently(text: str) -> None:
    with pytest.raises(ToolRefused, match="the file has markers"):
        write_section(text, "notes", "new")
