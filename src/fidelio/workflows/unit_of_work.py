"""Unit of work for one call on a workflow session: open its token, decide, commit, and record the call.

The loop is that of `fidelio.ledger.unit_of_work`. What is added here: tokens, the policy of the server, one call at a time per
session in one process, the gate that refuses calls while a request is open, and the event `tool.called`, which is committed
with what was decided. A refused call leaves that event and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fidelio.definitions.library import Library
from fidelio.engine import phrases
from fidelio.engine.record import CALLED, EventDraft, Fidelity, OpenCheckpoint, Record, decode_record, fold
from fidelio.engine.state import Refusal
from fidelio.errors import BadToken, FidelioError, PersonNeeded, SessionNotFound, WorkflowRefusal
from fidelio.ids import is_short_handle
from fidelio.ledger.encoding import DELETED, session_deleted
from fidelio.ledger.model import Event, NewEvent, Session
from fidelio.ledger.unit_of_work import Decision, LinkedChange, LoadedSession, RecordEvent, UnitOfWork
from fidelio.locks import KeyedLock
from fidelio.workflows.tokens import About, Claims, SessionTokens, StateClaims

T = TypeVar("T")
# As many sessions as agents of one server work on at once; more would only cost memory.
CACHED_SESSIONS = 64


class WorkflowRecords:
    """How workflow sessions keep their record."""

    def check(self, session: Session) -> None:
        if session.kind != "workflow":
            raise SessionNotFound(f"Session {session.id} is not a workflow session.", remedy="Use a token of start_session.")
        if session.status == DELETED:
            raise session_deleted(session.id)

    def read(self, raw: str) -> Record:
        return decode_record(raw)

    def fold(self, record: Record, events: Iterable[RecordEvent]) -> Record:
        return fold(record, events)

    def seq(self, record: Record) -> int:
        return record.seq

    def status(self, record: Record) -> tuple[str, None]:
        return record.status, None


class WorkflowCall(LoadedSession[Record], frozen=True):
    """A workflow session as a call finds it, with what the token says and who calls."""

    claims: Claims
    agent: str


class WorkflowDecision(Decision[T], Generic[T], frozen=True):
    """What to commit, what to warn of, and what to return to the caller.

    `closes`: the call ends a part of the session that a trace token commits to. `about`: the question that the token of the
    reply refers to. `unfinished`: the call goes on with another decision, and that one is recorded as the call.
    """

    linked: tuple[LinkedChange[Record], ...] = ()
    warnings: tuple[str, ...] = ()
    closes: bool = False
    about: About | None = None
    unfinished: bool = False


class CallResult(msgspec.Struct, Generic[T], frozen=True):
    """The result of a call whose decision is durable."""

    result: T
    session: str
    record: Record
    agent: str
    token: str
    warnings: tuple[str, ...]
    events: tuple[Event, ...]


def new_events(drafts: Iterable[EventDraft], actor: str) -> tuple[NewEvent, ...]:
    """What the rules decided on, as events of the actor."""
    return tuple(NewEvent(type=draft.type, body=draft.body, actor=actor) for draft in drafts)


class ServerPolicy(msgspec.Struct, frozen=True):
    """Server-wide policy for workflow sessions.

    `chosen_place`: the search path was chosen for this one session, so a definition that is not there was deleted.
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

        A worker may not answer itself either, but the agent that gave it the activity may.
        """
        return self.answered_by_person and self.moves


class WorkflowUnit(UnitOfWork[Record], frozen=True):
    """Carries out calls on workflow sessions.

    `cache` has the session and record that the last calls of this process have committed: a call saves reading and decoding
    both, and nothing is committed unless the session still is at that place.
    """

    library: Library
    tokens: SessionTokens
    policy: ServerPolicy = ServerPolicy()
    cache: dict[str, LoadedSession[Record]] = msgspec.field(default_factory=dict)
    locks: KeyedLock = msgspec.field(default_factory=KeyedLock)

    def claims(self, token: str) -> Claims:
        """What a genuine token says. A short handle only names its session, which is enough where the caller is known."""
        if not self.policy.handles and is_short_handle(token):
            raise BadToken("A short handle opens nothing here.", remedy="Pass the session_token that was returned last.")
        return self.tokens.open(token)

    def fidelity(self, record: Record) -> Fidelity:
        """How strictly a session is led here: a server that enforces does so whoever has started the session."""
        return "enforce" if "enforce" in (self.policy.fidelity, record.fidelity) else "advise"

    async def load_claims(self, claims: Claims, *, agent: str | None = None) -> WorkflowCall:
        """`agent` is who calls, where that is not the agent that the token was made for."""
        session = await self._session(claims)
        return WorkflowCall(session, await self.load_record(session), claims, agent or claims.aid)

    async def _session(self, claims: Claims) -> Session:
        try:
            return await self.ledger.session(claims.sid)
        except SessionNotFound:
            if not isinstance(claims, StateClaims):
                raise
        from fidelio.workflows.restore import restore  # noqa: PLC0415  # few sessions come from another server

        return await restore(self, claims)

    async def perform(
        self,
        tool: str,
        token: str | Claims,
        decide: Callable[[WorkflowCall], Awaitable[WorkflowDecision[T]]],
        *,
        agent: str | None = None,
    ) -> CallResult[T]:
        """Carry out one call; for `agent` see `load_claims`. Claims take the place of a token that was call before."""
        began = self.clock()
        claims = self.claims(token) if isinstance(token, str) else token

        async def load() -> WorkflowCall:
            return await self.load_claims(claims, agent=agent)

        async def commit(call: WorkflowCall, decision: WorkflowDecision[T]) -> CallResult[T]:
            return await self.commit_call(tool, call, decision, began)

        async def refuse(call: WorkflowCall, error: FidelioError) -> None:
            # A call that goes on to ask a person is recorded once, by the code that asks, with how it ended.
            if not isinstance(error, PersonNeeded):
                await self._record_refused_call(tool, call, error, began)

        await self.locks.acquire(claims.sid)
        try:
            known = self.cache.pop(claims.sid, None)
            cached = WorkflowCall(known.session, known.record, claims, agent or claims.aid) if known is not None else None
            return await self.run(load, decide, commit, cached=cached, refuse=refuse)
        finally:
            self.locks.release(claims.sid)

    async def commit_call(self, tool: str, call: WorkflowCall, decision: WorkflowDecision[T], began: int) -> CallResult[T]:
        """Commit a decision and the fact that the call was made; raises `SequenceConflict` when a session has moved on."""
        whole = decision
        if not decision.unfinished:
            called = self.called(tool, call, began, warnings=decision.warnings, closes=decision.closes)
            whole = msgspec.structs.replace(decision, events=(*decision.events, called))
        done = await self.commit(call, whole)
        self._remember(done)
        token = self.tokens.make(done.id, done.record, agent=call.agent, about=decision.about)
        return CallResult(decision.result, done.id, done.record, call.agent, token, decision.warnings, done.events)

    def _remember(self, done: LoadedSession[Record]) -> None:
        if len(self.cache) >= CACHED_SESSIONS:
            self.cache.pop(next(iter(self.cache)))
        self.cache[done.id] = LoadedSession(done.session, done.record)

    def called(
        self,
        tool: str,
        call: WorkflowCall,
        began: int,
        *,
        warnings: Sequence[str] = (),
        error: str = "",
        closes: bool = False,
    ) -> NewEvent:
        """The fact that a call was made. Its arguments are not recorded: they may hold tokens."""
        body: dict[str, Any] = {
            "name": tool,
            "ms": self.clock() - began,
            "s": "error" if error else "ok",
            "act": call.record.activity,
            "aid": call.agent,
        }
        if error:
            body["err"] = error
        if warnings:
            body["vw"] = list(warnings)
        if closes:
            body["closes"] = True
        return NewEvent(type=CALLED, body=body, actor=call.agent)

    async def note_misuse(self, tool: str, token: str, error: FidelioError, *, session: str = "") -> None:
        """Record a call that was refused outside `perform`, for its form or because nobody answered.

        `session` is where it belongs, if not to the session of the token. A token that opens nothing leaves no trace anywhere.
        """
        try:
            claims = self.claims(token)
            call = await self.load_claims(Claims(sid=session, aid=claims.aid) if session else claims)
        except FidelioError:
            return
        await self._record_refused_call(tool, call, error, self.clock())

    async def _record_refused_call(self, tool: str, call: WorkflowCall, error: FidelioError, began: int) -> None:
        self.cache.pop(call.id, None)
        await self.record_refusal(call, self.called(tool, call, began, error=error.reason or error.code))


# Takes the record and what the caller wants to do, and raises when that has to wait.
Gate = Callable[[Record, str], None]
# What the trace says of a call that ran against a question.
UNRESOLVED = "checkpoint.unresolved"


def refuse_while_waiting(record: Record, action: str, *, remedy: str = "") -> None:
    waiting = record.waiting
    if waiting is None:
        return
    handle = "" if record.open is not None else "yield_checkpoint gives its handle. "
    how = remedy or "Resolve it with respond_checkpoint; then call resume_checkpoint."
    also = f"A person can also answer it: fidelio answer {waiting.request} OPTION."
    raise WorkflowRefusal(
        f"Cannot {action}: Active checkpoint '{waiting.checkpoint}' in activity '{waiting.activity}' waits for an answer.",
        remedy=f"{person_remedy(waiting.request)} Then call resume_checkpoint." if waiting.person else f"{handle}{how} {also}",
        reason=UNRESOLVED,
    )


def person_remedy(request: str) -> str:
    """What helps where an answer of the model is not taken, whatever it calls."""
    return (
        "Only a person may answer it. When respond_checkpoint is called, a client that can do so asks its user; else a person "
        f"answers with: fidelio answer {request} OPTION."
    )


def refuse_while_pending(record: Record, action: str) -> None:
    waiting = record.waiting
    if waiting is None:
        return
    person = next((one for one in record.pending if one.person), None)
    also = f"A person can also answer: fidelio answer {waiting.request} OPTION."
    who = f"'{person.checkpoint}': {person_remedy(person.request)}" if person is not None else also
    call = f'respond_checkpoint with {{"checkpoint_id": "{waiting.checkpoint}", "option_id": THE USER\'S CHOICE}}'
    raise WorkflowRefusal(
        phrases.unresolved_checkpoints(action, waiting.activity, (one.checkpoint for one in record.pending)),
        remedy=(
            f"Answer each of them: {call}; get_checkpoint shows the options. A conditional one that does not apply is "
            f"dismissed with condition_not_met. {who}"
        ),
        reason=UNRESOLVED,
    )


def refuse_unanswered_end(record: Record, session: str) -> None:
    """A question does not go away with its definition: else the way past a closed gate would be to delete a file."""
    waiting = record.waiting
    if waiting is None:
        return
    raise WorkflowRefusal(
        phrases.unresolved_checkpoints("end the session", waiting.activity, (one.checkpoint for one in record.pending)),
        remedy=answer_remedy(waiting, session),
        reason=UNRESOLVED,
    )


def answer_remedy(waiting: OpenCheckpoint, session: str) -> str:
    """How such a session comes to its end."""
    answer, end = f"fidelio answer {waiting.request} OPTION", f"fidelio sessions --end {session}"
    return f"A person can answer what waits as it was asked: {answer}. A person can also end the session as it is: {end}."


def allow_always(_record: Record, _action: str) -> None:
    """For what may be read whatever waits."""


def no_activity(remedy: str = "Call next_activity first.") -> WorkflowRefusal:
    return WorkflowRefusal(phrases.NO_CURRENT_ACTIVITY, remedy=remedy, reason="activity.none")


def refusal_error(no: Refusal) -> WorkflowRefusal:
    """A refusal of the rules as the error that surfaces show."""
    return WorkflowRefusal(no.sentence, remedy=no.remedy, reason=no.code)
