"""The inbox: lists and answers requests, waits for answers, and identifies the person at a terminal.

The inbox knows nothing of what a request is about. It closes the request and appends `request.answered` in one transaction;
the package that opened the request finds the answer in the record of its session.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import Command, Hint, PersonNeeded, RecordMismatch, RequestClosed, UsageProblem
from fidelio.inbox.builders import APPROVAL, PROVEN, ClosedRequest, answer_request, assurance_of, needs_person, needs_signature
from fidelio.ledger import Ledger
from fidelio.ledger.audit import check_request
from fidelio.ledger.model import Change, Event, Json, NewEvent, NewJob, Page, Request, RequestState
from fidelio.ledger.paging import all_pages
from fidelio.processes.caller import identify_process

WAIT_SECONDS = 30.0
LONGEST_TEXT = 20_000
# Characters of a question that a form shows as a whole, with some room for escapes.
LONGEST_IN_FORM = 2_000
CheckProof: TypeAlias = Callable[[Request, str, str, Json], Awaitable[Json]]
_NO_OPTION: Json = {"id": ""}


class AnsweredRequest(msgspec.Struct, frozen=True):
    """A request with its answer. `repeated`: the same answer was already recorded. `events` are those that it appended."""

    request: Request
    repeated: bool
    events: tuple[Event, ...] = ()


class PreparedAnswer(msgspec.Struct, frozen=True):
    """A checked answer, which another package commits in its own unit of work. Its commit fails if the request is closed."""

    event: NewEvent
    close: ClosedRequest
    jobs: tuple[NewJob, ...] = ()


class _AnswerDraft(msgspec.Struct, frozen=True):
    """An answer before it is checked. `assurance`: how sure it is who gave it, without a proof."""

    option: str
    text: str
    by: str
    channel: str
    assurance: str
    proof: Json | None = None


class Inbox:
    """Lists, answers and follows requests."""

    def __init__(self, ledger: Ledger, *, clock: Clock = now_ms, check_proof: CheckProof | None = None) -> None:
        """`check_proof` is a port: it checks the signature of an answer and returns what the record keeps of it."""
        self._ledger = ledger
        self._clock = clock
        self._check_proof = check_proof

    async def list_requests(
        self, *, session: str | None = None, state: RequestState | None = "open", cursor: str | None = None, limit: int = 50
    ) -> Page[Request]:
        """Read a page of requests, of a session or of all; `state` None selects all states."""
        return await self._ledger.requests(session=session, state=state, cursor=cursor, limit=limit)

    async def count_requests(self, *, state: RequestState | None = "open") -> int:
        """How many requests `list_requests` has in all of its pages."""
        return await self._ledger.count_requests(state=state)

    def iterate(self, *, session: str | None = None, state: RequestState | None = "open") -> AsyncIterator[Request]:
        """Iterate over all requests, oldest first."""
        return all_pages(partial(self._ledger.requests, session=session, state=state))

    async def find(self, request: str) -> Request:
        """The request with this id; raises `RequestNotFound`."""
        return await self._ledger.request(request)

    async def find_mismatch(self, request: Request) -> str:
        """Say how a request differs from its event; empty if it does not."""
        try:
            await check_request(self._ledger, request)
        except RecordMismatch as error:
            return error.sentence
        return ""

    async def answer(
        self,
        request: str,
        option: str = "",
        *,
        text: str = "",
        by: str,
        channel: str,
        events: tuple[NewEvent, ...] = (),
        proof: Json | None = None,
        is_seen: bool = True,
    ) -> AnsweredRequest:
        """Answer a request: with an option and an optional comment, or with a text if the request has no options.

        Repeating the same answer succeeds; a different answer is refused. `events` are appended together with the answer.
        `proof` is a signature over this answer; a request that demands one takes no answer without. `is_seen`: the program
        that sent the answer was looked at and is no agent; else the answer counts as relayed, unless it is signed.
        """
        found = await self._ledger.request(request)
        if found.state != "open":
            await self._choose(found, option)
            return _confirm_repeated(found, option, text)
        draft = _AnswerDraft(option, text, by, channel, assurance_of(channel, is_seen=is_seen), proof)
        prepared = await self._prepare(found, draft)
        change = Change(session=found.session, events=(prepared.event, *events), requests=(prepared.close,), jobs=prepared.jobs)
        try:
            (done,) = await self._ledger.commit(change)
        except RequestClosed:
            # Another process answered between the read and the commit: its answer counts.
            return _confirm_repeated(await self._ledger.request(request), option, text)
        return AnsweredRequest(await self._ledger.request(request), repeated=False, events=done.events)

    async def prepare_answer(self, request: str, option: str, *, text: str = "", by: str, channel: str) -> PreparedAnswer:
        """Check an answer like `answer`, for a caller that commits it with other changes. Raises what `answer` would raise."""
        found = await self._ledger.request(request)
        if found.state != "open":
            raise _closed_error(found)
        return await self._prepare(found, _AnswerDraft(option, text, by, channel, assurance_of(channel)))

    async def wait_until_closed(self, request: str) -> Request:
        """Wait until the request is no longer open; any process may close it."""
        position = await self._ledger.wait(after=0, timeout=0)
        while (found := await self._ledger.request(request)).state == "open":
            position = await self._ledger.wait(after=position, timeout=WAIT_SECONDS)
        return found

    async def follow(self, *, session: str | None = None) -> AsyncIterator[Request]:
        """Yield the open requests; after every change in the ledger, yield the open and the newly closed ones again."""
        position = await self._ledger.wait(after=0, timeout=0)
        waiting: set[str] = set()
        while True:
            async for request in all_pages(partial(self._ledger.requests, session=session)):
                waiting.add(request.id)
                yield request
            for name in list(waiting):
                request = await self._ledger.request(name)
                if request.state != "open":
                    waiting.discard(name)
                    yield request
            position = await self._ledger.wait(after=position, timeout=WAIT_SECONDS)

    async def _prove(self, request: Request, draft: _AnswerDraft) -> Json | None:
        """The checked proof of an answer; None without a proof, if none is demanded."""
        if draft.proof is not None and self._check_proof is not None:
            return await self._check_proof(request, draft.option, draft.text, draft.proof)
        if needs_signature(request, draft.option, draft.channel, draft.assurance):
            refusals = ", ".join(request.detail.get("unsigned_options", ()))
            without = f" A person may choose {refusals} without a key." if refusals else ""
            raise PersonNeeded(
                f"Request {request.id} is answered with a registered key, and this answer is not signed.",
                remedy=Hint("Answer it on the web page: ", Command("open"), f" prints a link.{without}"),
                request=request.id,
            )
        return None

    def _check_time(self, request: Request) -> None:
        if request.expires_at is not None and self._clock() >= request.expires_at:
            raise RequestClosed(request.id, "expired")

    async def _prepare(self, request: Request, draft: _AnswerDraft) -> PreparedAnswer:
        chosen = await self._choose(request, draft.option)
        self._check_time(request)
        _check_text(request, draft.option, draft.text)
        proof = await self._prove(request, draft)
        if proof is None:
            _check_person(request, draft)
        return self._build_answer(request, chosen, draft, proof)

    async def _choose(self, request: Request, option: str) -> Json:
        # The effect of an option is taken from its row: whoever can change the row would decide what the answer does.
        await check_request(self._ledger, request)
        return _find_option(request, option) if request.options else _NO_OPTION

    def _build_answer(self, request: Request, option: Json, draft: _AnswerDraft, proof: Json | None) -> PreparedAnswer:
        answer = {"option": option["id"], **({"text": draft.text} if draft.text else {})}
        assurance = draft.assurance if proof is None else PROVEN
        body = {
            "request": request.id,
            "key": request.key,
            **answer,
            "effect": option.get("effect") or {},
            "by": draft.by,
            "channel": draft.channel,
            "assurance": assurance,
            "after_ms": max(0, self._clock() - request.opened_at),
            **({"proof": proof} if proof is not None else {}),
        }
        close = answer_request(request.id, answer, by=draft.by, channel=draft.channel, assurance=assurance)
        # A session that sleeps until the answer is woken by a job, in the same transaction.
        kind = request.detail.get("job")
        jobs = (NewJob(kind=kind, session=request.session, key="wake"),) if kind else ()
        return PreparedAnswer(NewEvent(type="request.answered", body=body, actor=draft.by), close, jobs)


def _check_person(request: Request, draft: _AnswerDraft) -> None:
    """Refuse an unsigned answer that is relayed where only a person's counts. Checkpoints have rules of their own for tools."""
    choice = ("allow",) if request.kind == APPROVAL else ()
    if draft.assurance in ("relayed", "timer") and needs_person(request):
        raise PersonNeeded(
            f"Only a person may answer request {request.id}, and it is not known that a person gave this answer.",
            remedy=Hint(
                "On the machine of the server a person answers with ",
                Command("answer", request.id, *choice),
                "; from elsewhere on the web page, signed with a passkey.",
            ),
            request=request.id,
        )
    if request.kind == APPROVAL and draft.channel == "elicited" and len(request.question) > LONGEST_IN_FORM:
        raise PersonNeeded(
            f"Request {request.id} is too long to be shown as a whole in a form, so it is not answered there.",
            remedy=Hint("A person answers with ", Command("answer", request.id, "allow"), "."),
            request=request.id,
        )


