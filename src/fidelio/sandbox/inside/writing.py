"""File actions that change the tree.

A file is replaced as a whole: the new content goes into an unnamed file of the same directory, which then takes over the name,
so a kill leaves the old content or the new. A link is resolved inside of the tree and its target replaced. Mode and, where
allowed, owner stay. Nothing is synced to disk.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import os
import stat
from typing import Any

from fidelio.sandbox.inside.failures import Failure, display, flag_argument, text_argument
from fidelio.sandbox.inside.tree import Tree, path_argument, require_regular

Output = dict[str, Any]
# An edit holds the file in memory.
MAX_EDITED = 32 << 20
_MAX_DEPTH = 200
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def write_text(tree: Tree, arguments: Output) -> Output:
    path, data = path_argument(tree, arguments), _encoded(arguments, "content")
    with tree.failures(path):
        created = replace_file(tree, path, data)
    return {"path": display(path), "bytes": len(data), "created": created}


def append_text(tree: Tree, arguments: Output) -> Output:
    path, data = path_argument(tree, arguments), _encoded(arguments, "content")
    with tree.failures(path):
        created, size = _append(tree, path, data)
    return {"path": display(path), "bytes": len(data), "created": created, "size": size}


def replace_text(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    old, new = _encoded(arguments, "oldText"), _encoded(arguments, "newText")
    replaces_all = flag_argument(arguments, "replaceAll")
    if not old or old == new:
        wrong = "oldText is empty" if not old else "oldText and newText are the same"
        raise Failure("invalid_arguments", f"{wrong}. Pass the text that is to be replaced.")
    with tree.failures(path):
        data, found = _load_whole(tree, path)
        occurrences = _count_occurrences(data, old, path, replaces_all)
        replace_file(tree, path, data.replace(old, new, -1 if replaces_all else 1), unchanged_since=found)
    replacements = occurrences if replaces_all else 1
    return {"path": display(path), "occurrences": occurrences, "replacements": replacements}


def mkdir(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    with tree.failures(path):
        resolved = tree.resolve(path)
        if not flag_argument(arguments, "recursive", True):
            tree.stat(resolved.rpartition("/")[0] or "/")
        return {"path": display(path), "created": tree.make_directories(resolved)}


def write_bytes(tree: Tree, arguments: Output) -> Output:
    """Write bytes for the host. `expectDigest` is the SHA-256 of the content before; empty if there must be no file."""
    path, data = path_argument(tree, arguments), _decoded(arguments)
    expected = arguments.get("expectDigest")
    with tree.failures(path):
        if expected is not None:
            _check_digest(tree, path, text_argument(arguments, "expectDigest"))
        if flag_argument(arguments, "append"):
            created, _ = _append(tree, path, data)
        else:
            created = replace_file(tree, path, data)
    return {"path": display(path), "bytes": len(data), "created": created, "digest": hashlib.sha256(data).hexdigest()}


def remove(tree: Tree, arguments: Output) -> Output:
    """Remove a file, a link itself, or with `recursive` a directory and all that is in it."""
    path = path_argument(tree, arguments)
    is_recursive = flag_argument(arguments, "recursive")
    with tree.failures(path):
        top, _, name = path.rstrip("/").rpartition("/")
        resolved = f"{tree.resolve(top or '/').rstrip('/')}/{name}"
        with tree.parent(resolved) as (directory, last):
            count = _remove_entry(directory, last, is_recursive, depth=0)
    return {"path": display(path), "removed": count}


def replace_file(tree: Tree, path: str, data: bytes, *, unchanged_since: os.stat_result | None = None) -> bool:
    """Replace the content of a file atomically. True if the file is new. Raises OSError and Failure."""
    target = _target(tree, path)
    with tree.parent(target) as (directory, name):
        old = _existing(directory, name, path)
        prepared = f".fidelio-write-{os.urandom(8).hex()}"
        try:
            _prepare(directory, prepared, data, old)
            if unchanged_since is not None:
                _check_unchanged(_existing(directory, name, path), unchanged_since, path)
            os.rename(prepared, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            _discard(directory, prepared)
            raise
    return old is None


def _target(tree: Tree, path: str) -> str:
    """The resolved path of a file to write, in a directory that exists."""
    if path.endswith("/"):
        raise OSError(errno.EISDIR, "a directory")
    target = tree.resolve(path)
    tree.make_directories(target.rpartition("/")[0] or "/")
    return target


def _prepare(directory: int, prepared: str, data: bytes, old: os.stat_result | None) -> None:
    try:
        _prepare_unnamed(directory, prepared, data, old)
    except OSError as error:
        if error.errno in _FULL:
            raise
        # No unnamed files here, or no /proc: a kill may leave the prepared file behind, but never a half-written target.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(prepared, flags, 0o666 if old is None else 0o600, dir_fd=directory)
        try:
            _fill(descriptor, data, old)
        finally:
            os.close(descriptor)


def _prepare_unnamed(directory: int, prepared: str, data: bytes, old: os.stat_result | None) -> None:
    flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
    descriptor = os.open(".", flags, 0o666 if old is None else 0o600, dir_fd=directory)
    try:
        _fill(descriptor, data, old)
        os.link(f"/proc/self/fd/{descriptor}", prepared, dst_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(descriptor)


def _fill(descriptor: int, data: bytes, old: os.stat_result | None) -> None:
    _write_fully(descriptor, data)
    if old is None:
        return
    try:
        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    except PermissionError:
        # Only the superuser gives files away; the content matters more than the owner.
        pass
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _append(tree: Tree, path: str, data: bytes) -> tuple[bool, int]:
    """Append in a single call; what a full disk cut is undone."""
    target = _target(tree, path)
    with tree.parent(target) as (directory, name):
        is_new = _existing(directory, name, path) is None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o666, dir_fd=directory)
        try:
            return is_new, _append_to(descriptor, data, path)
        finally:
            os.close(descriptor)


def _append_to(descriptor: int, data: bytes, path: str) -> int:
    before = os.fstat(descriptor)
    require_regular(before.st_mode, path)
    try:
        _write_fully(descriptor, data)
    except OSError:
        os.ftruncate(descriptor, before.st_size)
        raise
    return before.st_size + len(data)


def _write_fully(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _existing(directory: int, name: str, path: str) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        # It was resolved before: a command replaced it meanwhile.
        raise Failure("changed", f"{display(path)} became a link meanwhile. Try again.", True)
    require_regular(found.st_mode, path)
    return found


def _check_unchanged(found: os.stat_result | None, before: os.stat_result, path: str) -> None:
    fields = ("st_ino", "st_size", "st_mtime_ns")
    if found is None or any(getattr(found, field) != getattr(before, field) for field in fields):
        raise Failure("changed", f"{display(path)} was changed by something else meanwhile. Read it again.", True)


def _discard(directory: int, prepared: str) -> None:
    try:
        os.unlink(prepared, dir_fd=directory)
    except OSError:
        # It was not linked, or the directory is gone: there is nothing to discard.
        return


def _load_whole(tree: Tree, path: str) -> tuple[bytes, os.stat_result]:
    descriptor, found = tree.open_file(path)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_EDITED + 1)
    if len(data) > MAX_EDITED:
        limit = f"{MAX_EDITED >> 20} MiB"
        raise Failure("too_large", f"{display(path)} has more than {limit} and cannot be edited. Use sed in the shell.")
    return data, found


def _count_occurrences(data: bytes, old: bytes, path: str, replaces_all: bool) -> int:
    count = data.count(old)
    if count == 0:
        raise Failure("text_not_found", f"oldText does not occur in {display(path)}. {_why_missing(data, old)}")
    if count > 1 and not replaces_all:
        hint = "Pass more of the text around it, or replaceAll: true."
        raise Failure("ambiguous_text", f"oldText occurs {count} times in {display(path)}. {hint}")
    return count


def _why_missing(data: bytes, old: bytes) -> str:
    if old.replace(b"\n", b"\r\n") in data:
        return "Its lines end with CRLF: write \\r\\n in oldText and newText."
    if b"".join(old.split()) in b"".join(data.split()):
        return "It occurs with other white space: copy it exactly as read returns it."
    return "Read the file again and copy the text exactly."


def _check_digest(tree: Tree, path: str, expected: str) -> None:
    try:
        data, _ = _load_whole(tree, path)
        current = hashlib.sha256(data).hexdigest()
    except FileNotFoundError:
        current = ""
    if current != expected:
        found = f"has the digest {current}" if current else "does not exist"
        raise Failure("digest_mismatch", f"{display(path)} {found}, not {expected or 'absent'}. Read it again.")


def _remove_entry(directory: int, name: str, is_recursive: bool, depth: int) -> int:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=directory)
        return 1
    count = _remove_content(directory, name, depth) if is_recursive else 0
    os.rmdir(name, dir_fd=directory)
    return count + 1


def _remove_content(directory: int, name: str, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise Failure("too_deep", f"The directory has more than {_MAX_DEPTH} levels. Remove it with `rm -rf` in the shell.")
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        return sum(_remove_entry(inner, each, True, depth + 1) for each in _names(inner))
    finally:
        os.close(inner)


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _encoded(arguments: Output, name: str) -> bytes:
    try:
        return text_argument(arguments, name).encode("utf-8")
    except UnicodeEncodeError:
        raise Failure("invalid_arguments", f"{name} contains a lone surrogate. Pass valid Unicode text.") from None


def _decoded(arguments: Output) -> bytes:
    try:
        return base64.b64decode(text_argument(arguments, "data"), validate=True)
    except (binascii.Error, ValueError):
        raise Failure("invalid_arguments", "data is not base64. Encode the bytes with the standard alphabet.") from None
