"""Unit of work for a call on a workflow session: open its token, decide, commit, and record the call.

The loop is that of `fidelio.ledger.unit_of_work`. This module adds tokens, the policy of the server, a lock per session (calls
of this process on the same session run one after the other), the gate that refuses calls while a request is open, and the event
`tool.called`, which is committed together with the decision. A refused call appends that event and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec

from fidelio.definitions.library import Library
from fidelio.engine.answers import AnswerContext
from fidelio.engine.record import CALLED, EventDraft, Fidelity, Record
from fidelio.engine.state import Problem, build_refusal, list_warnings
from fidelio.engine.variables import check_report, check_size, draft_report
from fidelio.errors import (
    BadToken,
    FidelioError,
    PersonNeeded,
    SequenceConflict,
    SessionNotFound,
    Text,
)
from fidelio.ids import is_short_handle, parse_short_token
from fidelio.ledger.model import Event, NewEvent, Session
from fidelio.ledger.unit_of_work import LinkedChange, LoadedSession, SessionDecision, UnitOfWork
from fidelio.locks import KeyedLock
from fidelio.workflows.quiet_reads import QuietReads, Read
from fidelio.workflows.records import complete_claims, require_other_origin
from fidelio.workflows.refusals import refusal_error
from fidelio.workflows.tokens import Claims, SessionTokens, ShortClaims, StateClaims, TokenSubject

if TYPE_CHECKING:
    from fidelio.definitions.models import Workflow

T = TypeVar("T")
# About the number of sessions that the agents of a server work on at once.
CACHED_SESSIONS = 64
# The agents of a session that have a number. Each costs a name in the record; the replies to others have the sealed token.
MAX_AGENTS = 100
# Events of other calls that are looked at for a change since the last read. More of them count as a change.
MAX_FOLLOWED = 100


class WorkflowCall(LoadedSession[Record], frozen=True):
    """A loaded workflow session, the claims of the token, and the agent that makes the call."""

    claims: Claims
    agent: str


class DefinitionOrigin(Protocol):
    """Where a definition came from, and how the files differ from those that its session began with."""

    @property
    def source(self) -> Literal["files", "snapshot"]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


class WorkflowDecision(SessionDecision[T], Generic[T], frozen=True):
    """The events, requests and linked changes to commit, the warnings, and the result for the caller.

    `closes`: the call ends a range of events that a trace token commits to. `subject`: the request that the token of the reply
    refers to. `unfinished`: the call makes another decision after this, and only that one is recorded as the call. `definition`
    is what the decision was made with, if it needed a definition.
    """

    linked: tuple[LinkedChange[Record], ...] = ()
    warnings: tuple[Text, ...] = ()
    closes: bool = False
    subject: TokenSubject | None = None
    unfinished: bool = False
    definition: DefinitionOrigin | None = None


class CallResult(msgspec.Struct, Generic[T], frozen=True):
    """The result of a call, after its decision was committed."""

    result: T
    session: str
    record: Record
    agent: str
    token: str
    warnings: tuple[Text, ...]
    events: tuple[Event, ...]
    definition: DefinitionOrigin | None = None
    short_token: str = ""

    @property
    def text_token(self) -> str:
        """The token in the text of a reply, which a model reads and repeats: the short form where this server accepts it."""
        return self.short_token or self.token


def build_events(drafts: Iterable[EventDraft], actor: str) -> tuple[NewEvent, ...]:
    """Turn the event drafts of the engine into events of the actor."""
    return tuple(NewEvent(type=draft.type, body=draft.body, actor=actor) for draft in drafts)


class ServerPolicy(msgspec.Struct, frozen=True):
    """Server-wide policy for workflow sessions.

    `demands_person`: only a person may answer requests. `allows_moves` is false for a worker, which carries out an activity
    of a session that another agent moves.
    """

    fidelity: Fidelity = "advise"
    demands_person: bool = False
    min_response_ms: int = 3000
    allows_adoption: bool = True
    accepts_handles: bool = True
    allows_moves: bool = True

    @property
    def requests_demand_person(self) -> bool:
        """Whether requests of calls on this server may be answered by a person only, on any server.

        The requests of a worker are excluded: the worker may not answer them, but the agent that gave it the activity may.
        """
        return self.demands_person and self.allows_moves


class WorkflowUnit(UnitOfWork[Record], frozen=True):
    """Carries out calls on workflow sessions.

    `cache` has the sessions and records that the last calls of this process have committed, which saves a call reading and
    decoding them: without it a call takes 12 percent more CPU time. An outdated entry is harmless: a commit fails unless the
    session still has the same last event. `snapshots` has parsed definitions by their digest; `session_definition` fills it.
    """

    library: Library
    tokens: SessionTokens
    policy: ServerPolicy = ServerPolicy()
    cache: dict[str, LoadedSession[Record]] = msgspec.field(default_factory=dict)
    snapshots: dict[str, Workflow] = msgspec.field(default_factory=dict)
    locks: KeyedLock = msgspec.field(default_factory=KeyedLock)
    reads: QuietReads = msgspec.field(default_factory=QuietReads)

    def open_token(self, token: str) -> Claims:
        """Return the claims of a genuine token. A short handle proves nothing; the policy says whether it is accepted."""
        if not self.policy.accepts_handles and (is_short_handle(token) or parse_short_token(token)):
            raise BadToken(
                "This server does not accept short handles.", remedy="Pass the session_token that was returned last."
            )
        return self.tokens.open(token)

    def effective_fidelity(self, record: Record) -> Fidelity:
        """The stricter of the levels of the server and of the session, which another server may have started."""
        return "enforce" if "enforce" in (self.policy.fidelity, record.fidelity) else "advise"

    def answer_context(self) -> AnswerContext:
        """The current time and the policy that an answer is checked against."""
        policy = self.policy
        return AnswerContext(self.clock(), demands_person=policy.demands_person, min_response_ms=policy.min_response_ms)

    def draft_report(
        self, workflow: Workflow, call: WorkflowCall, variables: Mapping[str, Any], *, author: str = ""
    ) -> list[EventDraft]:
        """Draft the events that record the variables which an agent reports, or `author` for it."""
        author = author or f"agent:{call.agent}"
        return draft_report(workflow, call.record, variables, author, person=self.policy.demands_person)

    def check_report(
        self, workflow: Workflow, record: Record, variables: Mapping[str, Any], problems: Iterable[Problem]
    ) -> tuple[str, ...]:
        """Return the warnings of a call that has these problems and may report variables; raise if the call is refused."""
        problems = [*problems, *check_report(workflow, record, variables, person=self.policy.demands_person)]
        refusal = check_size(record.variables, variables) or build_refusal(problems, self.effective_fidelity(record))
        if refusal is not None:
            raise refusal_error(refusal)
        return tuple(list_warnings(problems))

    async def load_claims(self, claims: Claims, *, agent: str | None = None) -> WorkflowCall:
        """Load the session that the claims name. `agent` is the caller if it is not the agent that the token was made for."""
        session = await self._load_session(claims)
        if claims.seq > session.last_seq:
            await require_other_origin(self.ledger, session, claims.seq)
        return await self._build_call(session, await self.load_record(session), claims, agent)

    async def _build_call(self, session: Session, record: Record, claims: Claims, agent: str | None) -> WorkflowCall:
        if isinstance(claims, ShortClaims):
            claims = await complete_claims(self.ledger, claims, record)
        return WorkflowCall(session, record, claims, agent or claims.aid)

    async def _load_session(self, claims: Claims) -> Session:
        try:
            return await self.ledger.session(claims.sid)
        except SessionNotFound:
            if not isinstance(claims, StateClaims):
                raise
        from fidelio.workflows.start import restore_sessions  # noqa: PLC0415  # `start` imports this module

        return await restore_sessions(self, claims)

    async def perform(
        self,
        tool: str,
        token: str | Claims,
        decide: Callable[[WorkflowCall], Awaitable[WorkflowDecision[T]]],
        *,
        agent: str | None = None,
        reading: str | None = None,
    ) -> CallResult[T]:
        """Carry out a call; for `agent` see `load_claims`. `token` may also be its claims.

        `reading`: the call only reads, and this names what; see `quiet_reads`.
        """
        began = self.clock()
        claims = self.open_token(token) if isinstance(token, str) else token

        async def load() -> WorkflowCall:
            return await self.load_claims(claims, agent=agent)

        async def commit(call: WorkflowCall, decision: WorkflowDecision[T]) -> CallResult[T]:
            return await self.commit_call(tool, call, decision, began, reading=reading)

        async def refuse(call: WorkflowCall, error: FidelioError) -> None:
            # A call that needs a person is recorded by the code that elicits the answer; recording it here would count it
            # twice.
            if not isinstance(error, PersonNeeded):
                await self._append_refusal(tool, call, error, began)

        await self.locks.acquire(claims.sid)
        try:
            entry = self.cache.pop(claims.sid, None)
            # A repeated read commits nothing, which would show that the entry is outdated.
            may_repeat = reading is not None and self.reads.may_repeat(claims.sid, tool, reading)
            if entry is not None and (entry.session.last_seq < claims.seq or may_repeat):
                entry = None
            cached = await self._build_call(entry.session, entry.record, claims, agent) if entry is not None else None
            return await self.run(load, decide, commit, cached=cached, refuse=refuse)
        finally:
            self.locks.release(claims.sid)

    async def commit_call(
        self, tool: str, call: WorkflowCall, decision: WorkflowDecision[T], began: int, *, reading: str | None = None
    ) -> CallResult[T]:
        """Commit a decision and the event of its call; raise `SequenceConflict` if a session has changed."""
        read = _describe_read(tool, call, decision, reading) if reading is not None else None
        now = self.clock()
        if read is not None and not decision.events and await self._count_if_repeated(call, read, now):
            return self._build_result(call, LoadedSession(call.session, call.record), decision, ())
        repeated = self.reads.list_repeated(call.id)
        events = [*draft_repeated_reads(repeated), *decision.events]
        if not decision.unfinished:
            call_event = self.build_call_event(
                tool, call, began, warnings=decision.warnings, closes=decision.closes, definition=decision.definition
            )
            events.append(call_event)
        done = await self.commit(call, msgspec.structs.replace(decision, events=tuple(events)))
        self.reads.note_commit(done.id, done.session.last_seq, repeated, read, now=now)
        self._cache_session(done)
        return self._build_result(call, done, decision, done.events)

    async def _count_if_repeated(self, call: WorkflowCall, read: Read, now: int) -> bool:
        """Count a read instead of recording it, if it is repeated."""
        seq, end = call.session.last_seq, self.reads.find_end(call.id)
        if end < seq and self.reads.may_repeat(call.id, read.tool, read.text):
            events = await self.ledger.events(call.id, after=end, limit=MAX_FOLLOWED)
            if events and events[-1].seq >= seq and all(event.type == CALLED for event in events if event.seq <= seq):
                self.reads.advance(call.id, end, seq)
        return self.reads.count_if_repeated(call.id, seq, read, now=now)

    async def write_repeated_reads(self, session: str, *, but: Collection[str] = ()) -> None:
        """Commit the repeated reads of a session, except those with the tools `but`, and go on counting."""
        await self.locks.acquire(session)
        try:
            repeated = {read: count for read, count in self.reads.list_repeated(session).items() if read.tool not in but}
            if not repeated:
                return
            self.cache.pop(session, None)
            at = await self.load(session)
            # After a conflict they stay counted, and the next commit writes them.
            with suppress(SequenceConflict):
                await self.commit(at, SessionDecision(None, events=draft_repeated_reads(repeated)))
                self.reads.note_stored(session, repeated)
        finally:
            self.locks.release(session)

    async def close(self) -> None:
        """Commit the repeated reads of all sessions, as far as that is possible."""
        for session in self.reads.sessions:
            with suppress(FidelioError):
                await self.write_repeated_reads(session)

    def _build_result(
        self, call: WorkflowCall, done: LoadedSession[Record], decision: WorkflowDecision[T], events: tuple[Event, ...]
    ) -> CallResult[T]:
        tokens, subject = self.tokens, decision.subject
        token = tokens.make(done.id, done.record, agent=call.agent, subject=subject)
        short = tokens.make_short(done.id, done.record, agent=call.agent, subject=subject)
        own = done.id, done.record, call.agent, token
        short_token = short if self.policy.accepts_handles else ""
        return CallResult(decision.result, *own, decision.warnings, events, decision.definition, short_token)

    def _cache_session(self, done: LoadedSession[Record]) -> None:
        if len(self.cache) >= CACHED_SESSIONS:
            self.cache.pop(next(iter(self.cache)))
        self.cache[done.id] = LoadedSession(done.session, done.record)

    def build_call_event(
        self,
        tool: str,
        call: WorkflowCall,
        began: int,
        *,
        warnings: Sequence[Text] = (),
        error: str = "",
        closes: bool = False,
        definition: DefinitionOrigin | None = None,
    ) -> NewEvent:
        """Build the event `tool.called`. The arguments of the call are not recorded: they may contain tokens."""
        body: dict[str, Any] = {
            "name": tool,
            "ms": self.clock() - began,
            "s": "error" if error else "ok",
            "act": call.record.activity,
            "aid": call.agent,
        }
        if call.agent not in call.record.agents and len(call.record.agents) < MAX_AGENTS:
            body["agent_number"] = len(call.record.agents) + 1
        if error:
            body["err"] = error
        if warnings:
            body["vw"] = [str(warning) for warning in warnings]
        if closes:
            body["closes"] = True
        if definition is not None and definition.warnings:
            body |= {"source": definition.source, "drift": list(definition.warnings)}
        return NewEvent(type=CALLED, body=body, actor=call.agent)

    async def record_refused_call(self, tool: str, token: str, error: FidelioError, *, session: str = "") -> None:
        """Record a call that was refused outside `perform`: its arguments are invalid, or no person answered in time.

        `session` is the session of the call if it is not that of the token. Nothing is recorded for an invalid token.
        """
        try:
            claims = self.open_token(token)
            call = await self.load_claims(claims)
            call = await self.load_claims(Claims(sid=session, aid=call.agent)) if session else call
        except FidelioError:
            return
        await self._append_refusal(tool, call, error, self.clock())

    async def _append_refusal(self, tool: str, call: WorkflowCall, error: FidelioError, began: int) -> None:
        self.cache.pop(call.id, None)
        repeated = self.reads.list_repeated(call.id)
        event = self.build_call_event(tool, call, began, error=error.reason or error.code)
        await self.record_refusal(call, *draft_repeated_reads(repeated), event)
        self.reads.note_stored(call.id, repeated)


def draft_repeated_reads(repeated: Mapping[Read, int]) -> tuple[NewEvent, ...]:
    """Draft the events that stand for runs of equal reads."""
    return tuple(
        NewEvent(
            type=CALLED,
            body={
                "name": read.tool,
                "ms": 0,
                "s": "ok",
                "act": read.activity,
                "aid": read.agent,
                "reads": count,
                **({"source": read.source} if read.source else {}),
            },
            actor=read.agent,
        )
        for read, count in repeated.items()
    )


def _describe_read(tool: str, call: WorkflowCall, decision: WorkflowDecision[Any], text: str) -> Read:
    definition = decision.definition
    drift = definition.warnings if definition is not None else ()
    source = definition.source if definition is not None and drift else ""
    warnings = tuple(map(str, (*decision.warnings, *drift)))
    return Read(call.agent, tool, text, call.record.activity, warnings, source)
