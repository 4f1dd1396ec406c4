"""Writing files that must stay inside a directory, whatever symbolic links it contains.

A cloned project can contain symbolic links, for example `.mcp.json` to a file of the user. Links inside of the project are
followed, links out of it are refused. The directories are opened one after the other without following links, so that a link
that appears between the check and the write is not followed either.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_outside_link(directory: Path, file: str) -> str:
    """A sentence about the first link in the path of the file that leads out of the directory; empty if there is none."""
    base = os.path.realpath(directory)
    path = directory
    for name in Path(file).parts:
        path = path / name
        if path.is_symlink() and not _is_inside(base, os.path.realpath(path)):
            return f"{path} is a symbolic link that leads out of the project, to {os.path.realpath(path)}"
    return ""


def write_inside(directory: Path, file: str, content: bytes | None, *, replace: bool = True) -> None:
    """Write a file below the directory, through links that stay inside of it; None deletes the file, and no link to it.

    The file is written under another name and renamed, so that a crash leaves the old or the new one. Without `replace`, an
    existing file is kept. Raises `OSError`.
    """
    base, real = os.path.realpath(directory), os.path.realpath(directory / file)
    if not _is_inside(base, real):
        raise OSError(errno.ELOOP, find_outside_link(directory, file) or f"{file} leads out of the project")
    *folders, name = Path(os.path.relpath(real, base)).parts
    # Folders are made only where the way to the file has no link: a broken link is not repaired.
    is_plain = real == os.path.join(base, file)  # noqa: PTH118  # compared as text
    with _open_directory(base, folders, create=is_plain) as handle:
        if content is None:
            os.unlink(name, dir_fd=handle)
        else:
            _write(handle, name, content, replace=replace)


def _is_inside(base: str, path: str) -> bool:
    return path == base or path.startswith(base.rstrip(os.sep) + os.sep)


@contextmanager
def _open_directory(base: str, folders: Sequence[str], *, create: bool) -> Iterator[int]:
    handle = os.open(base, _DIRECTORY)
    try:
        for folder in folders:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=handle)
            inner = os.open(folder, _DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _write(directory: int, name: str, content: bytes, *, replace: bool) -> None:
    mode = _read_mode(directory, name)
    if mode is not None and not replace:
        return
    draft = f".{name}.fidelio"
    with suppress(FileNotFoundError):
        # Left behind by a process that was killed.
        os.unlink(draft, dir_fd=directory)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(handle, mode)
        os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        raise


def _read_mode(directory: int, name: str) -> int | None:
    """The permissions of the file; None if there is none."""
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None
