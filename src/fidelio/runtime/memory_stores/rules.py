"""Rules of memory stores: paths, sizes, conditions, listings and directory names. Pure: no clock, no I/O.

A path that is accepted here can be a file in a sandbox and is the same text wherever it is shown: it is normalized, has no
invisible characters, and no memory lies below another one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable

import msgspec

from fidelio.errors import MemoryPathConflict, MemoryPreconditionFailed, MemoryProblem
from fidelio.runtime.memory_stores.record import MemoriesRecord, Memory

MAX_CONTENT = 102_400
MAX_PATH, MAX_SEGMENT, MAX_SEGMENTS = 1_024, 255, 20
# What a store holds; more belongs into another store.
MAX_MEMORIES = 2_000
MOUNT = "/mnt/memory"
MAX_SLUG = 60
# Control, format, line and paragraph separators, and halves of characters.
_REFUSED = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
_NO_NAME = re.compile(r"[^a-z0-9]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class MemoryPrefix(msgspec.Struct, frozen=True):
    """A directory in a listing: `path` ends with a slash."""

    path: str


def find_path_problem(path: str) -> str:
    """Why a path cannot be that of a memory, as the end of a sentence; empty if it can."""
    if not path.startswith("/"):
        return "does not start with /"
    if any(unicodedata.category(character) in _REFUSED for character in path):
        return "has control characters, format characters or line separators"
    if unicodedata.normalize("NFC", path) != path:
        return "is not in Unicode Normalization Form C"
    if (size := len(path.encode())) > MAX_PATH:
        return f"has {size} bytes; {MAX_PATH} are possible"
    return _find_segment_problem(path[1:].split("/"))


def _find_segment_problem(segments: list[str]) -> str:
    if len(segments) > MAX_SEGMENTS:
        return f"has {len(segments)} segments; {MAX_SEGMENTS} are possible"
    if any(segment in ("", ".", "..") for segment in segments):
        return "has a segment that is empty, '.' or '..'"
    if any(len(segment.encode()) > MAX_SEGMENT for segment in segments):
        return f"has a segment of more than {MAX_SEGMENT} bytes"
    return ""


def check_path(path: str) -> None:
    """Raise `MemoryProblem` for what cannot be the path of a memory."""
    if problem := find_path_problem(path):
        raise MemoryProblem(f"path: {path!r:.200} {problem}.", remedy="Use a path such as /notes/todo.md.")


def encode_content(content: str) -> bytes:
    """The bytes of a content. Raises `MemoryProblem` for what is too long, or no text."""
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise MemoryProblem("content: it has characters that UTF-8 cannot encode.") from error
    check_size(len(data))
    return data


def check_size(size: int) -> None:
    if size > MAX_CONTENT:
        raise MemoryProblem(f"content: it has {size} bytes; {MAX_CONTENT} are possible.", remedy="Split it.")


def check_free(record: MemoriesRecord, path: str, *, of: str = "") -> None:
    """Raise `MemoryPathConflict` if a memory other than `of` is at, above or below a path."""
    for memory in record.entries.values():
        if memory.id != of and _overlap(memory.path, path):
            raise MemoryPathConflict(
                f"path: {path!r:.200} conflicts with the memory {memory.id} at {memory.path!r:.200}.",
                remedy="Update that memory, or use another path.",
            )


def _overlap(first: str, second: str) -> bool:
    return first == second or first.startswith(f"{second}/") or second.startswith(f"{first}/")


def check_room(record: MemoriesRecord) -> None:
    if len(record.entries) >= MAX_MEMORIES:
        raise MemoryProblem(f"The store has {MAX_MEMORIES} memories.", remedy="Delete some, or use another store.")


def check_digest(name: str, value: str) -> None:
    """Raise `MemoryProblem` for what is no digest."""
    if not _SHA256.fullmatch(value):
        raise MemoryProblem(f"{name}: {value!r:.80} is not a SHA-256 digest of 64 lowercase hexadecimal characters.")


def check_expected(memory: Memory, expected: str | None) -> None:
    """Raise `MemoryPreconditionFailed` if the content is not what the caller has seen."""
    if expected is not None and memory.sha256 != expected:
        raise MemoryPreconditionFailed(
            f"The content of the memory {memory.id} has the digest {memory.sha256}, not {expected}.",
            remedy="Retrieve it, and decide again.",
        )


def list_memories(memories: Iterable[Memory], *, prefix: str = "", depth: int = 0) -> list[Memory | MemoryPrefix]:
    """The memories below a prefix in the order of their paths; those deeper than `depth` as directories. 0: any depth."""
    listed: dict[str, Memory | MemoryPrefix] = {}
    for memory in memories:
        if memory.path.startswith(prefix or "/"):
            path = _roll_up(memory.path, prefix or "/", depth)
            listed[path] = memory if path == memory.path else MemoryPrefix(path)
    return [listed[path] for path in sorted(listed)]


def _roll_up(path: str, prefix: str, depth: int) -> str:
    """The path itself, or the directory that stands for it in a listing of a depth."""
    segments = path[len(prefix) :].split("/")
    return path if not depth or len(segments) <= depth else prefix + "/".join(segments[:depth]) + "/"


def check_prefix(prefix: str) -> None:
    if prefix and not (prefix.startswith("/") and prefix.endswith("/")):
        raise MemoryProblem(f"path_prefix: {prefix!r:.200} does not start and end with /.", remedy="Use /notes/, for example.")


def choose_mount_path(name: str, taken: Collection[str] = ()) -> str:
    """The directory of a store in a sandbox, from its name. `taken` are those of other stores of the session."""
    slug = _NO_NAME.sub("-", name.lower()).strip("-")[:MAX_SLUG].strip("-") or "store"
    candidates = (f"{MOUNT}/{slug}" if number == 1 else f"{MOUNT}/{slug}-{number}" for number in range(1, len(taken) + 2))
    return next(path for path in candidates if path not in taken)
