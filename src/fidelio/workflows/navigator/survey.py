"""Reads the situation of a navigated session: what is possible now, also where its definition was deleted.

Without a definition only the end is possible. Where only the current activity was deleted, the end is offered in addition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from fidelio.definitions import META
from fidelio.definitions.library import DefinitionSource, WorkflowVersion
from fidelio.definitions.models import Workflow
from fidelio.definitions.models.components import Resource
from fidelio.engine.moves import PossibleMove, SessionPosition, Situation, describe_situation
from fidelio.engine.record import Record
from fidelio.engine.state import Refusal
from fidelio.engine.transitions import TERMINAL, is_activity_missing
from fidelio.errors import ComponentNotFound, DefinitionDeleted, DefinitionError, SessionNotFound, WorkflowRefusal
from fidelio.workflows.missing import end_by_person_remedy, is_placeholder, load_definition, placeholder_workflow
from fidelio.workflows.moves import move_not_allowed
from fidelio.workflows.navigator import wording as words
from fidelio.workflows.navigator.moves import with_server_level
from fidelio.workflows.navigator.states import last_move_time
from fidelio.workflows.tokens import LARGEST_REMEMBERED, CarriedSession, Claims
from fidelio.workflows.unit_of_work import CACHED_SESSIONS, WorkflowCall, WorkflowUnit, refuse_unanswered_end


def placeholder_version(record: Record) -> WorkflowVersion:
    """What stands in for the definition. It is the one that the session began with as far as anybody can tell."""
    return WorkflowVersion(placeholder_workflow(record), record.definition, _no_source)


def end_only_situation(unit: WorkflowUnit, session: str, record: Record) -> Situation:
    position = SessionPosition(record.workflow, record.activity)
    if record.status == "completed":
        return Situation(position)
    if unit.fidelity(record) == "enforce":
        return _blocked(position, end_by_person_remedy(session), "DEFINITION_GONE")
    try:
        refuse_unanswered_end(record, session)
    except WorkflowRefusal as no:
        return _blocked(position, str(no), no.reason)
    return Situation(position, (PossibleMove("transition", TERMINAL),))


def with_unchecked_end(unit: WorkflowUnit, session: str, workflow: Workflow, record: Record, found: Situation) -> Situation:
    """What is possible, and the end with it where nobody can check that. While a question waits, only that is shown."""
    shown = any(move.target == TERMINAL for move in (*found.required, *found.blocked))
    if shown or record.waiting is not None or not is_activity_missing(workflow, record):
        return found
    end = end_only_situation(unit, session, record)
    return replace(found, required=(*found.required, *end.required), blocked=(*found.blocked, *end.blocked))


def _blocked(position: SessionPosition, reason: str, code: str) -> Situation:
    return Situation(position, blocked=(PossibleMove("transition", TERMINAL, reason=reason, code=code),))


def _no_source(activity: str) -> DefinitionSource:
    raise ComponentNotFound(f"Activity not found: {activity}.", remedy="Its definition is gone.")


class NavigatorView(msgspec.Struct, frozen=True):
    """Where a session stands and what is possible there.

    `resources` are the numbers of those that can be read. `person`: the server wants people to answer everything.
    `wait_ms` is how long it takes until an answer that a model passes on can be one that a person has thought about.
    """

    session: str
    workflow: Workflow
    record: Record
    situation: Situation
    agent: str
    resources: tuple[str, ...] = ()
    person: bool = False
    wait_ms: int = 0


class _Listed(msgspec.Struct, frozen=True):
    """The numbers of a workflow's resources, with what is wrong with those that cannot be read, as its files `hash` to it."""

    hash: str
    problems: dict[str, str]
    readable: tuple[str, ...]


class _Seen(msgspec.Struct, frozen=True):
    """What was shown of a session when its last event was `seq`, and the state that went with it, unless it is a large one."""

    seq: int
    version: WorkflowVersion
    situation: Situation
    state: str


