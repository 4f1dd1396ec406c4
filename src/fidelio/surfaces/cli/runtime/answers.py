"""What a session waits for, and a person's answer to it: approvals, results of custom tools, and other requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import msgspec

from fidelio.app.application import Application
from fidelio.errors import Command, Hint, RequestClosed, UsageProblem
from fidelio.inbox import APPROVAL
from fidelio.ledger.model import Request
from fidelio.runtime.service import RuntimeService
from fidelio.surfaces.text import Layout, quote_name

CUSTOM_TOOL = "custom_tool"
_LISTED = 200


class Answer(msgspec.Struct, frozen=True):
    """What a person has typed, read for a request. `kind` later: it stays open."""

    kind: Literal["allow", "deny", "text", "later"]
    text: str = ""


def read_answer(request: Request, line: str) -> Answer:
    """Read a line as the answer to a request. Anything but a yes to an approval is a no, with the line as its comment."""
    text = line.strip()
    if not text:
        return Answer("later")
    if request.kind != APPROVAL:
        is_number = text.isascii() and text.isdigit() and 1 <= int(text) <= len(request.options)
        return Answer("text", str(request.options[int(text) - 1]["id"]) if is_number else text)
    if text.casefold() in ("y", "yes"):
        return Answer("allow")
    return Answer("deny", "" if text.casefold() in ("n", "no") else text)


def describe_request(request: Request, layout: Layout, session: str) -> Iterator[str]:
    """The lines that ask a person who answers with a line: the whole question, and what to type."""
    yield from describe_question(request, layout, session)
    if request.kind == APPROVAL:
        yield from layout.wrap_line("y allows it, n denies it, other text denies it with a comment. Empty: later.")
    elif request.options:
        numbered = (f"{number} {quote_name(option['id'])}" for number, option in enumerate(request.options, 1))
        yield from layout.wrap_line(f"Type a number or a name: {', '.join(numbered)}. Empty: later.")
    else:
        yield from layout.wrap_line("Type the answer. Empty: later.")


def describe_question(request: Request, layout: Layout, session: str) -> Iterator[str]:
    """The lines of the whole question."""
    child = "" if request.session == session else f" (session {request.session}, to which it has delegated)"
    yield from layout.wrap_line(f"? It waits for you{child}:")
    yield from layout.quote_text(request.question, max_lines=None)
    if arguments := request.detail.get("arguments") if request.kind == CUSTOM_TOOL else None:
        yield from layout.quote_text(msgspec.json.encode(arguments).decode(), max_lines=None)


class Answers:
    """The requests of a session and of those that it has delegated to."""

    def __init__(self, app: Application, service: RuntimeService, session: str, person: str) -> None:
        self._app, self._service, self._session, self._person = app, service, session, person

    async def list_open(self) -> list[Request]:
        """The open requests, oldest first."""
        inbox = await self._app.inbox()
        page = await inbox.list_requests(limit=_LISTED)
        found = [request for request in page.items if self._session in (request.session, request.detail.get("root"))]
        # A request whose row differs from its event is not asked: `fidelio inbox` says why.
        return [request for request in found if not await inbox.find_mismatch(request)]

    async def find(self, name: str | None) -> Request:
        """The open request with this id, or of this call; without a name the only request."""
        found = [request for request in await self.list_open() if name in (None, request.id, request.detail.get("tool_use_id"))]
        if len(found) == 1:
            return found[0]
        if not found:
            which = f"the request or call {name!r:.80}" if name else "anything"
            raise UsageProblem(
                f"Session {self._session} does not wait for {which}.",
                remedy=Hint(Command("runtime", "status", self._session), " shows what it waits for."),
            )
        names = ", ".join(request.id for request in found)
        raise UsageProblem(f"Session {self._session} waits for {len(found)} answers.", remedy=f"Name one of: {names}.")

    async def submit(self, request: Request, answer: Answer) -> tuple[str, ...]:
        """Submit an answer; returns the ids of the events that it is. An answer that came too late is not an error here."""
        if answer.kind == "later":
            return ()
        # If somebody else has answered, or it has expired, the session shows which.
        with suppress(RequestClosed):
            return await self._submit(request, answer)
        return ()

    async def choose(self, request: Request, option: str, text: str) -> tuple[str, ...]:
        """Submit what was chosen in a menu. Raises `RequestClosed` if it came too late."""
        if request.kind == APPROVAL:
            return await self._submit(request, Answer("allow" if option == "allow" else "deny", text))
        if request.kind == CUSTOM_TOOL:
            return await self._submit(request, Answer("text", text or option))
        inbox = await self._app.inbox()
        await inbox.answer(request.id, option, text=text, by=self._person, channel="cli")
        return ()

    async def _submit(self, request: Request, answer: Answer) -> tuple[str, ...]:
        call = request.detail.get("tool_use_id")
        if request.kind == APPROVAL and call:
            return await self._send(request, {**_confirm(str(call), answer)})
        if request.kind == CUSTOM_TOOL and call:
            content = [{"type": "text", "text": answer.text}]
            body = {"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": content}
            return await self._send(request, body)
        await self._answer(request, answer)
        return ()

    async def _send(self, request: Request, event: dict[str, Any]) -> tuple[str, ...]:
        sent = await self._service.send(request.session, [event], by=self._person, channel="cli")
        return tuple(event.id for event in sent)

    async def _answer(self, request: Request, answer: Answer) -> None:
        """Answer any other request: with an option and a comment, or with a text."""
        inbox = await self._app.inbox()
        if answer.kind in ("allow", "deny"):
            await inbox.answer(request.id, answer.kind, text=answer.text, by=self._person, channel="cli")
            return
        option = answer.text if request.options else ""
        text = "" if request.options else answer.text
        await inbox.answer(request.id, option, text=text, by=self._person, channel="cli")


def _confirm(call: str, answer: Answer) -> dict[str, Any]:
    comment = {"deny_message": answer.text} if answer.kind == "deny" and answer.text else {}
    return {"type": "user.tool_confirmation", "tool_use_id": call, "result": answer.kind, **comment}
