"""Tells a parent session that a child has ended, once, however often anything crashes on the way.

The end of the child's run makes the delivery due in its own transaction. Delivering writes the message to the parent and the
end of the job in one more. So the word is neither lost nor said twice.
"""

from __future__ import annotations

import msgspec

from fidelio.errors import AgentError, SessionNotFound
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Change, Done, NewEvent
from fidelio.orchestrator.desk import Decision, Opened
from fidelio.orchestrator.model import Run
from fidelio.orchestrator.parts import Parts
from fidelio.orchestrator.queries import Queries
from fidelio.orchestrator.record import CALLED_BACK
from fidelio.orchestrator.rules import is_active
from fidelio.orchestrator.starting import message
from fidelio.orchestrator.texts import Kept, keep
from fidelio.orchestrator.turns import next_run

_BLOCK = "agent-session-ended"
_RESULT_LENGTH = 8_000


class Callbacks(msgspec.Struct, frozen=True):
    """The handler of callback jobs."""

    parts: Parts
    queries: Queries

    async def deliver(self, work: Assignment) -> None:
        run = str(work.lease.payload["run"])
        try:
            child = await self.parts.desk.open(work.lease.session)
            parent = await self.parts.desk.open(child.record.parent)
        except SessionNotFound:
            # Deleted meanwhile: there is nothing to tell, or nobody to tell it to.
            return
        text = keep(await self._words(child, run))
        event = NewEvent(type=CALLED_BACK, body={"run": run, "parent": parent.id}, actor="host")
        told = Change(session=child.id, events=(event,), lease=work.lease, settle=Done())

        def decide(now: Opened) -> Decision:
            decision = _received(now, text, {"from": child.id, "run": run})
            return msgspec.structs.replace(decision, beside=(told,))

        await self.parts.desk.write(parent, decide, actor="host")
        work.settled = True

    async def _words(self, child: Opened, wanted: str) -> str:
        """The message to the parent, in a block that no agent mistakes for a person who talks to it."""
        run = await self.queries.run(child, wanted)
        text = await self._result(child, run)
        if len(text) > _RESULT_LENGTH:
            text = f"{text[:_RESULT_LENGTH]}\n[{len(text)} characters; read the whole with `get_agent_session_result`]"
        reason = f' reason="{run.reason}"' if run.reason else ""
        about = f'session="{child.session.name}" id="{child.id}" run="{run.number}" state="{run.state}"{reason}'
        return f"<{_BLOCK} {about}>\n{_inside(text)}\n</{_BLOCK}>"

    async def _result(self, child: Opened, run: Run) -> str:
        try:
            return (await self.queries.result(child, run.id)).text
        except AgentError as error:
            partial = getattr(error, "partial", "")
            return f"{error.sentence}\n{partial}".rstrip()


def _received(parent: Opened, text: Kept, origin: dict[str, str]) -> Decision:
    """A parent at rest goes on with it; one at work, or one that somebody has stopped, has it in its next turn."""
    state = parent.record.run.state
    if is_active(state) or state == "stopped":
        return message(parent, text, origin)
    return Decision(drafts=next_run(parent, prompt=text), blobs=text.blobs)


def _inside(text: str) -> str:
    """The words of a child, which cannot end the block they stand in."""
    return text.replace(f"</{_BLOCK}", f"<\\/{_BLOCK}")
