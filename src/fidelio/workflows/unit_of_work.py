"""The one way a call on a session is carried out.

Open the session from its token, bring its record up to date, ask a rule for a decision, and append in one transaction what was
decided, together with the fact that the call was made. When somebody else appended in between, the decision is made again on
the newer record. A refusal leaves one event and nothing else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fidelio.clock import Clock
from fidelio.definitions.library import Library
from fidelio.engine.record import CALLED, EventDraft, Fidelity, Record, decode_record, fold, fold_drafts
from fidelio.errors import BadToken, FidelioError, LedgerBusy, PersonNeeded, SequenceConflict, SessionNotFound
from fidelio.ids import is_short_handle
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CloseRequest, Event, NewEvent, NewSession, OpenRequest, Session
from fidelio.ledger.paging import event_pages
from fidelio.ledger.projection import DELETED, was_deleted
from fidelio.locks import Turns
from fidelio.workflows.tokens import About, Claims, SessionTokens, StateClaims

T = TypeVar("T")
# Other processes may be at work on the same session. Somebody always wins; whoever loses again and again steps aside for a
# moment, a longer one each time, and gives up when that has gone on for a second or two.
ATTEMPTS = 64
PATIENT_FROM = 4
# A refusal changes nothing but the record of calls, so after this many conflicts it is appended without the folded record.
REFUSAL_ATTEMPTS = 4
# As many sessions as agents of one server work on at once; more would only cost memory.
MOST_RECENT = 64


class Opened(msgspec.Struct, frozen=True):
    """A session as a call finds it."""

    session: Session
    record: Record
    claims: Claims
    agent: str


class Decision(msgspec.Struct, Generic[T], frozen=True):
    """What a rule decided: what to write, what to warn of, and what to tell the caller.

    `closes`: the call ends a stretch of the session that a trace token commits to. `about`: the question that the token of the
    reply stands for. `unfinished`: the call goes on with another decision, and that one is put on record as the call.
    """

    result: T
    events: tuple[NewEvent, ...] = ()
    requests: tuple[OpenRequest | CloseRequest, ...] = ()
    blobs: tuple[bytes, ...] = ()
    warnings: tuple[str, ...] = ()
    create: NewSession | None = None
    beside: tuple[Beside, ...] = ()
    closes: bool = False
    about: About | None = None
    unfinished: bool = False


class Beside(msgspec.Struct, frozen=True):
    """What the same transaction records in another session, such as the parent; `create` where that begins with it."""

    session: str
    events: tuple[NewEvent, ...]
    before: Record
    create: NewSession | None = None
    requests: tuple[OpenRequest | CloseRequest, ...] = ()
    blobs: tuple[bytes, ...] = ()


class Outcome(msgspec.Struct, Generic[T], frozen=True):
    """A decision that is durable now."""

    result: T
    session: str
    record: Record
    agent: str
    token: str
    warnings: tuple[str, ...]
    events: tuple[Event, ...]


def _completed(beside: Beside, moment: int) -> Change:
    after = fold_drafts(beside.before, beside.events, moment)
    return Change(
        session=beside.session,
        expect=beside.before.seq,
        create=beside.create,
        events=beside.events,
        time=moment,
        status=after.status,
        record=after,
        requests=beside.requests,
        blobs=beside.blobs,
    )


def written(drafts: Iterable[EventDraft], actor: str) -> tuple[NewEvent, ...]:
    """What the rules decided on, as events of whoever acts."""
    return tuple(NewEvent(type=draft.type, body=draft.body, actor=actor) for draft in drafts)


async def step_aside(losses: int) -> None:
    """Before a decision is made again, because somebody else was first that many times."""
    if losses >= PATIENT_FROM:
        await asyncio.sleep(random.uniform(0, losses / 1000))  # noqa: S311  # fairness, not secrecy


def outrun() -> LedgerBusy:
    return LedgerBusy("Too many others are at work on this session.", remedy="Nothing was changed by this call: make it again.")


class HouseRules(msgspec.Struct, frozen=True):
    """What whoever runs the server has decided for all its sessions.

    `chosen_place`: where definitions are looked for was chosen for the session that is led, so what is not there is gone.
    """

    fidelity: Fidelity = "advise"
    answered_by_person: bool = False
    min_response_ms: int = 3000
    adoption: bool = True
    handles: bool = True
    moves: bool = True
    chosen_place: bool = False

    @property
    def asks_person(self) -> bool:
        """Whether what is asked here may be answered by nobody but a person, wherever that is.

        A worker may not answer itself either, but whoever gave it the activity may.
        """
        return self.answered_by_person and self.moves


class Desk(msgspec.Struct, frozen=True):
    """What every call needs."""

    ledger: Ledger
    library: Library
    tokens: SessionTokens
    clock: Clock
    rules: HouseRules = HouseRules()
    recent: dict[str, tuple[Session, Record]] = msgspec.field(default_factory=dict)
    turns: Turns = msgspec.field(default_factory=Turns)

    def claims(self, token: str) -> Claims:
        """What a genuine token says. A short handle only names its session, which is enough where the caller is known."""
        if not self.rules.handles and is_short_handle(token):
            raise BadToken("A short handle opens nothing here.", remedy="Pass the session_token that was returned last.")
        return self.tokens.open(token)

    def fidelity(self, record: Record) -> Fidelity:
        """How strictly a session is led here: a server that enforces does so whoever has started the session."""
        return "enforce" if "enforce" in (self.rules.fidelity, record.fidelity) else "advise"

    async def open(self, token: str) -> Opened:
        return await self.open_claims(self.claims(token))

    async def open_claims(self, claims: Claims, *, agent: str | None = None) -> Opened:
        """`agent` is who calls, where that is not who the token was made for."""
        session = await self._session(claims)
        if session.kind != "workflow":
            raise SessionNotFound(f"Session {claims.sid} is not a workflow session.", remedy="Use a token of start_session.")
        return Opened(session, await self.caught_up(session), claims, agent or claims.aid)

    async def _session(self, claims: Claims) -> Session:
        try:
            return await self.ledger.session(claims.sid)
        except SessionNotFound:
            if not isinstance(claims, StateClaims):
                raise
        from fidelio.workflows.restore import restore  # noqa: PLC0415  # few sessions come from another server

        return await restore(self, claims)

    async def caught_up(self, session: Session) -> Record:
        """The stored record with the events of other rooms folded in, such as an answer from the command line."""
        if session.status == DELETED:
            raise was_deleted(session.id)
        record = decode_record(session.raw)
        if session.last_seq == record.seq:
            return record
        # A record that ends at the first page is behind for good: each commit would expect a sequence number of the past.
        async for page in event_pages(self.ledger, session.id, after=record.seq):
            record = fold(record, page)
        return record

    async def perform(
        self, tool: str, token: str | Claims, decide: Callable[[Opened], Awaitable[Decision[T]]], *, agent: str | None = None
    ) -> Outcome[T]:
        """Carries out one call; for `agent` see `open_claims`. Claims take the place of a token that was opened before.

        The first try is made on the record that the last call of this process has left. That is safe because nothing is
        written unless the session still stands there, and because a refusal is decided again on what is really there.
        """
        began = self.clock()
        claims = self.claims(token) if isinstance(token, str) else token
        await self.turns.take(claims.sid)
        try:
            for losses in range(ATTEMPTS):
                await step_aside(losses)
                known = self.recent.pop(claims.sid, None)
                opened = Opened(*known, claims, agent or claims.aid) if known else await self.open_claims(claims, agent=agent)
                try:
                    decision = await decide(opened)
                    called = self.called(tool, opened, began, warnings=decision.warnings, closes=decision.closes)
                    return await self.write(opened, decision, called)
                except SequenceConflict:
                    continue
                except FidelioError as error:
                    if known:
                        continue
                    # Whoever asks the person then notes how the call ended: it is one call.
                    if not isinstance(error, PersonNeeded):
                        await self._note_refusal(tool, opened, error, began)
                    raise
            raise outrun()
        finally:
            self.turns.give(claims.sid)

    def _remember(self, session: Session, record: Record) -> None:
        if len(self.recent) >= MOST_RECENT:
            self.recent.pop(next(iter(self.recent)))
        self.recent[session.id] = session, record

    async def write(self, opened: Opened, decision: Decision[T], called: NewEvent) -> Outcome[T]:
        """Makes a decision durable, together with what it means for the parent, or raises when either has moved on."""
        facts = decision.events if decision.unfinished else (*decision.events, called)
        moment = self.clock()
        after = fold_drafts(opened.record, facts, moment)
        change = Change(
            session=opened.session.id,
            expect=opened.record.seq,
            create=decision.create,
            events=facts,
            time=moment,
            status=after.status,
            record=after,
            requests=decision.requests,
            blobs=decision.blobs,
        )
        done, *_ = await self.ledger.commit(change, *(_completed(beside, moment) for beside in decision.beside))
        self._remember(done.session, after)
        token = self.tokens.make(change.session, after, agent=opened.agent, about=decision.about)
        return Outcome(decision.result, change.session, after, opened.agent, token, decision.warnings, done.events)

    def called(
        self,
        tool: str,
        opened: Opened,
        began: int,
        *,
        warnings: Sequence[str] = (),
        error: str = "",
        closes: bool = False,
    ) -> NewEvent:
        """The fact that a call was made. Its arguments are not kept: they may hold tokens."""
        body: dict[str, Any] = {
            "name": tool,
            "ms": self.clock() - began,
            "s": "error" if error else "ok",
            "act": opened.record.activity,
            "aid": opened.agent,
        }
        if error:
            body["err"] = error
        if warnings:
            body["vw"] = list(warnings)
        if closes:
            body["closes"] = True
        return NewEvent(type=CALLED, body=body, actor=opened.agent)

    async def note_misuse(self, tool: str, token: str, error: FidelioError, *, session: str = "") -> None:
        """Puts a call on record that was refused outside `perform`, for its form or because nobody answered.

        `session` is where it belongs, if not to the session of the token. A token that opens nothing leaves no trace anywhere.
        """
        try:
            claims = self.claims(token)
            opened = await self.open_claims(Claims(sid=session, aid=claims.aid) if session else claims)
        except FidelioError:
            return
        await self._note_refusal(tool, opened, error, self.clock())

    async def _note_refusal(self, tool: str, opened: Opened, error: FidelioError, began: int) -> None:
        """A refused call is one event, whoever else writes at the same time.

        It is committed with the folded record. If refusals were only appended, every call would have to read again all of them
        since the last call that was not refused.
        """
        session, record = opened.session, opened.record
        called = self.called(tool, opened, began, error=error.reason or error.code)
        self.recent.pop(session.id, None)
        for _ in range(REFUSAL_ATTEMPTS):
            try:
                await self.ledger.commit(_completed(Beside(session.id, (called,), record), self.clock()))
            except SequenceConflict:
                session = await self.ledger.session(session.id)
                record = await self.caught_up(session)
            else:
                return
        await self.ledger.append(session.id, called)
