"""Targets and sources of anchors: a file, a directory, git tags, git notes.

A target is a text of the user: a path, `git:tags/NAME`, `git:notes/NAME`, or with the directory of the repository
`git:DIR:tags/NAME`. Nothing is overwritten.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from fidelio.anchors.git import Repository
from fidelio.anchors.model import MAX_BYTES, Anchor, encode_anchor, parse_anchor
from fidelio.clock import format_iso
from fidelio.errors import AnchorProblem, Command, Hint, UsageProblem
from fidelio.home import sync_directory

GIT = "git:"
# Stricter than git: no name can be taken for an option, a pattern or a path out of its namespace.
_REF = re.compile(r"(tags|notes)/([A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock(?:/|$))|/(?=[A-Za-z0-9])){0,180}(?<![./]))")
_FILES = "anchor-*.json"


class FileTarget(msgspec.Struct, frozen=True):
    """A file, or a directory with a file for each anchor."""

    path: Path

    @property
    def series_key(self) -> str:
        """The directory: files in a directory are a series."""
        return str(self.path if self.path.is_dir() else self.path.parent)

    async def prepare(self) -> None:
        """Raise `AnchorProblem` if the directory is missing."""
        if not self.path.parent.is_dir():
            raise AnchorProblem(f"There is no directory {self.path.parent}.", remedy="Create it, or name another file.")

    async def write(self, anchor: Anchor) -> str:
        """Create the file and return its path."""
        await self.prepare()
        path = self.path / f"anchor-{anchor.statement.number:06}.json" if self.path.is_dir() else self.path
        try:
            _create_file(path, encode_anchor(anchor))
        except FileExistsError as error:
            raise AnchorProblem(f"{path} exists already.", remedy="Name another file, or a directory.") from error
        except OSError as error:
            raise AnchorProblem(f"{path} cannot be written: {error.strerror}.", remedy="Name another file.") from error
        return str(path)

    async def read(self) -> AsyncIterator[tuple[str, Anchor]]:
        """Yield the anchor of the file, or those of the directory."""
        for path in sorted(self.path.glob(_FILES)) if self.path.is_dir() else [self.path]:
            yield str(path), parse_anchor(read_limited(path), str(path))


class GitTarget(msgspec.Struct, frozen=True):
    """Tags or notes of a repository."""

    repository: Repository
    kind: str
    name: str

    @property
    def series_key(self) -> str:
        return f"{GIT}{self.repository.directory}:{self.kind}/{self.name}"

    async def prepare(self) -> None:
        await self.repository.require()

    async def write(self, anchor: Anchor) -> str:
        """Write a tag or a note and return its name."""
        content, statement = encode_anchor(anchor), anchor.statement
        if self.kind == "notes":
            await self.repository.write_note(self.name, content)
            return f"{GIT}notes/{self.name}"
        name = f"{self.name}-{statement.number}"
        title = f"Anchor {statement.number} of {statement.count} sessions at {format_iso(statement.time)}"
        await self.repository.write_tag(name, content, title=title, seconds=statement.time // 1000)
        return f"{GIT}tags/{name}"

    async def read(self) -> AsyncIterator[tuple[str, Anchor]]:
        read = self.repository.read_notes if self.kind == "notes" else self.repository.read_tags
        async for source, content in read(self.name):
            yield source, parse_anchor(content, source)


Target = FileTarget | GitTarget


def parse_target(text: str) -> Target:
    """Read a target as the user wrote it; raises `UsageProblem`."""
    if not text.startswith(GIT):
        if not text or "\0" in text:
            raise UsageProblem(f"{text!r} is no path.", remedy="Name a file, a directory, git:tags/NAME or git:notes/NAME.")
        return FileTarget(Path(text).absolute())
    directory, _, ref = text.removeprefix(GIT).rpartition(":")
    match = _REF.fullmatch(ref)
    if match is None or "\0" in directory:
        raise UsageProblem(
            f"{text!r:.120} names no git tag or note.",
            remedy="Use git:tags/NAME or git:notes/NAME with letters, digits, `.`, `_`, `-` and `/` in NAME, "
            "or git:DIR:tags/NAME for the repository in DIR.",
        )
    return GitTarget(Repository(str(Path(directory or ".").absolute())), match[1], match[2])


async def read_anchors(text: str) -> AsyncIterator[tuple[str, Anchor]]:
    """Yield the anchors of a target with their sources, each read when it is needed; raises `AnchorProblem` without any."""
    is_empty = True
    async for found in parse_target(text).read():
        is_empty = False
        yield found
    if is_empty:
        raise AnchorProblem(
            f"There is no anchor in {text!r:.120}.", remedy=Hint("Name what ", Command("anchor"), " has written.")
        )


def read_limited(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Read a file of a stranger: no more than `limit`, and no pipe or device, which could block for ever."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise AnchorProblem(f"{path} is not a file.", remedy="Name the file that was written.")
            content = file.read(limit + 1)
    except OSError as error:
        raise AnchorProblem(f"{path} cannot be read: {error.strerror}.", remedy="Check the path.") from error
    if len(content) > limit:
        raise AnchorProblem(f"{path} has more than {limit} bytes.", remedy="Name the file that was written.")
    return content


def _create_file(path: Path, content: bytes) -> None:
    """Create a file durably; an existing file or link is an error, and a failure leaves no file behind."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
    sync_directory(path.parent)


def split_lines(text: str) -> Iterator[str]:
    """The lines of a file of fingerprints, without comments and empty lines."""
    for line in text.splitlines():
        if content := line.partition("#")[0].strip():
            yield content
