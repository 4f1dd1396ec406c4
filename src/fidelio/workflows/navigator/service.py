"""Service of the navigator dialect: returns the possible moves of a session, and accepts exactly those.

The state token of every reply opens the session again, here or on a server that shares the keys. While a session waits for its
child, calls with a token of either session show the child. A move is made only in the session that its token names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace as replace_fields
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.models.components import Resource
from fidelio.engine.answers import resolve_answer
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move, build_choice
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.moves import Situation
from fidelio.engine.record import CHILD_FINISHED, EventDraft, Record, fold_drafts
from fidelio.engine.state import Refusal
from fidelio.errors import DefinitionError, MoveRefused, Text
from fidelio.ids import new_session_id
from fidelio.inbox import NewRequest, assurance_of
from fidelio.ledger.paging import all_events
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.checkpoints import answer_refusal
from fidelio.workflows.content import decide_loading
from fidelio.workflows.moves import MoveService, move_not_allowed
from fidelio.workflows.navigator import messages
from fidelio.workflows.navigator.moves import (
    MovePlanner,
    circular_wait_error,
    draft_first_entry,
    find_elicited_option,
    is_end,
    refuse_missing_variables,
    with_server_level,
    yield_next_checkpoint,
)
from fidelio.workflows.navigator.situations import (
    NavigatorView,
    SituationReader,
    carried_record,
    find_earlier_answer,
    has_moved_on,
    last_move_time,
)
from fidelio.workflows.requests import close_answered_requests, yield_request
from fidelio.workflows.session_definition import SessionDefinition, missing_activity_warnings
from fidelio.workflows.start import ORCHESTRATOR, build_new_call
from fidelio.workflows.tokens import Claims
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit, build_events

# A longer chain of sessions that wait for each other is treated as a cycle.
MAX_WAITING_SESSIONS = 32


class NavigatorReply(msgspec.Struct, frozen=True):
    """The reply to a call: the view of the session after it, and the tokens that open the session."""

    view: NavigatorView
    message: str
    state: str
    token: str
    warnings: tuple[Text, ...] = ()
    resource: Resource | None = None
    definition: SessionDefinition | None = None


class _CallOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call. `switch_to` is the session in which the agent continues, if that is another session.

    `is_started`: the call has started that session; otherwise the session continues.
    """

    definition: SessionDefinition
    message: str = ""
    situation: Situation | None = None
    switch_to: str = ""
    is_started: bool = False
    resource: Resource | None = None


class _OtherSession(Exception):
    """The agent is currently in another session than the token names."""

    def __init__(self, session: str, agent: str) -> None:
        super().__init__(session)
        self.session = session
        self.agent = agent


class _RequestNotOpen(Exception):
    """A checkpoint that only a person may answer has no open request yet."""


