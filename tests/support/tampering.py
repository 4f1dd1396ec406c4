"""Changes of the tables behind the back of the ledger, on both databases, and a simple kind of record for its tests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import apsw
import asyncpg
import msgspec

from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import Change, CloseRequest, NewEvent, NewSession, OpenRequest, PutDocument, Session
from fidelio.ledger.unit_of_work import LoadedSession, RecordEvent, SessionDecision, UnitOfWork


async def tamper(address: str, statement: str) -> None:
    """Run a statement on the database of a ledger. `$body` and `$about` are columns with different names."""
    is_postgres = address.startswith("postgresql://")
    for name, column in {"$body": "raw" if is_postgres else "body", "$about": "key" if is_postgres else "about"}.items():
        statement = statement.replace(name, column)
    if is_postgres:
        connection = await asyncpg.connect(address)
        await connection.execute(f"SET search_path TO fidelio; {statement}")
        await connection.close()
        return
    # The same library as the ledger: closing a file in another one would drop the locks of this process.
    with closing(apsw.Connection(address)) as database:
        database.execute(statement)


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record: the texts and the level of a session."""

    seq: int = 0
    level: str = ""
    texts: tuple[str, ...] = ()
    ended: bool = False


class NotesRecords:
    """The `RecordType` of `Notes`."""

    structure = frozenset({"level", "request"})
    folded = frozenset({"session.started", "note", "ended"})

    def check(self, session: Session) -> None:
        assert session.kind == "workflow"

    def read(self, raw: str) -> Notes:
        return msgspec.json.decode(raw, type=Notes)

    def fold(self, record: Notes, events: Iterable[RecordEvent]) -> Notes:
        for event in events:
            body, texts = event.body, record.texts
            if event.type == "note":
                # Fails on a body without it, as the folds of the packages above do.
                texts = (*texts, body["text"])
            level = body["level"] if event.type == "session.started" else record.level
            record = Notes(event.seq, level, texts, record.ended or event.type == "ended")
        return record

    def seq(self, record: Notes) -> int:
        return record.seq

    def status(self, record: Notes) -> tuple[str, str | None]:
        return "completed" if record.ended else "active", None


def bind(ledger: Ledger) -> UnitOfWork[Notes]:
    """Bind the port of the ledger to `Notes`, and return a unit of work for them."""
    records = NotesRecords()
    ledger.record_type = lambda kind: records if kind == "workflow" else None
    return UnitOfWork(ledger, lambda: 1_800_000_000_000, records)


ASKED = OpenRequest(
    id="r_1", kind="checkpoint", key="go", question="Go on?", options=({"id": "yes"}, {"id": "no"}), detail={"why": "cost"}
)
ANSWERED = CloseRequest(id="r_1", answer={"option": "yes"}, by="person:ada", channel="cli", assurance="local")


async def record_everything(ledger: Ledger) -> None:
    """Record session s_a with a parent, an answered and an open request, a document, a blob, and a record."""
    unit = bind(ledger)
    await ledger.commit(Change(session="s_up", create=NewSession(kind="workflow"), events=(NewEvent(type="other"),)))
    content = b"the definition"
    digest = hash_blob(content)
    create = NewSession(kind="workflow", name="anna", namespace="n", parent="s_up")
    started = NewEvent(type="session.started", body={"level": "enforce", "snapshot": digest}, blobs=(digest,))
    decision: SessionDecision[Any] = SessionDecision(None, (started,), blobs=(content,), create=create)
    at: LoadedSession[Notes] = await unit.create("s_a", Notes(), decision)
    at = await unit.commit(at, SessionDecision(None, (NewEvent(type="asked", body={"request": "r_1"}),), (ASKED,)))
    answered = NewEvent(type="request.answered", body={"request": "r_1", "option": "yes"})
    await ledger.commit(Change(session="s_a", events=(answered,), requests=(ANSWERED,)))
    note = NewEvent(type="note", body={"text": "a quoted text"})
    await unit.update("s_a", lambda _: SessionDecision(None, (note,)))
    other = msgspec.structs.replace(ASKED, id="r_2", key="stop", question="Stop?")
    asked = NewEvent(type="asked", body={"request": "r_2"})
    plan = PutDocument(space="plans", path="s_a", text="the plan")
    await ledger.commit(Change(session="s_a", events=(asked,), requests=(other,), documents=(plan,)))
