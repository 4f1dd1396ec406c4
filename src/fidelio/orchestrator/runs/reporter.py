"""The reporter of a run: records what its executor reports, and ends the run at its limits.

Running totals (usage, bytes) are written at intervals: the next total replaces the last, and
the final total is written with the end. A total that comes before the interval has passed is written later by the supervisor.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure, FidelioError, LimitReached, RequestClosed, RequestExists
from fidelio.inbox import RequestChange, demand_proof, dismiss_request, open_request
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.long_text import json_text, sanitize_text, shorten_to_line, store_text
from fidelio.ledger.model import Request
from fidelio.orchestrator.blueprints.model import Blueprint, find_exceeded_limit
from fidelio.orchestrator.executors.common import REFUSE
from fidelio.orchestrator.executors.contract import PERMISSION, AgentQuestion, Reply
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.record.record import (
    AGENT_CALLED,
    AGENT_RETURNED,
    AGENT_SAID,
    RUN_CONVERSATION,
    RUN_GOING_ON,
    RUN_PROCESS,
    RUN_USED,
    RUN_WAITING,
    next_state,
)
from fidelio.orchestrator.record.unit_of_work import AgentDecision, Decide, LoadedAgent, draft_event
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.processes.table import ProcessIdentity
from fidelio.retry import retry_transient

_AGENT = "agent"
_USAGE_EVERY_MS = 1_000
_KEY_LENGTH = 150
_QUESTION_LENGTH = 20_000
_DETAIL_LENGTH = 100_000


class RunReporter:
    """The reporter of a run. `agent` is the session after the last commit; `on_change` is called when it waits or continues."""

    def __init__(
        self,
        context: OrchestratorContext,
        agent: LoadedAgent,
        work: Assignment,
        blueprint: Blueprint,
        on_change: Callable[[], None],
    ) -> None:
        self.agent = agent
        self.usage = agent.record.run.usage
        self.is_detaching = False
        self.is_interrupted = False
        self.limit_reached: LimitReached | None = None
        self._context, self._work, self._on_change = context, work, on_change
        self._limits, self._needs_proof = blueprint.limits, blueprint.permissions.needs_proof
        self._run = agent.record.run.id
        self._replayed_events = 0
        self._bytes = 0
        self._spent = agent.record.run.spent
        self._used_at = 0
        self._has_unwritten_usage = False
        self._lock = asyncio.Lock()

    def replay(self) -> None:
        """Skip reports that the record has already: an adopted process reports everything again."""
        self._replayed_events = self.agent.record.run.reported_events
        self._bytes = self.agent.record.run.spent_bytes

    @property
    def spent(self) -> dict[str, Any]:
        """The usage of the run until now, for the event that begins its next executor call."""
        return {"spent": msgspec.to_builtins(self.usage), "bytes": self._bytes}

    def begin_part(self) -> None:
        """Begin another executor call, whose usage counts from zero again."""
        self._spent = self.agent.record.run.spent

    async def report_process(self, identity: ProcessIdentity, proof: str = "") -> None:
        await self._report(RUN_PROCESS, {"pid": identity.pid, "started": identity.started, "proof": proof})

    async def report_conversation(self, name: str) -> None:
        if name != self.agent.record.conversation:
            await self._report(RUN_CONVERSATION, {"conversation": sanitize_text(name)})

    async def report_message(self, text: str) -> None:
        await self._report_once(AGENT_SAID, "said", text, brief=shorten_to_line(text))

    async def report_tool_call(self, call: str, tool: str, arguments: Any = None) -> None:
        names = {"call": sanitize_text(call), "tool": sanitize_text(tool)}
        await self._report_once(AGENT_CALLED, "arguments", json_text(arguments), **names)

    async def report_tool_result(self, call: str, *, ok: bool, text: str = "") -> None:
        await self._report_once(AGENT_RETURNED, "text", text, call=sanitize_text(call), ok=ok)

    async def report_usage(self, usage: Usage) -> None:
        self.usage = self._spent + usage
        self._check_limits()
        waited, self._has_unwritten_usage = self._has_unwritten_usage, True
        if self.seconds_until_usage == 0:
            await self.write_usage()
        elif not waited:
            self._on_change()

    @property
    def seconds_until_usage(self) -> float | None:
        """The seconds until the newest usage is to be recorded; None if it is recorded."""
        left = self._used_at + _USAGE_EVERY_MS - self._context.clock()
        # Bounded on both sides, because the clock may be set back.
        return min(max(0, left), _USAGE_EVERY_MS) / 1000 if self._has_unwritten_usage else None

    async def write_usage(self) -> None:
        self._used_at, self._has_unwritten_usage = self._context.clock(), False
        await self._report(RUN_USED, {"usage": msgspec.to_builtins(self.usage)})

    async def report_output(self, size: int) -> None:
        self._bytes += size
        self._check_limits()

    async def ask(self, question: AgentQuestion) -> Reply:
        opening = asyncio.create_task(self._open_question(question))
        try:
            closed = await self._wait_until_closed(await asyncio.shield(opening))
            await self._record_answer(closed.id)
        except asyncio.CancelledError:
            # An error here must not replace the cancellation; the end of the run dismisses every question that is still open.
            with suppress(FidelioError):
                await self._cancel_question(opening)
            raise
        if closed.state != "answered":
            raise ExecutorFailure(f"The question of the agent was {closed.state}.", reason=f"question.{closed.state}")
        return Reply(str(closed.answer.get("option", "")), str(closed.answer.get("text", "")))

    async def wait_for(self, request: str) -> None:
        known = await self._context.ledger.request(request)
        if request not in self.agent.record.run.awaited:
            await self._report(RUN_WAITING, {"request": request, "of_session": known.session})
        self._on_change()
        await self._context.inbox.wait_until_closed(request)
        await self._record_answer(request)

    async def _cancel_question(self, opening: asyncio.Task[str]) -> None:
        """Dismiss the question that the agent withdrew. On an interruption it stays for the code that resumes or ends the
        run.
        """
        request = await opening
        if not self.is_interrupted:
            await self._withdraw(request)

    async def _wait_until_closed(self, request: str) -> Request:
        self._on_change()
        closed = await self._context.inbox.wait_until_closed(request)
        if (closed.state, closed.answered_by) == ("dismissed", _AGENT):
            # Withdrawn before the run was adopted: the replayed reports end with the same withdrawal, which cancels this wait.
            await asyncio.Event().wait()
        return closed

    async def _withdraw(self, request: str) -> None:
        close = dismiss_request(request, by=_AGENT)
        try:
            await self._record_answer(request, close)
        except RequestClosed:
            await self._record_answer(request)

    async def _record_answer(self, request: str, *closing: RequestChange) -> None:
        """Record that the run no longer waits for the question."""
        draft = draft_event(RUN_GOING_ON, {"run": self._run, "request": request})

        def decide(current: LoadedAgent) -> AgentDecision | None:
            run = current.record.run
            waits = run.id == self._run and request in (*run.questions, *run.awaited)
            return AgentDecision(None, events=(draft,), requests=closing) if waits else None

        await self._write(decide)
        self._on_change()

    async def _open_question(self, question: AgentQuestion) -> str:
        detail = _limit_detail(question.detail)
        if self._needs_proof and question.kind == PERMISSION:
            digest = _digest_question(question)
            # With the digest in the key, another call that the agent gives the same name is another request.
            question = msgspec.structs.replace(question, key=f"{question.key}#{digest}")
            detail = demand_proof({**detail, "digest": digest}, refusals=(REFUSE,))
        request = open_request(
            question.kind,
            self._request_key(question),
            sanitize_text(question.text)[:_QUESTION_LENGTH],
            tuple({"id": option, "label": label} for option, label in question.options),
            detail,
        )
        try:
            await self._report(RUN_WAITING, {"request": request.id}, requests=(request,))
        except RequestExists as known:
            # Opened before the run was adopted. It may be answered already.
            if known.state == "open" and known.request not in self.agent.record.run.questions:
                await self._report(RUN_WAITING, {"request": known.request})
            return known.request
        return request.id

    def _request_key(self, question: AgentQuestion) -> str:
        """The key of a request, with the run, because the next run may ask the same. A long or unprintable key is hashed."""
        key = question.key
        plain = len(key) <= _KEY_LENGTH and key.isprintable()
        return f"{self._run}/{key if plain else hashlib.sha256(key.encode(errors='replace')).hexdigest()[:32]}"

    async def _report_once(self, type_: str, field: str, text: str, **more: Any) -> None:
        if self._replayed_events:
            self._replayed_events -= 1
            return
        stored = store_text(text)
        await self._report(type_, {field: stored.body, **more}, stored.digests, blobs=stored.blobs)

    async def _report(
        self,
        type_: str,
        body: Mapping[str, Any],
        digests: tuple[str, ...] = (),
        *,
        blobs: tuple[bytes, ...] = (),
        requests: tuple[RequestChange, ...] = (),
    ) -> None:
        draft = draft_event(type_, {"run": self._run, **body}, digests)

        def decide(current: LoadedAgent) -> AgentDecision:
            if current.record.run.id != self._run or next_state(current.record.run.state, type_) is None:
                raise ExecutorFailure("The run has ended; reports are not accepted any more.", reason="over")
            return AgentDecision(None, events=(draft,), blobs=blobs, requests=requests)

        await self._write(decide)

    async def _write(self, decide: Decide) -> None:
        async with self._lock:
            self.agent = await retry_transient(
                lambda: self._context.unit.update(self.agent, decide, actor=_AGENT, work=self._work)
            )

    def _check_limits(self) -> None:
        limit = find_exceeded_limit(self._limits, self.usage, self._bytes)
        if limit:
            self.limit_reached = LimitReached(f"The run has passed its limit of {limit}.", reason=f"limit.{limit}")
            self._on_change()
            raise self.limit_reached


def _digest_question(question: AgentQuestion) -> str:
    """The digest of exactly what the agent wants, also of what is too long to be shown."""
    subject = {"text": question.text, "options": question.options, "detail": question.detail}
    return hashlib.sha256(b"fidelio.permission.v1:" + json_text(subject).encode(errors="replace")).hexdigest()


def _limit_detail(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Limit the detail of a request, which may hold a whole file."""
    text = json_text(detail)
    if len(text) <= _DETAIL_LENGTH:
        return msgspec.json.decode(text, type=dict[str, Any])
    return {"beginning": text[:_DETAIL_LENGTH], "size": len(text)}
