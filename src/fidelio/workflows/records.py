"""The records of workflow sessions: for the generic unit of work, for verification, and for tokens that say little themselves.

Apart from the unit of work, which needs the library and the tokens: `fidelio verify` folds records without them.
"""

from __future__ import annotations

from collections.abc import Iterable

from fidelio.engine.record import FOLDED_TYPES, RESTORED, Record, decode_record, fold
from fidelio.errors import BadToken, LedgerPutBack, RequestNotFound, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.encoding import DELETED, session_deleted
from fidelio.ledger.model import Session
from fidelio.ledger.paging import event_pages
from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.workflows.tokens import Claims, ShortClaims, shorten_claim

# Keys of event bodies whose values are ids, states or names of the definition, and no text of an agent or a person. With `.*`
# the keys of the value are ids too; with `[]` only the lengths of its lists are kept: they say how many iterations a loop has.
_STRUCTURE = """
workflow version definition fidelity parent claims_to_continue activity how again passed step steps at loop loops_over iteration
reached checkpoint checkpoints request option mode by channel assurance session suspends pass_context skill owner name s closes
agent_number
status record here outer running done visit answers open armed last children completed skipped forced variables_by person of
looped in_loops.* iterations total started outcome items[] loop_items[]
"""


class WorkflowRecords:
    """The `RecordType` of workflow sessions."""

    structure = frozenset(_STRUCTURE.split())
    folded = FOLDED_TYPES

    def check(self, session: Session) -> None:
        if session.kind != "workflow":
            raise SessionNotFound(f"Session {session.id} is not a workflow session.", remedy="Use a token of start_session.")
        if session.status == DELETED:
            raise session_deleted(session.id)

    def read(self, raw: str) -> Record:
        return decode_record(raw)

    def fold(self, record: Record, events: Iterable[RecordEvent]) -> Record:
        return fold(record, events)

    def seq(self, record: Record) -> int:
        return record.seq

    def status(self, record: Record) -> tuple[str, None]:
        return record.status, None


async def complete_claims(ledger: Ledger, claims: ShortClaims, record: Record) -> Claims:
    """Return the claims that a sealed token of the same agent and visit has, from the record of the session."""
    visit = claims.vis or 0
    if claims.agent > len(record.agents) or visit > record.visits:
        raise BadToken(
            f"The session {claims.sid} has no agent {claims.agent} or no visit {visit}.",
            remedy=f"Pass the session_token of the last reply, exactly as it was returned, or {claims.sid} alone.",
        )
    activity = record.activity if visit == record.visit else await _find_activity(ledger, claims.sid, visit)
    return Claims(
        sid=claims.sid,
        aid=record.agents[claims.agent - 1],
        act=shorten_claim(activity),
        vis=visit or None,
        req=claims.req,
        bcp=await _find_checkpoint(ledger, claims.req, record) if claims.req else None,
    )


async def _find_activity(ledger: Ledger, session: str, visit: int) -> str:
    """The activity of an earlier visit; empty for visits before the first, and for those that another ledger has recorded."""
    record = Record()
    async for page in event_pages(ledger, session, types=sorted(FOLDED_TYPES)):
        for event in page:
            record = fold(record, [event])
            if record.visit == visit:
                return record.activity
    return ""


async def _find_checkpoint(ledger: Ledger, request_id: str, record: Record) -> str | None:
    """The checkpoint of a request, as a token claims it."""
    waiting = next((pending.checkpoint for pending in record.pending if pending.request == request_id), None)
    if waiting is not None:
        return shorten_claim(waiting)
    try:
        request = await ledger.request(request_id)
    except RequestNotFound:
        return None
    return shorten_claim(str(request.detail.get("checkpoint", "")))


async def require_other_origin(ledger: Ledger, session: Session, known: int) -> None:
    """Raise `LedgerPutBack` for a genuine token that knows of later events than the ledger has.

    A session that was restored from a state token, or adopted, began elsewhere: the token may have been made there.
    """
    first = await ledger.events(session.id, limit=1)
    body = first[0].body if first else {}
    if not first or not (first[0].redacted or first[0].type == RESTORED or body.keys() & _ORIGINS):
        raise LedgerPutBack(session.id, known, session.last_seq)


# The keys of the first event of a session that continues another one.
_ORIGINS = frozenset({"unverified", "claims_to_continue"})
