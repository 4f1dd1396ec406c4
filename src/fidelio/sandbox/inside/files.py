"""File actions inside of the sandbox: looking at files, and the table of all file actions.

Every action is a function of the tree and its arguments that returns plain JSON. The actions run as code of pid 1, behind the
same boundary as commands. Those in `SCANS` may be slow and run in a child process with a deadline; `ACTIONS` are bounded.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import stat as modes
from collections.abc import Callable
from typing import Any

from fidelio.sandbox.inside.failures import display, number_argument
from fidelio.sandbox.inside.grep import grep_text
from fidelio.sandbox.inside.lines import MAX_CHARS, read_window, window_argument
from fidelio.sandbox.inside.search import find_entries, glob_entries, list_tree
from fidelio.sandbox.inside.tree import MAX_BYTES, MAX_ENTRIES, Entry, Tree, digest_file, is_below, kind_of, path_argument
from fidelio.sandbox.inside.writing import append_text, mkdir, remove, replace_text, write_bytes, write_text

Output = dict[str, Any]
# Where the mounts of a session lie; other mounts (of /usr, /proc) are no business of the caller.
_SESSION_TOPS = ("/workspace", "/runtime", "/memory", "/vaults")


def inspect(tree: Tree, _arguments: Output) -> Output:
    tops = (*_SESSION_TOPS, tree.base)
    mounts = [mount for mount in tree.mounts() if any(is_below(mount.path, top) for top in tops)]
    access = {True: "read_write", False: "read_only"}
    shown = [{"mountPath": display(mount.path), "access": access[mount.writable]} for mount in mounts]
    return {"mounts": shown, "workspace": display(tree.base)}


def list_dir(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments, default=tree.base)
    limit = number_argument(arguments, "limit", 100, high=MAX_ENTRIES)
    with tree.failures(path):
        found = sorted(tree.scan(path), key=lambda entry: os.fsencode(entry.name))
    entries = [_listed(tree, path, entry) for entry in found[:limit]]
    return {"path": display(path), "entries": entries, "count": len(found), "truncated": len(found) > limit}


def stat(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    with tree.failures(path):
        found = tree.stat(path, follow=False)
        target = _link_target(tree, path) if modes.S_ISLNK(found.st_mode) else None
    fields = {"path": display(path), "kind": kind_of(found.st_mode), "size": found.st_size}
    more = {"mode": modes.S_IMODE(found.st_mode), "mtime": found.st_mtime, "mtimeNs": found.st_mtime_ns}
    return {**fields, **more} if target is None else {**fields, **more, "target": display(target)}


def read_text(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    window = window_argument(arguments)
    max_chars = number_argument(arguments, "maxChars", 12_000, high=MAX_CHARS)
    with tree.failures(path):
        descriptor, found = tree.open_file(path)
        try:
            return {"path": display(path), **read_window(descriptor, path, found.st_size, window, max_chars)}
        finally:
            os.close(descriptor)


def read_bytes(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    offset = number_argument(arguments, "offset", 0, low=0, high=1 << 62)
    length = number_argument(arguments, "length", MAX_BYTES, low=0, high=MAX_BYTES)
    with tree.failures(path):
        descriptor, found = tree.open_file(path)
        try:
            data = _read_fully(descriptor, offset, length)
            is_at_end = not os.pread(descriptor, 1, offset + len(data))
        finally:
            os.close(descriptor)
    output: Output = {"data": base64.b64encode(data).decode("ascii"), "size": found.st_size, "eof": is_at_end}
    return {**output, "digest": hashlib.sha256(data).hexdigest()} if offset == 0 and is_at_end else output


def digest(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    with tree.failures(path):
        return {"path": display(path), **digest_file(tree, path)}


def _read_fully(descriptor: int, offset: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        chunk = os.pread(descriptor, length - len(data), offset + len(data))
        if not chunk:
            break
        data += chunk
    return bytes(data)


def _listed(tree: Tree, path: str, entry: Entry) -> Output:
    child = f"{path.rstrip('/')}/{entry.name}"
    shown: Output = {"name": display(entry.name), "path": display(child), "kind": entry.kind}
    try:
        if entry.kind == "file":
            shown["size"] = tree.stat(child, follow=False).st_size
        elif entry.kind == "link":
            shown["target"] = display(_link_target(tree, child))
    except OSError as error:
        # Removed since the directory was read: listed without a size.
        if error.errno not in (errno.ENOENT, errno.EINVAL):
            raise
    return shown


def _link_target(tree: Tree, path: str) -> str:
    descriptor = tree.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.readlink("", dir_fd=descriptor)
    finally:
        os.close(descriptor)


Action = Callable[[Tree, Output], Output]

ACTIONS: dict[str, Action] = {
    "inspect": inspect,
    "list_dir": list_dir,
    "read_text": read_text,
    "write_text": write_text,
    "append_text": append_text,
    "replace_text": replace_text,
    "mkdir": mkdir,
    "stat": stat,
    "read_bytes": read_bytes,
    "write_bytes": write_bytes,
}
# They read a tree or a whole file, or match a pattern of the caller.
SCANS: dict[str, Action] = {
    "find_entries": find_entries,
    "glob_entries": glob_entries,
    "grep_text": grep_text,
    "digest": digest,
    "list_tree": list_tree,
    "remove": remove,
}
