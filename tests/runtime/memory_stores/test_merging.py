"""The merge of a mounted store as properties: both sides become the same, and no content is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.memory_stores.merging import Contents, name_copy, plan_merge
from tests.support import proves

SIDES = st.dictionaries(st.sampled_from(["/a.md", "/b", "/c/d.md"]), st.sampled_from(["11111111", "22222222", "33333333"]))


def carry_out(files: Contents, memories: Contents, base: Contents) -> tuple[dict[str, str], dict[str, str]]:
    """Both sides after a merge. Every step finds what it expects."""
    after_files, after_memories = dict(files), dict(memories)
    for step in plan_merge(base, files, memories):
        side = after_files if step.action in ("remove_file", "write_file") else after_memories
        if step.action == "store_copy":
            assert files[step.source] == step.after
        else:
            assert side.get(step.path) == step.before
        if step.after is None:
            del side[step.path]
        else:
            side[step.path] = step.after
    return after_files, after_memories


@proves("memory-stores.merge")
@given(SIDES, SIDES, SIDES)
def test_after_a_merge_both_sides_agree_on_every_path(base: Contents, files: Contents, memories: Contents) -> None:
    after_files, after_memories = carry_out(files, memories, base)

    copies = {name_copy(path, digest) for path, digest in files.items()}
    for path in {*files, *memories}:
        assert path in copies or after_files.get(path) == after_memories.get(path)


@proves("memory-stores.merge")
@given(SIDES, SIDES, SIDES)
def test_a_second_merge_only_shows_the_copies(base: Contents, files: Contents, memories: Contents) -> None:
    after_files, after_memories = carry_out(files, memories, base)
    common = {path: digest for path, digest in after_files.items() if after_memories.get(path) == digest}

    assert all(step.action == "write_file" for step in plan_merge(common, after_files, after_memories))


@proves("memory-stores.merge")
@given(SIDES, SIDES, SIDES)
def test_what_a_side_has_written_is_somewhere_afterwards(base: Contents, files: Contents, memories: Contents) -> None:
    _, after_memories = carry_out(files, memories, base)

    for path, digest in files.items():
        if base.get(path) != digest:
            assert digest in (after_memories.get(path), after_memories.get(name_copy(path, digest)))
    for path, digest in memories.items():
        # Another version of it is in the history of the store.
        if base.get(path) != digest:
            assert after_memories.get(path) == digest


@proves("memory-stores.merge")
@given(SIDES, SIDES)
def test_a_change_of_one_side_alone_is_taken_over(base: Contents, changed: Contents) -> None:
    assert carry_out(changed, base, base) == (dict(changed), dict(changed))
    assert carry_out(base, changed, base) == (dict(changed), dict(changed))
