"""The built-in backends: memory, events and wakes of sessions. They share a ranked search of the ledger.

Each says which types of events it wants, and turns the hits of these types into texts with their source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fidelio.ledger.bm25 import list_texts
from fidelio.ledger.model import RankedHit
from fidelio.ledger.search import tokenize
from fidelio.runtime import events as e
from fidelio.runtime.navigation.event_views import LOG_READERS
from fidelio.runtime.outcomes.record import Evaluation
from fidelio.runtime.recall.model import BackendName, BackendRequest, Found, LedgerHit, RecallBackend, Source, VisibleSession
from fidelio.runtime.tools.meta_definitions import CALL

DOCUMENT = "document"
CONTEXT_TYPES = (
    *(e.USER_MESSAGE, e.USER_INTERRUPT, e.USER_CONFIRMATION, e.USER_TOOL_RESULT, e.WORKER_RESULT, e.USER_OUTCOME),
    *(e.AGENT_MESSAGE, e.TOOL_USE, e.TOOL_RESULT, e.CUSTOM_TOOL_USE, e.CONTEXT_COMPACTED),
    *(e.SESSION_ERROR, e.CHILD_CREATED, e.CHILD_IDLE),
)
# A caller may also ask for them; without being asked they are the wakes of `session_trace`.
OTHER_CONTEXT_TYPES = (e.STATUS_IDLE, e.SPAN_COMPLETED, e.OUTCOME_DEFINED, e.EVALUATION_ENDED)
_ENDINGS = (e.STATUS_IDLE, e.SPAN_COMPLETED)
_COMMANDS = (e.COMMAND_STARTED, e.COMMAND_ENDED)
# The names of the texts that are searched with the ledger: the memory file, and its notes.
MEMORY_TEXTS: Mapping[str, Source] = {
    "workspace_memory": "workspace_memory",
    "workspace_memory_notes": "workspace_memory_notes",
}
_STORES: Mapping[str, Source] = {"session_state": "session_state", "working_buffer": "working_buffer"}
# Evaluations that a verdict is shown with.
_HISTORY = 3
# What these tools return was found elsewhere; a hit in it would only find an earlier search.
_COPIES = LOG_READERS | {"memory_search", "memory_read", "learning_list", "memory_read_version", "memory_list_versions"}


class MemoryBackend:
    """Learnings, the memory file, and the memory of sessions: notes, shell, last summary, outcome and verdict."""

    name: BackendName = "memory"

    def list_types(self, _: tuple[str, ...]) -> tuple[str, ...]:
        return (DOCUMENT, e.LEARNING_CAPTURED, e.OUTCOME_DEFINED, e.EVALUATION_ENDED, *_ENDINGS, *_COMMANDS)

    async def find(self, request: BackendRequest) -> Sequence[Found]:
        found = [found for each in request.hits if (found := _find_memory(each)) is not None]
        return [_hide_learning(each) for each in found] if request.scope.is_automatic else found


class ContextBackend:
    """Events of sessions."""

    name: BackendName = "session_context"

    def list_types(self, types: tuple[str, ...]) -> tuple[str, ...]:
        return types or CONTEXT_TYPES

    async def find(self, request: BackendRequest) -> Sequence[Found]:
        wanted = frozenset(self.list_types(request.scope.types))
        return [found for each in request.hits if each.hit.type in wanted and (found := _find_event(each)) is not None]


class TraceBackend:
    """Wakes of sessions, by what they said at their end."""

    name: BackendName = "session_trace"

    def list_types(self, _: tuple[str, ...]) -> tuple[str, ...]:
        return _ENDINGS

    async def find(self, request: BackendRequest) -> Sequence[Found]:
        return [found for each in request.hits if (found := _find_wake(each)) is not None]


BUILT_IN: tuple[RecallBackend, ...] = (MemoryBackend(), ContextBackend(), TraceBackend())


def _find_memory(each: LedgerHit) -> Found | None:
    hit, session = each.hit, each.session
    if session is None:
        return _find_agent_memory(each)
    if hit.source == "document":
        store = _STORES.get(hit.path or "") if hit.space == f"memory:{session.id}" else None
        return None if store is None else _in_session("memory", store, each, hit.raw)
    if hit.type in _ENDINGS:
        return _find_checkpoint(each, session)
    source = _find_session_source(each, session)
    return None if source is None else _in_session("memory", source, each, join_texts(each.body))


def _find_agent_memory(each: LedgerHit) -> Found | None:
    """What belongs to all sessions of the agent."""
    hit, body = each.hit, each.body
    if hit.source == "text":
        source = MEMORY_TEXTS[hit.path or ""]
        return Found(backend="memory", source=source, relevance=hit.relevance, text=hit.raw, snippet=hit.excerpt)
    if hit.type != e.LEARNING_CAPTURED:
        return None
    text = f"{body.get('title', '')}\n{body.get('detail', '')}"
    if not _says(hit, text):
        return None
    origin = str(body.get("session_id", ""))
    found = Found(backend="memory", source="learning", relevance=hit.relevance, text=text, snippet=hit.excerpt, time=hit.time)
    return msgspec.structs.replace(found, origin=origin, learning=str(body.get("learning_id", "")))


def _hide_learning(found: Found) -> Found:
    """A learning without its text: nobody has promoted it, so no prompt quotes it unless the agent asks for it."""
    return msgspec.structs.replace(found, snippet="") if found.source == "learning" else found


def _find_session_source(each: LedgerHit, session: VisibleSession) -> Source | None:
    """Which part of the memory of a session an event tells; None if it is no longer a part of it."""
    hit, body, record = each.hit, each.body, session.record
    if hit.type in _COMMANDS:
        return "shell_state" if record.shell.find(str(body.get("command_id", ""))) is not None else None
    outcome = record.outcomes.find(str(body.get("outcome_id", "")))
    if outcome is None:
        return None
    if hit.type == e.OUTCOME_DEFINED:
        return "session_outcome"
    newest: tuple[Evaluation, ...] = outcome.evaluations[-_HISTORY:]
    is_newest = any(known.wake == body.get("wake_id", "") for known in newest)
    return "session_evaluation" if hit.type == e.EVALUATION_ENDED and is_newest else None


def _find_checkpoint(each: LedgerHit, session: VisibleSession) -> Found | None:
    summary, wake = _read_summary(each)
    if not summary or wake != session.record.wakes.last:
        return None
    return _in_session("memory", "session_checkpoint", each, summary)


def _find_wake(each: LedgerHit) -> Found | None:
    summary, wake = _read_summary(each) if each.hit.type in _ENDINGS else ("", "")
    if each.session is None or not summary or not wake:
        return None
    return msgspec.structs.replace(_in_session("session_trace", "session_trace", each, summary), wake=wake)


def _read_summary(each: LedgerHit) -> tuple[str, str]:
    """What a wake said at its end, and its id; nothing if the words were found elsewhere in the event."""
    hit, body = each.hit, each.body
    summary, wake = str(body.get("summary") or ""), str(body.get("wake_id") or "")
    is_wake = hit.type == e.STATUS_IDLE or body.get("span_kind") == "wake"
    return (summary or wake, wake) if is_wake and _says(hit, f"{summary}\n{wake}") else ("", "")


def _find_event(each: LedgerHit) -> Found | None:
    hit, body = each.hit, each.body
    if each.session is None or hit.source != "event" or _find_tool(body) in _COPIES:
        return None
    found = _in_session("session_context", "session_context", each, join_texts(body))
    return msgspec.structs.replace(found, event=hit.event or "", wake=str(body.get("wake_id") or ""))


def _find_tool(body: Mapping[str, Any]) -> str:
    """The tool of a call or a result, also if it was called by `tool_call`."""
    name, arguments = body.get("name"), body.get("input")
    if name != CALL or not isinstance(arguments, Mapping):
        return str(name or "")
    if "name" in arguments:
        return str(arguments["name"])
    try:
        return str(msgspec.json.decode(arguments.get("text", "{}"), type=dict[str, Any]).get("name", ""))
    except msgspec.DecodeError:
        # The text of long arguments is only their beginning.
        return CALL


def _in_session(backend: BackendName, source: Source, each: LedgerHit, text: str) -> Found:
    hit = each.hit
    return Found(
        backend=backend,
        source=source,
        relevance=hit.relevance,
        text=text,
        snippet=hit.excerpt,
        time=hit.time,
        session=each.session,
    )


def _says(hit: RankedHit, text: str) -> bool:
    """Whether a text contains something of what was found."""
    words = set(tokenize(text))
    return bool(words.intersection(hit.words)) or any(words.issuperset(phrase.split()) for phrase in hit.phrases)


def join_texts(body: Mapping[str, Any]) -> str:
    """The texts of a body, without its keys."""
    return "\n".join(list_texts(body))
