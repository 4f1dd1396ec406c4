"""Versions of shared files: documents of the store of a project and agent, with their contents as blobs of its events.

The newest version of a path is what the file contains now. A version is written in the transaction of the promotion that makes
it, and only on top of the version that was seen before. Contents are bytes and are never decoded here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import ToolRefused
from fidelio.ids import ALPHABET, new_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import shorten_to_line
from fidelio.ledger.model import Change, Document, NewEvent, PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.stores import Store, open_store
from fidelio.runtime.tools.model import RuntimeContext

# The content of one shared file. The ledger keeps every version, and each is sent through the sandbox as a whole.
MAX_BYTES = 8 << 20
PREVIEW = 160
# Larger contents are not loaded for the beginning that a list shows.
_PREVIEWED_BYTES = 64 << 10
VERSION_ID = re.compile(rf"ver_[{ALPHABET}]{{16}}")
# How a version came: a promotion, a restored version, a person, or Fidelio itself at the beginning of an agent.
Origin = Literal["promotion", "restore", "person", "seed"]


class Version(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A version of a shared file, as it is stored. Nothing of the content is in it: redacting its event erases that."""

    version_id: str
    agent_id: str
    session_id: str | None
    source_path: str | None
    target_path: str
    created_at: str
    content_hash: str
    size_bytes: int
    wake_id: str | None = None
    origin: Origin = "promotion"
    restored_from: str | None = None


class SharedFile(msgspec.Struct, frozen=True):
    """The current state of a path: its newest version (None if there is no file) and the number to write on top of."""

    path: str
    version: Version | None = None
    number: int = 0

    @property
    def digest(self) -> str:
        return self.version.content_hash if self.version else ""


class NewVersion(msgspec.Struct, frozen=True):
    """A version that is about to be committed: the change of the store, to be linked to that of the session."""

    version: Version
    change: Change