class NavigatorService:
    """Carries out the calls of the navigator dialect."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit
        self._moves = MoveService(unit)
        self._planner = MovePlanner(unit)
        self._situations = SituationReader(unit)

    async def start(self, workflow_id: str, variables: Mapping[str, Any], *, agent: str = ORCHESTRATOR) -> NavigatorReply:
        """Start a session and enter its first activity, if only a single activity can be entered."""
        began, session, definition = self._unit.clock(), new_session_id(), self._situations.read_files(workflow_id)
        start = self._planner.build_start(definition.workflow, agent, variables, f"agent:{agent}")
        initial = fold_drafts(Record(), [EventDraft(start.event.type, dict(start.event.body))], began)
        warnings = self._unit.check_report(definition.workflow, initial, variables, definition.drift)
        refuse_missing_variables(definition.workflow, initial)
        call = build_new_call(session, initial, agent)
        consequences = await self._planner.plan(call, definition.workflow, draft_first_entry(definition.workflow, initial))
        message, child = messages.describe_start(definition.workflow), consequences.child
        outcome = _CallOutcome(definition, message, consequences.situation, child, is_started=bool(child))
        decision = WorkflowDecision(
            outcome,
            events=(start.event, *build_events(consequences.drafts, agent)),
            requests=consequences.requests,
            blobs=(start.snapshot,),
            warnings=(*warnings, *consequences.warnings, *missing_activity_warnings(definition.workflow)),
            create=start.create,
            linked=consequences.linked,
        )
        blank = replace(call, record=Record())
        return await self._build_reply(await self._unit.commit_call("nav_start", blank, decision, began))

    async def look(self, token: str, *, tool: str = "nav_situation") -> NavigatorReply:
        """Return the situation of the session, without changing it."""

        async def decide(_: WorkflowCall, definition: SessionDefinition) -> WorkflowDecision[_CallOutcome]:
            return WorkflowDecision(_CallOutcome(definition), warnings=definition.warnings)

        return await self._build_reply(await self._perform(tool, self._unit.open_token(token), decide, reading=""))

    async def read(self, token: str, reference: str, variables: Mapping[str, Any]) -> NavigatorReply:
        """Read a resource if that is possible now, and record the variables that the agent reports with the call."""

        async def decide(call: WorkflowCall, definition: SessionDefinition) -> WorkflowDecision[_CallOutcome]:
            warnings = self._unit.check_report(definition.workflow, call.record, variables, definition.drift)
            found = await self._situations.load_resource(definition, call.record, reference)
            if isinstance(found, Refusal):
                raise await self._refusal_error(call, definition, found)
            resource, warnings = found.loaded.definition, (*warnings, *found.warnings)
            outcome = _CallOutcome(definition, f"Resource {reference}: {resource.title or resource.name}", resource=resource)
            loading = decide_loading(call, definition, [found], outcome)
            if not variables:
                return replace(loading, warnings=warnings)
            report = await self._report_variables(call, outcome, variables, warnings)
            return replace(report, events=(*loading.events, *report.events), blobs=loading.blobs)

        claims, reading = self._unit.open_token(token), None if variables else reference
        return await self._build_reply(await self._perform("nav_action", claims, decide, reading=reading))

    async def _report_variables(
        self, call: WorkflowCall, outcome: _CallOutcome, variables: Mapping[str, Any], warnings: tuple[Text, ...]
    ) -> WorkflowDecision[_CallOutcome]:
        """Decide a call that only reports variables."""
        report = self._unit.draft_report(outcome.definition.workflow, call, variables)
        consequences = await self._planner.plan(call, outcome.definition.workflow, report)
        child, situation = consequences.child, consequences.situation
        return WorkflowDecision(
            replace(outcome, situation=situation, switch_to=child, is_started=bool(child)),
            events=build_events(consequences.drafts, call.agent),
            requests=consequences.requests,
            warnings=(*warnings, *consequences.warnings),
            linked=consequences.linked,
        )

    async def act(
        self, token: str, act: MoveRequest, variables: Mapping[str, Any], *, elicited: Collection[str] = ()
    ) -> NavigatorReply:
        """Make a move if it is possible, after recording the variables that the agent reports with it.

        `elicited` are the requests that this call has already elicited from a person: their answers are returned.
        """
        claims, target = self._unit.open_token(token), act.target if act.action == "transition" else ""

        async def decide(call: WorkflowCall, definition: SessionDefinition) -> WorkflowDecision[_CallOutcome]:
            if claims.sid != call.session.id:
                # The agent has not seen this session: a repeated call that ended the child must not end the parent, too.
                refusal = Refusal("STALE_STATE", *messages.describe_moved_on(definition.workflow))
                raise await self._refusal_error(call, definition, refusal)
            if act.answers and (option := find_elicited_option(call.record, act, elicited)) is not None:
                consequences = await self._planner.plan(call, definition.workflow, ())
                outcome = _CallOutcome(definition, messages.describe_answer(act.target, option), consequences.situation)
                events = build_events(consequences.drafts, call.agent)
                return WorkflowDecision(outcome, events=events, requests=consequences.requests)
            repeated = await self._confirm_repeated(call, definition, act)
            return repeated or await self._decide_move(call, definition, act, variables)

        async def decide_request(call: WorkflowCall, definition: SessionDefinition) -> WorkflowDecision[_CallOutcome]:
            checkpoint = find_current_checkpoint(definition.workflow, call.record, act.target)
            if checkpoint is None or call.record.waiting is not None:
                return WorkflowDecision(_CallOutcome(definition), unfinished=True)
            person = self._unit.policy.requests_demand_person
            draft, request = yield_request(definition.workflow, call.record, checkpoint, person=person)
            events = build_events([draft], call.agent)
            return WorkflowDecision(_CallOutcome(definition), events=events, requests=(request,), unfinished=True)

        try:
            return await self._build_reply(await self._perform("nav_action", claims, decide, target=target))
        except _RequestNotOpen:
            await self._perform("nav_action", claims, decide_request)
            return await self._build_reply(await self._perform("nav_action", claims, decide))

    async def _refuse_stale(self, call: WorkflowCall, definition: SessionDefinition) -> None:
        if has_moved_on(call):
            sentence, remedy = messages.describe_stale(carried_record(call.claims), call)
            raise await self._refusal_error(call, definition, Refusal("STALE_STATE", sentence, remedy))

    async def _confirm_repeated(
        self, call: WorkflowCall, definition: SessionDefinition, act: MoveRequest
    ) -> WorkflowDecision[_CallOutcome] | None:
        """Confirm a repeated answer, or refuse a different answer to the same request; neither changes the session."""
        workflow, record = definition.workflow, call.record
        earlier = await find_earlier_answer(self._unit.ledger, call, workflow, act.target) if act.answers else None
        if earlier is not None:
            context, choice = self._unit.answer_context(), build_choice(act)
            resolution = resolve_answer(workflow, record, choice, context, instance=earlier.instance, earlier=earlier)
            if isinstance(resolution, Refusal):
                raise await self._refusal_error(call, definition, resolution)
            warnings = self._unit.check_report(workflow, record, {}, definition.drift)
            message = messages.describe_answer(act.target, earlier.option or earlier.mode)
            return WorkflowDecision(_CallOutcome(definition, message), warnings=warnings)
        await self._refuse_stale(call, definition)
        return None

    async def _decide_move(
        self, call: WorkflowCall, definition: SessionDefinition, act: MoveRequest, variables: Mapping[str, Any]
    ) -> WorkflowDecision[_CallOutcome]:
        warnings = self._unit.check_report(definition.workflow, call.record, variables, definition.drift)
        report = self._unit.draft_report(definition.workflow, call, variables) if variables else []
        informed = replace(call, record=fold_drafts(call.record, report, self._unit.clock())) if report else call
        requests, drafts = await self._apply_move(call, informed.record, definition, act)
        step = act.target if act.action == "complete_step" else ""
        consequences = await self._planner.plan(informed, definition.workflow, drafts, step=step)
        parents = tuple[LinkedChange[Record], ...]()
        if is_end(definition.workflow, act):
            ended = fold_drafts(informed.record, drafts, self._unit.clock())
            parents = tuple([await self._continue_parent(change) for change in await self._moves.finish_in_parent(call, ended)])
        outcome = _CallOutcome(
            definition,
            messages.describe_move(definition.workflow, act, consequences.situation),
            consequences.situation,
            consequences.child or (parents[0].session if parents else ""),
            is_started=bool(consequences.child),
        )
        return WorkflowDecision(
            outcome,
            events=build_events([*report, *consequences.drafts], call.agent),
            requests=(*requests, *close_answered_requests(consequences.drafts), *consequences.requests),
            warnings=(*warnings, *messages.loop_warnings(drafts), *consequences.warnings),
            linked=(*consequences.linked, *parents),
        )

    async def _apply_move(
        self, call: WorkflowCall, informed: Record, definition: SessionDefinition, act: MoveRequest
    ) -> tuple[tuple[NewRequest, ...], list[EventDraft]]:
        """Return the events of the move, and the request that an answer opens if it is not open yet.

        `informed` is the record with the reported variables; a refusal shows the record without them.
        """
        policy, workflow = self._unit.policy, definition.workflow
        if act.action == "transition" and not policy.allows_moves:
            error = move_not_allowed()
            raise await self._refusal_error(call, definition, Refusal(messages.NOT_YOURS, error.sentence, error.remedy))
        requests: tuple[NewRequest, ...] = ()
        checkpoint = find_current_checkpoint(workflow, informed, act.target) if act.answers else None
        if checkpoint is not None and informed.find_pending(act.target) is None:
            _, request = yield_request(workflow, informed, checkpoint, person=policy.requests_demand_person)
            since = await last_move_time(self._unit.ledger, call.session.id, call.record)
            requests, act = (request,), replace_fields(act, request=request.id, reached=since)
        channel = "timer" if act.action == "take_default" else "relayed"
        actor = MoveActor(f"agent:{call.agent}", channel, assurance_of(channel))
        record, context = with_server_level(self._unit, informed), self._unit.answer_context()
        drafts = apply_move(workflow, record, act, context, actor, earlier=call.record if informed is not call.record else None)
        if isinstance(drafts, Refusal):
            raise await self._answer_error(call, definition, act, drafts)
        return requests, drafts

    async def _answer_error(
        self, call: WorkflowCall, definition: SessionDefinition, act: MoveRequest, refusal: Refusal
    ) -> Exception:
        if refusal.code != "checkpoint.person":
            return await self._refusal_error(call, definition, refusal)
        waiting = call.record.find_pending(act.target)
        return _RequestNotOpen() if waiting is None else answer_refusal(refusal, waiting.request)

    async def _refusal_error(self, call: WorkflowCall, definition: SessionDefinition, refusal: Refusal) -> MoveRefused:
        view = await self._situations.build_view(call.session.id, definition, call.record, call.agent)
        return MoveRefused(refusal.sentence, remedy=refusal.remedy, reason=refusal.code, standing=view)

    async def _continue_parent(self, parent: LinkedChange[Record]) -> LinkedChange[Record]:
        """Add to the change of a parent whose child has ended the request of its next checkpoint, if any."""
        now = self._unit.clock()
        after = fold_drafts(parent.before, parent.events, now)
        try:
            workflow = (await self._situations.load_definition(parent.session, after)).workflow
        except DefinitionError:
            # The parent continues once its definition can be loaded again.
            return parent
        if after.children:
            return parent
        person = self._unit.policy.requests_demand_person
        following = yield_next_checkpoint(workflow, with_server_level(self._unit, after), person=person, now=now)
        events = build_events(following.drafts, parent.events[0].actor)
        return replace(parent, events=(*parent.events, *events), requests=following.requests)

    async def _perform(
        self,
        tool: str,
        claims: Claims,
        decide: Callable[[WorkflowCall, SessionDefinition], Awaitable[WorkflowDecision[_CallOutcome]]],
        *,
        target: str = "",
        reading: str | None = None,
    ) -> CallResult[_CallOutcome]:
        """Carry out a call in the session that the agent is in; `target` is the activity that the call enters, if any."""

        async def decide_with_definition(call: WorkflowCall) -> WorkflowDecision[_CallOutcome]:
            await self._require_current(call)
            definition = await self._situations.load_definition(call.session.id, call.record, target=target)
            return replace(await decide(call, definition), definition=definition)

        for _ in range(MAX_WAITING_SESSIONS):
            try:
                return await self._unit.perform(tool, claims, decide_with_definition, reading=reading)
            except _OtherSession as other:
                claims = Claims(sid=other.session, aid=other.agent)
        raise circular_wait_error()

    async def _require_current(self, call: WorkflowCall) -> None:
        """Raise if the agent is in another session: in a child that this session waits for, or in a parent that continues."""
        record = call.record
        if record.suspended_by and not record.ended:
            raise _OtherSession(record.suspended_by, call.agent)
        if not record.ended or record.parent is None:
            return
        ended = await all_events(self._unit.ledger, record.parent.session, types=[CHILD_FINISHED])
        if any(event.body.get("session") == call.session.id for event in ended):
            raise _OtherSession(record.parent.session, call.agent)

    async def _build_reply(self, call_result: CallResult[_CallOutcome]) -> NavigatorReply:
        outcome, agent = call_result.result, call_result.agent
        session, record, definition, token = call_result.session, call_result.record, outcome.definition, call_result.token
        if outcome.switch_to:
            call = await self._load_current(Claims(sid=outcome.switch_to, aid=agent))
            session, record = call.session.id, call.record
            definition = await self._situations.load_definition(session, record)
            token = self._unit.tokens.make(session, record, agent=agent)
        situation = None if outcome.switch_to else outcome.situation
        view = await self._situations.build_view(session, definition, record, agent, situation)
        message = outcome.message or messages.describe_position(definition.workflow, record, view.situation)
        if outcome.switch_to:
            left, entered = outcome.definition.workflow, definition.workflow
            message = f"{message} {messages.describe_switch(left, entered, begins=outcome.is_started)}"
        state = self._unit.tokens.make_state(await self._situations.collect_carried(session, record), agent=agent)
        return NavigatorReply(view, message, state, token, call_result.warnings, outcome.resource, definition)

    async def load_view(self, token: str) -> NavigatorView:
        """Load the view of the session that the agent is in, for the reply to a call that was already recorded."""
        call = await self._load_current(self._unit.open_token(token))
        definition = await self._situations.load_definition(call.session.id, call.record)
        return await self._situations.build_view(call.session.id, definition, call.record, call.agent)

    async def _load_current(self, claims: Claims) -> WorkflowCall:
        for _ in range(MAX_WAITING_SESSIONS):
            call = await self._unit.load_claims(claims)
            try:
                await self._require_current(call)
            except _OtherSession as other:
                claims = Claims(sid=other.session, aid=call.agent)
            else:
                return call
        raise circular_wait_error()

    async def make_state(self, view: NavigatorView) -> str:
        """Make the state token of a view."""
        carried = await self._situations.collect_carried(view.session, view.record)
        return self._unit.tokens.make_state(carried, agent=view.agent)
