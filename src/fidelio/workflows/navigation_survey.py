"""Where a session stands, as an agent is shown it: the definition that it goes by, what is possible, what can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from fidelio.definitions import META
from fidelio.definitions.library import Version
from fidelio.definitions.models import Workflow
from fidelio.definitions.models.resource import Resource
from fidelio.engine.moves import Situation, situation
from fidelio.engine.record import Record
from fidelio.engine.verdicts import Refusal
from fidelio.errors import DefinitionError, SessionNotFound
from fidelio.workflows import navigation_words as words
from fidelio.workflows.desk import MOST_RECENT, Desk
from fidelio.workflows.moving import not_yours
from fidelio.workflows.navigation_states import last_moved
from fidelio.workflows.tokens import Claims, Kept


class Standing(msgspec.Struct, frozen=True):
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


class Survey:
    """Looks at sessions for those who lead them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._meta: tuple[Version, Version] | None = None
        self._listed: dict[str, tuple[str, dict[str, str]]] = {}
        self._shown: dict[str, tuple[int, Version, Situation]] = {}

    def version(self, workflow_id: str) -> Version:
        """The definition to go by. The activities of `meta` are entries of their own here: an agent picks the one it needs."""
        version = self._desk.library.version(workflow_id)
        if workflow_id != META:
            return version
        if self._meta is None or self._meta[0] is not version:
            free = version.workflow.model_copy(update={"initial_activity": None})
            self._meta = version, version._replace(workflow=free)
        return self._meta[1]

    async def carried(self, session: str, record: Record) -> list[Kept]:
        """The session and the parents that wait for it, these first."""
        carried = [Kept(session, record)]
        while (parent := carried[0].record.parent) is not None:
            try:
                opened = await self._desk.open_claims(Claims(sid=parent.session))
            except SessionNotFound:
                break
            if carried[0].session not in [child.session for child in opened.record.children]:
                break
            carried.insert(0, Kept(parent.session, opened.record))
        return carried

    async def standing(
        self, session: str, version: Version, record: Record, agent: str, found: Situation | None = None
    ) -> Standing:
        person = self._desk.rules.answered_by_person
        found = self._allowed(found or situation(version.workflow, record, now=self._desk.clock(), person=person))
        wait = await self._wait(session, record, found)
        return Standing(session, version.workflow, record, found, agent, self._readable(version, record), person, wait)

    def resource(self, version: Version, record: Record, reference: str) -> Resource | Refusal:
        """One of those that can be read here; their numbers are what a standing lists."""
        numbers, problems, name = self._readable(version, record), self._problems(version), version.workflow.id
        number = next((one for one in problems if _same(one, reference)), "")
        if number not in numbers:
            return words.no_resource(record, reference, numbers, problems.get(number, ""))
        try:
            return self._desk.library.resource(f"{name}/{number}", workflow=name).definition
        except DefinitionError as problem:
            return Refusal("RESOURCE_NOT_FOUND", problem.sentence, problem.remedy)

    def _allowed(self, found: Situation) -> Situation:
        """Whoever does one activity of a session that somebody else leads does not move it."""
        if self._desk.rules.moves:
            return found
        why = not_yours().sentence
        held = [replace(move, reason=why, code=words.NOT_YOURS) for move in found.offered if move.action == "transition"]
        required = tuple(move for move in found.required if move.action != "transition")
        optional = tuple(move for move in found.optional if move.action != "transition")
        return replace(found, required=required, optional=optional, blocked=(*found.blocked, *held))

    def remember(self, standing: Standing, version: Version) -> None:
        """What was shown is what the next call begins with, unless somebody else writes or time changes it."""
        if standing.record.waiting is not None:
            return
        if len(self._shown) >= MOST_RECENT:
            self._shown.pop(next(iter(self._shown)))
        self._shown[standing.session] = standing.record.seq, version, standing.situation

    def recall(self, session: str, record: Record, version: Version) -> Situation | None:
        """What is possible for this record, if it was the last to be shown."""
        seq, of, found = self._shown.pop(session, (-1, version, None))
        return found if seq == record.seq and of is version else None

    async def _wait(self, session: str, record: Record, found: Situation) -> int:
        least = self._desk.rules.min_response_ms if found.checkpoint else 0
        if not least:
            return 0
        waiting = record.pending_as(found.checkpoint)
        since = waiting.yielded_at if waiting is not None else await last_moved(self._desk.ledger, session, record)
        return max(0, since + least - self._desk.clock())

    def _readable(self, version: Version, record: Record) -> tuple[str, ...]:
        if not record.activity or record.waiting is not None:
            return ()
        return tuple(number for number, problem in self._problems(version).items() if not problem)

    def _problems(self, version: Version) -> dict[str, str]:
        """The numbers of the workflow's resources, with what is wrong with those that cannot be read.

        They are the same as long as its files are.
        """
        name = version.workflow.id
        listed = self._listed.get(name)
        if listed is None or listed[0] != version.hash:
            listed = self._listed[name] = version.hash, dict(self._looked_at(name))
        return listed[1]

    def _looked_at(self, name: str) -> Iterator[tuple[str, str]]:
        for part in self._desk.library.parts("resources", name):
            number = part.index or part.id
            try:
                self._desk.library.resource(f"{name}/{number}", workflow=name)
            except DefinitionError as problem:
                yield number, problem.sentence
            else:
                yield number, ""


def _same(number: str, reference: str) -> bool:
    """3 is 03."""
    if number.isdecimal() and reference.isdecimal():
        return int(number) == int(reference)
    return number == reference
