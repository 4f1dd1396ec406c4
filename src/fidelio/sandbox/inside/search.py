"""Searches for names: `glob_entries`, `find_entries`, `list_tree`.

They run in a child process of pid 1 with a deadline. A result that is not everything says so in `truncated`.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from typing import Any

from fidelio.sandbox.inside.failures import Failure, display, flag_argument, number_argument, text_argument
from fidelio.sandbox.inside.globbing import GlobPattern, States
from fidelio.sandbox.inside.tree import MAX_ENTRIES, Entry, Tree, digest_file, kind_of, path_argument
from fidelio.sandbox.inside.walk import TreeWalk

Output = dict[str, Any]
MAX_FOUND = 1000
_KINDS = ("file", "directory")


def glob_entries(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    pattern = GlobPattern(text_argument(arguments, "pattern"), hidden=flag_argument(arguments, "hidden"))
    limit = number_argument(arguments, "limit", 40, high=MAX_FOUND)
    kind = kind_argument(arguments)
    with tree.failures(path):
        found = tree.stat(path, follow=False)
        if not _is_walked(tree, path, found, pattern):
            return _itself(path, found, pattern, kind)
        if flag_argument(arguments, "newest"):
            return _newest(TreeWalk(tree, path), pattern, kind, limit)
        return _matching(TreeWalk(tree, path), pattern, kind, limit)


def find_entries(tree: Tree, arguments: Output) -> Output:
    path = path_argument(tree, arguments)
    query, hidden = text_argument(arguments, "query").lower(), flag_argument(arguments, "hidden")
    limit = number_argument(arguments, "limit", 40, high=MAX_FOUND)
    if not query:
        raise Failure("invalid_arguments", "query is empty. Pass a part of the name that is looked for.")
    walk, found = TreeWalk(tree, path), []
    with tree.failures(path):
        for relative, entry in walk.entries(lambda _, entry: hidden or not entry.name.startswith(".")):
            if query in relative.lower() and (hidden or not entry.name.startswith(".")):
                found.append(_shown(walk, relative, entry))
                if len(found) > limit:
                    break
    return _found(walk, found, limit)


def list_tree(tree: Tree, arguments: Output) -> Output:
    """Every entry below a directory, page by page, for the host."""
    path = path_argument(tree, arguments)
    limit = number_argument(arguments, "limit", 1000, high=MAX_ENTRIES)
    with_digests = flag_argument(arguments, "digests")
    walk = TreeWalk(tree, path, cursor=_decode_cursor(text_argument(arguments, "cursor", "")))
    page: list[tuple[str, Output]] = []
    with tree.failures(path):
        for relative, entry in walk.entries(lambda _, __: True):
            if len(page) == limit or (page and not walk.has_time()):
                return {"entries": [each for _, each in page], "truncated": True, "nextCursor": _encode_cursor(page[-1][0])}
            page.append((relative, _described(walk, relative, entry, with_digests)))
    cursor = None if walk.is_complete or not page else _encode_cursor(page[-1][0])
    return {"entries": [each for _, each in page], "truncated": not walk.is_complete, "nextCursor": cursor}


def kind_argument(arguments: Output) -> str | None:
    kind = arguments.get("kind")
    if kind is not None and kind not in _KINDS:
        raise Failure("invalid_arguments", f"kind is {str(kind)[:60]!r}. Pass file or directory.")
    return kind


def _is_walked(tree: Tree, path: str, found: os.stat_result, pattern: GlobPattern) -> bool:
    """Whether the start is a directory. A link is followed for its direct children; `**` needs a final slash for it."""
    if not stat.S_ISLNK(found.st_mode):
        return stat.S_ISDIR(found.st_mode)
    if pattern.is_recursive:
        return False
    try:
        return stat.S_ISDIR(tree.stat(path).st_mode)
    except FileNotFoundError:
        # A link to nothing is listed itself.
        return False


def _itself(path: str, found: os.stat_result, pattern: GlobPattern, kind: str | None) -> Output:
    """A start that is not a directory is its own only entry, as for `ls FILE` and `find FILE`."""
    own = kind_of(found.st_mode)
    matches = kind in (None, own) and pattern.accepts_name(path.rpartition("/")[2])
    entries = [{"path": display(path), "kind": own}] if matches else []
    output: Output = {"entries": entries, "count": len(entries), "truncated": False}
    return {**output, "startIsLink": True} if own == "link" else output


def _matching(walk: TreeWalk, pattern: GlobPattern, kind: str | None, limit: int) -> Output:
    states: dict[str, States] = {"": pattern.start}
    found = []
    for relative, entry in walk.entries(lambda directory, _: bool(states[directory])):
        after = pattern.step(states[relative.rpartition("/")[0]], entry.name)
        if entry.kind == "directory":
            states[relative] = after
        if pattern.accepts(after) and kind in (None, entry.kind):
            found.append(_shown(walk, relative, entry))
            if len(found) > limit:
                break
    return _found(walk, found, limit)


def _newest(walk: TreeWalk, pattern: GlobPattern, kind: str | None, limit: int) -> Output:
    """Everything that matches, the newest first. For the host, whose tools promise this order."""
    found = _matching(walk, pattern, kind, MAX_ENTRIES)
    newest = sorted(found["entries"], key=lambda entry: _modified(walk.tree, entry["path"]), reverse=True)
    is_cut = found["truncated"] or len(newest) > limit
    return {**found, "entries": newest[:limit], "count": min(limit, len(newest)), "truncated": is_cut}


def _modified(tree: Tree, path: str) -> int:
    try:
        return tree.stat(path, follow=False).st_mtime_ns
    except OSError:
        return 0


def _shown(walk: TreeWalk, relative: str, entry: Entry) -> Output:
    return {"path": display(walk.path_of(relative)), "kind": entry.kind}


def _found(walk: TreeWalk, found: list[Output], limit: int) -> Output:
    entries = found[:limit]
    output: Output = {"entries": entries, "count": len(entries), "truncated": len(found) > limit or not walk.is_complete}
    return {**output, "unreadableDirectories": walk.unreadable} if walk.unreadable else output


def _described(walk: TreeWalk, relative: str, entry: Entry, with_digests: bool) -> Output:
    path = walk.path_of(relative)
    shown: Output = {"path": display(path), "kind": entry.kind}
    try:
        found = walk.tree.stat(path, follow=False)
        shown["size"], shown["mode"] = found.st_size, stat.S_IMODE(found.st_mode)
        if with_digests and entry.kind == "file":
            shown["digest"] = digest_file(walk.tree, path)["digest"]
    except (OSError, Failure):
        # Removed or replaced meanwhile, or not readable.
        shown["unreadable"] = True
    return shown


def _encode_cursor(relative: str) -> str:
    return base64.urlsafe_b64encode(os.fsencode(relative)).decode("ascii")


def _decode_cursor(cursor: str) -> str:
    try:
        return os.fsdecode(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise Failure("invalid_arguments", "cursor is not one that list_tree returned. Pass nextCursor as it was.") from None
