"""Recall of a session: a ranked search in what the same agent has done, said and learned in this project.

All built-in backends share one search of the ledger, whose cost does not grow with the number of sessions. A hit is shown only
if the session may read where it comes from (`fidelio.runtime.navigation.visibility`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fidelio.clock import format_iso
from fidelio.errors import ToolRefused
from fidelio.ledger.model import RankedHit, RankQuery
from fidelio.runtime import events as e
from fidelio.runtime.memory.workspace import load_workspace_memory
from fidelio.runtime.navigation.parameters import Lineage
from fidelio.runtime.navigation.verdicts import read_standing
from fidelio.runtime.recall.backends import BUILT_IN
from fidelio.runtime.recall.expansion import expand, plan_expansion, summarize_backends
from fidelio.runtime.recall.model import (
    BackendName,
    BackendRequest,
    Candidate,
    Found,
    LedgerHit,
    RecallBackend,
    RecallResult,
    RecallScope,
    VisibleSession,
)
from fidelio.runtime.recall.query import MAX_AUTOMATIC_TERMS, MAX_TERMS, RecallQuery, analyze_query, choose_words
from fidelio.runtime.recall.readable import ReadableSessions
from fidelio.runtime.recall.scoring import explain, merge, weigh_found
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.shell.plans import Suggestion
from fidelio.runtime.stores import Store, find_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

# Hits of the ledger for each hit of the result: some must not be shown, some are merged, some are copies.
_SPARE = 3
_MAX_HITS = 100
# A larger memory file is not searched: it is no memory.
_MAX_MEMORY_FILE = 256 << 10


async def recall(
    context: RuntimeContext, session: LoadedRuntime, query: str, *, tools: Collection[str], scope: RecallScope | None = None
) -> RecallResult:
    """Find what fits a query. `tools` are those of the caller: suggested calls name no others."""
    chosen = scope or RecallScope()
    search = _Search(context, session, chosen)
    wanted = [backend for backend in (*BUILT_IN, *context.ports.recall_backends) if backend.name in chosen.backends]
    analyzed = analyze_query(query)
    found: list[Found] = []
    if not analyzed.is_empty and wanted:
        hits = await search.rank(analyzed, wanted)
        request = search.build_request(analyzed, hits)
        for backend in wanted:
            found += await backend.find(request)
    own = search.readable.own
    merged = explain(merge(weigh_found(found, own))[: chosen.limit], analyzed)
    return _render(merged, own, chosen.backends, tools, now=context.clock())


class _Search:
    """A search: its scope, and the sessions that it has loaded."""

    def __init__(self, context: RuntimeContext, session: LoadedRuntime, scope: RecallScope) -> None:
        self._context, self._session, self._scope = context, session, scope
        self.readable = ReadableSessions(context, session, scope)

    async def rank(self, query: RecallQuery, backends: Sequence[RecallBackend]) -> tuple[LedgerHit, ...]:
        """Search the ledger for all backends at once, without what must not be shown."""
        scope = self._scope
        types = tuple(dict.fromkeys(type_ for backend in backends for type_ in backend.list_types(scope.types)))
        if not types:
            return ()
        store = await self._find_store() if scope.lineage is None and e.LEARNING_CAPTURED in types else None
        texts = await self._load_memory_file(store) if store is not None and not scope.is_automatic else {}
        hits = await self._context.ledger.rank(await self._build_query(query, types, store, texts))
        located = [await self._locate(hit, store) for hit in hits]
        return tuple(hit for hit in located if hit is not None)

    def build_request(self, query: RecallQuery, hits: tuple[LedgerHit, ...]) -> BackendRequest:
        readable = self.readable
        return BackendRequest(query=query, own=readable.own, scope=self._scope, hits=hits, find_session=readable.find)

    async def _build_query(
        self, query: RecallQuery, types: tuple[str, ...], store: Store | None, texts: Mapping[str, str]
    ) -> RankQuery:
        own, record, scope = self._session.session, self._session.record, self._scope
        words = choose_words(query, MAX_AUTOMATIC_TERMS if scope.is_automatic else MAX_TERMS)
        sessions, parents = _find_family(own.id, own.parent, scope.lineage)
        namespaces = [own.namespace]
        if store is not None:
            namespaces.append((await self._context.ledger.session(store.id)).namespace)
        return RankQuery(
            terms=words.words,
            phrases=words.phrases,
            sessions=sessions,
            parents=parents,
            without=() if scope.include_current and scope.lineage is None else (own.id,),
            # Learnings count more than events, so they must not be crowded out by them.
            favoured=() if store is None else (store.id,),
            namespaces=tuple(namespaces),
            record={"agent": record.agent, "project": record.project},
            types=types,
            texts=texts,
            is_quick=scope.is_automatic,
            limit=min(scope.limit * _SPARE, _MAX_HITS),
        )

    async def _locate(self, hit: RankedHit, store: Store | None) -> LedgerHit | None:
        """The hit with its session; None if it must not be shown."""
        body = hit.body
        if hit.source == "text":
            return LedgerHit(hit, None)
        if store is not None and hit.session == store.id:
            is_shown = hit.type == e.LEARNING_CAPTURED and await self.readable.may_see(str(body.get("network", "")))
            return LedgerHit(hit, None, body) if is_shown else None
        session = await self.readable.find(hit.session or "")
        return None if session is None else LedgerHit(hit, session, body)

    async def _find_store(self) -> Store | None:
        record = self._session.record
        return await find_store(self._context, "substrate", project=record.project, agent=record.agent)

    async def _load_memory_file(self, store: Store) -> dict[str, str]:
        """The memory file that all sessions of the agent share; nothing if there is none, or if it is not a text."""
        with suppress(ToolRefused):
            memory = await load_workspace_memory(Substrate(self._context, store, self._session.record.agent))
            if memory.file.version is not None and len(memory.text) <= _MAX_MEMORY_FILE:
                notes = memory.section("notes")
                rest = memory.text.replace(notes, "") if notes else memory.text
                return {"workspace_memory": rest, "workspace_memory_notes": notes}
        return {}


def _find_family(
    own: str, parent: str | None, lineage: Lineage | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """The sessions of a lineage, and the parents whose children belong to it; None and None without a lineage."""
    parents = (parent,) if parent is not None else ()
    match lineage:
        case None:
            return None, None
        case "parent":
            return parents, ()
        case "children":
            return (), (own,)
        case "siblings":
            return (), parents
        case "related":
            return parents, (own, *parents)


def _render(
    hits: Sequence[Candidate],
    own: VisibleSession,
    backends: Sequence[BackendName],
    tools: Collection[str],
    *,
    now: int,
) -> RecallResult:
    steps = [expand(hit, tools) for hit in hits]
    rendered = tuple(_render_hit(hit, step, now=now) for hit, step in zip(hits, steps, strict=True))
    standing = read_standing(own.record, now=now)
    return RecallResult(hits=rendered, plan=plan_expansion(steps, standing), backends=summarize_backends(hits, backends))


def _render_hit(hit: Candidate, step: Suggestion | None, *, now: int) -> dict[str, Any]:
    found = hit.found
    return {
        "sessionId": found.session.id if found.session is not None else found.origin or None,
        "backend": found.backend,
        "source": found.source,
        "score": hit.relevance,
        "confidence": hit.confidence,
        "reasons": list(hit.reasons),
        "snippet": found.snippet,
        "learningId": found.learning or None,
        "eventId": found.event or None,
        "wakeId": found.wake or None,
        "createdAt": format_iso(found.time) if found.time else None,
        "evidences": [{"backend": backend, "source": source} for backend, source in hit.evidences],
        **_describe_session(hit, now=now),
        "nextStep": step,
    }


def _describe_session(hit: Candidate, *, now: int) -> dict[str, Any]:
    """Where the session of a hit stands, from its record. What belongs to all sessions has no standing."""
    session = hit.found.session
    standing = None if session is None else read_standing(session.record, now=now)
    pending = standing.pending if standing is not None else None
    return {
        "setupMatch": hit.setup_matches,
        "sessionRelation": hit.relation,
        "outcomeStatus": standing.status if standing is not None else None,
        "promotionReady": standing is not None and standing.promotion_ready,
        "outcomeTrend": standing.trend if standing is not None else None,
        "requiresAction": pending is not None,
        "pendingActionKind": pending.kind if pending is not None else None,
        "pendingActionToolName": pending.tool if pending is not None else None,
    }
