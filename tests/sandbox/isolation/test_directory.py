"""The private directories of sandboxes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fidelio.errors.runtime import SandboxUnavailable
from fidelio.sandbox.directory import (
    FIRST_UID,
    LAST_UID,
    READ_ONLY,
    WRITABLE,
    create_directory,
    empty_directory,
    host_uid,
    remove_directory,
    share,
)
from tests.support import proves
from tests.support.users import needs_root


@proves("sandbox.directory")
def test_a_directory_has_a_random_name_and_is_closed_to_others(tmp_path: Path) -> None:
    created = {create_directory(tmp_path) for _ in range(3)}

    assert len({path.name for path in created}) == 3
    for path in created:
        assert path.parent == tmp_path / "sandboxes"
        assert sorted(entry.name for entry in path.iterdir()) == sorted((*WRITABLE, *READ_ONLY))
        assert {stat.S_IMODE(entry.stat().st_mode) for entry in (path.parent, path, *path.iterdir())} == {0o700}


@needs_root
@proves("sandbox.unprivileged", "sandbox.directory")
def test_each_session_of_root_has_a_user_of_its_own(tmp_path: Path) -> None:
    created = [create_directory(tmp_path) for _ in range(20)]

    users = {host_uid(path) for path in created}
    assert len(users) == 20
    assert all(FIRST_UID <= user <= LAST_UID for user in users)
    # The directory itself is root's: nobody can exchange what is mounted.
    assert {path.stat().st_uid for path in created} == {0}


@proves("sandbox.directory")
def test_a_home_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sandboxes").write_text("not a directory")

    with pytest.raises(SandboxUnavailable, match=r"cannot be created in .*sandboxes: .*Correct owner and mode"):
        create_directory(tmp_path)


@needs_root
@proves("sandbox.directory")
def test_shared_files_belong_to_the_sandbox_and_links_are_not_followed(tmp_path: Path, directory: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    inner = directory / "runtime" / "notes"
    inner.mkdir()
    (inner / "file").write_text("text")
    (inner / "link").symlink_to(outside)

    share(directory / "runtime", host_uid(directory))

    assert {path.stat().st_uid for path in (inner, inner / "file")} == {host_uid(directory)}
    assert outside.stat().st_uid == 0


@proves("sandbox.directory")
def test_removing_follows_no_link_and_opens_closed_directories(tmp_path: Path, directory: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("text")
    (directory / "workspace" / "link").symlink_to(kept)
    closed = directory / "workspace" / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner" / "file").write_text("text")
    for path in (closed / "inner", closed):
        path.chmod(0)

    remove_directory(directory)
    remove_directory(directory)

    assert not directory.exists()
    assert (kept / "file").read_text() == "text"


@proves("sandbox.directory")
def test_a_tree_deeper_than_any_path_is_removed(directory: Path) -> None:
    top = os.open(directory / "workspace", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=top)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=top))
        inner = os.open("deep", os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = inner
    os.close(top)

    empty_directory(directory)

    assert list(directory.iterdir()) == []
