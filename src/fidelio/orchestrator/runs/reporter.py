"""Makes durable what an executor tells while its agent works, and ends the run at its limits.

Several things told at once share a commit. What is only a running total (usage, bytes) is written now and then: the next total
replaces it anyway, and the last one is written with the end. One that comes too soon is written after the pause, by whoever
watches.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure, FidelioError, LimitReached, RequestClosed, RequestExists
from fidelio.inbox import NewRequest, RequestChange, dismiss_request, open_request
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.long_text import StoredText, json_text, sanitize_text, shorten_to_line, store_text
from fidelio.ledger.model import Request
from fidelio.orchestrator.blueprints.model import Limits, limit_passed
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.record.record import (
    CALLED,
    CONVERSATION,
    GOING_ON,
    PROCESS,
    RETURNED,
    SAID,
    USED,
    WAITING,
    state_after,
)
from fidelio.orchestrator.record.unit_of_work import AgentDecision, Decide, EventDraft, LoadedAgent
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.processes.table import ProcessIdentity
from fidelio.retry import retry_transient

_AGENT = "agent"
_USAGE_EVERY_MS = 1_000
_KEY_LENGTH = 150
_QUESTION_LENGTH = 20_000
_DETAIL_LENGTH = 100_000


class RunReporter:
    """The reporter of one run. `at` is the session as this run last left it; `changed` is called when it waits or goes on."""

    def __init__(
        self, context: OrchestratorContext, at: LoadedAgent, work: Assignment, limits: Limits, changed: Callable[[], None]
    ) -> None:
        self.at = at
        self.usage = at.record.run.usage
        self.is_detaching = False
        self.interrupted = False
        self.over: LimitReached | None = None
        self._context, self._work, self._limits, self._changed = context, work, limits, changed
        self._run = at.record.run.id
        self._known = 0
        self._bytes = 0
        self._spent = at.record.run.spent
        self._used_at = 0
        self._usage_waits = False
        self._pending: list[EventDraft] = []
        self._blobs: list[bytes] = []
        self._broken = False
        self._lock = asyncio.Lock()

    def replay(self) -> None:
        """From here on an adopted process tells again what is in the record already."""
        self._known = self.at.record.run.told
        self._bytes = self.at.record.run.spent_bytes

    @property
    def spent(self) -> dict[str, Any]:
        """What the run has cost until now, for the record of its next part."""
        return {"spent": msgspec.to_builtins(self.usage), "bytes": self._bytes}

    def begin_part(self) -> None:
        """The executor is called once more, and counts from nothing again."""
        self._spent = self.at.record.run.spent

    async def report_process(self, identity: ProcessIdentity) -> None:
        await self._tell(EventDraft(PROCESS, {"run": self._run, "pid": identity.pid, "started": identity.started}))

    async def report_conversation(self, name: str) -> None:
        if name != self.at.record.conversation:
            await self._tell(EventDraft(CONVERSATION, {"run": self._run, "conversation": sanitize_text(name)}))

    async def report_message(self, text: str) -> None:
        await self._tell_once(lambda: _with(SAID, self._run, "said", store_text(text), brief=shorten_to_line(text)))

    async def report_tool_call(self, call: str, tool: str, arguments: Any = None) -> None:
        given = store_text(json_text(arguments))
        await self._tell_once(
            lambda: _with(CALLED, self._run, "arguments", given, call=sanitize_text(call), tool=sanitize_text(tool))
        )

    async def report_tool_result(self, call: str, *, ok: bool, text: str = "") -> None:
        await self._tell_once(lambda: _with(RETURNED, self._run, "text", store_text(text), call=sanitize_text(call), ok=ok))

    async def report_usage(self, usage: Usage) -> None:
        self.usage = _sum(self._spent, usage)
        self._check_limits()
        waited, self._usage_waits = self._usage_waits, True
        if self.seconds_to_usage == 0:
            await self.write_usage()
        elif not waited:
            self._changed()

    @property
    def seconds_to_usage(self) -> float | None:
        """How long until the newest usage is to be written; None where it has been."""
        left = self._used_at + _USAGE_EVERY_MS - self._context.clock()
        # Bounded on both sides: somebody may set the clock back.
        return min(max(0, left), _USAGE_EVERY_MS) / 1000 if self._usage_waits else None

    async def write_usage(self) -> None:
        self._used_at, self._usage_waits = self._context.clock(), False
        await self._tell(EventDraft(USED, {"run": self._run, "usage": msgspec.to_builtins(self.usage)}))

    async def report_output(self, size: int) -> None:
        self._bytes += size
        self._check_limits()

    async def ask(self, question: AgentQuestion) -> Reply:
        opening = asyncio.create_task(self._open(question))
        try:
            closed = await self._closed(await asyncio.shield(opening))
            await self._go_on(closed.id)
        except asyncio.CancelledError:
            # Whatever fails now, it is cancelled; and the end of the run sees to every question that is still open then.
            with suppress(FidelioError):
                await self._no_longer_asked(opening)
            raise
        if closed.state != "answered":
            raise ExecutorFailure(f"The question of the agent was {closed.state}.", reason=f"question.{closed.state}")
        return Reply(str(closed.answer.get("option", "")), str(closed.answer.get("text", "")))

    async def _no_longer_asked(self, opening: asyncio.Task[str]) -> None:
        """The agent has withdrawn it; or it is interrupted, and whoever goes on with the run or ends it sees to that."""
        request = await opening
        if not self.interrupted:
            await self._withdraw(request)

    async def _closed(self, request: str) -> Request:
        self._changed()
        closed = await self._context.inbox.wait_until_closed(request)
        if (closed.state, closed.answered_by) == ("dismissed", _AGENT):
            # Withdrawn before we lost sight of the agent. What it says again ends with the same withdrawal.
            await asyncio.Event().wait()
        return closed

    async def _withdraw(self, request: str) -> None:
        close = dismiss_request(request, by=_AGENT)
        try:
            await self._go_on(request, close)
        except RequestClosed:
            await self._go_on(request)

    async def _go_on(self, request: str, *closing: RequestChange) -> None:
        """The question no longer keeps the run waiting."""
        draft = EventDraft(GOING_ON, {"run": self._run, "request": request})

        def decide(now: LoadedAgent) -> AgentDecision | None:
            waits = now.record.run.id == self._run and request in now.record.run.questions
            return AgentDecision(drafts=(draft,), requests=closing) if waits else None

        async with self._lock:
            self.at = await self._write(decide)
        self._changed()

    async def _open(self, question: AgentQuestion) -> str:
        request = open_request(
            question.kind,
            self._key(question),
            sanitize_text(question.text)[:_QUESTION_LENGTH],
            tuple({"id": option, "label": label} for option, label in question.options),
            _bounded(question.detail),
        )
        try:
            await self._ask(request)
        except RequestExists as known:
            # It was asked before we lost sight of the agent. Its answer may be there already.
            if known.state == "open" and known.request not in self.at.record.run.questions:
                await self._tell(EventDraft(WAITING, {"run": self._run, "request": known.request}))
            return known.request
        return request.id

    async def _ask(self, request: NewRequest) -> None:
        def decide(now: LoadedAgent) -> AgentDecision:
            self._require_alive(now, WAITING)
            return AgentDecision(drafts=(EventDraft(WAITING, {"run": self._run, "request": request.id}),), requests=(request,))

        async with self._lock:
            self.at = await self._write(decide)

    def _key(self, question: AgentQuestion) -> str:
        """Names the run too: the next turn may ask the same again. A long or odd key is named by its digest."""
        key = question.key
        plain = len(key) <= _KEY_LENGTH and key.isprintable()
        return f"{self._run}/{key if plain else hashlib.sha256(key.encode(errors='replace')).hexdigest()[:32]}"

    async def _tell_once(self, make: Callable[[], tuple[EventDraft, StoredText]]) -> None:
        if self._known:
            self._known -= 1
            return
        draft, kept = make()
        self._blobs.extend(kept.blobs)
        await self._tell(draft)

    async def _tell(self, draft: EventDraft) -> None:
        self._pending.append(draft)
        async with self._lock:
            if self._broken:
                raise ExecutorFailure("What the agent said could not be recorded.", reason="not-recorded")
            if self._pending:
                await self._write_pending()

    async def _write_pending(self) -> None:
        drafts, blobs = tuple(self._pending), tuple(self._blobs)
        self._pending.clear()
        self._blobs.clear()

        def decide(now: LoadedAgent) -> AgentDecision:
            self._require_alive(now, drafts[0].type)
            return AgentDecision(drafts=drafts, blobs=blobs)

        # Those whose words are in this commit wait behind us, and must not take silence for success.
        self._broken = True
        self.at = await self._write(decide)
        self._broken = False

    async def _write(self, decide: Decide) -> LoadedAgent:
        return await retry_transient(lambda: self._context.unit.update(self.at, decide, actor=_AGENT, work=self._work))

    def _require_alive(self, now: LoadedAgent, type_: str) -> None:
        if now.record.run.id != self._run or state_after(now.record.run.state, type_) is None:
            raise ExecutorFailure("The run is over; nobody listens any more.", reason="over")

    def _check_limits(self) -> None:
        limit = limit_passed(self._limits, self.usage, self._bytes)
        if limit:
            self.over = LimitReached(f"The run has passed its limit of {limit}.", reason=f"limit.{limit}")
            self._changed()
            raise self.over


def _sum(one: Usage, other: Usage) -> Usage:
    fields = Usage.__struct_fields__
    return Usage(**{field: getattr(one, field) + getattr(other, field) for field in fields})


def _with(type_: str, run: str, field: str, kept: StoredText, **more: Any) -> tuple[EventDraft, StoredText]:
    return EventDraft(type_, {"run": run, field: kept.body, **more}, kept.digests), kept


def _bounded(detail: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent wants to do may be a whole file: a person is shown as much of it as can be looked at."""
    text = json_text(detail)
    if len(text) <= _DETAIL_LENGTH:
        return msgspec.json.decode(text, type=dict[str, Any])
    return {"beginning": text[:_DETAIL_LENGTH], "size": len(text)}
