"""A session that the server leads: it says where the session stands and what is possible, and takes exactly that.

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
from fidelio.definitions.models.resource import Resource
from fidelio.engine.answers import AnswerContext, resolve_answer
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move, build_choice
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.moves import Situation
from fidelio.engine.problems import Refusal
from fidelio.engine.record import ANSWERED, CHILD_FINISHED, EventDraft, Record, fold_drafts
from fidelio.engine.transitions import ends_workflow
from fidelio.engine.variables import draft_report
from fidelio.errors import DefinitionDeleted, DefinitionError, MoveRefused, SessionNotFound
from fidelio.ids import new_session_id
from fidelio.inbox import assurance_of
from fidelio.ledger.model import CloseRequest, OpenRequest
from fidelio.ledger.paging import all_events
from fidelio.workflows.checkpoints import Asking, refused_answer
from fidelio.workflows.missing import left_out, lost_place
from fidelio.workflows.moves import Move, Moving, not_yours
from fidelio.workflows.navigator import wording as words
from fidelio.workflows.navigator.moves import Consequences, as_led, first_entry, reached
from fidelio.workflows.navigator.states import answered_before, is_elsewhere, last_moved, stood_at
from fidelio.workflows.navigator.survey import Standing, Survey
from fidelio.workflows.requests import closing, put
from fidelio.workflows.start import ORCHESTRATOR, unborn
from fidelio.workflows.tokens import Claims
from fidelio.workflows.unit_of_work import Beside, Decision, Desk, Opened, Outcome, written

# So many workflows may wait for each other; more would be a circle.
DEEPEST = 32


class Shown(msgspec.Struct, frozen=True):
    """The reply to a call: where the session stands after it, and the tokens that open it there."""

    standing: Standing
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


class Navigating:
    """Everything that leads an agent move by move."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asking = Asking(desk)
        self._moving = Moving(desk)
        self._consequences = Consequences(desk)
        self._survey = Survey(desk)

    async def start(self, workflow_id: str, variables: Mapping[str, Any], *, agent: str = ORCHESTRATOR) -> Shown:
        """A fresh session, inside its first activity where there is one to begin with."""
        began, session, version = self._desk.clock(), new_session_id(), self._survey.version(workflow_id)
        born = self._consequences.birth(version.workflow, agent, variables, f"agent:{agent}")
        fresh = fold_drafts(Record(), [EventDraft(born.event.type, dict(born.event.body))], began)
        said = self._asking.told(version, fresh, variables)
        unwritten = Opened(unborn(session), fresh, Claims(sid=session), agent)
        found = await self._consequences.of(unwritten, version.workflow, first_entry(version.workflow, fresh))
        decision = Decision(
            _Made(version, words.started(version.workflow), found.situation, found.child, begins=bool(found.child)),
            events=(born.event, *written(found.drafts, agent)),
            requests=found.requests,
            blobs=(born.snapshot,),
            warnings=(*said, *found.warnings, *left_out(version.workflow)),
            create=born.create,
            beside=found.beside,
        )
        opened = replace(unwritten, record=Record())
        called = self._desk.called("nav_start", opened, began, warnings=decision.warnings)
        return await self._shown(await self._desk.write(opened, decision, called))

    async def look(self, token: str, *, tool: str = "nav_situation") -> Shown:
        """Where the session stands. Looking changes nothing."""

        async def decide(opened: Opened) -> Decision[_Made]:
            await self._here(opened)
            version, gone = self._survey.of(opened)
            found = self._survey.recall(opened.session.id, opened.record, version)
            lost = gone or lost_place(self._desk, opened, version.workflow)
            said = (str(lost),) if lost is not None else self._asking.told(version, opened.record, {})
            return Decision(_Made(version, situation=found), warnings=said)

        return await self._shown(await self._performed(tool, self._desk.claims(token), decide))

    async def read(self, token: str, reference: str, variables: Mapping[str, Any]) -> Shown:
        """A resource, where reading one is possible now. What the agent reports with the call is put on record."""

        async def decide(opened: Opened) -> Decision[_Made]:
            await self._here(opened)
            version, gone = self._survey.of(opened)
            if gone is not None:
                raise gone
            said = self._asking.told(version, opened.record, variables)
            resource = self._survey.resource(version, opened.record, reference)
            if isinstance(resource, Refusal):
                raise await self._no(opened, version, resource)
            made = _Made(version, f"Resource {reference}: {resource.title or resource.name}", resource=resource)
            return await self._informed(opened, made, variables, said) if variables else Decision(made, warnings=said)

        return await self._shown(await self._performed("nav_action", self._desk.claims(token), decide))

    async def _informed(
        self, opened: Opened, made: _Made, variables: Mapping[str, Any], said: tuple[str, ...]
    ) -> Decision[_Made]:
        """What follows from knowing more."""
        found = await self._consequences.of(opened, made.version.workflow, self._telling(made.version, opened, variables))
        return Decision(
            replace(made, situation=found.situation, goes_to=found.child, begins=bool(found.child)),
            events=written(found.drafts, opened.agent),
            requests=found.requests,
            warnings=(*said, *found.warnings),
            beside=found.beside,
        )

    async def act(
        self, token: str, act: MoveRequest, variables: Mapping[str, Any], *, asked_person: Collection[str] = ()
    ) -> Shown:
        """Makes one move, if it is one of those that are possible, after what the agent reports with it.

        `asked_person` are the requests that this very call has put to a person: it learns what they said.
        """

        claims = self._desk.claims(token)

        async def decide(opened: Opened) -> Decision[_Made]:
            await self._here(opened)
            version, gone = self._survey.of(opened)
            if claims.sid != opened.session.id:
                # Whoever sends a move into another session has not seen it: a repeated call must not end the parent, too.
                raise await self._no(opened, version, Refusal("STALE_STATE", *words.moved_on(version.workflow)))
            if gone is None and _ends(version.workflow, act):
                gone = lost_place(self._desk, opened, version.workflow)
            if gone is not None:
                return await self._last(opened, version, Move(_way(act), variables=variables), gone)
            if act.answers and (given := _given(opened.record, act, asked_person)) is not None:
                found = await self._consequences.of(opened, version.workflow, ())
                made = _Made(version, words.answered(act.target, given), found.situation)
                return Decision(made, events=written(found.drafts, opened.agent), requests=found.requests)
            # What nothing has come after is neither stale nor a repetition.
            newest = self._survey.has_shown(opened.session.id, opened.record, token)
            repeated = None if newest else await self._repeated(opened, version, act)
            return repeated or await self._decided(opened, version, act, variables)

        async def ask(opened: Opened) -> Decision[_Made]:
            await self._here(opened)
            version, _ = self._survey.of(opened)
            checkpoint = find_current_checkpoint(version.workflow, opened.record, act.target)
            if checkpoint is None or opened.record.waiting is not None:
                return Decision(_Made(version), unfinished=True)
            person = self._desk.rules.asks_person
            draft, request = put(version.workflow, opened.record, checkpoint, person=person)
            return Decision(_Made(version), events=written([draft], opened.agent), requests=(request,), unfinished=True)

        try:
            return await self._shown(await self._performed("nav_action", claims, decide))
        except _NotAsked:
            await self._performed("nav_action", claims, ask)
            return await self._shown(await self._performed("nav_action", claims, decide))

    async def _last(self, opened: Opened, version: WorkflowVersion, move: Move, gone: DefinitionDeleted) -> Decision[_Made]:
        """The end of a session whose definition is gone; any other move needs it."""
        if is_elsewhere(opened):
            raise await self._no(opened, version, Refusal("STALE_STATE", *words.stale(stood_at(opened.claims), opened)))
        end = await self._moving.last_move(opened, move, gone)
        back = tuple(map(self._going_on, end.beside))
        made = _Made(version, words.completed(version.workflow), goes_to=back[0].session if back else "")
        return Decision(made, end.events, end.requests, warnings=end.warnings, beside=back)

    async def _repeated(self, opened: Opened, version: WorkflowVersion, act: MoveRequest) -> Decision[_Made] | None:
        """An answer that comes once more is confirmed, another one to the same question refused; neither touches anything."""
        workflow, record = version.workflow, opened.record
        given = await answered_before(self._desk.ledger, opened, workflow, act.target) if act.answers else None
        if given is not None:
            found = resolve_answer(workflow, record, build_choice(act), self._how(), instance=given.instance, earlier=given)
            if isinstance(found, Refusal):
                raise await self._no(opened, version, found)
            said = self._asking.told(version, record, {})
            return Decision(_Made(version, words.answered(act.target, given.option or given.mode)), warnings=said)
        if is_elsewhere(opened):
            raise await self._no(opened, version, Refusal("STALE_STATE", *words.stale(stood_at(opened.claims), opened)))
        return None

    async def _decided(
        self, opened: Opened, version: WorkflowVersion, act: MoveRequest, variables: Mapping[str, Any]
    ) -> Decision[_Made]:
        said = self._asking.told(version, opened.record, variables)
        told = self._telling(version, opened, variables) if variables else []
        informed = replace(opened, record=fold_drafts(opened.record, told, self._desk.clock())) if told else opened
        asks, drafts = await self._accepted(opened, informed.record, version, act)
        step = act.target if act.action == "complete_step" else ""
        found = await self._consequences.of(informed, version.workflow, drafts, step=step)
        ended = fold_drafts(informed.record, drafts, self._desk.clock()) if _ends(version.workflow, act) else None
        back = await self._back(opened, ended) if ended is not None else ()
        made = _Made(
            version,
            words.made(version.workflow, act, found.situation),
            found.situation,
            found.child or (back[0].session if back else ""),
            begins=bool(found.child),
        )
        return Decision(
            made,
            events=written([*told, *found.drafts], opened.agent),
            requests=(*asks, *_closed(found.drafts), *found.requests),
            warnings=(*said, *words.left_out(drafts), *found.warnings),
            beside=(*found.beside, *back),
        )

    def _telling(self, version: WorkflowVersion, opened: Opened, variables: Mapping[str, Any]) -> list[EventDraft]:
        person = self._desk.rules.answered_by_person
        return draft_report(version.workflow, opened.record, variables, opened.agent, person=person)

    def _how(self) -> AnswerContext:
        rules = self._desk.rules
        return AnswerContext(self._desk.clock(), demands_person=rules.answered_by_person, min_response_ms=rules.min_response_ms)

    async def _accepted(
        self, opened: Opened, informed: Record, version: WorkflowVersion, act: MoveRequest
    ) -> tuple[tuple[OpenRequest, ...], list[EventDraft]]:
        """The events of the move, and the question that they put on record when nobody has put it there before.

        `informed` is the record with what the agent reports; a refusal shows the one that stays.
        """
        rules, workflow = self._desk.rules, version.workflow
        if act.action == "transition" and not rules.moves:
            why = not_yours()
            raise await self._no(opened, version, Refusal(words.NOT_YOURS, why.sentence, why.remedy))
        asks: tuple[OpenRequest, ...] = ()
        checkpoint = find_current_checkpoint(workflow, informed, act.target) if act.answers else None
        if checkpoint is not None and informed.find_pending(act.target) is None:
            _, asked = put(workflow, informed, checkpoint, person=rules.asks_person)
            since = await last_moved(self._desk.ledger, opened.session.id, opened.record)
            asks, act = (asked,), replaced(act, request=asked.id, reached=since)
        channel = "timer" if act.action == "take_default" else "relayed"
        known = self._survey.recall(opened.session.id, informed, version) if informed is opened.record else None
        actor = MoveActor(f"agent:{opened.agent}", channel, assurance_of(channel))
        found = apply_move(workflow, as_led(self._desk, informed), act, self._how(), actor, found=known)
        if isinstance(found, Refusal):
            raise await self._unacceptable(opened, version, act, found)
        return asks, found

    async def _unacceptable(self, opened: Opened, version: WorkflowVersion, act: MoveRequest, no: Refusal) -> Exception:
        if no.code != "checkpoint.person":
            return await self._no(opened, version, no)
        waiting = opened.record.find_pending(act.target)
        return _NotAsked() if waiting is None else refused_answer(no, waiting.request)

    async def _no(self, opened: Opened, version: WorkflowVersion, no: Refusal) -> MoveRefused:
        standing = await self._survey.standing(opened.session.id, version, opened.record, opened.agent)
        return MoveRefused(no.sentence, remedy=no.remedy, reason=no.code, standing=standing)

    async def _back(self, opened: Opened, record: Record) -> tuple[Beside, ...]:
        """The parent that waits for this session goes on with its end; what it comes to then is put on record with it."""
        return tuple(map(self._going_on, await self._moving.returning(opened, record)))

    def _going_on(self, parent: Beside) -> Beside:
        now = self._desk.clock()
        after = fold_drafts(parent.before, parent.events, now)
        try:
            workflow = self._survey.version(after.workflow).workflow
        except DefinitionError:
            # It goes on once its own definition is back.
            return parent
        if after.children:
            return parent
        asks = reached(workflow, as_led(self._desk, after), person=self._desk.rules.asks_person, now=now)
        more = written(asks.drafts, parent.events[0].actor)
        return replace(parent, events=(*parent.events, *more), requests=asks.requests)

    async def _performed(
        self, tool: str, claims: Claims, decide: Callable[[Opened], Awaitable[Decision[_Made]]]
    ) -> Outcome[_Made]:
        """Carries the call out in the session that the agent is in."""
        for _ in range(DEEPEST):
            try:
                return await self._desk.perform(tool, claims, decide)
            except _Elsewhere as where:
                claims = Claims(sid=where.session, aid=claims.aid)
        raise _circle()

    async def _here(self, opened: Opened) -> None:
        """Raises where the agent is in another session: in a child that this one waits for, or in a parent that goes on."""
        record = opened.record
        if record.suspended_by and record.status != "completed":
            raise _Elsewhere(record.suspended_by)
        if record.status != "completed" or record.parent is None:
            return
        ended = await all_events(self._desk.ledger, record.parent.session, types=[CHILD_FINISHED])
        if any(event.body.get("session") == opened.session.id for event in ended):
            raise _Elsewhere(record.parent.session)

    async def _shown(self, outcome: Outcome[_Made]) -> Shown:
        made, agent = outcome.result, outcome.agent
        session, record, version, token = outcome.session, outcome.record, made.version, outcome.token
        if made.goes_to:
            opened = await self._followed(Claims(sid=made.goes_to, aid=agent))
            session, record, (version, _) = opened.session.id, opened.record, self._survey.of(opened)
            token = self._desk.tokens.make(session, record, agent=agent)
        found = None if made.goes_to else made.situation
        standing = await self._survey.standing(session, version, record, agent, found)
        message = made.message or words.standing(version.workflow, record, standing.situation)
        if made.goes_to:
            message = f"{message} {words.elsewhere(made.version.workflow, version.workflow, begins=made.begins)}"
        state = self._desk.tokens.make_state(await self._survey.carried(session, record), agent=agent)
        self._survey.remember(standing, version, state)
        return Shown(standing, message, state, token, outcome.warnings, made.resource)

    async def standing(self, token: str) -> Standing:
        """Where the agent is, for a reply to a call that is on record already."""
        opened = await self._followed(self._desk.claims(token))
        version, _ = self._survey.of(opened)
        return await self._survey.standing(opened.session.id, version, opened.record, opened.agent)

    async def _followed(self, claims: Claims) -> Opened:
        for _ in range(DEEPEST):
            opened = await self._desk.open_claims(claims)
            try:
                await self._here(opened)
            except _Elsewhere as where:
                claims = Claims(sid=where.session, aid=claims.aid)
            else:
                return opened
        raise _circle()

    async def state_of(self, standing: Standing) -> str:
        """The token that opens a session where it stands."""
        carried = await self._survey.carried(standing.session, standing.record)
        return self._desk.tokens.make_state(carried, agent=standing.agent)


def _circle() -> SessionNotFound:
    return SessionNotFound("These sessions wait for each other.", remedy="Look at them with `fidelio sessions`.")


def _given(record: Record, act: MoveRequest, asked_person: Collection[str]) -> str | None:
    """What the person has answered whom this call has asked."""
    last = record.last
    if last is None or last.checkpoint != act.target or last.request not in asked_person:
        return None
    return None if record.find_pending(act.target) else last.option


def _closed(drafts: tuple[EventDraft, ...]) -> tuple[CloseRequest, ...]:
    return tuple(closing(draft.body) for draft in drafts if draft.type == ANSWERED)


def _way(act: MoveRequest) -> str:
    return act.target if act.action == "transition" else ""


def _ends(workflow: Workflow, act: MoveRequest) -> bool:
    return act.action == "transition" and ends_workflow(workflow, act.target)
