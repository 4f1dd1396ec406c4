"""Access to the files of a library root through its memo: each file is read and parsed once until it changes.

A file that was written a moment ago is read again, and parsed only if its bytes differ. Only regular files below the root are
opened, after following all symbolic links.

A missing file and a file that the system refuses to open are different: a process without free descriptors cannot open any
file, which does not mean that the file is missing. The second case has its own error and is not cached.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from fidelio.definitions.findings import error
from fidelio.definitions.library.memo import Memo, Signature, make_signature, read_signature
from fidelio.definitions.reading.document import Format, ParsedDocument, read_bytes
from fidelio.definitions.reading.positions import MAX_BYTES, make_error
from fidelio.errors import InaccessibleDefinition, UnreadableDefinition
from fidelio.ownership import Allowance, find_status_problem

# Errors that say what is at a path: nothing, a file as parent, a circular link, a socket. All others are failures of access.
_ABSENCE_ERRORS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class FileContent:
    """The content of a file and everything parsed from it. Compared by identity."""

    name: str
    raw: bytes
    _document: ParsedDocument | UnreadableDefinition | None = None
    _digest: str = ""
    models: dict[type[Any], Any] = field(default_factory=dict)

    def document(self) -> ParsedDocument:
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
        self._digest = self._digest or compute_digest(self.raw)
        return self._digest


class _Listing(NamedTuple):
    files: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


class Files:
    """The files below a root; links that lead out of it are refused.

    With `allowed`, so are files that another user of this machine could have written.
    """

    def __init__(self, root: str, memo: Memo, allowed: Allowance | None = None) -> None:
        self.root = root
        self._memo = memo
        self._allowed = allowed

    def read(self, path: str) -> FileContent:
        """The current content of the file, or `UnreadableDefinition`."""
        return self._memo.get_or_make(("file", self.root, path), lambda earlier: self._read(path, earlier))

    def _read(self, path: str, earlier: FileContent | None) -> FileContent:
        self._memo.touch(path, read_signature(path))
        self._check_inside(path)
        raw, signature = self._access(path, lambda path: _read_regular(path, self._allowed))
        self._memo.touch(path, signature)
        return earlier if earlier is not None and earlier.raw == raw else FileContent(path, raw)

    def files(self, path: str) -> tuple[str, ...]:
        """The names in a directory that are not directories; none if the directory is missing."""
        return self._listing(path).files

    def directories(self, path: str) -> tuple[str, ...]:
        return self._listing(path).directories

    def everything(self, path: str) -> tuple[str, ...]:
        listing = self._listing(path)
        return (*listing.files, *listing.directories)

    def _listing(self, path: str) -> _Listing:
        return self._memo.get_or_make(("directory", self.root, path), lambda _: self._list(path))

    def _list(self, path: str) -> _Listing:
        signature = self._access(path, _stat_directory)
        self._memo.touch(path, signature)
        if signature is None:
            return _Listing()
        self._check_inside(path)
        return self._access(path, _list_directory)

    def _access(self, path: str, look: Callable[[str], T]) -> T:
        """The result of `look`. If the system refuses access, the memo must not cache a result that depends on it."""
        try:
            return look(path)
        except InaccessibleDefinition:
            self._memo.touch(path, None)
            raise

    def _check_inside(self, path: str) -> None:
        base, real = os.path.realpath(self.root), os.path.realpath(path)
        if real != base and not real.startswith(base.rstrip(os.sep) + os.sep):
            sentence = "A symbolic link leads out of the library."
            raise make_error(
                path, "outside-root", sentence, "Copy what it points to, or add that directory as a separate root."
            )


def compute_digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def join_path(*names: str) -> str:
    return os.path.join(*names)  # noqa: PTH118  # done for every file on every access; Path costs several times as much


def _stat_directory(path: str) -> Signature | None:
    """The signature of a directory; None if it does not exist."""
    try:
        return make_signature(os.stat(path))  # noqa: PTH116  # as in `read_signature`
    except OSError as problem:
        if problem.errno in _ABSENCE_ERRORS:
            return None
        raise _make_listing_error(path, problem) from None


def _list_directory(path: str) -> _Listing:
    try:
        with os.scandir(path) as entries:
            names = sorted((entry.name, _is_directory(entry)) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as problem:
        raise _make_listing_error(path, problem) from None
    files = tuple(name for name, is_directory in names if not is_directory)
    return _Listing(files, tuple(name for name, is_directory in names if is_directory))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as problem:
        # One such entry must not hide the others. A circular link counts as a file that cannot be read, an inaccessible entry
        # as a directory; opening either reports the error.
        return problem.errno not in _ABSENCE_ERRORS


def _make_listing_error(path: str, problem: OSError) -> UnreadableDefinition:
    return _make_access_error(path, problem, "The directory cannot be listed", "Check its permissions.")


def _make_access_error(path: str, problem: OSError, what: str, remedy: str) -> UnreadableDefinition:
    kind = UnreadableDefinition if problem.errno in _ABSENCE_ERRORS else InaccessibleDefinition
    return kind([error(path, "unreadable", f"{what}: {problem.strerror}.", remedy)])


def _read_regular(path: str, allowed: Allowance | None) -> tuple[bytes, Signature]:
    try:
        # Without O_NONBLOCK, opening a named pipe would block until another process opens it for writing.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _read_open(path, descriptor, allowed)
        finally:
            os.close(descriptor)
    except OSError as problem:
        remedy = "Check that it exists and that its permissions allow reading."
        raise _make_access_error(path, problem, "The file cannot be read", remedy) from None


def _read_open(path: str, descriptor: int, allowed: Allowance | None) -> tuple[bytes, Signature]:
    status = os.fstat(descriptor)
    if allowed is not None and (problem := find_status_problem(status, allowed)):
        raise make_error(path, "foreign", f"The file {problem}, so it is not used.", "Correct its owner and mode.")
    if not stat.S_ISREG(status.st_mode):
        raise make_error(path, "unreadable", "This is not a regular file.", "Put a plain file there, or rename it.")
    with open(descriptor, "rb", closefd=False) as file:
        # One byte more than the limit, so that the parser detects that the file is too large.
        return file.read(MAX_BYTES + 1), make_signature(status)


class DefinitionSource(NamedTuple):
    """The file of a definition. `owner` is the workflow whose directory contains it."""

    owner: str
    file: str
    document: ParsedDocument

    @classmethod
    def of(cls, owner: str, content: FileContent) -> DefinitionSource:
        return cls(owner, content.name, content.document())

    @property
    def format(self) -> Format:
        return self.document.format

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self.document.raw

    @property
    def toon(self) -> str:
        """TOON files and Markdown as they are, YAML and JSON encoded as TOON."""
        return self.document.toon
