"""Parameters of the memory tools. A wrong type, an unknown name or value is refused by name."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fidelio.runtime.tools.parameters import Name, SessionParameters, ToolParameters

Store = Literal[
    "checkpoint",
    "shell_state",
    "session_state",
    "working_buffer",
    "workspace_memory",
    "workspace_memory_notes",
]
VersionedStore = Literal["session_state", "working_buffer", "workspace_memory_notes"]
WritableStore = Literal["session_state", "working_buffer"]
Mode = Literal["replace", "append"]
VersionLimit = Annotated[int, Meta(ge=1, le=50)]


class ReadMemory(SessionParameters, frozen=True, kw_only=True):
    """The store to read."""

    target: Store


class ListMemoryVersions(SessionParameters, frozen=True, kw_only=True):
    """The store whose versions are listed."""

    target: VersionedStore
    limit: VersionLimit = 10


class ReadMemoryVersion(SessionParameters, frozen=True, kw_only=True):
    """The version to read."""

    target: VersionedStore
    versionId: Name


class WriteMemory(SessionParameters, frozen=True, kw_only=True):
    """The store to write. `expectedVersionId` is the version that it must have."""

    target: WritableStore
    content: Annotated[str, Meta(min_length=1, max_length=100_000)]
    mode: Mode = "replace"
    expectedVersionId: Name | None = None


class PromoteNote(ToolParameters, frozen=True, kw_only=True):
    """The note to share. `expectedVersionId` is the version that MEMORY.md must have."""

    content: Annotated[str, Meta(min_length=1, max_length=16_000)]
    mode: Mode = "append"
    requireOutcomePass: bool | None = None
    expectedVersionId: Name | None = None


class ListLearnings(ToolParameters, frozen=True, kw_only=True):
    """How many learnings to list."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 20
