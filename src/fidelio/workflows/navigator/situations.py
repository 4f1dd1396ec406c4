"""Reads of the navigator dialect: the situation of a session, and the comparison of a state token with its record.

A call whose reply was lost is repeated with an old state token. It must not act on a later activity, visit or iteration, which
may have a step or a checkpoint of the same id. So a state acts only at the position at which it was made. The exception is a
repeated answer: its checkpoint instance is known, and the answer is confirmed.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from fidelio.definitions import META
from fidelio.definitions.models import Workflow
from fidelio.engine.checkpoints import find_instance
from fidelio.engine.moves import Situation, describe_situation
from fidelio.engine.record import (
    ANSWERED,
    CHILD_FINISHED,
    ENTERED,
    LOOP_ADVANCED,
    RESTORED,
    STARTED,
    STEP_COMPLETED,
    VARIABLES_SET,
    CheckpointAnswer,
    Record,
)
from fidelio.engine.state import Refusal
from fidelio.errors import DefinitionError, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.paging import all_events
from fidelio.workflows.loaded_content import ContentReference, LoadedContent, load_content
from fidelio.workflows.moves import move_not_allowed
from fidelio.workflows.navigator import messages
from fidelio.workflows.navigator.moves import with_server_level
from fidelio.workflows.session_definition import SessionDefinition, load_definition
from fidelio.workflows.tokens import CarriedSession, Claims, StateClaims, shorten_claim
from fidelio.workflows.unit_of_work import WorkflowCall, WorkflowUnit


class NavigatorView(msgspec.Struct, frozen=True):
    """The record of a session and its possible moves.

    `resources` are the numbers of the readable resources. `person`: the policy of the server demands a person for every answer.
    `wait_ms` is the time until a relayed answer is accepted; an earlier one cannot be the answer of a person.
    """

    session: str
    workflow: Workflow
    record: Record
    situation: Situation
    agent: str
    resources: tuple[str, ...] = ()
    person: bool = False
    wait_ms: int = 0


class SituationReader:
    """Builds the views of navigated sessions."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    def read_files(self, workflow_id: str) -> SessionDefinition:
        """Read the definition that a new session begins with."""
        version = self._unit.library.version(workflow_id)
        return _without_meta_entry(SessionDefinition(version.workflow, version))

    async def load_definition(self, session: str, record: Record, *, target: str = "") -> SessionDefinition:
        """Load the definition of a session; `target` is the activity that the call enters, if any."""
        return _without_meta_entry(await load_definition(self._unit, session, record, target=target))

    async def collect_carried(self, session: str, record: Record) -> list[CarriedSession]:
        """Collect the parents that wait for the session, and the session last, for a state token."""
        carried = [CarriedSession(session, record)]
        while (parent := carried[0].record.parent) is not None:
            try:
                call = await self._unit.load_claims(Claims(sid=parent.session))
            except SessionNotFound:
                break
            if carried[0].session not in [child.session for child in call.record.children]:
                break
            carried.insert(0, CarriedSession(parent.session, call.record))
        return carried

    async def build_view(
        self, session: str, definition: SessionDefinition, record: Record, agent: str, situation: Situation | None = None
    ) -> NavigatorView:
        """Build the view of a session; `situation` is passed if the caller has it already."""
        workflow, person = definition.workflow, self._unit.policy.demands_person
        situation = self._block_moves(situation or self._describe(workflow, record))
        wait = await self._remaining_wait(session, record, situation)
        resources = tuple(self._readable_resources(definition, record))
        return NavigatorView(session, workflow, record, situation, agent, resources, person, wait)

    def _describe(self, workflow: Workflow, record: Record) -> Situation:
        effective, person = with_server_level(self._unit, record), self._unit.policy.demands_person
        return describe_situation(workflow, effective, now=self._unit.clock(), person=person)

    async def load_resource(self, definition: SessionDefinition, record: Record, reference: str) -> LoadedContent | Refusal:
        """Load a resource if it is among the `resources` of the view."""
        numbers, name = self._readable_resources(definition, record), definition.workflow.id
        number = next((number for number in numbers if _is_same_number(number, reference)), "")
        if not number:
            problems = self._unit.library.resource_problems(name).items()
            problem = next((problem for number, problem in problems if _is_same_number(number, reference)), "")
            return messages.no_resource(record, reference, numbers, problem)
        try:
            return await load_content(self._unit, record, definition, ContentReference("resource", f"{name}/{number}"))
        except DefinitionError as problem:
            return Refusal("RESOURCE_NOT_FOUND", problem.sentence, problem.remedy)

    def _block_moves(self, situation: Situation) -> Situation:
        """Block the transitions for a worker, which may not move the session."""
        if self._unit.policy.allows_moves:
            return situation
        why, transitions = move_not_allowed().sentence, [move for move in situation.offered if move.action == "transition"]
        blocked = [replace(move, reason=why, code=messages.NOT_YOURS) for move in transitions]
        required = tuple(move for move in situation.required if move.action != "transition")
        optional = tuple(move for move in situation.optional if move.action != "transition")
        return replace(situation, required=required, optional=optional, blocked=(*situation.blocked, *blocked))

    async def _remaining_wait(self, session: str, record: Record, situation: Situation) -> int:
        minimum = self._unit.policy.min_response_ms if situation.checkpoint else 0
        if not minimum:
            return 0
        waiting = record.find_pending(situation.checkpoint)
        since = waiting.yielded_at if waiting is not None else await last_move_time(self._unit.ledger, session, record)
        return max(0, since + minimum - self._unit.clock())

    def _readable_resources(self, definition: SessionDefinition, record: Record) -> list[str]:
        """The numbers of the resources that can be read: from files, or from what the session has loaded before."""
        if not record.activity or record.waiting is not None:
            return []
        problems, prefix = self._unit.library.resource_problems(definition.workflow.id), f"resource {definition.workflow.id}/"
        readable = [number for number, problem in problems.items() if not problem]
        loaded = (key.removeprefix(prefix) for key in record.loaded if key.startswith(prefix))
        return [*readable, *(key for key in loaded if not any(_is_same_number(number, key) for number in readable))]


