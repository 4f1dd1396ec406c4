"""The tools retrieval_search, memory_search, session_search_context and session_search_traces."""

from __future__ import annotations

from typing import Any

from fidelio.errors import ToolRefused
from fidelio.runtime.recall.backends import CONTEXT_TYPES, OTHER_CONTEXT_TYPES
from fidelio.runtime.recall.model import BACKENDS, RecallResult, RecallScope
from fidelio.runtime.recall.parameters import ContextSearch, MemorySearch, RetrievalSearch, TraceSearch
from fidelio.runtime.recall.query import analyze_query
from fidelio.runtime.recall.search import recall
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult


async def _search_everything(call: ToolCall, arguments: RetrievalSearch, _: Preparation) -> ToolResult:
    backends = tuple(name for name in BACKENDS if name in arguments.backends) if arguments.backends else BACKENDS
    scope = RecallScope(
        limit=arguments.limit, lineage=arguments.lineage, include_current=arguments.includeCurrent, backends=backends
    )
    result = await _recall(call, arguments.query, scope)
    return ToolResult(output={**_describe(call, arguments.query, result), **result.describe()})


async def _search_memory(call: ToolCall, arguments: MemorySearch, _: Preparation) -> ToolResult:
    # The notes of this session are memory too: a compacted conversation no longer contains them.
    scope = RecallScope(limit=arguments.limit, lineage=arguments.lineage, include_current=True, backends=("memory",))
    return _render(call, arguments.query, await _recall(call, arguments.query, scope))


async def _search_context(call: ToolCall, arguments: ContextSearch, _: Preparation) -> ToolResult:
    _check_types(arguments.types)
    scope = RecallScope(
        limit=arguments.limit,
        lineage=arguments.lineage,
        include_current=arguments.includeCurrent,
        backends=("session_context",),
        types=arguments.types,
    )
    return _render(call, arguments.query, await _recall(call, arguments.query, scope))


async def _search_traces(call: ToolCall, arguments: TraceSearch, _: Preparation) -> ToolResult:
    scope = RecallScope(
        limit=arguments.limit,
        lineage=arguments.lineage,
        include_current=arguments.includeCurrent,
        backends=("session_trace",),
    )
    found = _describe(call, arguments.query, result := await _recall(call, arguments.query, scope))
    return ToolResult(output={"sessionId": call.session.id, **found, "hits": list(result.hits)})


async def _recall(call: ToolCall, query: str, scope: RecallScope) -> RecallResult:
    if analyze_query(query).is_empty:
        raise ToolRefused(
            f"The query {query!r:.80} has no word in it.",
            remedy="Use words, names or paths that the text contains.",
            reason="invalid_arguments",
        )
    return await recall(call.context, call.session, query, tools=call.tools, scope=scope)


def _check_types(types: tuple[str, ...]) -> None:
    known = (*CONTEXT_TYPES, *OTHER_CONTEXT_TYPES)
    unknown = [name for name in types if name not in known]
    if unknown:
        raise ToolRefused(
            f"types has {unknown[0]!r:.80}, which is no type of an event that is searched.",
            remedy=f"Use: {', '.join(sorted(known))}.",
            reason="invalid_arguments",
        )


def _render(call: ToolCall, query: str, result: RecallResult) -> ToolResult:
    return ToolResult(output={**_describe(call, query, result), "hits": list(result.hits)})


def _describe(call: ToolCall, query: str, result: RecallResult) -> dict[str, Any]:
    return {"agentId": call.record.agent, "query": query, "count": len(result.hits)}


IMPLEMENTATIONS = {
    "retrieval_search": Implementation(_search_everything),
    "memory_search": Implementation(_search_memory),
    "session_search_context": Implementation(_search_context),
    "session_search_traces": Implementation(_search_traces),
}
