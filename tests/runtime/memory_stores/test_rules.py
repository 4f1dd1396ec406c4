"""Rules of memory stores as properties: what is accepted is a path everywhere, and a listing leaves nothing out."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import MemoryPathConflict, MemoryProblem
from fidelio.runtime.memory_stores import rules
from fidelio.runtime.memory_stores.record import MemoriesRecord, Memory
from tests.support import proves

SEGMENTS = st.text(st.sampled_from("abc.-_é ü日"), min_size=1, max_size=6).filter(lambda text: text not in (".", ".."))
PATHS = st.lists(SEGMENTS, min_size=1, max_size=5).map(lambda names: unicodedata.normalize("NFC", "/" + "/".join(names)))


def make(path: str, id_: str = "") -> Memory:
    return Memory(id_ or f"mem_{path}", path, "0" * 64, 1, 1, 1, 1)


def record_of(paths: set[str]) -> MemoriesRecord:
    return MemoriesRecord({path: make(path, path) for path in paths})


def is_free(record: MemoriesRecord, path: str) -> bool:
    try:
        rules.check_free(record, path)
    except MemoryPathConflict:
        return False
    return True


@proves("memory-stores.paths")
@given(st.text(max_size=40).map(lambda text: unicodedata.normalize("NFC", "/" + text)))
def test_an_accepted_path_is_the_same_path_in_a_file_system(text: str) -> None:
    if rules.find_path_problem(text):
        return
    path = PurePosixPath(text)

    assert str(path) == text
    assert path.is_absolute()
    assert ".." not in path.parts
    assert all(len(part.encode()) <= 255 for part in path.parts)
    assert text.isprintable() or all(unicodedata.category(each) not in ("Cc", "Cf", "Zl", "Zp", "Cs") for each in text)


@proves("memory-stores.paths")
@given(PATHS)
def test_a_plain_path_is_accepted(path: str) -> None:
    rules.check_path(path)


@proves("memory-stores.paths")
@given(
    PATHS,
    st.sampled_from(["\x00", "\x1f", "\x7f", "\u200d", "\u202e", "\u2028", "\u2029", "\ud800", "\ufeff"]),
    st.integers(0, 10),
)
def test_a_path_with_an_invisible_character_is_refused(path: str, character: str, at: int) -> None:
    at = min(at, len(path) - 1) + 1
    with pytest.raises(MemoryProblem):
        rules.check_path(path[:at] + character + path[at:])


@proves("memory-stores.paths")
@given(st.sets(PATHS, max_size=8), PATHS)
def test_a_free_path_leaves_every_memory_a_file(paths: set[str], added: str) -> None:
    kept: set[str] = set()
    for path in (*sorted(paths), added):
        if is_free(record_of(kept), path):
            kept.add(path)

    directories = {str(parent) for path in kept for parent in PurePosixPath(path).parents}
    assert not directories & kept


@proves("memory-stores.listing")
@given(st.sets(PATHS, max_size=10), st.integers(0, 4))
def test_a_listing_covers_every_memory_once(paths: set[str], depth: int) -> None:
    listed = [item.path for item in rules.list_memories(map(make, paths), depth=depth)]

    assert listed == sorted(set(listed))
    for path in paths:
        assert sum(path == shown or (shown.endswith("/") and path.startswith(shown)) for shown in listed) == 1
    assert all(shown.rstrip("/").count("/") <= depth or not depth for shown in listed)


@proves("memory-stores.listing")
@given(st.sets(PATHS, max_size=10))
def test_going_into_every_directory_of_a_listing_finds_every_memory(paths: set[str]) -> None:
    found: set[str] = set()
    pending = ["/"]
    while pending:
        for item in rules.list_memories(map(make, paths), prefix=pending.pop(), depth=1):
            if isinstance(item, Memory):
                found.add(item.path)
            else:
                pending.append(item.path)

    assert found == paths


@proves("memory-stores.mount-path")
@given(st.lists(st.text(min_size=1, max_size=255), max_size=5))
def test_every_store_of_a_session_has_a_directory_of_its_own(names: list[str]) -> None:
    taken: list[str] = []
    for name in names:
        taken.append(rules.choose_mount_path(name, taken))

    assert len(set(taken)) == len(taken)
    for path in taken:
        assert set(path.removeprefix("/mnt/memory/")) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert path != "/mnt/memory/"


@proves("memory-stores.mount-path")
@pytest.mark.parametrize(
    ("name", "slug"), [("User Preferences", "user-preferences"), ("  A..B  ", "a-b"), ("日本", "store"), ("../../etc", "etc")]
)
def test_the_directory_follows_from_the_name(name: str, slug: str) -> None:
    assert rules.choose_mount_path(name) == f"/mnt/memory/{slug}"
