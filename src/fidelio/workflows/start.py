"""Starts sessions: fresh, as a child, continued by another agent, or rebuilt from a token that does not verify."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions import META
from fidelio.definitions.library.search_path import encode_root
from fidelio.definitions.models import Workflow
from fidelio.engine import phrases
from fidelio.engine.record import STARTED, Fidelity, ParentSession, Record, decode_record
from fidelio.engine.state import list_warnings
from fidelio.engine.transition_events import check_drift
from fidelio.engine.triggers import build_initial_variables, draft_child_started, find_trigger
from fidelio.errors import (
    BadToken,
    DefinitionDeleted,
    FidelioError,
    SessionExists,
    SessionNotFound,
    WorkflowRefusal,
)
from fidelio.ids import new_session_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import NewEvent, NewSession, Session
from fidelio.ledger.unit_of_work import LinkedChange, blank_session
from fidelio.workflows.missing import load_definition, missing_activity_warnings, placeholder_workflow
from fidelio.workflows.tokens import Claims, matches_claim
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit, new_events

ORCHESTRATOR = "orchestrator"


class StartInput(msgspec.Struct, frozen=True):
    """What start_session was asked for.

    `agent` is None for whoever the token was made for. `exact`: a session is continued only with a genuine token, and only
    when it is of the workflow that is named.
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
    """How the session began. `warning` is what the caller has to know about it."""

    workflow: Workflow
    inherited: bool = False
    adopted: bool = False
    recovered: bool = False
    warning: str = ""


class SessionStart(msgspec.Struct, frozen=True):
    """The first event of a session, the definition that it goes by, and the row that it fills."""

    event: NewEvent
    snapshot: bytes
    create: NewSession


class _Origin(msgspec.Struct, frozen=True):
    """What a new session starts from."""

    session: str
    claims: Claims | None = None
    claims_to_continue: str = ""


