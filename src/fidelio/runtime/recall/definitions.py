"""Definitions of the tools for recall. Descriptions are short because every model pays for them with each request."""

from __future__ import annotations

from fidelio.runtime.recall import parameters as p
from fidelio.runtime.tools.model import ToolDefinition as Tool

DEFINITIONS: tuple[Tool, ...] = (
    Tool(
        name="retrieval_search",
        title="Search everything",
        description="Search memory, learnings, events and wakes of this agent's sessions. Any word may match.",
        parameters=p.RetrievalSearch,
        group="recall",
        effects=("memory_read", "session_read"),
        output=("agentId", "query", "count", "backendSummary", "expansionPlan", "hits"),
        read_only=True,
    ),
    Tool(
        name="memory_search",
        title="Search the memory",
        description="Search learnings, MEMORY.md, and notes, outcomes, summaries and shells of this agent's sessions.",
        parameters=p.MemorySearch,
        group="recall",
        effects=("memory_read",),
        output=("agentId", "query", "count", "hits"),
        read_only=True,
    ),
    Tool(
        name="session_search_context",
        title="Search events",
        description="Search the events of this agent's sessions, or only those of some types.",
        parameters=p.ContextSearch,
        group="recall",
        effects=("session_read",),
        output=("agentId", "query", "count", "hits"),
        read_only=True,
    ),
    Tool(
        name="session_search_traces",
        title="Search wakes",
        description="Search what the wakes of this agent's sessions said at their end.",
        parameters=p.TraceSearch,
        group="recall",
        effects=("session_read",),
        output=("sessionId", "agentId", "query", "count", "hits"),
        read_only=True,
    ),
)
