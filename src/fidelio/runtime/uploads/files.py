"""Stored files: content that a program has uploaded to a project, as objects whose chunks are blobs of the ledger.

A file never changes. Its chunks are stored once, however often the same content is uploaded, and are erased with the last file
that has them. A file may expire: from then on its content cannot be read, and a job erases it.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import AsyncIterator, Iterable

import msgspec

from fidelio.errors import SessionNotFound, UsageProblem
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.long_text import sanitize_text
from fidelio.ledger.model import NewEvent, Page
from fidelio.runtime import events as e
from fidelio.runtime.objects import ObjectJob, ObjectPlan, Objects, StoredObject
from fidelio.runtime.tools.model import RuntimeContext

# A file is committed as a whole, so this much of it is in memory while it is stored.
MAX_FILE = 64 << 20
CHUNK = 1 << 20
MAX_NAME = 255
MIN_EXPIRY, MAX_EXPIRY = 3_600, 7_776_000
EXPIRY_JOB = "file_expiry"
UNKNOWN_TYPE = "application/octet-stream"
_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f<>:\"|?*\\/]")


class UploadedContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about a file. `chunks` are the digests of its blobs, in order. `session`: it is an output of it."""

    filename: str
    mime_type: str
    size: int
    digest: str
    chunks: tuple[str, ...] = ()
    expires_in: int = 0
    session: str = ""


StoredFile = StoredObject[UploadedContent]


class StoredFiles:
    """The files of a project."""

    def __init__(self, context: RuntimeContext, project: str) -> None:
        self._context = context
        self._objects = Objects(context, project, "file", UploadedContent)

    async def store(
        self,
        name: str,
        mime_type: str,
        chunks: Iterable[bytes],
        *,
        by: str,
        expires_in: int = 0,
        session: str = "",
        key: str = "",
    ) -> StoredFile:
        """Store a file. Raises `UsageProblem` if it is too large, or if its name or its time cannot be used."""
        if expires_in and not MIN_EXPIRY <= expires_in <= MAX_EXPIRY:
            raise UsageProblem(
                f"expires_in_seconds: {expires_in} is not a valid time.", remedy=f"Use {MIN_EXPIRY} to {MAX_EXPIRY}."
            )
        blobs = tuple(split_chunks(chunks))
        digests = tuple(hash_blob(blob) for blob in blobs)
        whole = hashlib.sha256()
        for blob in blobs:
            whole.update(blob)
        type_ = clean_type(mime_type, name)
        content = UploadedContent(
            filename=clean_name(name, type_),
            mime_type=type_,
            size=sum(map(len, blobs)),
            digest=whole.hexdigest(),
            chunks=digests,
            expires_in=expires_in,
            session=session,
        )
        due = self._context.clock() + expires_in * 1000
        jobs = (ObjectJob(EXPIRY_JOB, due),) if expires_in else ()
        return await self._objects.create(content, by=by, key=key, plan=ObjectPlan(plan_blobs(digests, by), blobs, jobs=jobs))

    async def load(self, file: str) -> StoredFile:
        """The file with this id. Raises `SessionNotFound`."""
        return await self._objects.load(file)

    async def list(self, *, session: str = "", cursor: str | None = None, limit: int = 50) -> Page[StoredFile]:
        """A page of the files, newest first. `session`: only the outputs of this session."""
        if not session:
            return await self._objects.list(cursor=cursor, limit=limit)
        return await self._objects.select(lambda file: file.content.session == session, cursor=cursor, limit=limit)

    async def delete(self, file: str, *, by: str) -> None:
        await self._objects.delete(file, by=by)

    async def read(self, file: StoredFile) -> AsyncIterator[bytes]:
        """The chunks of a file that has not expired, in order. Raises `SessionNotFound` if they were erased meanwhile."""
        self.require_unexpired(file)
        for digest in file.content.chunks:
            chunk = await self._context.ledger.blob(digest)
            if chunk is None:
                raise SessionNotFound(f"The content of the file {file.id} was deleted.")
            yield chunk

    async def read_whole(self, file: StoredFile) -> bytes:
        return b"".join([chunk async for chunk in self.read(file)])

    def require_unexpired(self, file: StoredFile) -> None:
        """Raise `SessionNotFound` if the content of a file is not available any more."""
        expiry = find_expiry(file)
        if expiry is not None and self._context.clock() >= expiry:
            raise SessionNotFound(f"The file {file.content.filename!r} has expired.", remedy="Upload it again.")


def find_expiry(file: StoredFile) -> int | None:
    """When the content of a file becomes unavailable; None if never."""
    return file.created_at + file.content.expires_in * 1000 if file.content.expires_in else None


def plan_blobs(digests: tuple[str, ...], by: str) -> tuple[NewEvent, ...]:
    """The event that keeps the blobs of an object: they are erased with it."""
    distinct = tuple(dict.fromkeys(digests))
    return (NewEvent(type=e.CONTENT_STORED, body={"digests": list(distinct)}, actor=by, blobs=distinct),)


def split_chunks(pieces: Iterable[bytes], limit: int = MAX_FILE) -> Iterable[bytes]:
    """The same bytes in chunks of equal size. Raises `UsageProblem` if there are too many."""
    waiting, total = bytearray(), 0
    for piece in pieces:
        total += len(piece)
        if total > limit:
            raise UsageProblem(f"The file has more than {limit:,} bytes.", remedy="Split it, or compress it.")
        waiting += piece
        while len(waiting) >= CHUNK:
            yield bytes(waiting[:CHUNK])
            del waiting[:CHUNK]
    if waiting:
        yield bytes(waiting)


def clean_name(name: str, mime_type: str) -> str:
    """The last component of a file's name, in characters that every system can store; a name of its own if there is none."""
    last = re.split(r"[\\/]", sanitize_text(name))[-1]
    cleaned = _FORBIDDEN.sub("_", last).strip()
    if cleaned in ("", ".", ".."):
        return f"unnamed{mimetypes.guess_extension(mime_type) or ''}"
    if len(cleaned) > MAX_NAME or len(cleaned.encode()) > MAX_NAME:
        raise UsageProblem(f"file: the name {cleaned[:60]!r}… is longer than {MAX_NAME} bytes.", remedy="Shorten it.")
    return cleaned


def clean_type(mime_type: str, name: str) -> str:
    """The media type that the client has named, without parameters; else that of the name."""
    bare = mime_type.partition(";")[0].strip().lower()
    if _TYPE.fullmatch(bare) and bare != UNKNOWN_TYPE:
        return bare
    return mimetypes.guess_type(name, strict=False)[0] or UNKNOWN_TYPE


async def expire_file(context: RuntimeContext, assignment: Assignment) -> None:
    """The job of a file that has expired: erase it. The job is erased with it, so there is nothing to settle."""
    await context.ledger.erase([assignment.lease.session], actor="system", reason="The file has expired.")
    assignment.is_settled = True
