"""Sessions that began on another server: a genuine state token carries what this ledger has to know to go on with them.

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
from fidelio.engine.record import RESTORED, EventDraft, Record, encode_record, fold_drafts
from fidelio.errors import DefinitionError, SessionExists
from fidelio.ledger.encoding import digest_of
from fidelio.ledger.model import Change, NewEvent, NewSession, OpenRequest, Session
from fidelio.workflows.requests import question
from fidelio.workflows.tokens import Kept, StateClaims
from fidelio.workflows.unit_of_work import Desk


async def restore(desk: Desk, claims: StateClaims) -> Session:
    """Puts the sessions that the token carries on record, parents first, as far as the ledger does not know them."""
    known: set[str] = set()
    for kept in claims.kept():
        # Another call may have brought the same session a moment ago, and a parent may have been here before its child.
        with suppress(SessionExists):
            await desk.ledger.commit(_birth(desk, kept, known, claims.aid))
        known.add(kept.session)
    return await desk.ledger.session(claims.sid)


def _birth(desk: Desk, kept: Kept, known: set[str], agent: str) -> Change:
    record = replace(kept.record, found_in=_found_in(desk, kept.record.workflow))
    snapshot = _snapshot(desk, record.workflow)
    digests = tuple(map(digest_of, snapshot))
    body: dict[str, Any] = {"workflow": record.workflow, "version": record.version, "definition": record.definition}
    body |= {"agent": agent, "record": encode_record(record), **({"snapshot": digests[0]} if digests else {})}
    parent = record.parent.session if record.parent is not None else None
    now = desk.clock()
    after = fold_drafts(Record(), [EventDraft(RESTORED, body)], now)
    return Change(
        session=kept.session,
        create=NewSession(kind="workflow", parent=parent if parent in known else None),
        events=(NewEvent(type=RESTORED, body=body, actor=agent, blobs=digests),),
        time=now,
        status=after.status,
        record=after,
        requests=tuple(_questions(desk, after)),
        blobs=snapshot,
    )


def _snapshot(desk: Desk, workflow: str) -> tuple[bytes, ...]:
    """The definition as it is here; nothing where this server does not have it."""
    try:
        return (msgspec.json.encode(desk.library.snapshot(workflow)),)
    except DefinitionError:
        return ()


def _found_in(desk: Desk, workflow: str) -> str:
    """From here on the session goes by what this server has. A state does not say where another one keeps its files."""
    try:
        return encode_root(desk.library.root(workflow))
    except DefinitionError:
        return ""


def _questions(desk: Desk, record: Record) -> Iterator[OpenRequest]:
    """What waited there waits here, under the same id, so that the answer finds its way into the record."""
    workflow = _workflow(desk, record)
    if workflow is None:
        return
    for waiting in record.pending:
        checkpoint = find_current_checkpoint(workflow, record, waiting.checkpoint)
        if checkpoint is not None:
            asked = question(workflow, record, checkpoint, person=desk.rules.asks_person)
            yield replace(asked, id=waiting.request)


def _workflow(desk: Desk, record: Record) -> Workflow | None:
    try:
        return desk.library.workflow(record.workflow)
    except DefinitionError:
        return None
