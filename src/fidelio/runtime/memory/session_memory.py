"""The two stores of a session that belong to its agent: `session_state` and `working_buffer`.

Each is a document of the session in the space `memory:<session id>`, with all its versions. Only the agent writes them: the
runtime never does, so what was stored stays until the agent replaces it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import ToolRefused
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import shorten_to_line
from fidelio.ledger.model import Document, PutDocument
from fidelio.runtime.resources.versions import PREVIEW
from fidelio.runtime.tools.model import RuntimeContext

Mode = Literal["replace", "append"]
SessionStore = Literal["session_state", "working_buffer"]
# Characters of a store. It is read as a whole.
MAX_CHARACTERS = 100_000


class MemoryVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A version of a store, as it is listed."""

    version_id: str
    agent_id: str
    session_id: str | None
    target: str
    created_at: str
    source: str
    mode: str | None
    content_hash: str
    size_bytes: int
    wake_id: str | None
    preview: str

    def describe(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class SessionMemory(msgspec.Struct, frozen=True):
    """The current content of a store; `number` is that of its version, 0 if nothing was ever stored."""

    session: str
    target: SessionStore
    number: int = 0
    text: str = ""

    @property
    def version_id(self) -> str | None:
        return f"{self.target}.{self.number}" if self.number else None

    def apply(self, content: str, mode: Mode) -> SessionMemory:
        """The next version. Raises `ToolRefused` if it is too long."""
        text = f"{self.text}\n{content}" if mode == "append" and self.text else content
        if len(text) > MAX_CHARACTERS:
            raise ToolRefused(
                f"{self.target} would have {len(text)} characters; the limit is {MAX_CHARACTERS}.",
                remedy="Replace it by something shorter, or write a file.",
                reason="memory_full",
            )
        return msgspec.structs.replace(self, number=self.number + 1, text=text)

    def build_documents(self, version: MemoryVersion) -> tuple[PutDocument, PutDocument]:
        """The documents of this version, on top of the version before it."""
        index = msgspec.json.encode(version).decode()
        return (
            PutDocument(space=_space(self.session), path=self.target, text=self.text, author="agent", expect=self.number - 1),
            PutDocument(space=_index(self.session), path=version.version_id, text=index, author="agent", expect=0),
        )


async def load_session_memory(
    context: RuntimeContext, session: str, target: SessionStore, version: int | None = None
) -> SessionMemory:
    """The current content of a store, or that of a version; number 0 if there is none."""
    document = await context.ledger.document(_space(session), target, version=version)
    if document is None:
        return SessionMemory(session, target)
    return SessionMemory(session, target, document.version, document.text or "")


async def list_session_versions(
    context: RuntimeContext, session: str, target: SessionStore, limit: int
) -> tuple[MemoryVersion, ...]:
    """The newest versions of a store, newest first."""
    listed = await context.ledger.versions(_space(session), target, limit=limit)
    found = [await find_session_version(context, session, target, f"{target}.{each.version}") for each in listed]
    return tuple(version for version in found if version is not None)


async def find_session_version(
    context: RuntimeContext, session: str, target: SessionStore, version_id: str
) -> MemoryVersion | None:
    """A version of a store by its id; None for anything else."""
    number = read_number(target, version_id)
    document: Document | None = None
    if number is not None:
        document = await context.ledger.document(_index(session), f"{target}.{number}")
    return None if document is None or document.text is None else msgspec.json.decode(document.text, type=MemoryVersion)


def read_number(target: SessionStore, version_id: str) -> int | None:
    """The number in the id of a version; None if it is no id of this store."""
    name, _, number = version_id.rpartition(".")
    is_number = number.isascii() and number.isdecimal() and len(number) <= 9
    return int(number) if name == target and is_number else None


def describe_version(memory: SessionMemory, *, agent: str, mode: Mode, wake: str, now: int) -> MemoryVersion:
    content = memory.text.encode()
    return MemoryVersion(
        version_id=memory.version_id or "",
        agent_id=agent,
        session_id=memory.session,
        target=memory.target,
        created_at=format_iso(now),
        source="memory_write",
        mode=mode,
        content_hash=hash_blob(content),
        size_bytes=len(content),
        wake_id=wake or None,
        preview=shorten_to_line(memory.text, PREVIEW),
    )


def _space(session: str) -> str:
    return f"memory:{session}"


def _index(session: str) -> str:
    """The space of what is known of each version apart from its content, by its id."""
    return f"memory-versions:{session}"
