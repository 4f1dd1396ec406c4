"""Anchors in a git repository, as tags or as notes, through plumbing commands only.

The repository may belong to somebody else, and its configuration can name programs: hooks, a pager, an editor, a program that
signs tags, commands that fetch missing objects. None of them runs: plumbing commands use few of these settings, and the others
are switched off.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from fidelio.anchors.model import MAX_BYTES
from fidelio.errors import AnchorProblem

_SECONDS = 60.0
_NO_OBJECT = "0" * 40
_IDENTITY = "fidelio <fidelio@localhost>"
# More anchors than an hourly schedule writes in a year.
_MAX_ANCHORS = 10_000
_SWITCHED_OFF = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "protocol.allow=never", "gc.auto=0")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_AUTHOR_NAME": "fidelio",
    "GIT_AUTHOR_EMAIL": "fidelio@localhost",
    "GIT_COMMITTER_NAME": "fidelio",
    "GIT_COMMITTER_EMAIL": "fidelio@localhost",
    "LC_ALL": "C",
}


class Repository(msgspec.Struct, frozen=True):
    """A git repository that holds anchors: an anchor is a blob, and a tag or a note refers to it."""

    directory: str

    async def require(self) -> None:
        """Raise `AnchorProblem` if there is no repository."""
        await self._run("rev-parse", "--git-dir")

    async def write_tag(self, name: str, content: bytes, *, title: str, seconds: int) -> None:
        """Create the annotated tag `name` of a blob; raises `AnchorProblem` if there is a tag of this name."""
        blob = await self._write_blob(content)
        lines = (f"object {blob}", "type blob", f"tag {name}", f"tagger {_IDENTITY} {seconds} +0000", "", title, "")
        tag = await self._run("mktag", content="\n".join(lines).encode())
        await self._run("update-ref", f"refs/tags/{name}", tag.decode().strip(), _NO_OBJECT)

    async def write_note(self, name: str, content: bytes) -> None:
        """Make the blob the note of the current commit. Earlier anchors stay in the history of the notes."""
        blob = await self._write_blob(content)
        head = (await self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")).decode().strip()
        await self._run("notes", f"--ref=refs/notes/{name}", "add", "--force", "-C", blob, head)

    async def read_tags(self, name: str) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the anchors of the tag `name`, or of the tags `name`-NUMBER."""
        refs = ("--format=%(refname)", f"--count={_MAX_ANCHORS}", "--sort=version:refname")
        found = await self._run("for-each-ref", *refs, f"refs/tags/{name}", f"refs/tags/{name}-*")
        for ref in found.decode().splitlines():
            if ref == f"refs/tags/{name}" or ref.rpartition("-")[2].isdigit():
                yield ref, await self._read_blob(f"{ref}^{{blob}}")

    async def read_notes(self, name: str) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the anchors of all notes of this name, also of those that later ones have replaced."""
        ref = f"refs/notes/{name}"
        objects = await self._run("rev-list", "--objects", "--reverse", "--no-object-names", ref, "--")
        types = await self._run("cat-file", "--batch-check=%(objecttype) %(objectname)", content=objects)
        blobs = [name for kind, name in map(str.split, types.decode().splitlines()) if kind == "blob"]
        for blob in blobs[:_MAX_ANCHORS]:
            yield f"{ref} {blob[:12]}", await self._read_blob(blob)

    async def _write_blob(self, content: bytes) -> str:
        return (await self._run("hash-object", "-w", "-t", "blob", "--stdin", content=content)).decode().strip()

    async def _read_blob(self, name: str) -> bytes:
        # Its size is read first: a blob in a repository of somebody else can be larger than the memory.
        size = int(await self._run("cat-file", "-s", name))
        if size > MAX_BYTES:
            raise AnchorProblem(
                f"The object {name} in {self.directory} has {size} bytes and is no anchor.", remedy="Remove it."
            )
        return await self._run("cat-file", "blob", name)

    async def _run(self, *arguments: str, content: bytes = b"") -> bytes:
        """Run git and return its output; raises `AnchorProblem`."""
        settings = [word for setting in _SWITCHED_OFF for word in ("-c", setting)]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            process = await asyncio.create_subprocess_exec(
                *("git", "--no-pager", "--no-replace-objects", *settings, "-C", self.directory, *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=inherited | _ENVIRONMENT,
            )
        except OSError as error:
            raise self._failed(arguments[0], str(error)) from error
        try:
            async with asyncio.timeout(_SECONDS):
                output, errors = await process.communicate(content)
        except (TimeoutError, asyncio.CancelledError) as stop:
            await _kill(process)
            if isinstance(stop, asyncio.CancelledError):
                raise
            raise self._failed(arguments[0], f"it took longer than {_SECONDS:.0f} seconds") from stop
        if process.returncode:
            raise self._failed(arguments[0], " ".join(errors.decode(errors="replace").split())[:400])
        return output

    def _failed(self, command: str, reason: str) -> AnchorProblem:
        return AnchorProblem(
            f"git {command} failed in {self.directory}: {reason or 'git gives no reason'}.",
            remedy="Check that it is a git repository with a commit, or write the anchor to a file.",
        )


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
