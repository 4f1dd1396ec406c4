"""Definitions of the memory tools."""

from __future__ import annotations

from fidelio.runtime.memory import parameters as p
from fidelio.runtime.tools.model import ToolDefinition as Tool
from fidelio.runtime.tools.parameters import EmptyParameters

_STORED = ("sessionId", "target", "mode", "path", "versionId", "previousVersionId", "contentHash", "content")

DEFINITIONS: tuple[Tool, ...] = (
    Tool(
        name="memory_list",
        title="List the memory stores",
        description="The memory stores of this session and this agent: what each is for, and which you can write.",
        parameters=EmptyParameters,
        group="memory",
        effects=("memory_read",),
        output=("count", "stores"),
        read_only=True,
    ),
    Tool(
        name="memory_read",
        title="Read a memory store",
        description="The content of a memory store, of this session or of another session of this agent.",
        parameters=p.ReadMemory,
        group="memory",
        effects=("memory_read",),
        output=("sessionId", "target", "content", "versionId", "contentHash", "truncated"),
        read_only=True,
    ),
    Tool(
        name="memory_list_versions",
        title="List the versions of a memory store",
        description="The versions of a memory store, newest first.",
        parameters=p.ListMemoryVersions,
        group="memory",
        effects=("memory_read",),
        output=("count", "versions"),
        read_only=True,
    ),
    Tool(
        name="memory_read_version",
        title="Read a version of a memory store",
        description="The content of a version of a memory store.",
        parameters=p.ReadMemoryVersion,
        group="memory",
        effects=("memory_read",),
        output=("version", "content"),
        read_only=True,
    ),
    Tool(
        name="memory_write",
        title="Write a memory store",
        description="Replace session_state or working_buffer of this session, or append to it. It stays for later wakes.",
        parameters=p.WriteMemory,
        group="memory",
        effects=("memory_write",),
        output=_STORED,
        # The commit of the result is the effect, so a call without a result had none.
        repeatable=True,
    ),
    Tool(
        name="memory_promote_note",
        title="Share a note",
        description="Append a note to MEMORY.md, which is in the prompt of all sessions of this agent. A person must allow it.",
        parameters=p.PromoteNote,
        group="memory",
        effects=("memory_write",),
        output=(*_STORED, "outcomeEvaluation"),
        policy="always_ask",
        destructive=True,
        is_gated=True,
        repeatable=True,
    ),
    Tool(
        name="learning_list",
        title="List the learnings",
        description="What sessions of this agent have learned: the newest learnings, oldest first.",
        parameters=p.ListLearnings,
        group="memory",
        effects=("learning_read",),
        output=("agentId", "count", "learnings"),
        read_only=True,
    ),
)
