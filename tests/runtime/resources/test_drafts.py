"""Drafts: copying shared files into the workspace, and what happened to them since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fidelio.runtime.draft_record import MAX_DRAFTS
from tests.runtime.resources.support import Bench
from tests.support import proves

STAGE, DRAFTS, PROMOTE = "resources_stage_from_substrate", "resources_list_staged_drafts", "resources_promote_to_substrate"


@proves("runtime.drafts")
@pytest.mark.parametrize("content", [b"hello\n", b"", b"\x00\xff" * 700_000])
async def test_a_shared_file_is_copied_through_the_sandbox(bench: Bench, content: bytes) -> None:
    session = await bench.start()
    version = await bench.share("docs/guide.md", content)

    output = await bench.call(session, STAGE, sourcePath="/workspace/agent/docs/guide.md", targetPath="draft/guide.md")

    assert (await bench.workspace(session) / "draft/guide.md").read_bytes() == content
    assert output["bytes"] == len(content)
    assert (output["reusedExisting"], output["divergedFromSource"]) == (False, False)
    assert output["sourceContentHash"] == output["targetContentHash"] == version.content_hash
    assert (session, "write_bytes") in bench.sandboxes.calls


@proves("runtime.drafts")
async def test_a_draft_is_used_again_and_says_whether_it_differs(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    await bench.call(session, STAGE, sourcePath="a.md")
    draft = await bench.workspace(session) / "a.md"
    draft.write_text("edited\n")

    again = await bench.call(session, STAGE, sourcePath="a.md")
    assert (again["reusedExisting"], again["divergedFromSource"]) == (True, True)
    assert draft.read_text() == "edited\n"

    replaced = await bench.call(session, STAGE, sourcePath="a.md", overwrite=True)
    assert (replaced["reusedExisting"], replaced["divergedFromSource"]) == (False, False)
    assert draft.read_text() == "one\n"


@proves("runtime.drafts")
async def test_a_file_that_is_no_draft_of_the_source_is_not_replaced(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    mine = await bench.workspace(session) / "a.md"
    mine.write_text("mine\n")

    assert (await bench.refuse(session, STAGE, sourcePath="a.md")).reason == "exists"
    assert mine.read_text() == "mine\n"


@proves("runtime.drafts")
async def test_a_file_that_appears_after_the_look_is_not_replaced(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    mine = await bench.workspace(session) / "a.md"

    def appear(action: str, _: Mapping[str, Any]) -> None:
        if action == "write_bytes":
            mine.write_text("mine\n")

    bench.sandboxes.before = appear
    assert (await bench.refuse(session, STAGE, sourcePath="a.md")).reason == "digest_mismatch"
    assert mine.read_text() == "mine\n"


@proves("runtime.drafts")
async def test_a_missing_source_is_refused_with_what_there_is(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    refused = await bench.refuse(session, STAGE, sourcePath="b.md")
    assert refused.reason == "not_found"
    assert "a.md" in str(refused)


@proves("runtime.drafts")
async def test_a_draft_through_a_link_stays_inside_of_the_sandbox(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    outside = bench.home.path / "outside"
    outside.mkdir()
    (await bench.workspace(session) / "out").symlink_to(outside)

    await bench.refuse(session, STAGE, sourcePath="a.md", targetPath="out/a.md")
    assert not list(outside.iterdir())


@proves("runtime.drafts")
async def test_the_list_of_drafts_says_what_changed_on_which_side(bench: Bench) -> None:
    session = await bench.start()
    for name in ("same", "edited", "moved", "removed"):
        await bench.share(f"{name}.md", b"one\n")
        await bench.call(session, STAGE, sourcePath=f"{name}.md")
    workspace = await bench.workspace(session)
    (workspace / "edited.md").write_text("two\n")
    (workspace / "removed.md").unlink()
    await bench.share("moved.md", b"three\n")

    listed = await bench.call(session, DRAFTS)

    fields = ("status", "draftChangedSinceStage", "sourceChangedSinceStage", "draftExists")
    assert listed["count"] == 4
    assert {draft["targetPath"]: tuple(draft[field] for field in fields) for draft in listed["drafts"]} == {
        "same.md": ("in_sync", False, False, True),
        "edited.md": ("ready", True, False, True),
        "moved.md": ("ready", False, True, True),
        "removed.md": ("draft_missing", True, False, False),
    }


@proves("runtime.drafts")
async def test_a_promoted_draft_is_in_sync_again(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    await bench.call(session, STAGE, sourcePath="a.md")
    (await bench.workspace(session) / "a.md").write_text("two\n")
    await bench.call(session, PROMOTE, sourcePath="a.md", overwrite=True)

    (draft,) = (await bench.call(session, DRAFTS))["drafts"]
    changed = (draft["sourceChangedSinceStage"], draft["draftChangedSinceStage"])
    assert (draft["status"], *changed) == ("in_sync", False, False)


@proves("runtime.drafts")
async def test_without_drafts_no_sandbox_is_used(bench: Bench) -> None:
    session = await bench.start()
    assert await bench.call(session, DRAFTS) == {"count": 0, "drafts": []}
    assert bench.sandboxes.calls == []


@proves("runtime.drafts")
async def test_the_record_keeps_the_newest_drafts(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    for number in range(MAX_DRAFTS + 3):
        bench.clock.now += 1
        await bench.call(session, STAGE, sourcePath="a.md", targetPath=f"copy{number}.md")
    drafts = (await bench.load(session)).record.drafts
    assert len(drafts) == MAX_DRAFTS
    assert "copy2.md" not in drafts
