"""Paths of drafts and of shared files, as a tool call names them.

The sandbox resolves what a path leads to; here it is only decided which of the two trees a name belongs to, so that the same
file has one name in the record. Nothing here touches a file.
"""

from __future__ import annotations

from fidelio.errors import ToolRefused
from fidelio.sandbox.model import RUNTIME_LINK, SUBSTRATE, WORKSPACE

MAX_LENGTH = 1_000


def read_session_path(text: str) -> str:
    """A file of the workspace, relative to it: `notes.md` for `notes.md` and `/workspace/notes.md`."""
    path = _normalize(text, WORKSPACE, "the workspace")
    for taken in (SUBSTRATE, RUNTIME_LINK):
        top = taken.removeprefix(f"{WORKSPACE}/")
        if path == top or path.startswith(f"{top}/"):
            raise _refuse(text, f"lies in {taken}, which is read-only", "Name a file of /workspace outside of it.")
    return path


def read_shared_path(text: str) -> str:
    """A shared file, relative to /workspace/agent: `MEMORY.md` for `MEMORY.md` and `/workspace/agent/MEMORY.md`."""
    return _normalize(text, SUBSTRATE, SUBSTRATE)


def absolute_session_path(path: str) -> str:
    return f"{WORKSPACE}/{path}"


def _normalize(text: str, base: str, what: str) -> str:
    if text.startswith("/") and not text.startswith(f"{base}/"):
        raise _refuse(text, f"does not lie in {what}", f"Use a path below {base}, or one relative to it.")
    names = [name for name in text.removeprefix(f"{base}/").split("/") if name not in ("", ".")]
    if ".." in names:
        raise _refuse(text, "contains '..'", "Write the path without it.")
    if not names or text.endswith("/"):
        raise _refuse(text, "names no file", "Name a file.")
    path = "/".join(names)
    is_storable = len(path) <= MAX_LENGTH and all(len(name.encode(errors="replace")) <= 255 for name in names)
    # Also characters that turn the direction of text: a person reads the path before allowing a write.
    if not path.isprintable() or not is_storable:
        raise _refuse(text, "cannot be a path", f"Use at most {MAX_LENGTH} printable characters, 255 bytes per name.")
    return path


def _refuse(text: str, problem: str, remedy: str) -> ToolRefused:
    return ToolRefused(f"{text!r:.200} {problem}.", remedy=remedy, reason="invalid_path")
