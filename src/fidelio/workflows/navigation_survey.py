"""Where a session stands, as an agent is shown it: the definition that it goes by, what is possible, what can be read."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from fidelio.definitions.library import META, Version
from fidelio.definitions.models import Workflow
from fidelio.engine.moves import Situation, situation
from fidelio.engine.record import Record
from fidelio.errors import SessionNotFound
from fidelio.workflows.desk import MOST_RECENT, Desk
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
        self._listed: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._shown: dict[str, tuple[int, Version, Situation]] = {}

    def version(self, workflow_id: str) -> Version:
        """The definition to go by. The activities of `meta` are entries of their own here: an agent picks the one it needs."""
        version = self._desk.library.version(workflow_id)
        if workflow_id != META:
            return version
        if self._meta is None or self._meta[0] is not version:
            free = version.workflow.model_copy(update={"initial_activity": None})
            self._meta = version, replace(version, workflow=free)
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

    def standing(self, session: str, version: Version, record: Record, agent: str, found: Situation | None = None) -> Standing:
        found = found or situation(version.workflow, record, now=self._desk.clock())
        numbers = self._numbers(version) if record.activity and record.waiting is None else ()
        person, wait = self._desk.rules.answered_by_person, self._wait(record, found)
        return Standing(session, version.workflow, record, found, agent, numbers, person, wait)

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

    def _wait(self, record: Record, found: Situation) -> int:
        least = self._desk.rules.min_response_ms if found.checkpoint else 0
        waiting = record.pending_as(found.checkpoint) if least else None
        return max(0, waiting.yielded_at + least - self._desk.clock()) if waiting is not None else least

    def _numbers(self, version: Version) -> tuple[str, ...]:
        """The numbers of the workflow's resources. They are the same as long as its files are."""
        name = version.workflow.id
        listed = self._listed.get(name)
        if listed is None or listed[0] != version.hash:
            parts = self._desk.library.parts("resources", name)
            listed = self._listed[name] = version.hash, tuple(part.index or part.id for part in parts)
        return listed[1]