class StartService:
    """Everything that start_session does."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit
        self._newest: tuple[Workflow, bytes] | None = None

    async def start(self, asked: StartInput) -> CallResult[StartResult]:
        if not asked.session_token:
            return await self._fresh(asked, _Origin(new_session_id()), {})
        claims: Claims | None = None
        try:
            claims = self._unit.claims(asked.session_token)
            return await self._inherit(asked, claims)
        except (BadToken, SessionNotFound) as problem:
            # What a genuine token names and the ledger knows was deleted on purpose: nothing takes its place.
            if asked.exact or (claims is not None and await self._knows(claims.sid)):
                raise
            return await self._without_proof(asked, problem)

    async def _inherit(self, asked: StartInput, claims: Claims) -> CallResult[StartResult]:
        """Another agent takes the session over, or the same one comes back. The record stays as it is, closed gate and all."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[StartResult]:
            if asked.exact:
                _refuse_other_workflow(asked, call.record)
            if asked.parent_token:
                parent = await self._unit.load_claims(self._parent(asked.parent_token))
                _refuse_other_parent(parent, call.record)
            mismatches = [] if asked.exact else _mismatches(asked, claims, call.record)
            workflow, said = self._as_it_is_now(call)
            started = StartResult(workflow, inherited=True, warning=" ".join(mismatches))
            return WorkflowDecision(started, warnings=(*mismatches, *said))

        return await self._unit.perform("start_session", asked.session_token, decide, agent=asked.agent)

    def _as_it_is_now(self, call: WorkflowCall) -> tuple[Workflow, tuple[str, ...]]:
        """The definition of a session that goes on, and what is to be said of it.

        Whoever takes over one that has lost it needs a token that is not stale, to end it with.
        """
        try:
            version = load_definition(self._unit, call)
        except DefinitionDeleted as gone:
            return placeholder_workflow(call.record), (str(gone),)
        drift = check_drift(call.record, version.workflow.version, version.hash)
        return version.workflow, (*list_warnings(drift), *missing_activity_warnings(version.workflow))

    async def _without_proof(self, asked: StartInput, problem: FidelioError) -> CallResult[StartResult]:
        if not self._unit.policy.adoption:
            raise problem
        claims = self._unit.tokens.claimed(asked.session_token)
        workflow = self._unit.library.workflow(claims.wf if claims is not None else asked.workflow_id or META)
        if self._fidelity(asked.fidelity, workflow) == "enforce":
            raise problem
        return await self._recover(asked) if claims is None else await self._adopt(asked, claims)

    async def _recover(self, asked: StartInput) -> CallResult[StartResult]:
        warning = (
            "The saved token cannot be read, so a fresh session was started. The previous session state was NOT inherited; "
            "reconstruct it from what you saved."
        )
        return await self._fresh(asked, _Origin(new_session_id()), {"recovered": True, "warning": warning})

    async def _adopt(self, asked: StartInput, claims: Claims) -> CallResult[StartResult]:
        """A session at the claimed place, marked unverified for good. It never opens one that the ledger knows."""
        taken = await self._knows(claims.sid)
        if taken is not None and taken.kind == "workflow" and decode_record(taken.raw).fidelity == "enforce":
            raise BadToken("This token is not genuine, and the session it names is enforced.", remedy="Use the genuine token.")
        origin = _Origin(new_session_id() if taken else claims.sid, claims, claims.sid if taken else "")
        warning = (
            "The token does not verify with this server's keys. A session at the position it claims was started, marked as "
            "unverified; its checkpoints are asked again."
        )
        flags = {"inherited": True, "adopted": True, "warning": warning}
        try:
            return await self._fresh(replace(asked, workflow_id=claims.wf), origin, flags)
        except SessionExists:
            # Somebody else has brought the same token a moment ago: now the ledger knows the id.
            return await self._adopt(asked, claims)

    async def _knows(self, session: str) -> Session | None:
        try:
            return await self._unit.ledger.session(session)
        except SessionNotFound:
            return None

    async def _fresh(self, asked: StartInput, origin: _Origin, flags: dict[str, Any]) -> CallResult[StartResult]:
        """Under the lock of the parent, where there is one: its record changes, too."""
        began = self._unit.clock()
        parent = self._parent(asked.parent_token) if asked.parent_token else None

        async def load() -> WorkflowCall:
            return new_call(origin.session, Record(), asked.author)

        async def decide(_: WorkflowCall) -> WorkflowDecision[StartResult]:
            workflow = self._unit.library.workflow(asked.workflow_id or META)
            above = await self._unit.load_claims(parent) if parent is not None else None
            said = (*([flags["warning"]] if flags.get("warning") else ()), *missing_activity_warnings(workflow))
            decision = self._birth(asked, origin, workflow, above)
            return replace(decision, result=StartResult(workflow, **flags), warnings=said)

        async def commit(call: WorkflowCall, decision: WorkflowDecision[StartResult]) -> CallResult[StartResult]:
            return await self._unit.commit_call("start_session", call, decision, began)

        locked = parent.sid if parent is not None else origin.session
        await self._unit.locks.acquire(locked)
        try:
            return await self._unit.run(load, decide, commit)
        finally:
            self._unit.locks.release(locked)

    def _parent(self, token: str) -> Claims:
        """Says which of the two tokens of the call is the bad one."""
        try:
            return self._unit.claims(token)
        except BadToken as error:
            raise BadToken(f"parent_session_token: {error.sentence}", remedy=error.remedy) from error

    def _birth(
        self, asked: StartInput, origin: _Origin, workflow: Workflow, parent: WorkflowCall | None
    ) -> WorkflowDecision[Any]:
        more, linked = _claimed(origin, workflow), tuple[LinkedChange[Record], ...]()
        if parent is not None:
            definition = load_definition(self._unit, parent).workflow
            link = _link(parent, workflow.id, origin.session, definition, person=self._unit.policy.answered_by_person)
            more |= link.inherited
            linked = (LinkedChange(parent.session.id, link.events, parent.record),)
        born = self.birth(workflow, asked.author, fidelity=asked.fidelity, parent=parent, **more)
        return WorkflowDecision(None, events=(born.event,), blobs=(born.snapshot,), create=born.create, linked=linked)

    def birth(
        self,
        workflow: Workflow,
        agent: str,
        *,
        fidelity: Fidelity | None = None,
        parent: WorkflowCall | None = None,
        **more: Any,
    ) -> SessionStart:
        """How a session of this workflow begins; `more` is what its first event says besides."""
        snapshot = self._snapshot(workflow)
        body: dict[str, Any] = {
            "workflow": workflow.id,
            "version": workflow.version,
            "definition": self._unit.library.content_hash(workflow.id),
            "found_in": encode_root(self._unit.library.root(workflow.id)),
            "snapshot": hash_blob(snapshot),
            "agent": agent,
            "fidelity": self._fidelity(fidelity, workflow),
            **({"parent": msgspec.to_builtins(_as_parent(parent))} if parent is not None else {}),
            **more,
        }
        event = NewEvent(type=STARTED, body=body, actor=agent, blobs=(body["snapshot"],))
        return SessionStart(
            event, snapshot, NewSession(kind="workflow", parent=parent.session.id if parent is not None else None)
        )

    def _snapshot(self, workflow: Workflow) -> bytes:
        """The parsed definition as it is now. The ledger keeps each text once, so sessions share it."""
        if self._newest is None or self._newest[0] is not workflow:
            self._newest = workflow, msgspec.json.encode(self._unit.library.snapshot(workflow.id))
        return self._newest[1]

    def _fidelity(self, asked: Fidelity | None, workflow: Workflow) -> Fidelity:
        """The strictest of what the server, the workflow and the caller want."""
        wanted = (self._unit.policy.fidelity, workflow.fidelity, asked)
        return "enforce" if "enforce" in wanted else "advise"


