"""Everything that waits for a person, in one place: opened, answered once, by somebody recorded, over a recorded channel.

The inbox knows nothing of what a question is about. It closes the request and appends `request.answered` in one transaction;
whoever asked finds the answer in the record of its session.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fidelio.clock import Clock, now_ms
from fidelio.errors import RequestClosed, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CloseRequest, Json, NewEvent, OpenRequest, Page, Request, RequestState
from fidelio.processes.table import agent_above

WAIT_SECONDS = 30.0
LONGEST_TEXT = 20_000
# How sure the record can be that a person answered. `local` is tamper-evident, not tamper-proof: it is the same OS user. What
# comes over the programming interface was sent by a program; whether a person stood behind it, nobody knows.
_ASSURANCE = {
    "relayed": "relayed",
    "elicited": "elicited",
    "cli": "local",
    "page": "local",
    "api": "relayed",
    "timer": "timer",
}
_NO_OPTION: Json = {"id": ""}


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

    async def answer(self, request: str, option: str = "", *, text: str = "", by: str, channel: str) -> Answered:
        """Gives the one answer: an option, with or without a comment, or a text where the request has no options.

        The same answer again is fine, a different one is refused.
        """
        found = await self._ledger.request(request)
        chosen = _option(found, option) if found.options else _NO_OPTION
        if found.state != "open":
            return _repeated(found, option, text)
        _check_text(found, option, text)
        try:
            await self._ledger.commit(self._closing(found, chosen, text, by, channel))
        except RequestClosed:
            # Somebody answered between our look and our write: their answer decides.
            return _repeated(await self._ledger.request(request), option, text)
        return Answered(await self._ledger.request(request), repeated=False)

    async def closed(self, request: str) -> Request:
        """Waits until the request is no longer open, whichever process answers it."""
        position = await self._ledger.wait(after=0, timeout=0)
        while (found := await self._ledger.request(request)).state == "open":
            position = await self._ledger.wait(after=position, timeout=WAIT_SECONDS)
        return found

    async def follow(self, *, session: str | None = None) -> AsyncIterator[Request]:
        """What waits now; then, without end, every request again when something has happened to it."""
        position = await self._ledger.wait(after=0, timeout=0)
        waiting: set[str] = set()
        while True:
            async for request in self._every(session):
                waiting.add(request.id)
                yield request
            for name in list(waiting):
                request = await self._ledger.request(name)
                if request.state != "open":
                    waiting.discard(name)
                    yield request
            position = await self._ledger.wait(after=position, timeout=WAIT_SECONDS)

    async def _every(self, session: str | None) -> AsyncIterator[Request]:
        cursor: str | None = None
        while True:
            page = await self._ledger.requests(session=session, cursor=cursor)
            for request in page.items:
                yield request
            if (cursor := page.next) is None:
                return

    def _closing(self, request: Request, option: Json, text: str, by: str, channel: str) -> Change:
        assurance = assurance_of(channel)
        answer = {"option": option["id"], **({"text": text} if text else {})}
        body = {
            "request": request.id,
            "key": request.key,
            **answer,
            "effect": option.get("effect") or {},
            "by": by,
            "channel": channel,
            "assurance": assurance,
            "after_ms": max(0, self._clock() - request.opened_at),
        }
        close = CloseRequest(id=request.id, answer=answer, by=by, channel=channel, assurance=assurance)
        event = NewEvent(type="request.answered", body=body, actor=by)
        return Change(session=request.session, events=(event,), requests=(close,))


def assurance_of(channel: str) -> str:
    return _ASSURANCE[channel]


def new_request(kind: str, key: str, question: str, options: tuple[Json, ...], detail: Json) -> OpenRequest:
    return OpenRequest(id=new_id("r_"), kind=kind, key=key, question=question, options=options, detail=detail)


def this_person() -> str:
    """The name of the user at this terminal; refuses to speak for a person from below an agent that Fidelio started."""
    if agent_above():
        raise UsageProblem(
            "This process runs below an agent, and an agent does not answer for a person.",
            remedy="Answer from a terminal of your own.",
        )
    return f"person:{_user()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user whom the system does not know by name; older Pythons raise the first, newer the second.
        return f"uid-{os.getuid()}"


def _check_text(request: Request, option: str, text: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise UsageProblem(f"The text has {len(text)} characters.", remedy=f"Use up to {LONGEST_TEXT}.")
    if request.options:
        return
    if option:
        raise UsageProblem(f"Request {request.id} has no options.", remedy="Answer it with a text.")
    if not text.strip():
        raise UsageProblem(f"Request {request.id} asks for a text, and this one is empty.", remedy="Write what to say.")


def _option(request: Request, option: str) -> dict[str, Any]:
    chosen = next((known for known in request.options if known["id"] == option), None)
    if chosen is None:
        known = ", ".join(known["id"] for known in request.options)
        raise UsageProblem(f"Request {request.id} has no option {option!r}.", remedy=f"The options are: {known}.")
    return chosen


def _repeated(request: Request, option: str, text: str) -> Answered:
    given = request.answer
    if request.state == "answered" and given.get("option") == option and _is_same(option, text, given.get("text", "")):
        return Answered(request, repeated=True)
    raise RequestClosed(request.id, request.state)


def _is_same(option: str, text: str, given: str) -> bool:
    """The comment on an option need not be repeated with it; a text that is the answer must."""
    return text == given or (option != "" and text == "")
