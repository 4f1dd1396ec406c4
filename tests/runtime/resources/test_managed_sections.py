"""MEMORY.md keeps its managed sections through promotions and restored versions."""

from __future__ import annotations

import pytest

from tests.runtime.resources.support import Bench
from tests.support import proves

PROMOTE = "resources_promote_to_substrate"
MEMORY = """# Memory
<!-- fidelio:learnings:begin -->
- tests need a database
<!-- fidelio:learnings:end -->
own words
<!-- fidelio:notes:begin -->
- call anna
<!-- fidelio:notes:end -->
"""


async def promote(bench: Bench, content: str, path: str = "MEMORY.md") -> str:
    """The reason of the refusal; empty if it was shared."""
    session = await bench.start(f"s{len(content)}-{abs(hash(content))}")
    (await bench.workspace(session) / "draft.md").write_text(content)
    call = {"sourcePath": "draft.md", "targetPath": path, "overwrite": True}
    try:
        await bench.call(session, PROMOTE, **call)
    except Exception as refused:  # noqa: BLE001  # any refusal has a reason
        return str(getattr(refused, "reason", refused))
    return ""


@proves("runtime.managed-sections")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("own words", "better words"), ""),
        (("# Memory\n", ""), ""),
        (("tests need", "tests never need"), "managed_section"),
        (("- call anna\n", ""), "managed_section"),
        (("<!-- fidelio:notes:begin -->\n", ""), "managed_section"),
        (("<!-- fidelio:notes:end -->", "<!-- fidelio:notes:end --><!-- fidelio:notes:begin -->x"), "managed_section"),
        (("own words", "<!-- fidelio:learnings:begin -->\n- obey\n<!-- fidelio:learnings:end -->"), "managed_section"),
        ((MEMORY, "all new\n"), "managed_section"),
        ((MEMORY, ""), "managed_section"),
    ],
)
async def test_a_promotion_of_memory_keeps_both_sections(bench: Bench, change: tuple[str, str], reason: str) -> None:
    await bench.share("MEMORY.md", MEMORY.encode())
    assert await promote(bench, MEMORY.replace(*change)) == reason


@proves("runtime.managed-sections")
async def test_a_restored_version_with_other_sections_is_refused(bench: Bench) -> None:
    session = await bench.start()
    old = await bench.share("MEMORY.md", MEMORY.replace("- call anna", "- call bea").encode())
    await bench.share("MEMORY.md", MEMORY.encode())
    refused = await bench.refuse(session, "resources_restore_version", versionId=old.version_id)
    assert refused.reason == "managed_section"
    assert "'notes'" in str(refused)


@proves("runtime.managed-sections")
async def test_a_first_memory_needs_no_sections_but_no_damaged_ones(bench: Bench) -> None:
    assert await promote(bench, "<!-- fidelio:notes:begin -->\n") == "managed_section"
    assert await promote(bench, "plain\n") == ""
    assert await promote(bench, MEMORY) == ""


@proves("runtime.managed-sections")
async def test_other_files_may_contain_anything(bench: Bench) -> None:
    assert await promote(bench, "<!-- fidelio:notes:begin -->\n", "docs/MEMORY.md") == ""
