"""Puts a request of the inbox to the person at a client: the port `CallContext.ask` of the toolkit."""

from __future__ import annotations

from contextlib import suppress

from fidelio.errors import RequestClosed
from fidelio.inbox import PROVEN, Inbox
from fidelio.ledger import Ledger
from fidelio.ledger.audit import check_request
from fidelio.settings import Settings
from fidelio.toolkit import AnswerOption, AskPerson


async def ask_person(ledger: Ledger, settings: Settings, request_id: str) -> AskPerson:
    """The question of an open request, and how its answer is recorded."""
    inbox = Inbox(ledger)
    # The stored request has the variables filled in, so every channel shows the same question.
    request = await ledger.request(request_id)
    await check_request(ledger, request)

    async def record_answer(option: str, who: str) -> None:
        # Another channel may have answered a moment earlier. That answer counts, and the call continues with it.
        with suppress(RequestClosed):
            await inbox.answer(request_id, option, by=f"person:{who}", channel="elicited")

    async def wait_until_closed() -> None:
        await inbox.wait_until_closed(request_id)

    options = tuple(AnswerOption(option["id"], option["label"], option["description"]) for option in request.options)
    return AskPerson(
        request_id,
        request.question,
        options,
        record_answer,
        wait_until_answered=wait_until_closed,
        session=request.session,
        min_response_ms=settings.min_response_ms,
        needs_proof=request.detail.get("answered_by") == PROVEN,
    )