class SituationReader:
    """Looks at sessions for those who lead them."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit
        self._meta: tuple[WorkflowVersion, WorkflowVersion] | None = None
        self._listed: dict[str, _Listed] = {}
        self._shown: dict[str, _Seen] = {}

    def version(self, workflow_id: str) -> WorkflowVersion:
        """The definition to go by. The activities of `meta` are entries of their own here: an agent picks the one it needs."""
        return self._freed(self._unit.library.version(workflow_id))

    def of(self, call: WorkflowCall) -> tuple[WorkflowVersion, DefinitionDeleted | None]:
        """The same for a session that has begun. Where the definition is gone, what is left of it, and the error to raise."""
        try:
            return self._freed(load_definition(self._unit, call)), None
        except DefinitionDeleted as gone:
            return placeholder_version(call.record), gone

    def _freed(self, version: WorkflowVersion) -> WorkflowVersion:
        if version.workflow.id != META:
            return version
        if self._meta is None or self._meta[0] is not version:
            free = version.workflow.model_copy(update={"initial_activity": None})
            self._meta = version, version._replace(workflow=free)
        return self._meta[1]

    async def carried(self, session: str, record: Record) -> list[CarriedSession]:
        """The session and the parents that wait for it, these first."""
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

    async def standing(
        self, session: str, version: WorkflowVersion, record: Record, agent: str, found: Situation | None = None
    ) -> NavigatorView:
        person = self._unit.policy.answered_by_person
        found = found or self._situation(session, version.workflow, record)
        found = self._allowed(with_unchecked_end(self._unit, session, version.workflow, record, found))
        wait = await self._wait(session, record, found)
        return NavigatorView(session, version.workflow, record, found, agent, self._readable(version, record), person, wait)

    def _situation(self, session: str, workflow: Workflow, record: Record) -> Situation:
        if is_placeholder(workflow):
            return end_only_situation(self._unit, session, record)
        led, person = with_server_level(self._unit, record), self._unit.policy.answered_by_person
        return describe_situation(workflow, led, now=self._unit.clock(), person=person)

    def resource(self, version: WorkflowVersion, record: Record, reference: str) -> Resource | Refusal:
        """One of those that can be read here; their numbers are what a standing lists."""
        numbers, problems, name = self._readable(version, record), self._resources(version).problems, version.workflow.id
        number = next((one for one in problems if _same(one, reference)), "")
        if number not in numbers:
            return words.no_resource(record, reference, numbers, problems.get(number, ""))
        try:
            return self._unit.library.resource(f"{name}/{number}", workflow=name).definition
        except DefinitionError as problem:
            return Refusal("RESOURCE_NOT_FOUND", problem.sentence, problem.remedy)

    def _allowed(self, found: Situation) -> Situation:
        """Whoever does one activity of a session that somebody else leads does not move it."""
        if self._unit.policy.moves:
            return found
        why = move_not_allowed().sentence
        held = [replace(move, reason=why, code=words.NOT_YOURS) for move in found.offered if move.action == "transition"]
        required = tuple(move for move in found.required if move.action != "transition")
        optional = tuple(move for move in found.optional if move.action != "transition")
        return replace(found, required=required, optional=optional, blocked=(*found.blocked, *held))

    def remember(self, standing: NavigatorView, version: WorkflowVersion, state: str) -> None:
        """What was shown is what the next call begins with, unless somebody else writes or time changes it."""
        if standing.record.waiting is not None:
            return
        if len(self._shown) >= CACHED_SESSIONS:
            self._shown.pop(next(iter(self._shown)))
        kept = state if len(state) <= LARGEST_REMEMBERED else ""
        self._shown[standing.session] = _Seen(standing.record.seq, version, standing.situation, kept)

    def recall(self, session: str, record: Record, version: WorkflowVersion) -> Situation | None:
        """What is possible for this record, if it was the last to be shown."""
        seen = self._shown.pop(session, None)
        return seen.situation if seen is not None and seen.seq == record.seq and seen.version is version else None

    def has_shown(self, session: str, record: Record, token: str) -> bool:
        """Whether the token is the state that was shown last, and the session has not moved since: it stands there, then."""
        seen = self._shown.get(session)
        return seen is not None and seen.seq == record.seq and seen.state == token

    async def _wait(self, session: str, record: Record, found: Situation) -> int:
        least = self._unit.policy.min_response_ms if found.checkpoint else 0
        if not least:
            return 0
        waiting = record.find_pending(found.checkpoint)
        since = waiting.yielded_at if waiting is not None else await last_move_time(self._unit.ledger, session, record)
        return max(0, since + least - self._unit.clock())

    def _readable(self, version: WorkflowVersion, record: Record) -> tuple[str, ...]:
        if not record.activity or record.waiting is not None or is_placeholder(version.workflow):
            return ()
        return self._resources(version).readable

    def _resources(self, version: WorkflowVersion) -> _Listed:
        """They are the same as long as the files of the workflow are."""
        name = version.workflow.id
        listed = self._listed.get(name)
        if listed is None or listed.hash != version.hash:
            problems = dict(self._looked_at(name))
            readable = tuple(number for number, problem in problems.items() if not problem)
            listed = self._listed[name] = _Listed(version.hash, problems, readable)
        return listed

    def _looked_at(self, name: str) -> Iterator[tuple[str, str]]:
        for part in self._unit.library.components("resources", name):
            number = part.index or part.id
            try:
                self._unit.library.resource(f"{name}/{number}", workflow=name)
            except DefinitionError as problem:
                yield number, problem.sentence
            else:
                yield number, ""


def _same(number: str, reference: str) -> bool:
    """3 is 03."""
    if number.isdecimal() and reference.isdecimal():
        return int(number) == int(reference)
    return number == reference
