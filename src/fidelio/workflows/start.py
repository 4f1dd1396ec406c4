"""Start of workflow sessions: new, as a child, continued by another agent, or restored from a token of another server.

A state token carries the records of its sessions. A server that shares the keys, but not the ledger, restores them from it: the
first event of a restored session says so, and its earlier events stay in the ledger of the other server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions import META
from fidelio.definitions.library.search_path import encode_root
from fidelio.definitions.models import Workflow
from fidelio.engine import phrases
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.record import RESTORED, STARTED, Fidelity, ParentSession, Record, decode_record, encode_record, fold_drafts
from fidelio.engine.triggers import build_initial_variables, draft_child_started, find_trigger
from fidelio.engine.variables import check_required_variables
from fidelio.errors import (
    BadToken,
    DefinitionError,
    FidelioError,
    SessionExists,
    SessionNotFound,
    Text,
    WorkflowRefusal,
)
from fidelio.ids import new_session_id
from fidelio.inbox import RequestChange
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import NewEvent, NewSession, Session
from fidelio.ledger.unit_of_work import LinkedChange, SessionDecision, blank_session
from fidelio.workflows.refusals import cancelled_error
from fidelio.workflows.requests import checkpoint_request
from fidelio.workflows.session_definition import load_definition, missing_activity_warnings
from fidelio.workflows.tokens import CarriedSession, Claims, StateClaims, matches_claim
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit, build_events

ORCHESTRATOR = "orchestrator"


class StartInput(msgspec.Struct, frozen=True):
    """The input of `start_session`.

    `agent` is None for the agent that the token was made for. `exact`: a session is continued only with a genuine token, and
    only if it is a session of `workflow_id`.
    """

    workflow_id: str = ""
    agent: str | None = ORCHESTRATOR
    session_token: str = ""
    parent_token: str = ""
    fidelity: Fidelity | None = None
    exact: bool = False

    @property
    def author(self) -> str:
        return self.agent or ORCHESTRATOR


class StartResult(msgspec.Struct, frozen=True):
    """The definition of the session and how it was started. `warning` is a message for the caller."""

    workflow: Workflow
    inherited: bool = False
    adopted: bool = False
    recovered: bool = False
    warning: str = ""


class SessionStart(msgspec.Struct, frozen=True):
    """The first event of a session, the snapshot of its definition, and its row in the ledger."""

    event: NewEvent
    snapshot: bytes
    create: NewSession


class _Origin(msgspec.Struct, frozen=True):
    """The id of a new session, and the unverified claims that it starts from."""

    session: str
    claims: Claims | None = None
    claims_to_continue: str = ""


class StartService:
    """Carries out `start_session`."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def start(self, options: StartInput) -> CallResult[StartResult]:
        if not options.session_token:
            return await self._start_new(options, _Origin(new_session_id()), {})
        claims: Claims | None = None
        try:
            claims = self._unit.open_token(options.session_token)
            return await self._inherit(options)
        except (BadToken, SessionNotFound) as problem:
            # A session that a genuine token names and the ledger knows was deleted on purpose: it must not be started again.
            if options.exact or (claims is not None and await self._find_session(claims.sid)):
                raise
            return await self._start_unverified(options, problem)

    async def _inherit(self, options: StartInput) -> CallResult[StartResult]:
        """Continue a session, with the same agent or another. The record does not change, and open requests stay open."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[StartResult]:
            if options.exact:
                _refuse_other_workflow(options, call.record)
            if options.parent_token:
                parent = await self._unit.load_claims(self._open_parent_token(options.parent_token))
                _refuse_other_parent(parent, call.record)
            mismatches = [] if options.exact else _list_mismatches(options, call.claims, call.record)
            definition = await load_definition(self._unit, call.session.id, call.record)
            started = StartResult(definition.workflow, inherited=True, warning=" ".join(mismatches))
            notes: tuple[Text, ...] = (*definition.warnings, *missing_activity_warnings(definition.workflow))
            return WorkflowDecision(started, warnings=(*mismatches, *notes), definition=definition)

        return await self._unit.perform("start_session", options.session_token, decide, agent=options.agent)

    async def _start_unverified(self, options: StartInput, problem: FidelioError) -> CallResult[StartResult]:
        if not self._unit.policy.allows_adoption:
            raise problem
        claims = self._unit.tokens.read_unverified(options.session_token)
        workflow = self._unit.library.workflow(claims.wf if claims is not None else options.workflow_id or META)
        parent = await self._unit.load_claims(self._open_parent_token(options.parent_token)) if options.parent_token else None
        if self._strictest_fidelity(options.fidelity, workflow, parent) == "enforce":
            raise problem
        return await self._recover(options) if claims is None else await self._adopt(options, claims)

    async def _recover(self, options: StartInput) -> CallResult[StartResult]:
        warning = (
            "The saved token cannot be read, so a fresh session was started. The previous session state was NOT inherited; "
            "reconstruct it from what you saved."
        )
        return await self._start_new(options, _Origin(new_session_id()), {"recovered": True, "warning": warning})

    async def _adopt(self, options: StartInput, claims: Claims) -> CallResult[StartResult]:
        """Start a session at the claimed position, marked as unverified; a session that the ledger knows stays untouched."""
        existing = await self._find_session(claims.sid)
        if existing is not None and existing.kind == "workflow":
            _refuse_adopting(decode_record(existing.raw))
        origin = _Origin(new_session_id() if existing else claims.sid, claims, claims.sid if existing else "")
        warning = (
            "The token does not verify with this server's keys. A session at the position it claims was started, marked as "
            "unverified; its checkpoints are asked again."
        )
        flags = {"inherited": True, "adopted": True, "warning": warning}
        try:
            return await self._start_new(replace(options, workflow_id=claims.wf), origin, flags)
        except SessionExists:
            # A concurrent call has adopted the same token: now the ledger knows the id.
            return await self._adopt(options, claims)

    async def _find_session(self, session: str) -> Session | None:
        try:
            return await self._unit.ledger.session(session)
        except SessionNotFound:
            return None

    async def _start_new(self, options: StartInput, origin: _Origin, flags: dict[str, Any]) -> CallResult[StartResult]:
        """Start a session with a new record, under the lock of its parent, if any: the parent changes, too."""
        began = self._unit.clock()
        parent_claims = self._open_parent_token(options.parent_token) if options.parent_token else None

        async def load() -> WorkflowCall:
            return build_new_call(origin.session, Record(), options.author)

        async def decide(_: WorkflowCall) -> WorkflowDecision[StartResult]:
            workflow = self._unit.library.workflow(options.workflow_id or META)
            parent = await self._unit.load_claims(parent_claims) if parent_claims is not None else None
            notes = (*([flags["warning"]] if flags.get("warning") else ()), *missing_activity_warnings(workflow))
            decision = await self._decide_start(options, origin, workflow, parent)
            notes = (*notes, *_warn_of_missing_variables(workflow, fold_drafts(Record(), decision.events, began)))
            return replace(decision, result=StartResult(workflow, **flags), warnings=notes)

        async def commit(call: WorkflowCall, decision: WorkflowDecision[StartResult]) -> CallResult[StartResult]:
            return await self._unit.commit_call("start_session", call, decision, began)

        locked = parent_claims.sid if parent_claims is not None else origin.session
        await self._unit.locks.acquire(locked)
        try:
            return await self._unit.run(load, decide, commit)
        finally:
            self._unit.locks.release(locked)

    def _open_parent_token(self, token: str) -> Claims:
        """Open the token of the parent; the error says which of the two tokens of the call is invalid."""
        try:
            return self._unit.open_token(token)
        except BadToken as error:
            raise BadToken(f"parent_session_token: {error.sentence}", remedy=error.remedy) from error

    async def _decide_start(
        self, options: StartInput, origin: _Origin, workflow: Workflow, parent: WorkflowCall | None
    ) -> WorkflowDecision[Any]:
        facts, linked = _claimed_position(origin, workflow), tuple[LinkedChange[Record], ...]()
        if parent is not None:
            if parent.record.status == "cancelled":
                raise cancelled_error()
            definition = (await load_definition(self._unit, parent.session.id, parent.record)).workflow
            link = _link_child(parent, workflow.id, origin.session, definition, person=self._unit.policy.demands_person)
            facts |= link.inherited
            linked = (LinkedChange(parent.session.id, link.events, parent.record),)
        start = self.build_start(workflow, options.author, fidelity=options.fidelity, parent=parent, **facts)
        return WorkflowDecision(None, events=(start.event,), blobs=(start.snapshot,), create=start.create, linked=linked)

    def build_start(
        self,
        workflow: Workflow,
        agent: str,
        *,
        fidelity: Fidelity | None = None,
        parent: WorkflowCall | None = None,
        **facts: Any,
    ) -> SessionStart:
        """Build the start of a session of this workflow; `facts` are further keys in the body of its first event."""
        # The ledger stores equal blobs only once, so sessions share it.
        snapshot = msgspec.json.encode(self._unit.library.snapshot(workflow.id))
        body: dict[str, Any] = {
            "workflow": workflow.id,
            "version": workflow.version,
            "definition": self._unit.library.content_hash(workflow.id),
            "found_in": encode_root(self._unit.library.root(workflow.id)),
            "snapshot": hash_blob(snapshot),
            "agent": agent,
            "fidelity": self._strictest_fidelity(fidelity, workflow, parent),
            **({"person": True} if self._demands_person(parent) else {}),
            **({"parent": msgspec.to_builtins(_parent_session(parent))} if parent is not None else {}),
            **facts,
        }
        event = NewEvent(type=STARTED, body=body, actor=agent, blobs=(body["snapshot"],))
        return SessionStart(
            event, snapshot, NewSession(kind="workflow", parent=parent.session.id if parent is not None else None)
        )

    def _strictest_fidelity(
        self, requested: Fidelity | None, workflow: Workflow, parent: WorkflowCall | None = None
    ) -> Fidelity:
        """The strictest of the levels of the server, the workflow, the caller and the parent."""
        inherited = parent.record.fidelity if parent is not None else None
        levels = (self._unit.policy.fidelity, workflow.fidelity, requested, inherited)
        return "enforce" if "enforce" in levels else "advise"

    def _demands_person(self, parent: WorkflowCall | None) -> bool:
        """Whether only people answer the checkpoints of a new session: the server or the parent demands it."""
        return self._unit.policy.requests_demand_person or (parent is not None and parent.record.person)


def _refuse_adopting(record: Record) -> None:
    """Refuse a token that is not genuine where a copy of the session would avoid what the session demands."""
    if record.fidelity == "enforce":
        raise BadToken("This token is not genuine, and the session it names is enforced.", remedy="Use the genuine token.")
    if record.person or any(request.person for request in record.pending):
        raise BadToken(
            "This token is not genuine, and the session it names demands the answer of a person.",
            remedy="Use the genuine token.",
        )


class _ChildLink(msgspec.Struct, frozen=True):
    """The events of the parent when a child starts, and the variables that the child inherits."""

    events: tuple[NewEvent, ...]
    inherited: dict[str, Any]


def _link_child(parent: WorkflowCall, workflow_id: str, child: str, definition: Workflow, *, person: bool) -> _ChildLink:
    """Record the child in its parent. A child that a trigger of the current activity names suspends the parent."""
    trigger = find_trigger(definition, parent.record, workflow_id)
    inherited = build_initial_variables(definition, parent.record, trigger, person=person) if trigger else {}
    events = build_events([draft_child_started(child, workflow_id, trigger)], parent.agent)
    return _ChildLink(events, inherited)


def _parent_session(parent: WorkflowCall) -> ParentSession:
    record = parent.record
    return ParentSession(parent.session.id, record.workflow, record.activity, record.version)


def _claimed_position(origin: _Origin, workflow: Workflow) -> dict[str, Any]:
    """The position that an unverified token claims, without the activity if the definition does not have it."""
    if origin.claims is None:
        return {}
    has_activity = workflow.activity(origin.claims.act or "") is not None
    position = {"activity": origin.claims.act} if has_activity else {}
    return {**position, "unverified": True, "claims_to_continue": origin.claims_to_continue}


def _warn_of_missing_variables(workflow: Workflow, record: Record) -> list[str]:
    return [f"{problem.sentence} {problem.remedy}" for problem in check_required_variables(workflow, record)]


def _refuse_other_workflow(options: StartInput, record: Record) -> None:
    if options.workflow_id != record.workflow:
        raise WorkflowRefusal(
            phrases.workflow_mismatch(record.workflow, options.workflow_id),
            remedy="Name the workflow of the session, or leave session_token out to start a fresh one.",
        )


def _refuse_other_parent(parent: WorkflowCall, record: Record) -> None:
    if record.parent is None or record.parent.session != parent.session.id:
        raise WorkflowRefusal(
            "The session of session_token is not a child of the session of parent_session_token.",
            remedy="Leave parent_session_token out to continue the session, or session_token to start a child.",
        )


def _list_mismatches(options: StartInput, claims: Claims, record: Record) -> list[str]:
    found = []
    if claims.aid and not matches_claim(claims.aid, options.author):
        found.append(f"agent_id '{options.agent}' does not match the inherited session token's agent_id '{claims.aid}'.")
    if options.workflow_id and options.workflow_id != record.workflow:
        found.append(f"workflow_id '{options.workflow_id}' is ignored: the token belongs to workflow '{record.workflow}'.")
    return found


def build_new_call(session: str, record: Record, agent: str) -> WorkflowCall:
    """Build a call on a session that has no committed events yet."""
    return WorkflowCall(blank_session(session, "workflow"), record, Claims(sid=session), agent)


async def restore_sessions(unit: WorkflowUnit, claims: StateClaims) -> Session:
    """Commit the sessions that a state token carries, parents first, except those that the ledger knows."""
    known: set[str] = set()
    for carried in claims.carried_sessions():
        # A concurrent call may have restored the same session, and a parent may have been restored before its child.
        with suppress(SessionExists):
            await unit.create(carried.session, Record(), _decide_restore(unit, carried, known, claims.aid))
        known.add(carried.session)
    return await unit.ledger.session(claims.sid)


def _decide_restore(unit: WorkflowUnit, carried: CarriedSession, known: set[str], agent: str) -> SessionDecision[None]:
    record = replace(carried.record, found_in=_find_root(unit, carried.record.workflow))
    snapshot = _encode_snapshot(unit, record)
    digests = tuple(map(hash_blob, snapshot))
    body: dict[str, Any] = {"workflow": record.workflow, "version": record.version, "definition": record.definition}
    body |= {"agent": agent, "record": encode_record(record), **({"snapshot": digests[0]} if digests else {})}
    parent = record.parent.session if record.parent is not None else None
    return SessionDecision(
        None,
        events=(NewEvent(type=RESTORED, body=body, actor=agent, blobs=digests),),
        requests=tuple(_reopen_requests(unit, record)),
        blobs=snapshot,
        create=NewSession(kind="workflow", parent=parent if parent in known else None),
    )


def _encode_snapshot(unit: WorkflowUnit, record: Record) -> tuple[bytes, ...]:
    """Encode the definition of this server; empty if it is not the definition that the session began with elsewhere."""
    try:
        if unit.library.content_hash(record.workflow) != record.definition:
            return ()
        return (msgspec.json.encode(unit.library.snapshot(record.workflow)),)
    except DefinitionError:
        return ()


def _find_root(unit: WorkflowUnit, workflow: str) -> str:
    """The root of the definition on this server; a state token does not contain the root of the other server."""
    try:
        return encode_root(unit.library.root(workflow))
    except DefinitionError:
        return ""


def _reopen_requests(unit: WorkflowUnit, record: Record) -> Iterator[RequestChange]:
    """Open the pending requests again under their ids, so that their answers are folded into the record."""
    workflow = _find_workflow(unit, record)
    if workflow is None:
        return
    for waiting in record.pending:
        checkpoint = find_current_checkpoint(workflow, record, waiting.checkpoint)
        if checkpoint is not None:
            person = unit.policy.requests_demand_person
            yield checkpoint_request(
                workflow, record, checkpoint, person=person, request=waiting.request, instance=waiting.instance
            )


def _find_workflow(unit: WorkflowUnit, record: Record) -> Workflow | None:
    try:
        return unit.library.workflow(record.workflow)
    except DefinitionError:
        return None
