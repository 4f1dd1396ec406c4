"""Service of the navigator dialect: says which moves are possible in a session, and accepts exactly those.

The state token of every reply opens the session again, here or on a server that shares the keys. Where a workflow waits for
one that it has started, that one is shown until it has ended, whichever of the two a token was made for. A move is made only
in the session that its token names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace as replaced
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.library import WorkflowVersion
from fidelio.definitions.models import Workflow
from fidelio.definitions.models.components import Resource
from fidelio.engine.answers import AnswerContext, resolve_answer
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move, build_choice
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.moves import Situation
from fidelio.engine.record import CHILD_FINISHED, EventDraft, Record, fold_drafts
from fidelio.engine.state import Refusal
from fidelio.engine.transitions import ends_workflow
from fidelio.engine.variables import draft_report
from fidelio.errors import DefinitionDeleted, DefinitionError, MoveRefused, SessionNotFound
from fidelio.ids import new_session_id
from fidelio.inbox import NewRequest, assurance_of
from fidelio.ledger.paging import all_events
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.checkpoints import CheckpointService, answer_refusal
from fidelio.workflows.missing import deleted_activity_error, missing_activity_warnings
from fidelio.workflows.moves import Move, MoveService, move_not_allowed
from fidelio.workflows.navigator import wording as words
from fidelio.workflows.navigator.moves import Consequences, first_entry, reach_checkpoint, with_server_level
from fidelio.workflows.navigator.states import carried_record, find_earlier_answer, has_moved_on, last_move_time
from fidelio.workflows.navigator.survey import NavigatorView, SituationReader
from fidelio.workflows.requests import close_answered, yield_request
from fidelio.workflows.start import ORCHESTRATOR, new_call
from fidelio.workflows.tokens import Claims
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit, new_events

# So many workflows may wait for each other; more would be a circle.
DEEPEST = 32


class NavigatorReply(msgspec.Struct, frozen=True):
    """The reply to a call: where the session stands after it, and the tokens that open it there."""

    standing: NavigatorView
    message: str
    state: str
    token: str
    warnings: tuple[str, ...] = ()
    resource: Resource | None = None


class _Made(msgspec.Struct, frozen=True):
    """What a call has come to. `goes_to` is the session that the agent is in now, where that is another one.

    `begins`: that one has begun with this call; else it goes on.
    """

    version: WorkflowVersion
    message: str = ""
    situation: Situation | None = None
    goes_to: str = ""
    begins: bool = False
    resource: Resource | None = None


class _Elsewhere(Exception):
    """The session that a token names is not the one that the agent is in."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session


class _NotAsked(Exception):
    """A question that only a person may answer has not been put on record yet."""


