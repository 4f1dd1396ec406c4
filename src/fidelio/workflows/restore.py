"""Restores sessions of another server from a state token, which carries what this ledger has to know of them.

That they were restored is the first event of their record here. What happened before is in the ledger they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.library.search_path import encode_root
from fidelio.definitions.models import Workflow
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.record import RESTORED, Record, encode_record
from fidelio.errors import DefinitionError, SessionExists
from fidelio.inbox import RequestChange
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import NewEvent, NewSession, Session
from fidelio.ledger.unit_of_work import Decision
from fidelio.workflows.requests import checkpoint_request
from fidelio.workflows.tokens import CarriedSession, StateClaims
from fidelio.workflows.unit_of_work import WorkflowUnit


async def restore(unit: WorkflowUnit, claims: StateClaims) -> Session:
    """Commit the sessions that the token carries, parents first, as far as the ledger does not know them."""
    known: set[str] = set()
    for kept in claims.carried_sessions():
        # Another call may have brought the same session a moment ago, and a parent may have been here before its child.
        with suppress(SessionExists):
            await unit.create(kept.session, Record(), _birth(unit, kept, known, claims.aid))
        known.add(kept.session)
    return await unit.ledger.session(claims.sid)


def _birth(unit: WorkflowUnit, kept: CarriedSession, known: set[str], agent: str) -> Decision[None]:
    record = replace(kept.record, found_in=_found_in(unit, kept.record.workflow))
    snapshot = _snapshot(unit, record.workflow)
    digests = tuple(map(hash_blob, snapshot))
    body: dict[str, Any] = {"workflow": record.workflow, "version": record.version, "definition": record.definition}
    body |= {"agent": agent, "record": encode_record(record), **({"snapshot": digests[0]} if digests else {})}
    parent = record.parent.session if record.parent is not None else None
    return Decision(
        None,
        events=(NewEvent(type=RESTORED, body=body, actor=agent, blobs=digests),),
        requests=tuple(_questions(unit, record)),
        blobs=snapshot,
        create=NewSession(kind="workflow", parent=parent if parent in known else None),
    )


def _snapshot(unit: WorkflowUnit, workflow: str) -> tuple[bytes, ...]:
    """The definition as it is here; nothing where this server does not have it."""
    try:
        return (msgspec.json.encode(unit.library.snapshot(workflow)),)
    except DefinitionError:
        return ()


def _found_in(unit: WorkflowUnit, workflow: str) -> str:
    """From here on the session goes by what this server has. A state does not say where another one keeps its files."""
    try:
        return encode_root(unit.library.root(workflow))
    except DefinitionError:
        return ""


def _questions(unit: WorkflowUnit, record: Record) -> Iterator[RequestChange]:
    """What waited there waits here, under the same id, so that the answer finds its way into the record."""
    workflow = _workflow(unit, record)
    if workflow is None:
        return
    for waiting in record.pending:
        checkpoint = find_current_checkpoint(workflow, record, waiting.checkpoint)
        if checkpoint is not None:
            yield checkpoint_request(workflow, record, checkpoint, person=unit.policy.asks_person, request=waiting.request)


def _workflow(unit: WorkflowUnit, record: Record) -> Workflow | None:
    try:
        return unit.library.workflow(record.workflow)
    except DefinitionError:
        return None
