"""Writes files that describe a session into its directory on the host, from where sandboxes read them."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Mapping

_log = logging.getLogger(__name__)
_PAGE = 4096
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def write_files(directory: str, texts: Mapping[str, str], session: str, *, compares: bool = False) -> None:
    """Write files. `compares`: only those whose content differs.

    They can be written again at any time, so a full disk does not fail the call, which is on record already. A session whose
    directory was removed has no files.
    """
    try:
        handle = os.open(directory, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        # Another process may serve the same session.
        fcntl.flock(handle, fcntl.LOCK_EX)
        for name, text in texts.items():
            _write_file(handle, name, text.encode(errors="replace"), compares=compares)
    except OSError as error:
        _log.warning("The files that describe session %s cannot be written: %s.", session, error.strerror)
    finally:
        os.close(handle)


def _write_file(directory: int, name: str, content: bytes, *, compares: bool) -> None:
    """Write a file so that a reader sees either the old or the new content.

    A single page is written in place, padded with blank lines until the rest is cut off. A rename makes ext4 write the file to
    disk at once: 0.5 ms for each of the files that every command changes. Longer contents are renamed into place.
    """
    try:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=directory)
    except OSError:
        # Something else is in its place, which the rename replaces.
        _replace_file(directory, name, content)
        return
    try:
        is_done = _overwrite(file, content, compares=compares)
    finally:
        os.close(file)
    if not is_done:
        _replace_file(directory, name, content)


def _overwrite(file: int, content: bytes, *, compares: bool) -> bool:
    """Whether the file has the content now."""
    size = os.fstat(file).st_size
    if compares and size == len(content) and os.pread(file, size, 0) == content:
        return True
    if not size:
        # It is new. The sandbox may run as another user than this process, whatever the umask is.
        os.fchmod(file, 0o644)
    elif max(size, len(content)) > _PAGE:
        return False
    os.pwrite(file, content.ljust(size, b"\n"), 0)
    if size > len(content):
        os.ftruncate(file, len(content))
    return True


def _replace_file(directory: int, name: str, content: bytes) -> None:
    draft = os.open(f".{name}", _NEW, 0o644, dir_fd=directory)
    with os.fdopen(draft, "wb") as file:
        file.write(content)
        os.fchmod(draft, 0o644)
    os.replace(f".{name}", name, src_dir_fd=directory, dst_dir_fd=directory)
