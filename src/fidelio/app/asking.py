"""Puts a request of the inbox to a person: at a client, through the port `CallContext.ask`, or by the address of its page."""

from __future__ import annotations

import re
from contextlib import suppress

from fidelio.errors import RequestClosed
from fidelio.home import Home
from fidelio.inbox import PROVEN, Inbox
from fidelio.ledger import Ledger
from fidelio.ledger.audit import check_request
from fidelio.settings import Settings
from fidelio.toolkit import AnswerOption, AskPerson

_ADDRESS = re.compile(r"http://[A-Za-z0-9.:\[\]-]{1,300}")


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


def note_address(home: Home, address: str) -> None:
    """Remember where the page is served, for `fidelio open`. The newest server counts."""
    home.ensure().http_address.write_text(f"{address}\n", "ascii")


def read_address(home: Home) -> str:
    """Where the page of a home was served last; empty if it never was, or the file holds something else."""
    try:
        address = home.http_address.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return address if _ADDRESS.fullmatch(address) else ""


def question_url(settings: Settings, request: str) -> str:
    """The address of the page of a request; empty if the page was never served. It lets nobody in: it leads to signing in."""
    base = settings.public_url or read_address(settings.home)
    return f"{base}/inbox/{request}".rstrip("/") if base else ""
