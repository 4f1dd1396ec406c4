"""Searches: patterns, hidden names, ignore files, line numbers, limits that tell the truth."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.sandbox.inside.files import SCANS
from fidelio.sandbox.inside.globbing import GlobPattern
from fidelio.sandbox.inside.tree import PlainTree
from fidelio.sandbox.inside.walk import TreeWalk
from tests.sandbox.files.conftest import Actions
from tests.support import proves

FILES = ["a.py", "b.txt", "src/a.py", "src/deep/a.py", "src/deep/c.md", ".env", ".github/ci.yml", "src/.hidden", "[id].tsx"]


@pytest.fixture
def tree(act: Actions) -> Actions:
    for name in FILES:
        (act.top / name).parent.mkdir(parents=True, exist_ok=True)
        (act.top / name).write_text(f"one\nfoo {name}\nFoo\n")
    return act


def globbed(act: Actions, pattern: str, path: str = ".", **more: Any) -> list[str]:
    return act.names(act("glob_entries", path=path, pattern=pattern, **more))


@proves("sandbox.glob-semantics")
def test_patterns_match_children_or_any_depth_in_byte_order(tree: Actions) -> None:
    assert globbed(tree, "*.py") == ["a.py"]
    assert globbed(tree, "**/*.py") == ["a.py", "src/a.py", "src/deep/a.py"]
    assert globbed(tree, "src/*.py") == ["src/a.py"]
    assert globbed(tree, "src/**") == ["src/a.py", "src/deep", "src/deep/a.py", "src/deep/c.md"]
    assert globbed(tree, "**/deep/*") == ["src/deep/a.py", "src/deep/c.md"]
    assert globbed(tree, "*.{py,txt}") == ["a.py", "b.txt"]
    assert globbed(tree, "[id].tsx") == ["[id].tsx"]
    assert globbed(tree, "?.py") == ["a.py"]
    assert globbed(tree, "**/*", kind="directory") == ["src", "src/deep"]
    assert globbed(tree, "*", path="src/deep") == ["src/deep/a.py", "src/deep/c.md"]
    assert globbed(tree, "*", path="a.py") == ["a.py"]


@proves("sandbox.glob-semantics")
def test_hidden_names_need_hidden_or_a_pattern_that_names_them(tree: Actions) -> None:
    assert ".env" not in globbed(tree, "*")
    assert globbed(tree, "*", hidden=True)[:2] == [".env", ".github"]
    assert globbed(tree, ".github/*") == [".github/ci.yml"]
    assert globbed(tree, "**/*.yml") == []
    assert globbed(tree, "**/*.yml", hidden=True) == [".github/ci.yml"]


@proves("sandbox.glob-semantics")
def test_links_are_listed_and_not_followed(tree: Actions) -> None:
    (tree.top / "link").symlink_to("src")

    assert "link/a.py" not in globbed(tree, "**/*.py")
    assert globbed(tree, "link") == ["link"]
    assert globbed(tree, "*", path="link") == ["link/a.py", "link/deep"]
    assert tree("glob_entries", path="link", pattern="**/*.py")["startIsLink"]
    assert globbed(tree, "**/*.py", path="link/") == ["link/a.py", "link/deep/a.py"]


@proves("sandbox.glob-semantics")
def test_a_limit_tells_whether_there_is_more(tree: Actions) -> None:
    exact = tree("glob_entries", path=".", pattern="**/*.py", limit=3)
    less = tree("glob_entries", path=".", pattern="**/*.py", limit=2)

    assert (exact["count"], exact["truncated"]) == (3, False)
    assert (less["count"], less["truncated"]) == (2, True)
    assert tree.names(less) == ["a.py", "src/a.py"]


@proves("sandbox.glob-semantics")
@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../b", "", ".", "{a,b}" * 8])
def test_a_pattern_that_leaves_the_directory_is_refused(tree: Actions, pattern: str) -> None:
    assert tree.fail("glob_entries", path=".", pattern=pattern).code == "invalid_pattern"


@proves("sandbox.glob-semantics")
def test_a_pattern_with_many_stars_is_fast(tree: Actions) -> None:
    (tree.top / ("a" * 200)).write_text("")

    assert globbed(tree, "*a" * 60 + "b") == []


@proves("sandbox.glob-semantics")
@given(
    st.lists(st.sampled_from(["a", "b", "*", "?", "**", "a*"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=1, max_size=5),
)
def test_matching_by_steps_equals_matching_by_definition(pattern: list[str], names: list[str]) -> None:
    compiled = GlobPattern("/".join(pattern), hidden=False)
    states = compiled.start
    for name in names:
        states = compiled.step(states, name)

    # A final `**` stands for everything below, not for the directory itself.
    wanted = [*pattern, "*"] if pattern[-1] == "**" else pattern
    assert compiled.accepts(states) == _matches(wanted, names)


def _matches(pattern: list[str], names: list[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        return _matches(pattern[1:], names) or (bool(names) and _matches(pattern, names[1:]))
    return bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and _matches(pattern[1:], names[1:])


@proves("sandbox.grep-semantics")
def test_all_hits_of_a_file_have_line_numbers(tree: Actions) -> None:
    found = tree("grep_text", path="a.py", query="o")

    assert [(match["line"], match["text"]) for match in found["matches"]] == [(1, "one"), (2, "foo a.py"), (3, "Foo")]
    assert (found["filesSearched"], found["skippedBinary"], found["truncated"]) == (1, 0, False)


@proves("sandbox.grep-semantics")
def test_case_counts_unless_asked_otherwise_and_text_is_literal(tree: Actions) -> None:
    (tree.top / "x").write_text("a.b\naxb\nÉ\n")

    assert len(tree("grep_text", path="a.py", query="foo")["matches"]) == 1
    assert len(tree("grep_text", path="a.py", query="foo", caseSensitive=False)["matches"]) == 2
    assert len(tree("grep_text", path="x", query="a.b")["matches"]) == 1
    assert len(tree("grep_text", path="x", query="a.b", regex=True)["matches"]) == 2
    assert len(tree("grep_text", path="x", query="é", caseSensitive=False)["matches"]) == 1
    assert tree.fail("grep_text", path="x", query="(", regex=True).code == "invalid_regex"
    assert tree.fail("grep_text", path="x", query="a\nb").code == "invalid_arguments"
    assert tree.fail("grep_text", path=".", query="a", kind="file").code == "is_directory"


@proves("sandbox.grep-semantics")
def test_hidden_files_binary_files_and_limits_are_told(tree: Actions) -> None:
    (tree.top / "binary").write_bytes(b"foo\n\0")

    visible = tree("grep_text", path=".", query="foo", limit=100)
    everything = tree("grep_text", path=".", query="foo", limit=100, hidden=True)
    limited = tree("grep_text", path=".", query="foo", limit=2)

    assert ".env" not in tree.names(visible, "matches")
    assert {".env", "src/.hidden"} <= set(tree.names(everything, "matches"))
    assert (visible["skippedBinary"], visible["truncated"]) == (1, False)
    assert (limited["count"], limited["truncated"]) == (2, True)


@proves("sandbox.grep-semantics")
def test_a_long_line_is_cut_around_its_match_and_an_endless_one_is_no_text(act: Actions) -> None:
    (act.top / "long").write_text("x" * 5_000 + "needle" + "y" * 5_000 + "\n")
    (act.top / "endless").write_text("x" * (9 << 20))

    (match,) = act("grep_text", path="long", query="needle")["matches"]

    assert "needle" in match["text"]
    assert (len(match["text"]), match["cut"], match["column"], match["lineLength"]) == (400, True, 5_001, 10_006)
    assert act("grep_text", path="endless", query="x")["skippedBinary"] == 1


@proves("sandbox.grep-semantics")
def test_lines_are_found_across_the_blocks_in_which_a_file_is_read(act: Actions) -> None:
    lines = [f"{number} {'x' * 40}" for number in range(60_000)]
    (act.top / "f").write_text("\n".join(lines))

    found = act("grep_text", path="f", query=r"^\d*999 x+$", regex=True, limit=1_000)

    assert [match["line"] for match in found["matches"]] == [number + 1 for number in range(60_000) if number % 1000 == 999]


@proves("sandbox.find-semantics")
def test_entries_are_found_by_a_part_of_their_path_in_any_case(tree: Actions) -> None:
    assert tree.names(tree("find_entries", path=".", query="DEEP/C")) == ["src/deep/c.md"]
    assert tree.names(tree("find_entries", path=".", query="hidden")) == []
    assert tree.names(tree("find_entries", path=".", query="hidden", hidden=True)) == ["src/.hidden"]
    assert tree("find_entries", path=".", query="a", limit=1)["truncated"]
    assert tree.fail("find_entries", path=".", query="").code == "invalid_arguments"


@proves("sandbox.runtime-files-skipped")
def test_the_files_of_the_runtime_are_searched_only_when_named(act: Actions) -> None:
    (act.top / ".openboa-runtime/sub").mkdir(parents=True)
    (act.top / ".openboa-runtime/sub/state.md").write_text("foo")

    assert act("grep_text", path=".", query="foo", hidden=True)["matches"] == []
    assert act.names(act("glob_entries", path=".", pattern="**/*", hidden=True)) == [".openboa-runtime"]
    assert act("find_entries", path=".", query="state", hidden=True)["entries"] == []
    assert len(act("grep_text", path=".openboa-runtime", query="foo")["matches"]) == 1
    assert len(act("glob_entries", path=".openboa-runtime", pattern="**/*.md")["entries"]) == 1


@proves("sandbox.host-actions")
def test_a_tree_is_listed_page_by_page_without_gaps(tree: Actions) -> None:
    whole = tree("list_tree", path=".", digests=True)
    paged: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = tree("list_tree", path=".", limit=2, digests=True, cursor=cursor)
        paged, cursor = paged + page["entries"], page["nextCursor"]

    assert paged == whole["entries"]
    names = tree.names(whole)
    assert names == sorted(names, key=os.fsencode)
    assert set(FILES) <= set(names)
    assert all("digest" in entry for entry in whole["entries"] if entry["kind"] == "file")
    assert tree.fail("list_tree", path=".", cursor="!").code == "invalid_arguments"


@proves("sandbox.bounded-searches")
def test_a_search_that_runs_out_of_time_returns_what_it_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("x")
    walk = TreeWalk(PlainTree(str(tmp_path)), str(tmp_path), seconds=0)

    assert [relative for relative, _ in walk.entries(lambda _, __: True)] == ["a"]
    assert not walk.is_complete


@proves("sandbox.bounded-searches")
def test_a_directory_deeper_than_a_path_can_be_long_is_counted(tmp_path: Path) -> None:
    top = os.open(tmp_path, os.O_RDONLY)
    current = os.dup(top)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=current)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(current)
    os.close(top)

    output = SCANS["glob_entries"](PlainTree(str(tmp_path)), {"path": ".", "pattern": "**/*.py"})

    assert (output["entries"], output["unreadableDirectories"]) == ([], 1)
    assert SCANS["remove"](PlainTree(str(tmp_path)), {"path": "d" * 200, "recursive": True})["removed"] == 30
