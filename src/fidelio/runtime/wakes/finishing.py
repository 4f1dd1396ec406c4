"""The end of a wake: the directive, learnings, the verdict about outcomes, and what comes next, in a single transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from fidelio.ids import new_id
from fidelio.ledger.long_text import json_text, store_text
from fidelio.ledger.model import NewEvent
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import NO_GRADER
from fidelio.runtime.memory.learnings import plan_learnings
from fidelio.runtime.navigation.context import ContextBudget, budget_document
from fidelio.runtime.outcomes.evaluation import EvaluationRun, evaluate
from fidelio.runtime.shell.settle import fold_ahead
from fidelio.runtime.wakes import ending
from fidelio.runtime.wakes.custom_inputs import check_custom_request
from fidelio.runtime.wakes.directive import CustomToolRequest, Directive, ParsedReply
from fidelio.runtime.wakes.model_calls import until_interrupt
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.record import QueuedWake
from fidelio.runtime.wakes.rules import REVISION, plan_continuation
from fidelio.runtime.wakes.updates import WakeUpdates

GradeModel = Callable[[ModelRequest], Awaitable[ModelReply]]


class Finish:
    """Commits the end of a wake whose model has answered without calling a tool."""

    def __init__(self, updates: WakeUpdates, prepared: Prepared, grade: GradeModel, interrupt: asyncio.Event) -> None:
        self._updates, self._prepared, self._grade, self._interrupt = updates, prepared, grade, interrupt

    async def commit(self, wake: str, reply: ParsedReply, budget: ContextBudget, *, dropped: Sequence[str] = ()) -> None:
        """Commit the end. `dropped` is what was left out of replies. Raises `WakeInterrupted`."""
        updates, directive = self._updates, reply.directive
        if directive.custom_tool is not None:
            tool = directive.custom_tool
            problem = await check_custom_request(self._prepared.custom, tool.name, tool.input)
            if not problem:
                await self._ask_caller(wake, directive, tool)
                return
            dropped = (*dropped, f"customToolRequest: {problem}")
        context, now = updates.context, updates.context.clock()
        after = plan_continuation(updates.record, updates.loaded.id, directive, now=now)
        learned = await plan_learnings(context, updates.loaded, directive.learnings, wake=wake)
        # What the agent queues decides about the verdict, so it is evaluated as it will be after this commit.
        queued = ending.queue_wakes(after.queued, wake)
        judged = await self._evaluate(wake, queued)
        again = _revise(judged, wake, now=now) if judged is not None and judged.goes_on and not after.continues else ()
        rejected = [*dropped, *after.rejected, *learned.rejected]
        done = ending.end_wake(wake, "success", summary=directive.summary, continues=after.continues, rejected=rejected)
        # A follow-up that it asks for may be queued already.
        times = [updates.next_due(), *(queued_wake.due for queued_wake in (*after.queued, *again))]
        due = min((time for time in times if time is not None), default=None)
        events = [
            *learned.events,
            *queued,
            *ending.queue_wakes(again, wake),
            *(judged.events if judged is not None else ()),
            done,
            self._describe_end(wake, directive.summary, due if after.continues or again else None),
        ]
        await updates.end(
            events,
            due=due,
            requests=learned.requests,
            linked=learned.linked,
            documents=(budget_document(updates.loaded.id, budget),),
            blobs=judged.blobs if judged is not None else (),
        )

    def _describe_end(self, wake: str, summary: str, due: int | None) -> NewEvent:
        """Idle, or, where the agent goes on by itself at a time, only rescheduled."""
        return ending.go_idle(wake, "end_turn", summary) if due is None else ending.reschedule(wake, "follow_up", due)

    async def _evaluate(self, wake: str, queued: tuple[NewEvent, ...]) -> EvaluationRun | None:
        updates = self._updates
        if not updates.record.outcomes.outcomes:
            return None
        record = fold_ahead(updates.record, queued, now=updates.context.clock())
        grade = None if self._prepared.agent.definition.grader == NO_GRADER else self._grade
        tools = self._prepared.tools
        session = replace(updates.loaded, record=record)
        # Checks may take minutes, and a person may want something else.
        return await until_interrupt(evaluate(updates.context, session, wake=wake, grade=grade, tools=tools), self._interrupt)

    async def _ask_caller(self, wake: str, directive: Directive, request: CustomToolRequest) -> None:
        """Pause for a custom tool that the directive names. What else it asks for is stored; the result continues the turn."""
        updates = self._updates
        after = plan_continuation(
            updates.record, updates.loaded.id, replace(directive, outcome="sleep"), now=updates.context.clock()
        )
        learned = await plan_learnings(updates.context, updates.loaded, directive.learnings, wake=wake)
        name = new_id("toolu_", 20)
        stored = store_text(json_text(dict(request.input)))
        body = {"id": name, "name": request.name, "input": stored.body, "wake_id": wake}
        use = NewEvent(type=e.CUSTOM_TOOL_USE, body=body, actor="agent", id=name, blobs=stored.digests)
        events = [use, *ending.queue_wakes(after.queued, wake), *learned.events]
        await updates.commit(events, blobs=stored.blobs, requests=learned.requests, linked=learned.linked)
        await updates.pause(wake, rejected=(*after.rejected, *learned.rejected))


def _revise(judged: EvaluationRun, wake: str, *, now: int) -> tuple[QueuedWake, ...]:
    """Another wake for an outcome of a person that is not met yet. Its message says what is missing."""
    missing = str(judged.verdict.get("summary", ""))[:1_000]
    return (QueuedWake(f"{wake}_o", now, REVISION, missing),)
