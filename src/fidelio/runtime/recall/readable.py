"""Which sessions a search may show: those that the searching session may read, within a lineage."""

from __future__ import annotations

from collections.abc import Mapping

from fidelio.errors import BadRecord, SessionNotFound
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.model import Session
from fidelio.runtime.navigation.parameters import Lineage
from fidelio.runtime.navigation.summaries import Relation, find_relation
from fidelio.runtime.navigation.visibility import (
    OPENNESS,
    EnvironmentKey,
    environment_key,
    load_agent_readers,
    load_networks,
    may_read,
)
from fidelio.runtime.recall.model import RecallScope, VisibleSession
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.model import Network

RELATIVES: Mapping[Lineage, frozenset[Relation]] = {
    "related": frozenset({"parent", "child", "sibling"}),
    "parent": frozenset({"parent"}),
    "children": frozenset({"child"}),
    "siblings": frozenset({"sibling"}),
}


class ReadableSessions:
    """Loads the sessions of hits, each once, and refuses those that must not be shown."""

    def __init__(self, context: RuntimeContext, own: LoadedRuntime, scope: RecallScope) -> None:
        self._context, self._scope = context, scope
        self.own = VisibleSession(own.session, own.record)
        self._known: dict[str, VisibleSession | None] = {}
        self._networks: dict[EnvironmentKey, Network] = {}
        # Looked up when it could let a session be shown that is otherwise refused.
        self._readers: str | None = None

    async def find(self, session_id: str) -> VisibleSession | None:
        """The session; None if it does not exist or must not be shown."""
        if session_id not in self._known:
            self._known[session_id] = await self._load(session_id)
        return self._known[session_id]

    async def may_see(self, network: str) -> bool:
        """Whether the own session may see what came from a session with this network."""
        own = environment_key(self.own.record)
        await self._learn_network(self.own.record)
        return OPENNESS.get(_as_network(network), 0) >= OPENNESS[self._networks.get(own, "host")]

    async def _load(self, session_id: str) -> VisibleSession | None:
        try:
            session = await self._context.ledger.session(session_id)
        except (SessionNotFound, BadRecord):
            return None
        if session.kind != "runtime" or session.status == DELETED or not self._is_wanted(session):
            return None
        record = RuntimeRecords().read(session.raw)
        await self._learn_network(self.own.record)
        await self._learn_network(record)
        return VisibleSession(session, record) if await self._may_read(record) else None

    async def _may_read(self, record: RuntimeRecord) -> bool:
        own = self.own.record
        if may_read(own, record, self._networks):
            return True
        if self._readers is None:
            self._readers = await load_agent_readers(self._context, own.project, own.agent)
        return may_read(own, record, self._networks, self._readers)

    def _is_wanted(self, session: Session) -> bool:
        relation = find_relation(self.own.session, session)
        if self._scope.lineage is not None:
            return relation in RELATIVES[self._scope.lineage]
        return relation != "self" or self._scope.include_current

    async def _learn_network(self, record: RuntimeRecord) -> None:
        if environment_key(record) not in self._networks:
            self._networks |= await load_networks(self._context, [record])


def _as_network(value: str) -> Network:
    """A stored network; what is unknown is taken as closed, so that nothing of it is shown."""
    return next((network for network in OPENNESS if network == value), "none")
