"""The end of a wake: the directive, learnings, the verdict about outcomes, and what comes next, in one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fidelio.ids import new_id
from fidelio.ledger.long_text import json_text, store_text
from fidelio.ledger.model import NewEvent
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.wakes import ending
from fidelio.runtime.wakes.directive import CustomToolRequest, ParsedReply
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.rules import plan_continuation
from fidelio.runtime.wakes.updates import WakeUpdates

GradeModel = Callable[[ModelRequest], Awaitable[ModelReply]]


class Finish:
    """Commits the end of a wake whose model has answered without calling a tool."""

    def __init__(self, updates: WakeUpdates, prepared: Prepared, grade: GradeModel) -> None:
        self._updates, self._prepared, self._grade = updates, prepared, grade

    async def commit(self, wake: str, reply: ParsedReply) -> None:
        updates, directive = self._updates, reply.directive
        if directive.custom_tool is not None and await self._ask_caller(wake, directive.custom_tool):
            return
        now = updates.context.clock()
        after = plan_continuation(updates.record, updates.loaded.id, directive, now=now)
        queued = ending.queue_wakes(after.queued, wake)
        done = ending.end_wake(
            wake, "success", summary=directive.summary, continues=after.continues, rejected=list(after.rejected)
        )
        if after.continues:
            due = min(wake.due for wake in after.queued)
            events: list[NewEvent] = [*queued, done, ending.reschedule(wake, "follow_up", due)]
        else:
            events = [*queued, done, ending.go_idle(wake, "end_turn", directive.summary)]
        due_times = [wake.due for wake in after.queued]
        if (known := updates.next_due()) is not None:
            due_times.append(known)
        await updates.end(events, due=min(due_times, default=None))

    async def _ask_caller(self, wake: str, request: CustomToolRequest) -> bool:
        """Pause for a custom tool that the directive names."""
        name = new_id("toolu_", 20)
        stored = store_text(json_text(dict(request.input)))
        body = {"id": name, "name": request.name, "input": stored.body, "wake_id": wake}
        use = NewEvent(type=e.CUSTOM_TOOL_USE, body=body, actor="agent", id=name, blobs=stored.digests)
        await self._updates.commit([use], blobs=stored.blobs)
        await self._updates.pause(wake)
        return True
