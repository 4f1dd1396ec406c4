"""Comparison of a draft with the shared file, and the diff beneath it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.runtime.resources.compare import MAX_EDITS, Comparison, compare_texts, preview, render_unified
from tests.runtime.resources.support import Bench
from tests.support import proves
from tests.support.parts import require_part

COMPARE = "resources_compare_with_substrate"
LINES = st.lists(st.sampled_from(["a", "b", "c", "", "a b", "\r", "é", "\x0c"]), max_size=25)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


def check_covers(comparison: Comparison) -> None:
    """The blocks cover both texts without gaps, and equal blocks are equal."""
    old = new = 0
    for block in comparison.blocks:
        assert (block.old_start, block.new_start) == (old, new)
        old, new = block.old_end, block.new_end
        if block.kind == "equal":
            assert comparison.old[block.old_start : old] == comparison.new[block.new_start : new]
    assert (old, new) == (len(comparison.old), len(comparison.new))


@proves("runtime.comparison")
@given(TEXTS, TEXTS)
def test_a_comparison_covers_both_texts(old: str, new: str) -> None:
    comparison = compare_texts(old, new)
    check_covers(comparison)
    assert comparison.is_exact
    assert (comparison.differing_lines == 0) == (old == new)
    assert "".join(comparison.old) == old
    assert len(preview(comparison, 5)) == min(5, comparison.differing_lines)


@proves("runtime.comparison")
@settings(max_examples=60)
@given(old=TEXTS, new=TEXTS)
def test_the_unified_text_turns_the_old_text_into_the_new(tmp_path_factory: pytest.TempPathFactory, old: str, new: str) -> None:
    if shutil.which("patch") is None:
        require_part("patch", "Install it with apt-get install patch.")
    directory = tmp_path_factory.mktemp("patch")
    (directory / "old").write_text(old, newline="")
    lines = list(render_unified(compare_texts(old, new), "old", "new"))
    (directory / "patch").write_text("".join(f"{line}\n" for line in lines), newline="")
    if not lines:
        assert old == new
        return
    command = ["patch", "--binary", "--silent", "--output=out", "old", "patch"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done
    assert (directory / "out").read_bytes() == new.encode()


@proves("runtime.comparison")
@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("a\nb\nc\n", "a\nX\nc\n", 1),
        ("a\nb\n", "a\nb\nc\n", 1),
        ("a\nb\nc\n", "b\nc\n", 1),
        ("a\n", "a", 1),
        ("a\n", "a\r\n", 1),
        ("", "", 0),
        ("", "a\nb\n", 2),
        ("a\nb\nc\nd\n", "X\nb\nc\nY\n", 2),
        ("a\nb\n", "X\nY\nZ\n", 3),
    ],
)
def test_a_replaced_line_counts_once(old: str, new: str, count: int) -> None:
    assert compare_texts(old, new).differing_lines == count


@proves("runtime.comparison")
def test_hostile_texts_are_compared_in_bounded_steps() -> None:
    rough = compare_texts("".join(f"a{n}\n" for n in range(30_000)), "".join(f"b{n}\n" for n in range(20_000)))
    check_covers(rough)
    assert not rough.is_exact
    assert rough.differing_lines == 30_000
    near = compare_texts("x\ny\n" * 10_000, "y\nx\n" * 10_000)
    assert near.is_exact
    assert near.differing_lines <= 2
    assert MAX_EDITS == 1_000


@proves("runtime.comparison")
async def test_a_comparison_returns_what_a_promotion_needs(bench: Bench) -> None:
    session = await bench.start()
    version = await bench.share("a.md", b"one\ntwo\nthree\n")
    (await bench.workspace(session) / "draft.md").write_text("one\n2\nthree\nfour\n")

    output = await bench.call(session, COMPARE, sessionPath="/workspace/draft.md", substratePath="a.md")

    assert (output["substrateExists"], output["identical"], output["binary"]) == (True, False, False)
    assert (output["sessionCharCount"], output["substrateCharCount"]) == (17, 14)
    assert output["differingLineCount"] == 2
    assert [(line["change"], line["substrate"], line["session"]) for line in output["preview"]] == [
        ("replaced", "two", "2"),
        ("added", None, "four"),
    ]
    assert output["latestVersionId"] == version.version_id
    precondition = {name: value for name, value in output["promotePrecondition"].items() if name.startswith("expected")}
    call = {"sourcePath": "draft.md", "targetPath": "a.md", **precondition}
    assert (await bench.call(session, "resources_promote_to_substrate", **call))["previousVersionId"] == version.version_id
    again = await bench.call(session, COMPARE, sessionPath="draft.md", substratePath="a.md")
    assert (again["identical"], again["differingLineCount"], again["preview"]) == (True, 0, [])


@proves("runtime.comparison")
async def test_a_new_file_has_no_precondition(bench: Bench) -> None:
    session = await bench.start()
    (await bench.workspace(session) / "new.md").write_text("a\nb\n")
    output = await bench.call(session, COMPARE, sessionPath="new.md", maxPreviewLines=1)
    assert (output["substrateExists"], output["identical"], output["substrateContentHash"]) == (False, False, None)
    assert (output["differingLineCount"], len(output["preview"]), output["previewTruncated"]) == (2, 1, True)
    assert output["promotePrecondition"] == {
        "expectedVersionId": None,
        "expectedContentHash": None,
        "versionAvailable": False,
        "contentHashAvailable": False,
    }


@proves("runtime.comparison")
async def test_binary_files_are_compared_by_content_and_not_by_lines(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.bin", b"\x00one")
    (await bench.workspace(session) / "a.bin").write_bytes(b"\x00two")
    output = await bench.call(session, COMPARE, sessionPath="a.bin")
    assert (output["binary"], output["identical"], output["differingLineCount"]) == (True, False, None)
    assert output["preview"] == []


@proves("runtime.comparison")
async def test_an_empty_new_file_is_not_identical_to_a_missing_one(bench: Bench) -> None:
    session = await bench.start()
    (await bench.workspace(session) / "empty.md").write_bytes(b"")
    output = await bench.call(session, COMPARE, sessionPath="empty.md")
    assert (output["identical"], output["substrateExists"], output["differingLineCount"]) == (False, False, 0)


@proves("runtime.comparison")
async def test_a_missing_draft_is_refused(bench: Bench, tmp_path: Path) -> None:
    session = await bench.start()
    refused = await bench.refuse(session, COMPARE, sessionPath="missing.md")
    assert refused.reason == "not_found"
    assert str(tmp_path) not in str(refused)