def _without_meta_entry(definition: SessionDefinition) -> SessionDefinition:
    """Remove the initial activity of `meta`: the agent selects from its independent activities."""
    if definition.workflow.id != META:
        return definition
    without_entry = definition.workflow.model_copy(update={"initial_activity": None})
    return msgspec.structs.replace(definition, workflow=without_entry)


def _is_same_number(number: str, reference: str) -> bool:
    """Compare numbers of resources: 3 is the same as 03."""
    if number.isdecimal() and reference.isdecimal():
        return int(number) == int(reference)
    return number == reference


# The events after which a checkpoint can become the next one. Reads and refused calls are not among them.
_MOVES = (STARTED, RESTORED, ENTERED, STEP_COMPLETED, LOOP_ADVANCED, ANSWERED, VARIABLES_SET, CHILD_FINISHED)
# Nearly always one of the last events is such a move, and reading these few is enough.
_RECENT = 64


def has_moved_on(call: WorkflowCall) -> bool:
    """Whether the session has left the activity, visit or iteration in which the token was made.

    A session token contains only the activity, and a short handle no position.
    """
    earlier, act = carried_record(call.claims), call.claims.act
    if earlier is not None:
        return _position(earlier) != _position(call.record)
    return act is not None and act != shorten_claim(call.record.activity)


def carried_record(claims: Claims) -> Record | None:
    """The record in a state token; None for other tokens, and for a state that was too large to carry it."""
    carried = claims.carried_sessions() if isinstance(claims, StateClaims) else ()
    return carried[-1].record if carried else None


async def find_earlier_answer(
    ledger: Ledger, call: WorkflowCall, workflow: Workflow, checkpoint: str
) -> CheckpointAnswer | None:
    """Find the answer to the checkpoint instance of a state token, if it came after the token was made."""
    earlier, claims = carried_record(call.claims), call.claims
    if earlier is None:
        request = claims.req if claims.bcp == shorten_claim(checkpoint) else None
        if request is None or any(pending.request == request for pending in call.record.pending):
            return None
        return await _read_answer(ledger, call.session.id, checkpoint, request=request)
    instance = find_instance(workflow, earlier, checkpoint)
    if not earlier.activity or earlier.find_answer_of(instance) is not None or call.record.find_open(instance) is not None:
        return None
    answer = call.record.find_answer_of(instance)
    if answer is not None or find_instance(workflow, call.record, checkpoint) == instance:
        return answer
    return await _read_answer(ledger, call.session.id, checkpoint, key=instance.key)


async def last_move_time(ledger: Ledger, session: str, record: Record) -> int:
    """The time of the last event after which a checkpoint could become the next checkpoint."""
    recent = await ledger.events(session, after=max(0, record.seq - _RECENT), types=_MOVES)
    return max((event.time for event in recent or await all_events(ledger, session, types=_MOVES)), default=0)


async def _read_answer(
    ledger: Ledger, session: str, checkpoint: str, *, request: str = "", key: str = ""
) -> CheckpointAnswer | None:
    for event in await all_events(ledger, session, types=(ANSWERED,)):
        body = event.body
        if request == body.get("request") or key == body.get("key"):
            option, mode, effect = body.get("option", ""), body.get("mode", "option"), body.get("effect") or {}
            who = (body["by"], body["channel"], body["assurance"])
            return CheckpointAnswer(checkpoint, "", 0, option, effect, *who, event.time, mode=mode)
    return None


def _position(record: Record) -> tuple[str, int, str, int, int]:
    visit, running = record.here, record.here.running
    if running is None:
        return visit.activity, visit.visit, "", 0, 0
    return visit.activity, visit.visit, running.loop, running.iteration, running.entered
