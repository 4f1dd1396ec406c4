"""The records of workflow sessions for the generic unit of work and for verification, and where a session began.

Apart from the unit of work, which needs the library and the tokens: `fidelio verify` folds records without them.
"""

from __future__ import annotations

from collections.abc import Iterable

from fidelio.engine.record import FOLDED_TYPES, RESTORED, Record, decode_record, fold
from fidelio.errors import LedgerPutBack, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.encoding import DELETED, session_deleted
from fidelio.ledger.model import Session
from fidelio.ledger.unit_of_work import RecordEvent

# Keys of event bodies whose values are ids, states or names of the definition, and no text of an agent or a person. With `.*`
# the keys of the value are ids too; with `[]` only the lengths of its lists are kept: they say how many iterations a loop has.
_STRUCTURE = """
workflow version definition fidelity parent claims_to_continue activity how again passed step steps at loop loops_over iteration
reached checkpoint checkpoints request option mode by channel assurance session suspends pass_context skill owner name s closes
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
