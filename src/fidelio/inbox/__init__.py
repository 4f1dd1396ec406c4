"""Everything that waits for a person, in one place: opened, answered once, by somebody recorded, over a recorded channel.

The inbox knows nothing of what a question is about. It closes the request and appends `request.answered` in one transaction;
whoever asked finds the answer in the record of its session.
"""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import Any

from fidelio.clock import Clock, now_ms
from fidelio.errors import RequestClosed, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CloseRequest, Json, NewEvent, OpenRequest, Page, Request, RequestState

# Fidelio sets this for the agents it starts; a process below one of them must not play the person.
AGENT_MARKER = "FIDELIO_AGENT"
_ASSURANCE = {"relayed": "relayed", "elicited": "elicited", "cli": "local", "page": "local", "timer": "timer"}


@dataclass(frozen=True, slots=True)
class Answered:
    """A request with its answer. `repeated` when the same answer had been given before."""

    request: Request
    repeated: bool


class Inbox:
    """The only code that opens and answers requests."""

    def __init__(self, ledger: Ledger, *, clock: Clock = now_ms) -> None:
        self._ledger = ledger
        self._clock = clock

    async def waiting(
        self, *, session: str | None = None, state: RequestState | None = "open", cursor: str | None = None, limit: int = 50
    ) -> Page[Request]:
        return await self._ledger.requests(session=session, state=state, cursor=cursor, limit=limit)

    async def answer(self, request: str, option: str, *, by: str, channel: str) -> Answered:
        """Gives the one answer. The same answer again is fine, a different one is refused."""
        found = await self._ledger.request(request)
        chosen = _option(found, option)
        if found.state != "open":
            return _repeated(found, option)
        try:
            await self._ledger.commit(self._closing(found, chosen, by, channel))
        except RequestClosed:
            # Somebody answered between our look and our write: their answer decides.
            return _repeated(await self._ledger.request(request), option)
        return Answered(await self._ledger.request(request), repeated=False)

    def _closing(self, request: Request, option: Json, by: str, channel: str) -> Change:
        assurance = _ASSURANCE[channel]
        body = {
            "request": request.id,
            "key": request.key,
            "option": option["id"],
            "effect": option.get("effect") or {},
            "by": by,
            "channel": channel,
            "assurance": assurance,
            "after_ms": max(0, self._clock() - request.opened_at),
        }
        close = CloseRequest(id=request.id, answer={"option": option["id"]}, by=by, channel=channel, assurance=assurance)
        event = NewEvent(type="request.answered", body=body, actor=by)
        return Change(session=request.session, events=(event,), requests=(close,))


def new_request(kind: str, key: str, question: str, options: tuple[Json, ...], detail: Json) -> OpenRequest:
    return OpenRequest(id=new_id("r_"), kind=kind, key=key, question=question, options=options, detail=detail)


def this_person() -> str:
    """The name of the user at this terminal; refuses to speak for a person from below an agent that Fidelio started."""
    if os.environ.get(AGENT_MARKER):
        raise UsageProblem(
            "This process runs below an agent, and an agent does not answer for a person.",
            remedy="Answer from a terminal of your own.",
        )
    return f"person:{getpass.getuser()}"


def _option(request: Request, option: str) -> dict[str, Any]:
    chosen = next((known for known in request.options if known["id"] == option), None)
    if chosen is None:
        known = ", ".join(known["id"] for known in request.options)
        raise UsageProblem(f"Request {request.id} has no option {option!r}.", remedy=f"The options are: {known}.")
    return chosen


def _repeated(request: Request, option: str) -> Answered:
    if request.state == "answered" and request.answer.get("option") == option:
        return Answered(request, repeated=True)
    raise RequestClosed(request.id, request.state)
