"""Files that are read once and parsed once, until they change.

A file counts as unchanged when its times, size and inode are. That is not enough for a file that was written a moment ago: an
edit that keeps the size can fall into the same tick of the clock. Such a file is read again, its bytes compared, and it is
parsed only when they differ. Whatever is opened is a regular file below its root, also after all symbolic links are followed.

What is not there, and what the system does not give, are two things: a process that is out of descriptors sees no file either,
and nobody may conclude from it that there is none. So that has an error of its own and is looked at again with every call.

Not locked: under the interpreter's lock the worst that two threads can do to each other is to read the same file twice.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from fidelio.definitions.findings import error
from fidelio.definitions.library.memo import Memo, Signature, settled, signature, signature_of
from fidelio.definitions.reading.document import Document, Format, read_bytes
from fidelio.definitions.reading.positions import MAX_BYTES, refuse
from fidelio.errors import UnreachableDefinition, UnreadableDefinition

# What lies there says so itself: nothing, a file in the way, a link in a circle, a socket. Everything else is a fault.
_SAYS_WHAT_IS_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Kept:
    """One state of a file's content, with everything that was ever worked out from it. Two are equal only when they are one."""

    name: str
    raw: bytes
    signature: Signature
    settled: bool
    _document: Document | UnreadableDefinition | None = None
    _digest: str = ""
    models: dict[type[Any], Any] = field(default_factory=dict)

    def document(self) -> Document:
        if self._document is None:
            try:
                self._document = read_bytes(self.raw, self.name)
            except UnreadableDefinition as problem:
                self._document = problem
        if isinstance(self._document, UnreadableDefinition):
            raise UnreadableDefinition(self._document.findings)
        return self._document

    @property
    def digest(self) -> str:
        self._digest = self._digest or digest_of(self.raw)
        return self._digest


class _Listing(NamedTuple):
    signature: Signature
    settled: bool
    files: tuple[str, ...]
    directories: tuple[str, ...]


class Files:
    """Everything below one root, out of which nothing may lead."""

    def __init__(self, root: str, memo: Memo) -> None:
        self.root = root
        self._memo = memo
        self._kept: dict[str, Kept] = {}
        self._listings: dict[str, _Listing] = {}

    def read(self, path: str) -> Kept:
        """The file as it is now, or `UnreadableDefinition`."""
        kept, found = self._kept.get(path), signature_of(path)
        self._memo.touch(path, found)
        if kept and kept.settled and kept.signature == found:
            return kept
        self._inside(path)
        raw, read = self._given(path, _read_regular)
        self._memo.touch(path, read)
        if kept and kept.raw == raw:
            kept.signature, kept.settled = read, settled(read)
            return kept
        self._kept[path] = fresh = Kept(path, raw, read, settled(read))
        return fresh

    def files(self, path: str) -> tuple[str, ...]:
        """The names in a directory that are no directories; none when the directory is missing."""
        listing = self._listing(path)
        return listing.files if listing else ()

    def directories(self, path: str) -> tuple[str, ...]:
        listing = self._listing(path)
        return listing.directories if listing else ()

    def everything(self, path: str) -> tuple[str, ...]:
        listing = self._listing(path)
        return (*listing.files, *listing.directories) if listing else ()

    def _listing(self, path: str) -> _Listing | None:
        found = self._given(path, _present)
        self._memo.touch(path, found)
        if found is None:
            return None
        known = self._listings.get(path)
        if known and known.settled and known.signature == found:
            return known
        self._inside(path)
        files, directories = self._given(path, _list)
        self._listings[path] = listing = _Listing(found, settled(found), files, directories)
        return listing

    def _given(self, path: str, look: Callable[[str], T]) -> T:
        """What `look` finds there. Where the system does not let it, nothing that comes of that is remembered."""
        try:
            return look(path)
        except UnreachableDefinition:
            self._memo.touch(path, None)
            raise

    def _inside(self, path: str) -> None:
        base, real = os.path.realpath(self.root), os.path.realpath(path)
        if real != base and not real.startswith(base.rstrip(os.sep) + os.sep):
            sentence = "A symbolic link leads out of the library."
            raise refuse(path, "outside-root", sentence, "Copy what it points to, or add that place as a root of its own.")


def digest_of(raw: bytes) -> str:
    from hashlib import sha256  # noqa: PLC0415  a list of workflows needs no digests

    return sha256(raw).hexdigest()


def join(*parts: str) -> str:
    return os.path.join(*parts)  # noqa: PTH118  done for every file on every access; Path costs several times as much


def _present(path: str) -> Signature | None:
    """None where nothing is that could be listed."""
    try:
        return signature(os.stat(path))  # noqa: PTH116  as in `signature_of`
    except OSError as problem:
        if problem.errno in _SAYS_WHAT_IS_THERE:
            return None
        raise _unlisted(path, problem) from None


def _list(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of files and those of directories."""
    try:
        with os.scandir(path) as entries:
            names = sorted((entry.name, _is_directory(entry)) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as problem:
        raise _unlisted(path, problem) from None
    files = tuple(name for name, is_directory in names if not is_directory)
    return files, tuple(name for name, is_directory in names if is_directory)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as problem:
        # One such entry must not take the others with it. A link that leads to itself is a file that cannot be read; what the
        # system does not give may be a directory. Whoever asks for either is told.
        return problem.errno not in _SAYS_WHAT_IS_THERE


def _unlisted(path: str, problem: OSError) -> UnreadableDefinition:
    return _refused(path, problem, "The directory cannot be listed", "Check its permissions.")


def _refused(path: str, problem: OSError, what: str, remedy: str) -> UnreadableDefinition:
    kind = UnreadableDefinition if problem.errno in _SAYS_WHAT_IS_THERE else UnreachableDefinition
    return kind([error(path, "unreadable", f"{what}: {problem.strerror}.", remedy)])


def _read_regular(path: str) -> tuple[bytes, Signature]:
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _read_open(path, descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        remedy = "Check that it exists and that its permissions allow reading."
        raise _refused(path, problem, "The file cannot be read", remedy) from None


def _read_open(path: str, descriptor: int) -> tuple[bytes, Signature]:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise refuse(path, "unreadable", "This is not a regular file.", "Put a plain file there, or rename it.")
    with open(descriptor, "rb", closefd=False) as file:
        # One byte more than is allowed, so that the reader sees that it is too much.
        return file.read(MAX_BYTES + 1), signature(status)


class Source(NamedTuple):
    """Where a definition comes from. `owner` is the workflow whose directory holds the file."""

    owner: str
    file: str
    document: Document

    @classmethod
    def of(cls, owner: str, kept: Kept) -> Source:
        return cls(owner, kept.name, kept.document())

    @property
    def format(self) -> Format:
        return self.document.format

    @property
    def content(self) -> bytes:
        """Byte for byte what stands in the file."""
        return self.document.raw

    @property
    def toon(self) -> str:
        """TOON files and Markdown as they are, YAML and JSON encoded as TOON."""
        return self.document.toon
