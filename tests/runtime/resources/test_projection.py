"""The directory that shows shared files to sandboxes."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from fidelio.runtime.events import DIRECTORY_REBUILT
from tests.runtime.resources.support import Bench
from tests.support import proves


def list_files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if not path.is_dir()}


async def rebuilt(bench: Bench) -> list[list[str]]:
    events = await bench.ledger.events((await bench.substrate()).store.id)
    return [event.body["paths"] for event in events if event.type == DIRECTORY_REBUILT]


@proves("runtime.shared-directory")
async def test_sandboxes_see_the_newest_versions_read_only_for_any_user(bench: Bench) -> None:
    session = await bench.start()
    before = os.umask(0o077)
    try:
        await bench.share("docs/a.md", b"one\n")
        await bench.spec(session)
        await bench.share("docs/a.md", b"two\n")
        await bench.share("b.bin", b"\x00")
        await bench.spec(session)
    finally:
        os.umask(before)

    shared = await bench.shared()
    assert list_files(shared) == {"docs/a.md": b"two\n", "b.bin": b"\x00"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (shared, *shared.rglob("*")) if path.is_dir()}
    assert modes == {0o755}
    assert {stat.S_IMODE(path.stat().st_mode) for path in shared.rglob("*") if path.is_file()} == {0o644}
    assert await rebuilt(bench) == []


@proves("runtime.shared-directory")
@pytest.mark.parametrize(
    "how", ["content", "in place", "link", "directory link", "new file", "removed", "fifo", "all", "state"]
)
async def test_a_directory_that_was_edited_by_hand_is_rebuilt(bench: Bench, how: str) -> None:
    session = await bench.start()
    await bench.share("docs/a.md", b"one\n")
    await bench.share("b.md", b"two\n")
    await bench.spec(session)
    shared, secret = await bench.shared(), bench.home.path / "secret"
    secret.write_text("secret")
    edited = _edit(shared, how, secret)

    await bench.spec(session)

    assert list_files(shared) == {"docs/a.md": b"one\n", "b.md": b"two\n"}
    assert not any(path.is_symlink() for path in shared.rglob("*"))
    assert secret.read_text() == "secret"
    assert await rebuilt(bench) == ([edited] if edited else [])
    aside = shared.with_name(f"{shared.name}.edited")
    assert len(list(aside.iterdir()) if aside.exists() else []) == len(edited)


def _edit(shared: Path, how: str, secret: Path) -> list[str]:
    """Edit the directory; returns the paths whose content is not Fidelio's."""
    if how in ("content", "in place"):
        if how == "content":
            (shared / "docs/a.md").unlink()
        (shared / "docs/a.md").write_text("by hand\n")
        return ["docs/a.md"]
    if how == "link":
        (shared / "b.md").unlink()
        (shared / "b.md").symlink_to(secret)
        return ["b.md"]
    if how == "directory link":
        (shared / "docs/a.md").unlink()
        (shared / "docs").rmdir()
        (shared / "docs").symlink_to(secret.parent)
        return ["docs"]
    if how == "new file":
        (shared / "deep/er").mkdir(parents=True)
        (shared / "deep/er/new.md").write_text("mine\n")
        return ["deep/er/new.md"]
    if how == "fifo":
        os.mkfifo(shared / "pipe")
        return ["pipe"]
    if how == "removed":
        (shared / "b.md").unlink()
    elif how == "state":
        shared.with_name(f"{shared.name}.json").write_text("{")
    else:
        shutil.rmtree(shared)
    return []


@proves("runtime.shared-directory")
async def test_an_edit_that_keeps_size_and_time_is_noticed(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    await bench.spec(session)
    file = await bench.shared() / "a.md"
    found = file.stat()
    file.write_text("two\n")
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    await bench.spec(session)
    assert file.read_text() == "one\n"


@proves("runtime.shared-directory")
async def test_a_file_that_was_written_before_a_crash_is_not_taken_for_an_edit(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    await bench.spec(session)
    state = (await bench.shared()).with_name(f"{(await bench.shared()).name}.json")
    old = state.read_bytes()
    await bench.share("a.md", b"two\n")
    await bench.spec(session)
    state.write_bytes(old)
    await bench.spec(session)
    assert await rebuilt(bench) == []
    assert (await bench.shared() / "a.md").read_bytes() == b"two\n"


@proves("runtime.shared-directory")
async def test_an_unchanged_directory_is_not_written(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    await bench.spec(session)
    before = (await bench.shared() / "a.md").stat()
    await bench.spec(session)
    await bench.share("b.md", b"two\n")
    await bench.spec(session)
    after = (await bench.shared() / "a.md").stat()
    assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)
