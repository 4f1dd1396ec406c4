"""Commits of a wake, each under the lease of its job: a worker that has lost it cannot commit any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from fidelio.errors import FidelioError
from fidelio.inbox import RequestChange, open_request
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Change, Completion, NewEvent, NewJob, PutDocument, Settlement
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.providers.model import ModelProblem
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.settle import fold_ahead
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext, event
from fidelio.runtime.wakes import ending
from fidelio.runtime.wakes.content import store_content
from fidelio.runtime.wakes.conversation import LOST
from fidelio.runtime.wakes.model_calls import WakeInterrupted
from fidelio.runtime.wakes.prompt import text_block
from fidelio.runtime.wakes.record import WAKE_JOB, OpenCall, QueuedWake
from fidelio.runtime.wakes.rules import (
    EXTENSION,
    MAX_EXTENSIONS,
    BudgetState,
    Fresh,
    WakePlan,
    find_next,
    is_ready,
)
from fidelio.runtime.work.queue import queue_work

# The kind of the request that shows a custom tool in the inbox. Whoever carries it out answers with its result.
CUSTOM_TOOL = "custom_tool"
# How soon a wake is tried again whose agent cannot be loaded, or whose model could not be reached.
_RETRY_MS = 15 * 60 * 1000
_RETRY = "session.retry"


class WakeUpdates:
    """The session of a wake as it is committed, and the ends of wakes other than the usual."""

    def __init__(self, context: RuntimeContext, assignment: Assignment, loaded: LoadedRuntime) -> None:
        self.context, self.assignment, self.loaded = context, assignment, loaded

    @property
    def record(self) -> RuntimeRecord:
        return self.loaded.record

    @property
    def begun_seq(self) -> int:
        """The event with which the current wake began."""
        return self.record.wakes.started_seq

    async def reload(self) -> None:
        self.loaded = await self.context.unit.load(self.loaded.id)

    async def commit(
        self,
        events: Sequence[NewEvent],
        *,
        blobs: tuple[bytes, ...] = (),
        requests: tuple[RequestChange, ...] = (),
        documents: tuple[PutDocument, ...] = (),
        linked: tuple[Change, ...] = (),
        jobs: tuple[NewJob, ...] = (),
        settle: Settlement | None = None,
    ) -> None:
        """Commit a part of the wake. Raises `WakeInterrupted` if the session was ended or archived meanwhile."""
        decision = SessionDecision(
            None,
            events=tuple(events),
            blobs=blobs,
            requests=requests,
            documents=documents,
            linked=linked,
            jobs=jobs,
            settle=settle,
        )
        await self.decide(lambda _: decision)

    async def decide(self, build: Callable[[RuntimeRecord], SessionDecision[None] | None]) -> None:
        """Commit what `build` makes of the record, which is called again if something was committed meanwhile.

        What ends open calls and requests is decided here: a person may have answered them a moment ago.
        """

        def decide(current: LoadedRuntime) -> SessionDecision[None] | None:
            if current.record.is_closed:
                raise WakeInterrupted
            decision = build(current.record)
            return None if decision is None else self._note_usage(current.record, decision)

        self.loaded = await self.context.unit.update(self.loaded, decide, assignment=self.assignment)

    def _note_usage(self, record: RuntimeRecord, decision: SessionDecision[None]) -> SessionDecision[None]:
        """Note with the end of a wake what the session has used up to then."""
        if not any(map(_is_wake_end, decision.events)):
            return decision
        now = self.context.clock()
        usage = msgspec.structs.asdict(fold_ahead(record, decision.events, now=now).wakes.usage)
        events = (
            msgspec.structs.replace(new, body={**new.body, "usage": usage}) if _is_wake_end(new) else new
            for new in decision.events
        )
        return msgspec.structs.replace(decision, events=tuple(events))

    async def end(
        self,
        events: Sequence[NewEvent],
        *,
        due: int | None = None,
        requests: tuple[RequestChange, ...] = (),
        linked: tuple[Change, ...] = (),
        documents: tuple[PutDocument, ...] = (),
        blobs: tuple[bytes, ...] = (),
    ) -> None:
        """Commit the last events of a wake together with the next job and the end of the current job."""
        after = self.record.wakes
        pending = 0 if after.pending and not after.open_calls else None
        times = [time for time in (due, pending) if time is not None]
        jobs = ending.wake_job(self.loaded.id, min(times, default=None))
        await self.commit(
            events, blobs=blobs, requests=requests, documents=documents, linked=linked, jobs=jobs, settle=Completion()
        )

    def next_due(self, *, earliest: int = 0) -> int | None:
        """When the queue wants the session again, at the earliest at a time."""
        due = find_next(self.record.wakes)
        return None if due is None else max(due, earliest)

    async def pause(self, wake: str, rejected: Sequence[str] = ()) -> bool:
        """End the wake until the calls that wait are answered; False if the last result has arrived meanwhile."""
        await queue_work(self.context, self.loaded)

        def build(record: RuntimeRecord) -> SessionDecision[None] | None:
            wakes, calls = record.wakes, record.wakes.open_calls
            if not calls:
                return None
            new_requests = [self._request_custom_tool(call, wake) for call in calls if _needs_request(call)]
            blocking = [call.id for call in calls]
            expiries = [approval.expires for approval in record.approvals.values() if approval.tool_use in blocking]
            events = (
                *(noted for _, noted in new_requests),
                ending.end_wake(
                    wake, "blocked", continues=wakes.continues, extensions=wakes.extensions, rejected=list(rejected)
                ),
                ending.go_idle(wake, "requires_action", "It waits for an answer.", blocking=blocking),
            )
            jobs = ending.expiry_job(self.loaded.id, min(expiries, default=None))
            requests = tuple(request for request, _ in new_requests)
            return SessionDecision(None, events=events, requests=requests, jobs=jobs, settle=Completion())

        await self.decide(build)
        return self.assignment.is_settled

    def _request_custom_tool(self, call: OpenCall, wake: str) -> tuple[RequestChange, NewEvent]:
        question = f"The agent asks for the result of its custom tool {call.name}."
        detail = {"tool": call.name, "tool_use_id": call.id, "job": WAKE_JOB, "root": self.record.root or self.loaded.id}
        request = open_request(CUSTOM_TOOL, f"custom:{call.id}", question, (), detail)
        body = {"request": request.id, "tool_use_id": call.id, "wake_id": wake}
        return request, event(e.CUSTOM_TOOL_REQUESTED, body)

    async def store_custom_results(self) -> None:
        """Record the results of custom tools that came as answers of the inbox."""
        answered = [call for call in self.record.wakes.open_calls if call.state == "answered"]
        events = []
        for call in answered:
            text = str((await self.context.ledger.request(call.request)).answer.get("text", ""))
            content = store_content([text_block(text or "(empty)")])
            body = {"custom_tool_use_id": call.id, "content": content.content, "is_error": False}
            events.append((event(e.USER_TOOL_RESULT, body, blobs=content.digests), content.blobs))
        if events:
            await self.commit([result for result, _ in events], blobs=tuple(blob for _, blobs in events for blob in blobs))

    async def refuse_lost(self, known: Collection[str]) -> None:
        """Store a result for calls that could go on but whose content was deleted from the record."""

        def build(record: RuntimeRecord) -> SessionDecision[None] | None:
            lost = [call for call in record.wakes.open_calls if call.id not in known]
            events = ending.refuse_calls([call for call in lost if is_ready(record, call, now=self.context.clock())], LOST)
            return SessionDecision(None, events=events) if events else None

        await self.decide(build)

    async def extend(self, wake: str) -> None:
        """Go on in another wake after the limits were reached; after ten of them the session stops with an error."""
        wakes, now = self.record.wakes, self.context.clock()
        count = wakes.extensions + 1
        if count > MAX_EXTENSIONS:
            message = f"The agent has gone on {MAX_EXTENSIONS} times without coming to an end."
            events = [
                ending.report_error(wake, "turn_limit_error", message, "Send a message that narrows the task."),
                *ending.refuse_open_calls(self.record, message),
                ending.end_wake(wake, "error"),
                ending.go_idle(wake, "end_turn", message),
            ]
            await self.end(events, due=self.next_due())
            return
        # Calls that are left bring the session back by themselves; another wake after them would have nothing to do.
        queued = [] if wakes.open_calls else [QueuedWake(f"{wake}_x", now, EXTENSION)]
        events = [
            *ending.queue_wakes(queued, wake),
            ending.end_wake(wake, "success", continues=wakes.continues, extensions=count),
            ending.reschedule(wake, EXTENSION, now),
        ]
        await self.end(events, due=now)

    async def refuse(self, wake: str, span: Sequence[NewEvent], text: str) -> None:
        """End the turn because the model has refused to answer."""
        summary = text.strip()[:400] or "The model refused to answer."
        events = [*span, ending.end_wake(wake, "blocked", summary=summary), ending.go_idle(wake, "refusal", summary)]
        await self.end(events, due=self.next_due())

    async def stop_at_budget(self, wake: str, state: BudgetState) -> None:
        """End the wake because a budget is used up. What was sent stays pending."""
        remedy = "Raise the budget of the session, or begin another one."
        ended = [ending.end_wake(wake, "blocked", summary=state.problem)] if wake else []
        events = [
            ending.report_error(wake, "budget_error", state.problem, remedy),
            *ended,
            ending.go_idle(wake, "budget_reached", state.problem, waits=True),
        ]
        jobs = ending.wake_job(self.loaded.id, state.next)
        await self.commit(events, jobs=jobs, settle=Completion())

    async def abandon(self, wake: str, problem: ModelProblem) -> None:
        """End the wake because the model cannot be reached, or refuses the request for good. The next message works again."""
        status = "exhausted" if problem.retryable else "terminal"
        now = self.context.clock()
        # What a person sent is shown to them with the error. A wake of the queue has nobody who would send it again.
        again = [QueuedWake(f"{wake}_r", now + _RETRY_MS, _RETRY, "", f"retry:{self.loaded.id}")] if problem.retryable else []
        known = {queued.key for queued in self.record.wakes.queued}
        events = [
            ending.report_problem(wake, problem, status),
            *ending.queue_wakes([retry for retry in again if retry.key not in known and not await self._has_messages()], wake),
            ending.end_wake(wake, "error", summary=str(problem.sentence)),
            ending.go_idle(wake, "retries_exhausted", str(problem.sentence)),
        ]
        times = [self.next_due(), *(retry.due for retry in again)]
        await self.end(events, due=min((time for time in times if time is not None), default=None))

    async def _has_messages(self) -> bool:
        """Whether a person's message is part of the current wake."""
        (started,) = await self.context.ledger.events(self.loaded.id, after=self.begun_seq - 1, limit=1)
        return bool(started.body.get("messages"))

    async def fail(self, plan: WakePlan, error: FidelioError) -> None:
        """Record that a wake cannot begin, because its agent, environment or model cannot be used. Nothing is consumed."""
        sentence, remedy = str(error.sentence), str(error.remedy)
        due = self.next_due(earliest=self.context.clock() + _RETRY_MS)
        is_queued = isinstance(plan, Fresh) and bool(plan.wakes or plan.schedules)
        jobs = ending.wake_job(self.loaded.id, due if is_queued else self.next_due(earliest=self.context.clock() + 1))

        def build(record: RuntimeRecord) -> SessionDecision[None]:
            wake = record.wakes.current
            ended = (*ending.refuse_open_calls(record, sentence), ending.end_wake(wake, "error")) if wake else ()
            events = (
                ending.report_error(wake, "agent_setup_error", sentence, remedy),
                *ended,
                ending.go_idle(wake, "retries_exhausted", sentence, waits=True),
            )
            requests = ending.close_requests(record, "agent") if wake else ()
            return SessionDecision(None, events=events, requests=requests, jobs=jobs, settle=Completion())

        await self.decide(build)

    async def _find_interrupter(self) -> str:
        after = self.record.wakes.interrupt_seq - 1
        found = await self.context.ledger.events(self.loaded.id, after=after, limit=1)
        return found[0].actor if found else "system"

    async def stop_broken(self, error: str) -> None:
        """End a wake that failed several times for a reason that nobody foresaw, rather than try it for ever."""
        message = f"The wake failed again and again: {error[:300]}"
        remedy = "Send another message. If it fails again, report it as a defect."
        jobs = ending.wake_job(self.loaded.id, self._later())

        def build(record: RuntimeRecord) -> SessionDecision[None]:
            wake = record.wakes.current
            events = (
                ending.report_error(wake, "internal_error", message, remedy),
                *ending.refuse_open_calls(record, message),
                *([ending.end_wake(wake, "error", summary=message)] if wake else []),
                ending.go_idle(wake, "retries_exhausted", message, waits=True),
            )
            requests = ending.close_requests(record, "system")
            return SessionDecision(None, events=events, requests=requests, jobs=jobs, settle=Completion())

        await self.decide(build)

    def _later(self) -> int | None:
        return self.next_due(earliest=self.context.clock() + _RETRY_MS)

    async def end_interrupted(self) -> None:
        """Carry out an interrupt: every open call gets a result, requests and queued wakes end, the turn is over."""

        by = await self._find_interrupter()

        def build(record: RuntimeRecord) -> SessionDecision[None]:
            wake, queued = record.wakes.current, [wake.id for wake in record.wakes.queued]
            events = (
                *ending.refuse_open_calls(record, ending.INTERRUPTED),
                *([event(e.WAKES_CANCELLED, {"ids": queued, "reason": "interrupted"})] if queued else []),
                *([ending.end_wake(wake, "blocked", summary="Interrupted.")] if wake else []),
                ending.go_idle(wake, "end_turn", "Interrupted.", interrupt_seq=record.wakes.interrupt_seq),
            )
            return SessionDecision(None, events=events, requests=ending.close_requests(record, by))

        await self.decide(build)


def _is_wake_end(new: NewEvent) -> bool:
    return new.type == e.SPAN_COMPLETED and new.body.get("span_kind") == "wake"


def _needs_request(call: OpenCall) -> bool:
    return call.state == "custom" and not call.request
