"""The context of a session: how full the model's window is, what fills it, and how to get back what was left out.

A wake measures the parts of its requests in characters and stores them as a document of the session. How much the conversation
really takes is what the provider has reported, which is in the record; only before the first request it is estimated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec

from fidelio.errors import AgentDefinitionProblem
from fidelio.ledger.model import PutDocument
from fidelio.providers.model import ModelInfo
from fidelio.runtime.agents.versions import load_session_agent
from fidelio.runtime.navigation.own_files import name_files
from fidelio.runtime.navigation.visibility import load_visible
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, RuntimeContext, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import SessionParameters
from fidelio.sandbox.model import RUNTIME_LINK

PATH = "context"
CHARACTERS_PER_TOKEN = 4
# Parts of the window that are still free.
MODERATE, HIGH = 0.15, 0.05
ARTIFACTS = {
    "contextBudget": f"{RUNTIME_LINK}/context-budget.json",
    "contextBudgetMarkdown": f"{RUNTIME_LINK}/context-budget.md",
}
_LARGEST = 5

Level = Literal["low", "moderate", "high"]


class ContextBudget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sizes of the sections of a request in characters.

    `window` and `reply`, which is reserved for the model's answer, are tokens.
    """

    window: int
    reply: int
    system: dict[str, int] = {}
    tools: dict[str, int] = {}
    bootstrap: dict[str, int] = {}
    skills: dict[str, int] = {}
    # Skills that are not named in the prompt.
    skill_count: int = 0
    notes: int = 0
    message: int = 0
    history: int = 0
    history_messages: int = 0


def describe_pressure(record: RuntimeRecord, window: int, *, tools: Collection[str] | None = None) -> dict[str, Any]:
    """How full the window is. `tools` None: recommend tools whether the caller has them or not."""
    used = record.wakes.context_tokens
    free = max(0, window - used)
    dropped = record.wakes.compacted_messages
    recommended = dict.fromkeys(tool for tool in _recommend(free, window, dropped) if tools is None or tool in tools)
    return {
        "level": _find_level(free, window, dropped),
        "reasons": list(_find_reasons(free, window, dropped)),
        "recommendedTools": list(recommended),
        "windowTokens": window,
        "usedTokens": used,
        "freeTokens": free,
        "droppedMessages": dropped,
    }


def _find_level(free: int, window: int, dropped: int) -> Level:
    if free < window * HIGH:
        return "high"
    return "moderate" if free < window * MODERATE or dropped else "low"


def _find_reasons(free: int, window: int, dropped: int) -> Iterator[str]:
    if free < window * HIGH:
        yield f"low_headroom:{free}"
    elif free < window * MODERATE:
        yield f"narrow_headroom:{free}"
    if dropped:
        yield f"dropped_conversation:{dropped}"


def _recommend(free: int, window: int, dropped: int) -> Iterator[str]:
    if free < window * MODERATE:
        yield "retrieval_search"
    if free < window * HIGH or dropped:
        yield "session_search_context"
    if dropped:
        yield from ("session_get_snapshot", "session_list_traces", "session_get_trace")


def describe_budget(budget: ContextBudget, record: RuntimeRecord) -> dict[str, Any]:
    """`contextBudget`: the window, what is reserved, and what each part takes of it."""
    fixed = sum(budget.system.values()) + sum(budget.tools.values())
    estimated = to_tokens(fixed + budget.history + budget.message + budget.notes)
    reported = record.wakes.context_tokens
    used = reported or estimated
    return {
        "windowTokens": budget.window,
        "reservedReplyTokens": budget.reply,
        "usedTokens": used,
        "usedTokensSource": "reported" if reported else "estimated",
        "estimatedTokens": estimated,
        "freeTokens": max(0, budget.window - budget.reply - used),
        "systemPrompt": _describe_part(budget.system),
        "tools": _describe_part(budget.tools),
        "bootstrapFiles": _describe_part(budget.bootstrap),
        "skills": {**_describe_part(budget.skills), "available": max(budget.skill_count, len(budget.skills))},
        "runtimeNotes": _describe_text(budget.notes),
        "sessionMessage": _describe_text(budget.message),
        "history": {
            **_describe_text(budget.history),
            "messages": budget.history_messages,
            "droppedMessages": record.wakes.compacted_messages,
        },
    }


def to_tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def _describe_text(characters: int) -> dict[str, int]:
    return {"characters": characters, "estimatedTokens": to_tokens(characters)}


def _describe_part(part: Mapping[str, int]) -> dict[str, Any]:
    largest = sorted(part.items(), key=lambda item: -item[1])[:_LARGEST]
    return {"count": len(part), **_describe_text(sum(part.values())), "largest": dict(largest)}


def budget_document(session_id: str, budget: ContextBudget) -> PutDocument:
    """The document that a wake commits."""
    return PutDocument(space=f"runtime:{session_id}", path=PATH, text=msgspec.json.encode(budget).decode())


async def load_budget(context: RuntimeContext, session_id: str) -> ContextBudget | None:
    """The budget of the last wake; None before the first wake."""
    document = await context.ledger.document(f"runtime:{session_id}", PATH)
    if document is None or document.text is None:
        return None
    return msgspec.json.decode(document.text, type=ContextBudget)


async def load_window(context: RuntimeContext, session: LoadedRuntime) -> int | None:
    """The window of the session's model; None for a session without a model."""
    record = session.record
    if not record.agent_version:
        return None
    try:
        agent = await load_session_agent(context, record)
    except AgentDefinitionProblem:
        return ModelInfo().window
    return context.ports.models.describe(record.model or agent.definition.model).window


async def load_pressure(context: RuntimeContext, session: LoadedRuntime, tools: Collection[str]) -> dict[str, Any] | None:
    """The pressure of a session; None without a model."""
    window = await load_window(context, session)
    return None if window is None else describe_pressure(session.record, window, tools=tools)


async def describe_context(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    budget, is_own = await load_budget(call.context, session.id), session.id == call.session.id
    pressure = await load_pressure(call.context, session, call.tools)
    reason = None if budget is not None else "It is measured when a wake ends with an answer of the model, and none has yet."
    return ToolResult(
        output={
            "sessionId": session.id,
            "available": budget is not None,
            "artifactPaths": name_files(call, ARTIFACTS) if is_own else {},
            "contextBudget": None if budget is None else describe_budget(budget, session.record),
            "pressure": pressure,
            "reason": reason,
        }
    )