def _check_text(request: Request, option: str, text: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise UsageProblem(f"The text has {len(text)} characters.", remedy=f"Use up to {LONGEST_TEXT}.")
    if request.options:
        return
    if option:
        raise UsageProblem(f"Request {request.id} has no options.", remedy="Answer it with a text.")
    if not text.strip():
        raise UsageProblem(f"Request {request.id} asks for a text. The text is empty.", remedy="Write what to say.")


def _find_option(request: Request, option: str) -> dict[str, Any]:
    found = next((known for known in request.options if known["id"] == option), None)
    if found is None:
        known = ", ".join(known["id"] for known in request.options)
        problem = f"has no option {option!r}" if option else "needs an option, and a text alone is none"
        raise UsageProblem(f"Request {request.id} {problem}.", remedy=f"The options are: {known}.")
    return found


def _confirm_repeated(request: Request, option: str, text: str) -> AnsweredRequest:
    recorded = request.answer
    is_same = recorded.get("option") == option and _is_same_text(option, text, recorded.get("text", ""))
    if request.state == "answered" and is_same:
        return AnsweredRequest(request, repeated=True)
    raise _closed_error(request)


def _closed_error(request: Request) -> RequestClosed:
    """The error for an answer that is too late. It says which answer counts."""
    if request.state != "answered":
        return RequestClosed(request.id, request.state)
    option = request.answer.get("option")
    return RequestClosed(request.id, request.state, f"with {option or 'a text'} by {request.answered_by}")


def _is_same_text(option: str, text: str, recorded: str) -> bool:
    """Compare the texts of two answers. The comment on an option may be omitted when the answer is repeated."""
    return text == recorded or (option != "" and text == "")


def require_person() -> str:
    """Return the name of the user of this process; refuse if the process runs below an agent that Fidelio started."""
    if identify_process().is_agent:
        raise UsageProblem(
            "This process runs below an agent, and only a person may do this.",
            remedy="Give the command in a terminal of your own.",
        )
    return f"person:{_user_name()}"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user without a name; older Python versions raise KeyError then, newer ones OSError.
        return f"uid-{os.getuid()}"