class Substrate(msgspec.Struct, frozen=True):
    """The shared files of an agent in a project."""

    context: RuntimeContext
    store: Store
    agent: str

    @classmethod
    async def open(cls, context: RuntimeContext, project: str, agent: str) -> Substrate:
        return cls(context, await open_store(context, "substrate", project=project, agent=agent), agent)

    async def load(self, path: str) -> SharedFile:
        document = await self.context.ledger.document(self.store.space, path)
        return SharedFile(path) if document is None else _to_file(document)

    async def find_content(self, version: Version) -> bytes | None:
        """The content of a version; None if a person has redacted it."""
        return await self.context.ledger.blob(version.content_hash)

    async def load_content(self, version: Version) -> bytes:
        """The content of a version. Raises `ToolRefused` if a person has redacted it."""
        content = await self.find_content(version)
        if content is None:
            raise ToolRefused(
                f"The content of version {version.version_id} of {version.target_path} was erased.",
                remedy="Use another version, or share the file again.",
                reason="content_erased",
            )
        return content

    async def describe(self, version: Version) -> dict[str, Any]:
        """A version for an agent, with the beginning of its content."""
        content = await self.find_content(version) if version.size_bytes <= _PREVIEWED_BYTES else b""
        is_shown = content is not None and len(content) == version.size_bytes
        preview = make_preview(content) if content is not None and is_shown else f"{version.size_bytes} bytes"
        return {**msgspec.to_builtins(version), "preview": preview}

    async def files(self) -> AsyncIterator[SharedFile]:
        """Every shared file, in the order of the paths."""
        cursor: str | None = None
        while True:
            page = await self.context.ledger.documents(self.store.space, cursor=cursor, limit=200)
            for listed in page.items:
                yield await self.load(listed.path)
            cursor = page.next
            if cursor is None:
                return

    async def list_paths(self, limit: int) -> tuple[str, ...]:
        page = await self.context.ledger.documents(self.store.space, limit=limit)
        return tuple(document.path for document in page.items)

    async def list_versions(self, path: str, limit: int) -> tuple[Version, ...]:
        """The newest versions of a path, newest first."""
        listed = await self.context.ledger.versions(self.store.space, path, limit=limit)
        loaded = [await self.context.ledger.document(self.store.space, path, version=document.version) for document in listed]
        return tuple(_decode(document.text) for document in loaded if document is not None and document.text is not None)

    async def find_version(self, version_id: str) -> Version | None:
        document = await self.context.ledger.document(self._index, version_id)
        return None if document is None or document.text is None else _decode(document.text)

    async def find_obstacle(self, path: str) -> str:
        """A shared file that conflicts with this path: a directory of the path, or a file below the path."""
        names = path.split("/")
        for length in range(1, len(names)):
            if (await self.load("/".join(names[:length]))).version is not None:
                return "/".join(names[:length])
        below = await self.context.ledger.documents(self.store.space, prefix=f"{path}/", limit=1)
        return below.items[0].path if below.items else ""

    async def new_version(
        self,
        onto: SharedFile,
        content: bytes,
        *,
        origin: Origin,
        session: str | None = None,
        source: str | None = None,
        restored_from: str | None = None,
        by: str = "agent",
    ) -> NewVersion:
        """Build a version on top of the state that was seen. Committing it fails if that state is no longer the newest."""
        version = Version(
            version_id=new_id("ver_", 16),
            agent_id=self.agent,
            session_id=session,
            source_path=source,
            target_path=onto.path,
            created_at=format_iso(self.context.clock()),
            content_hash=hash_blob(content),
            size_bytes=len(content),
            origin=origin,
            restored_from=restored_from,
        )
        stored = NewEvent(
            type=e.VERSION_STORED,
            body={"version": msgspec.to_builtins(version), "number": onto.number + 1},
            blobs=(version.content_hash,),
            actor=by,
        )
        documents = (*self._build_documents(onto, version, by), *await self._build_tree_change(onto, by))
        return NewVersion(version, self.store.change(stored, documents=documents, blobs=(content,)))

    async def store_file(self, path: str, content: bytes, *, origin: Origin, by: str) -> Version:
        """Store a file without a session: what a person brings in, and what a new agent begins with."""
        new = await self.new_version(await self.load(path), content, origin=origin, by=by)
        await self.context.ledger.commit(new.change)
        return new.version

    def _build_documents(self, onto: SharedFile, version: Version, by: str) -> tuple[PutDocument, ...]:
        text = msgspec.json.encode(version).decode()
        current = PutDocument(space=self.store.space, path=onto.path, text=text, author=by, expect=onto.number)
        return current, PutDocument(space=self._index, path=version.version_id, text=text, author=by, expect=0)

    async def _build_tree_change(self, onto: SharedFile, by: str) -> tuple[PutDocument, ...]:
        """A new path also changes the tree, so that not both of `a` and `a/b`, created at once, can be committed."""
        if onto.version is not None:
            return ()
        tree = await self.context.ledger.document(self._tree, "paths")
        number = 0 if tree is None else tree.version
        return (PutDocument(space=self._tree, path="paths", text=onto.path, author=by, expect=number),)

    @property
    def _index(self) -> str:
        return f"substrate-versions:{self.store.id}"

    @property
    def _tree(self) -> str:
        return f"substrate-tree:{self.store.id}"


def make_preview(content: bytes) -> str:
    """The beginning of a text as a single line; of binary content only its size."""
    text = decode_text(content)
    return f"{len(content)} bytes of binary content" if text is None else shorten_to_line(text, PREVIEW)


def decode_text(content: bytes) -> str | None:
    """The content as text; None if it is binary: not UTF-8, or with NUL characters."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _to_file(document: Document) -> SharedFile:
    version = None if document.text is None else _decode(document.text)
    return SharedFile(document.path, version, document.version)


def _decode(text: str) -> Version:
    return msgspec.json.decode(text, type=Version)