class NavigatorService:
    """Everything that leads an agent move by move."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit
        self._checkpoints = CheckpointService(unit)
        self._moves = MoveService(unit)
        self._consequences = Consequences(unit)
        self._survey = SituationReader(unit)

    async def start(self, workflow_id: str, variables: Mapping[str, Any], *, agent: str = ORCHESTRATOR) -> NavigatorReply:
        """A fresh session, inside its first activity where there is one to begin with."""
        began, session, version = self._unit.clock(), new_session_id(), self._survey.version(workflow_id)
        born = self._consequences.birth(version.workflow, agent, variables, f"agent:{agent}")
        fresh = fold_drafts(Record(), [EventDraft(born.event.type, dict(born.event.body))], began)
        said = self._checkpoints.variable_warnings(version, fresh, variables)
        begun = new_call(session, fresh, agent)
        found = await self._consequences.of(begun, version.workflow, first_entry(version.workflow, fresh))
        decision = WorkflowDecision(
            _Made(version, words.describe_start(version.workflow), found.situation, found.child, begins=bool(found.child)),
            events=(born.event, *new_events(found.drafts, agent)),
            requests=found.requests,
            blobs=(born.snapshot,),
            warnings=(*said, *found.warnings, *missing_activity_warnings(version.workflow)),
            create=born.create,
            linked=found.linked,
        )
        blank = replace(begun, record=Record())
        return await self._shown(await self._unit.commit_call("nav_start", blank, decision, began))

    async def look(self, token: str, *, tool: str = "nav_situation") -> NavigatorReply:
        """Where the session stands. Looking changes nothing."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[_Made]:
            await self._here(call)
            version, gone = self._survey.of(call)
            found = self._survey.recall(call.session.id, call.record, version)
            lost = gone or deleted_activity_error(self._unit, call, version.workflow)
            said = (str(lost),) if lost is not None else self._checkpoints.variable_warnings(version, call.record, {})
            return WorkflowDecision(_Made(version, situation=found), warnings=said)

        return await self._shown(await self._performed(tool, self._unit.claims(token), decide))

    async def read(self, token: str, reference: str, variables: Mapping[str, Any]) -> NavigatorReply:
        """A resource, where reading one is possible now. What the agent reports with the call is put on record."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[_Made]:
            await self._here(call)
            version, gone = self._survey.of(call)
            if gone is not None:
                raise gone
            said = self._checkpoints.variable_warnings(version, call.record, variables)
            resource = self._survey.resource(version, call.record, reference)
            if isinstance(resource, Refusal):
                raise await self._no(call, version, resource)
            made = _Made(version, f"Resource {reference}: {resource.title or resource.name}", resource=resource)
            return await self._informed(call, made, variables, said) if variables else WorkflowDecision(made, warnings=said)

        return await self._shown(await self._performed("nav_action", self._unit.claims(token), decide))

    async def _informed(
        self, call: WorkflowCall, made: _Made, variables: Mapping[str, Any], said: tuple[str, ...]
    ) -> WorkflowDecision[_Made]:
        """What follows from knowing more."""
        found = await self._consequences.of(call, made.version.workflow, self._telling(made.version, call, variables))
        return WorkflowDecision(
            replace(made, situation=found.situation, goes_to=found.child, begins=bool(found.child)),
            events=new_events(found.drafts, call.agent),
            requests=found.requests,
            warnings=(*said, *found.warnings),
            linked=found.linked,
        )

    async def act(
        self, token: str, act: MoveRequest, variables: Mapping[str, Any], *, asked_person: Collection[str] = ()
    ) -> NavigatorReply:
        """Makes one move, if it is one of those that are possible, after what the agent reports with it.

        `asked_person` are the requests that this very call has put to a person: it learns what they said.
        """

        claims = self._unit.claims(token)

        async def decide(call: WorkflowCall) -> WorkflowDecision[_Made]:
            await self._here(call)
            version, gone = self._survey.of(call)
            if claims.sid != call.session.id:
                # Whoever sends a move into another session has not seen it: a repeated call must not end the parent, too.
                raise await self._no(call, version, Refusal("STALE_STATE", *words.describe_moved_on(version.workflow)))
            if gone is None and _ends(version.workflow, act):
                gone = deleted_activity_error(self._unit, call, version.workflow)
            if gone is not None:
                return await self._last(call, version, Move(_way(act), variables=variables), gone)
            if act.answers and (given := _given(call.record, act, asked_person)) is not None:
                found = await self._consequences.of(call, version.workflow, ())
                made = _Made(version, words.describe_answer(act.target, given), found.situation)
                return WorkflowDecision(made, events=new_events(found.drafts, call.agent), requests=found.requests)
            # What nothing has come after is neither stale nor a repetition.
            newest = self._survey.has_shown(call.session.id, call.record, token)
            repeated = None if newest else await self._repeated(call, version, act)
            return repeated or await self._decided(call, version, act, variables)

        async def ask(call: WorkflowCall) -> WorkflowDecision[_Made]:
            await self._here(call)
            version, _ = self._survey.of(call)
            checkpoint = find_current_checkpoint(version.workflow, call.record, act.target)
            if checkpoint is None or call.record.waiting is not None:
                return WorkflowDecision(_Made(version), unfinished=True)
            person = self._unit.policy.asks_person
            draft, request = yield_request(version.workflow, call.record, checkpoint, person=person)
            return WorkflowDecision(
                _Made(version), events=new_events([draft], call.agent), requests=(request,), unfinished=True
            )

        try:
            return await self._shown(await self._performed("nav_action", claims, decide))
        except _NotAsked:
            await self._performed("nav_action", claims, ask)
            return await self._shown(await self._performed("nav_action", claims, decide))

    async def _last(
        self, call: WorkflowCall, version: WorkflowVersion, move: Move, gone: DefinitionDeleted
    ) -> WorkflowDecision[_Made]:
        """The end of a session whose definition is gone; any other move needs it."""
        await self._refuse_stale(call, version)
        end = await self._moves.last_move(call, move, gone)
        back = tuple(map(self._going_on, end.linked))
        made = _Made(version, words.describe_end(version.workflow), goes_to=back[0].session if back else "")
        return WorkflowDecision(made, end.events, end.requests, warnings=end.warnings, linked=back)

    async def _refuse_stale(self, call: WorkflowCall, version: WorkflowVersion) -> None:
        if has_moved_on(call):
            sentence, remedy = words.describe_stale(carried_record(call.claims), call)
            raise await self._no(call, version, Refusal("STALE_STATE", sentence, remedy))

    async def _repeated(self, call: WorkflowCall, version: WorkflowVersion, act: MoveRequest) -> WorkflowDecision[_Made] | None:
        """An answer that comes once more is confirmed, another one to the same question refused; neither touches anything."""
        workflow, record = version.workflow, call.record
        given = await find_earlier_answer(self._unit.ledger, call, workflow, act.target) if act.answers else None
        if given is not None:
            found = resolve_answer(workflow, record, build_choice(act), self._how(), instance=given.instance, earlier=given)
            if isinstance(found, Refusal):
                raise await self._no(call, version, found)
            said = self._checkpoints.variable_warnings(version, record, {})
            return WorkflowDecision(
                _Made(version, words.describe_answer(act.target, given.option or given.mode)), warnings=said
            )
        await self._refuse_stale(call, version)
        return None

    async def _decided(
        self, call: WorkflowCall, version: WorkflowVersion, act: MoveRequest, variables: Mapping[str, Any]
    ) -> WorkflowDecision[_Made]:
        said = self._checkpoints.variable_warnings(version, call.record, variables)
        told = self._telling(version, call, variables) if variables else []
        informed = replace(call, record=fold_drafts(call.record, told, self._unit.clock())) if told else call
        asks, drafts = await self._accepted(call, informed.record, version, act)
        step = act.target if act.action == "complete_step" else ""
        found = await self._consequences.of(informed, version.workflow, drafts, step=step)
        ended = fold_drafts(informed.record, drafts, self._unit.clock()) if _ends(version.workflow, act) else None
        back = await self._back(call, ended) if ended is not None else ()
        made = _Made(
            version,
            words.describe_move(version.workflow, act, found.situation),
            found.situation,
            found.child or (back[0].session if back else ""),
            begins=bool(found.child),
        )
        return WorkflowDecision(
            made,
            events=new_events([*told, *found.drafts], call.agent),
            requests=(*asks, *close_answered(found.drafts), *found.requests),
            warnings=(*said, *words.loop_warnings(drafts), *found.warnings),
            linked=(*found.linked, *back),
        )

    def _telling(self, version: WorkflowVersion, call: WorkflowCall, variables: Mapping[str, Any]) -> list[EventDraft]:
        person = self._unit.policy.answered_by_person
        return draft_report(version.workflow, call.record, variables, call.agent, person=person)

    def _how(self) -> AnswerContext:
        rules = self._unit.policy
        return AnswerContext(self._unit.clock(), demands_person=rules.answered_by_person, min_response_ms=rules.min_response_ms)

    async def _accepted(
        self, call: WorkflowCall, informed: Record, version: WorkflowVersion, act: MoveRequest
    ) -> tuple[tuple[NewRequest, ...], list[EventDraft]]:
        """The events of the move, and the question that they put on record when nobody has put it there before.

        `informed` is the record with what the agent reports; a refusal shows the one that stays.
        """
        rules, workflow = self._unit.policy, version.workflow
        if act.action == "transition" and not rules.moves:
            why = move_not_allowed()
            raise await self._no(call, version, Refusal(words.NOT_YOURS, why.sentence, why.remedy))
        asks: tuple[NewRequest, ...] = ()
        checkpoint = find_current_checkpoint(workflow, informed, act.target) if act.answers else None
        if checkpoint is not None and informed.find_pending(act.target) is None:
            _, asked = yield_request(workflow, informed, checkpoint, person=rules.asks_person)
            since = await last_move_time(self._unit.ledger, call.session.id, call.record)
            asks, act = (asked,), replaced(act, request=asked.id, reached=since)
        channel = "timer" if act.action == "take_default" else "relayed"
        known = self._survey.recall(call.session.id, informed, version) if informed is call.record else None
        actor = MoveActor(f"agent:{call.agent}", channel, assurance_of(channel))
        found = apply_move(workflow, with_server_level(self._unit, informed), act, self._how(), actor, found=known)
        if isinstance(found, Refusal):
            raise await self._unacceptable(call, version, act, found)
        return asks, found

    async def _unacceptable(self, call: WorkflowCall, version: WorkflowVersion, act: MoveRequest, no: Refusal) -> Exception:
        if no.code != "checkpoint.person":
            return await self._no(call, version, no)
        waiting = call.record.find_pending(act.target)
        return _NotAsked() if waiting is None else answer_refusal(no, waiting.request)

    async def _no(self, call: WorkflowCall, version: WorkflowVersion, no: Refusal) -> MoveRefused:
        standing = await self._survey.standing(call.session.id, version, call.record, call.agent)
        return MoveRefused(no.sentence, remedy=no.remedy, reason=no.code, standing=standing)

    async def _back(self, call: WorkflowCall, record: Record) -> tuple[LinkedChange[Record], ...]:
        """The parent that waits for this session goes on with its end; what it comes to then is put on record with it."""
        return tuple(map(self._going_on, await self._moves.finish_in_parent(call, record)))

    def _going_on(self, parent: LinkedChange[Record]) -> LinkedChange[Record]:
        now = self._unit.clock()
        after = fold_drafts(parent.before, parent.events, now)
        try:
            workflow = self._survey.version(after.workflow).workflow
        except DefinitionError:
            # It goes on once its own definition is back.
            return parent
        if after.children:
            return parent
        asks = reach_checkpoint(workflow, with_server_level(self._unit, after), person=self._unit.policy.asks_person, now=now)
        more = new_events(asks.drafts, parent.events[0].actor)
        return replace(parent, events=(*parent.events, *more), requests=asks.requests)

    async def _performed(
        self, tool: str, claims: Claims, decide: Callable[[WorkflowCall], Awaitable[WorkflowDecision[_Made]]]
    ) -> CallResult[_Made]:
        """Carries the call out in the session that the agent is in."""
        for _ in range(DEEPEST):
            try:
                return await self._unit.perform(tool, claims, decide)
            except _Elsewhere as where:
                claims = Claims(sid=where.session, aid=claims.aid)
        raise _circle()

    async def _here(self, call: WorkflowCall) -> None:
        """Raises where the agent is in another session: in a child that this one waits for, or in a parent that goes on."""
        record = call.record
        if record.suspended_by and record.status != "completed":
            raise _Elsewhere(record.suspended_by)
        if record.status != "completed" or record.parent is None:
            return
        ended = await all_events(self._unit.ledger, record.parent.session, types=[CHILD_FINISHED])
        if any(event.body.get("session") == call.session.id for event in ended):
            raise _Elsewhere(record.parent.session)

    async def _shown(self, outcome: CallResult[_Made]) -> NavigatorReply:
        made, agent = outcome.result, outcome.agent
        session, record, version, token = outcome.session, outcome.record, made.version, outcome.token
        if made.goes_to:
            call = await self._followed(Claims(sid=made.goes_to, aid=agent))
            session, record, (version, _) = call.session.id, call.record, self._survey.of(call)
            token = self._unit.tokens.make(session, record, agent=agent)
        found = None if made.goes_to else made.situation
        standing = await self._survey.standing(session, version, record, agent, found)
        message = made.message or words.describe_position(version.workflow, record, standing.situation)
        if made.goes_to:
            message = f"{message} {words.describe_switch(made.version.workflow, version.workflow, begins=made.begins)}"
        state = self._unit.tokens.make_state(await self._survey.carried(session, record), agent=agent)
        self._survey.remember(standing, version, state)
        return NavigatorReply(standing, message, state, token, outcome.warnings, made.resource)

    async def standing(self, token: str) -> NavigatorView:
        """Where the agent is, for a reply to a call that is on record already."""
        call = await self._followed(self._unit.claims(token))
        version, _ = self._survey.of(call)
        return await self._survey.standing(call.session.id, version, call.record, call.agent)

    async def _followed(self, claims: Claims) -> WorkflowCall:
        for _ in range(DEEPEST):
            call = await self._unit.load_claims(claims)
            try:
                await self._here(call)
            except _Elsewhere as where:
                claims = Claims(sid=where.session, aid=claims.aid)
            else:
                return call
        raise _circle()

    async def state_of(self, standing: NavigatorView) -> str:
        """The token that opens a session where it stands."""
        carried = await self._survey.carried(standing.session, standing.record)
        return self._unit.tokens.make_state(carried, agent=standing.agent)


def _circle() -> SessionNotFound:
    return SessionNotFound("These sessions wait for each other.", remedy="Look at them with `fidelio sessions`.")


def _given(record: Record, act: MoveRequest, asked_person: Collection[str]) -> str | None:
    """What the person has answered whom this call has asked."""
    last = record.last
    if last is None or last.checkpoint != act.target or last.request not in asked_person:
        return None
    return None if record.find_pending(act.target) else last.option


def _way(act: MoveRequest) -> str:
    return act.target if act.action == "transition" else ""


def _ends(workflow: Workflow, act: MoveRequest) -> bool:
    return act.action == "transition" and ends_workflow(workflow, act.target)
