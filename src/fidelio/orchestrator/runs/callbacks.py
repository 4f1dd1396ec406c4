"""Callbacks: delivers the end of a child session to its parent exactly once, also across crashes.

The end of the child's run makes the delivery due in its own transaction. Delivering writes the message to the parent and the
end of the job in one more. So a callback is neither lost nor delivered twice. The jobs of a deleted child are erased with it,
so the parent is notified before the deletion; otherwise it would wait for a callback that never comes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

import msgspec

from fidelio.errors import AgentBusy, AgentError, SessionNotFound
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.long_text import StoredText, store_text
from fidelio.ledger.model import Change, Completion, NewEvent
from fidelio.orchestrator.record.model import Run
from fidelio.orchestrator.record.record import CALLBACK_DELIVERED
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import AgentDecision, LoadedAgent
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.lineage import calling_session
from fidelio.orchestrator.runs.queries import AgentQueries
from fidelio.orchestrator.runs.queueing import draft_message, draft_next_run
from fidelio.orchestrator.runs.results import CALLBACK

_BLOCK = "agent-session-ended"
_MAX_RESULT_LENGTH = 8_000


class Callbacks(msgspec.Struct, frozen=True):
    """Handles callback jobs, and notifies parents before their children are deleted."""

    context: OrchestratorContext
    queries: AgentQueries

    async def deliver(self, work: Assignment) -> None:
        # The child or the parent was deleted meanwhile.
        with suppress(SessionNotFound):
            await self._deliver(work)

    async def _deliver(self, work: Assignment) -> None:
        run = str(work.lease.payload["run"])
        child = await self.context.unit.load(work.lease.session)
        parent = await self.context.unit.load(child.record.parent)
        text = store_text(await self._render_message(child, run))
        event = NewEvent(type=CALLBACK_DELIVERED, body={"run": run, "parent": parent.id}, actor="host")
        delivery = Change(session=child.id, events=(event,), lease=work.lease, settle=Completion())

        def decide(current: LoadedAgent) -> AgentDecision:
            decision = _decide_receipt(current, text, {"from": child.id, "run": run})
            return msgspec.structs.replace(decision, linked=(delivery,))

        await self.context.unit.update(parent, decide, actor="host")
        work.is_settled = True

    async def notify_before_deletion(self, children: Sequence[LoadedAgent], *, deleting: Collection[str], by: str) -> None:
        """Notify the parents that wait for a callback of these sessions that the sessions are deleted.

        Not the parents in `deleting`, nor the session that makes this call.
        """
        informed = {*deleting, calling_session(by)}
        for child in children:
            if child.record.callback and child.record.parent not in informed and await self._has_pending_callback(child):
                # A parent that was deleted, or whose message queue is full, must not prevent the deletion.
                with suppress(SessionNotFound, AgentBusy):
                    await self._report_deletion(child, by)

    async def _has_pending_callback(self, child: LoadedAgent) -> bool:
        return bool(await self.context.ledger.jobs(session=child.id, kind=CALLBACK, limit=1))

    async def _report_deletion(self, child: LoadedAgent, by: str) -> None:
        run = child.record.run
        text = store_text(
            _render_block(child, run.number, "deleted", "", f"The session was deleted by {by}, and its result with it.")
        )
        origin = {"from": child.id, "run": run.id}
        await self.context.unit.update(child.record.parent, lambda parent: _decide_receipt(parent, text, origin), actor="host")

    async def _render_message(self, child: LoadedAgent, wanted: str) -> str:
        run = await self.queries.run(child, wanted)
        text = await self._result_text(child, run)
        if len(text) > _MAX_RESULT_LENGTH:
            text = f"{text[:_MAX_RESULT_LENGTH]}\n[{len(text)} characters; read the whole with `get_agent_session_result`]"
        return _render_block(child, run.number, run.state, run.reason, text)

    async def _result_text(self, child: LoadedAgent, run: Run) -> str:
        try:
            return (await self.queries.result(child, run.id)).text
        except AgentError as error:
            partial = getattr(error, "partial", "")
            return f"{error.sentence}\n{partial}".rstrip()


def _render_block(child: LoadedAgent, run: int, state: str, reason: str, text: str) -> str:
    """The message to the parent, in a tagged block that distinguishes it from a message of a person."""
    why = f' reason="{reason}"' if reason else ""
    about = f'session="{child.session.name}" id="{child.id}" run="{run}" state="{state}"{why}'
    return f"<{_BLOCK} {about}>\n{_escape_end_tag(text)}\n</{_BLOCK}>"


def _decide_receipt(parent: LoadedAgent, text: StoredText, origin: dict[str, str]) -> AgentDecision:
    """Resume a finished parent with the message; an active or stopped parent gets it with its next run."""
    state = parent.record.run.state
    if is_active(state) or state == "stopped":
        return draft_message(parent, text, origin)
    return AgentDecision(None, events=draft_next_run(parent, prompt=text), blobs=text.blobs)


def _escape_end_tag(text: str) -> str:
    """Escape the end tag in the text of a child, so that it cannot end the block."""
    return text.replace(f"</{_BLOCK}", f"<\\/{_BLOCK}")