class _Link(msgspec.Struct, frozen=True):
    events: tuple[NewEvent, ...]
    inherited: dict[str, Any]


def _link(parent: WorkflowCall, workflow_id: str, child: str, definition: Workflow, *, person: bool) -> _Link:
    """What the parent records. A child that its current activity declares as a trigger suspends it until the child ends."""
    trigger = find_trigger(definition, parent.record, workflow_id)
    inherited = build_initial_variables(definition, parent.record, trigger, person=person) if trigger else {}
    events = new_events([draft_child_started(child, workflow_id, trigger)], parent.agent)
    return _Link(events, inherited)


def _as_parent(parent: WorkflowCall) -> ParentSession:
    record = parent.record
    return ParentSession(parent.session.id, record.workflow, record.activity, record.version)


def _claimed(origin: _Origin, workflow: Workflow) -> dict[str, Any]:
    """Where an unproven token says its session stood, as far as the definition knows that place."""
    if origin.claims is None:
        return {}
    known_place = workflow.activity(origin.claims.act or "") is not None
    place = {"activity": origin.claims.act} if known_place else {}
    return {**place, "unverified": True, "claims_to_continue": origin.claims_to_continue}


def _refuse_other_workflow(asked: StartInput, record: Record) -> None:
    if asked.workflow_id != record.workflow:
        raise WorkflowRefusal(
            phrases.workflow_mismatch(record.workflow, asked.workflow_id),
            remedy="Name the workflow of the session, or leave session_token out to start a fresh one.",
        )


def _refuse_other_parent(parent: WorkflowCall, record: Record) -> None:
    if record.parent is None or record.parent.session != parent.session.id:
        raise WorkflowRefusal(
            "The session of session_token is not a child of the session of parent_session_token.",
            remedy="Leave parent_session_token out to continue the session, or session_token to start a child.",
        )


def _mismatches(asked: StartInput, claims: Claims, record: Record) -> list[str]:
    found = []
    if claims.aid and not matches_claim(claims.aid, asked.author):
        found.append(f"agent_id '{asked.agent}' does not match the inherited session token's agent_id '{claims.aid}'.")
    if asked.workflow_id and asked.workflow_id != record.workflow:
        found.append(f"workflow_id '{asked.workflow_id}' is ignored: the token belongs to workflow '{record.workflow}'.")
    return found


def new_call(session: str, record: Record, agent: str) -> WorkflowCall:
    """A call on a session that nothing has been committed of yet."""
    return WorkflowCall(blank_session(session, "workflow"), record, Claims(sid=session), agent)
