"""Merge of a mounted memory store: what a sandbox has, what the store has, what both had before. Pure.

Nothing is lost: a change that nobody else touched goes to the other side, and where both sides changed a document the store
keeps its own at the path, and what the session wrote becomes a document of its own beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

import msgspec

# Digests of contents by path.
Contents: TypeAlias = Mapping[str, str]
Action: TypeAlias = Literal["remove_file", "remove_memory", "write_file", "store_memory", "store_copy"]
# Removals first: a file may have become a directory. What is stored beside goes before the file is replaced.
_ORDER: tuple[Action, ...] = ("remove_file", "remove_memory", "store_copy", "write_file", "store_memory")
_SHORT = 8


class MergeStep(msgspec.Struct, frozen=True):
    """A step of a merge. `before` is the content that the side which is changed must still have; None: there is none.

    `source` is where the content of a copy is in the sandbox.
    """

    action: Action
    path: str
    before: str | None
    after: str | None = None
    source: str = ""


def plan_merge(base: Contents, files: Contents, memories: Contents) -> list[MergeStep]:
    """The steps after which sandbox and store have the same."""
    steps = [
        step
        for path in sorted({*base, *files, *memories})
        for step in _merge_path(path, base.get(path), files.get(path), memories.get(path))
    ]
    return sorted(steps, key=lambda step: _ORDER.index(step.action))


def _merge_path(path: str, base: str | None, file: str | None, memory: str | None) -> list[MergeStep]:
    if file == memory:
        return []
    if file == base:
        return [_to_sandbox(path, file, memory)]
    if memory == base or memory is None:
        return [_to_store(path, memory, file)]
    # Both sides changed it. What was deleted in the sandbox is no content that could be lost.
    copy = [] if file is None else [MergeStep("store_copy", name_copy(path, file), None, file, path)]
    return [*copy, _to_sandbox(path, file, memory)]


def _to_sandbox(path: str, file: str | None, memory: str | None) -> MergeStep:
    return MergeStep("remove_file" if memory is None else "write_file", path, file, memory)


def _to_store(path: str, memory: str | None, file: str | None) -> MergeStep:
    return MergeStep("remove_memory" if file is None else "store_memory", path, memory, file)


def name_copy(path: str, digest: str) -> str:
    """The path of a copy. The same content has the same path, however often it is stored."""
    pure = PurePosixPath(path)
    return str(pure.with_name(f"{pure.stem}.conflict-{digest[:_SHORT]}{pure.suffix}"))
