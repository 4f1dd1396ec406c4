"""Access to the ledger for surfaces: list, find, follow, search, verify and erase sessions; facts about the database.

Surfaces may import only the model of the ledger. What they need beyond the services is offered here.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.app.erasure import BATCH, RedactionPlan, find_remains, plan_deletion, plan_redaction
from fidelio.errors import ChainBroken, Command, FidelioError, Hint, LedgerError, RecordMismatch, SessionNotFound, UsageProblem
from fidelio.home import Home
from fidelio.ids import SESSION_PREFIX, is_short_handle
from fidelio.inbox import PROVEN
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import iter_sessions, verify_all, verify_session
from fidelio.ledger.chain import ChainVerdict
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event, Hit, Job, Page, Query, Session, SessionKind
from fidelio.ledger.paging import all_pages, event_pages
from fidelio.ledger.postgres import hide_password
from fidelio.settings import Settings

if TYPE_CHECKING:
    from fidelio.app.passkeys import PersonKey
    from fidelio.ledger.unit_of_work import RecordType
    from fidelio.workflows.report import Report


__all__ = [
    "ChainVerdict",
    "Records",
    "RedactionPlan",
    "SqliteVersion",
    "check_status",
    "describe_ledger",
    "describe_store",
    "record_type",
    "sqlite_version",
]

_CANDIDATES = 10
# Newest sessions among which `last` looks for one that nobody has started.
_NEWEST = 200
_STATUSES = {
    "workflow": ("active", "blocked", "completed", "cancelled"),
    "agent": ("queued", "starting", "running", "waiting", "succeeded", "failed", "stopped", "lost"),
    "runtime": ("idle", "running", "rescheduling", "terminated"),
}
_DELETED = "deleted"
# Namespaces of the sessions that keep what others share; those of a project begin with `runtime:`.
STORE_NAMESPACES = "runtime-"
_STORES, _OBJECTS = "runtime-store:", "runtime-object:"
# Their names are not for people.
_STORE_TITLES = {
    f"{_STORES}substrate": "shared files of {agent}",
    f"{_STORES}environments": "environments",
    f"{_STORES}vaults": "vaults",
    f"{_STORES}webhooks": "deliveries to webhooks",
}
# Stands for the newest session where a command takes an id.
NEWEST = "last"


# The states of a run whose agent may still write into its files.
_RUNNING = frozenset({"queued", "starting", "running", "waiting"})


class Records:
    """Sessions of every kind and their events."""

    def __init__(self, ledger: Ledger, home: Home | None = None) -> None:
        self._ledger = ledger
        self._home = home

    async def find(self, text: str, *, kind: SessionKind | None = None) -> Session:
        """Find a session by its id, its name, the beginning of its id, or `last`: the newest, of `kind` if that is set.

        A session that another has started, such as a workflow that a run starts, is the last only if there is no other.
        """
        try:
            return await self._ledger.session(text)
        except SessionNotFound:
            pass
        try:
            return await self._find_by_name(text)
        except SessionNotFound:
            if text == NEWEST and (newest := (await self.sessions(kind=kind, limit=_NEWEST, stores=False)).items):
                return next((session for session in newest if session.parent is None), newest[0])
            if found := await self._find_by_prefix(text):
                return found
            raise

    async def _find_by_prefix(self, prefix: str) -> Session | None:
        """The only session whose id begins so. A whole id is no beginning, and a text of another form is none."""
        if not prefix.startswith(SESSION_PREFIX) or is_short_handle(prefix):
            return None
        sessions = await self._ledger.sessions_by_id(prefix, limit=_CANDIDATES)
        if len(sessions) > 1:
            listed = ", ".join(session.id for session in sessions)
            raise UsageProblem(f"Several sessions begin with {prefix!r:.80}: {listed}.", remedy="Type more of the id.")
        return sessions[0] if sessions else None

    async def find_named(self, name: str, *, namespace: str) -> Session:
        """Find a session by its name in a namespace. Raises `SessionNotFound`."""
        return await self._ledger.session_by_name(name, namespace=namespace)

    async def _find_by_name(self, name: str) -> Session:
        """The name of an agent session is unique only in its project: it is found if no other project has it."""
        try:
            return await self._ledger.session_by_name(name)
        except SessionNotFound:
            found = (await self._ledger.sessions(name=name, limit=_CANDIDATES)).items
            if not found:
                raise
        if len(found) > 1:
            candidates = ", ".join(session.id for session in found)
            raise UsageProblem(f"Several sessions are called {name!r:.80}: {candidates}.", remedy="Use the id of one of them.")
        return found[0]

    async def sessions(
        self,
        *,
        kind: SessionKind | None = None,
        status: str | None = None,
        parent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        stores: bool = True,
    ) -> Page[Session]:
        """List a page of sessions, newest first. `stores`: also the sessions that hold what others share."""
        without = None if stores else STORE_NAMESPACES
        return await self._ledger.sessions(kind=kind, status=status, parent=parent, without=without, cursor=cursor, limit=limit)

    async def children(self, session: str, *, limit: int = 50) -> Page[Session]:
        """List the sessions that a session has started, newest first."""
        return await self._ledger.sessions(parent=session, limit=limit)

    async def events(
        self, session: str | None = None, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000
    ) -> tuple[Event, ...]:
        """Read a page of events in their order."""
        return await self._ledger.events(session, after=after, types=types, limit=limit)

    async def load_text(self, reference: dict[str, Any]) -> str:
        """Load a text that an event refers to because it is long; empty if it was erased."""
        return await load_text(self._ledger, reference)

    async def all_events(self, session: str, *, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """Iterate over all events of a session, page by page."""
        async for page in event_pages(self._ledger, session, types=types):
            for event in page:
                yield event

    def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """Iterate over events as they are appended. Does not end by itself."""
        return self._ledger.follow(session, after=after, types=types)

    async def wait(self, *, after: int, timeout: float) -> int:
        """Wait until the newest global position exceeds `after`, at most `timeout` seconds, and return it."""
        return await self._ledger.wait(after=after, timeout=timeout)

    async def search(self, query: Query) -> tuple[Hit, ...]:
        """Update the search index, then return the best matches."""
        await self._ledger.update_index()
        return await self._ledger.search(query)

    async def jobs(self, *, dead: bool = False, limit: int = 1000) -> tuple[Job, ...]:
        """List the first queued jobs in due order, or the jobs that are not tried any more."""
        return await self._ledger.jobs(dead=dead, limit=limit)

    async def verify(self, session: str, *, heads: Collection[bytes] = ()) -> ChainVerdict:
        """Verify the hash chain of a session, and the signatures of its answers.

        Raises `ChainBroken` at the first event that was changed.
        """
        return await self._check_proofs(await verify_session(self._ledger, session, heads=heads))

    async def _check_proofs(self, verdict: ChainVerdict) -> ChainVerdict:
        """Add what is wrong with signatures to the problems of a session."""
        if not await self._demands_proof(verdict.session):
            return verdict
        found = await load_person_keys().find_proof_problems(self._ledger, verdict.session)
        return msgspec.structs.replace(verdict, problems=(*verdict.problems, *found)) if found else verdict

    async def signing_keys(self, *sessions: str) -> list[PersonKey]:
        """The keys that have signed answers of these sessions, with how each was registered."""
        if not any([await self._ledger.events_naming(session, '"proven"') for session in sessions]):
            return []
        keys: list[PersonKey] = await load_person_keys().list_signing_keys(self._ledger, sessions)
        return keys

    async def _demands_proof(self, session: str) -> bool:
        """Whether an answer of a session is called proven, or should be. Without any, nothing is loaded to check signatures."""
        if await self._ledger.events_naming(session, '"proven"'):
            return True
        requests = all_pages(partial(self._ledger.requests, session=session, state=None))
        return any([request.detail.get("answered_by") == PROVEN async for request in requests])

    async def verify_all(self, heads: Sequence[bytes] = ()) -> tuple[list[ChainVerdict | ChainBroken], list[bytes]]:
        """Verify every session. Returns the verdicts, and those of `heads` that are in no session."""
        verdicts = [
            verdict if isinstance(verdict, ChainBroken) else await self._check_proofs(verdict)
            async for verdict in verify_all(self._ledger)
        ]
        missing = set(heads)
        async for session in iter_sessions(self._ledger):
            if not missing:
                break
            async for event in self.all_events(session.id):
                missing.discard(event.hash)
        return verdicts, [head for head in heads if head in missing]

    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        """Delete sessions for good. `expect`: their last sequence numbers, else `SequenceConflict`."""
        await self._ledger.erase(sessions, actor=actor, reason=reason, expect=expect)

    async def erase_all(self, sessions: Sequence[Session], *, actor: str, reason: str) -> None:
        """Delete the sessions of a plan, as they were when it was made; `SequenceConflict` if any has changed since."""
        for first in range(0, len(sessions), BATCH):
            part = {session.id: session.last_seq for session in sessions[first : first + BATCH]}
            await self.erase(list(part), actor=actor, reason=reason, expect=part)

    async def plan_deletion(self, session: Session) -> list[Session]:
        """The session and those that it has started; raises `UsageProblem` if any of them works or waits."""
        return await plan_deletion(self._ledger, session)

    async def plan_redaction(self, session: Session, seqs: Collection[int] = (), text: str = "") -> RedactionPlan:
        """Find the events that a redaction would erase, by number or by text."""
        return await plan_redaction(self._ledger, session, seqs, text)

    async def redact(self, session: str, seqs: Sequence[int], *, actor: str, reason: str) -> None:
        """Erase the bodies of events, what was derived from them, and the files of runs, which contain the same texts.

        An event says by whom and why.
        """
        found = await self.find(session)
        if self._home is not None and found.kind == "agent" and found.status in _RUNNING:
            raise UsageProblem(
                f"Session {found.id} is {found.status}, and its agent still writes.",
                remedy=Hint("Stop it first: ", Command("agents", "stop", found.id), "."),
            )
        await self._ledger.redact(found.id, seqs, actor=actor, reason=reason)
        if self._home is not None:
            await asyncio.to_thread(shutil.rmtree, self._home.runs / found.id, ignore_errors=True)
            if found.kind == "runtime" and (directory := found.record.get("directory")):
                await asyncio.to_thread(_remove_files, self._home.path / "sandboxes" / directory / "runtime")

    async def find_remains(self, session: str, text: str) -> list[str]:
        """Name what still contains a text after a redaction."""
        return await find_remains(self._ledger, session, text)

    async def erasure_pending(self) -> bool:
        """Whether bytes of erased texts are still in the files because a reader holds them; they are erased by themselves."""
        return await self._ledger.erasure_pending()

    async def check(self) -> None:
        """Run the integrity check of the database. Raises `LedgerDamaged`."""
        await self._ledger.check()

    async def report(self, session: str, verdict: ChainVerdict) -> Report:
        """Compare what the definition of a workflow session asks for with what happened; `verdict` is that of `verify`.

        The child sessions are verified here.
        """
        from fidelio.workflows.report import report_session  # noqa: PLC0415  # brings pydantic and the engine, 140 ms

        report = await report_session(self._ledger, session)
        report.mismatches = list(verdict.problems)
        for child in report.iter_children():
            if child.workflow:
                child.mismatches = list((await self.verify(child.session)).problems)
        return report


def check_status(kind: str | None, status: str | None) -> None:
    """Refuse a status that no session of the kind can have: an empty list would hide that it is misspelt."""
    known = [name for each, names in _STATUSES.items() if kind in (None, each) for name in names]
    if status is not None and status not in (*known, _DELETED):
        what = f"of a session of kind {kind}" if kind else "of a session"
        raise UsageProblem(
            f"{status!r:.80} is not a status {what}.", remedy=f"Use one of: {', '.join((*dict.fromkeys(known), _DELETED))}."
        )


def _remove_files(directory: Path) -> None:
    """Remove the files that describe a session to its agent: they may hold an erased text. The next call writes them again."""
    if directory.is_dir():
        for file in directory.iterdir():
            file.unlink(missing_ok=True)


def load_person_keys() -> ModuleType:
    """The module that checks signatures of people."""
    from fidelio.app import person_keys  # noqa: PLC0415  # brings cryptography and fido2, 80 ms

    return person_keys


def record_type(kind: SessionKind) -> RecordType[Any] | None:
    """Implement the port `Ledger.record_type`: how the records of a kind of session are folded."""
    from fidelio.orchestrator.record.unit_of_work import AgentRecords  # noqa: PLC0415  # brings the orchestrator, 40 ms
    from fidelio.runtime.record import RuntimeRecords  # noqa: PLC0415  # only for a ledger with such sessions
    from fidelio.workflows.records import WorkflowRecords  # noqa: PLC0415  # brings pydantic and the engine, 140 ms

    types: dict[str, RecordType[Any]] = {"workflow": WorkflowRecords(), "agent": AgentRecords(), "runtime": RuntimeRecords()}
    return types.get(kind)


async def find_damage(settings: Settings) -> FidelioError | None:
    """Look for damage in an existing ledger, which explains an error that nothing else explains."""
    if "://" not in settings.ledger and not os.path.exists(settings.ledger):  # noqa: ASYNC240, PTH110  # a single stat call
        return None
    try:
        async with await open_ledger(settings.ledger) as ledger:
            ledger.record_type = record_type
            await ledger.check()
            verdicts = [verdict async for verdict in verify_all(ledger)]
    except LedgerError as error:
        return error
    for verdict in verdicts:
        if isinstance(verdict, ChainBroken):
            return verdict
        if not verdict.holds:
            return RecordMismatch(f"In session {verdict.session}, {verdict.problems[0]}.", verdict.session)
    return None


class SqliteVersion(msgspec.Struct, frozen=True):
    """The SQLite library in use. `is_safe`: several processes can write to the same file without damaging it."""

    version: str
    driver: str
    is_safe: bool


def sqlite_version() -> SqliteVersion:
    """The versions of SQLite and of its driver."""
    from fidelio.ledger.sqlite import connection  # noqa: PLC0415  # brings the driver

    version = connection.sqlite_version()
    return SqliteVersion(".".join(map(str, version)), connection.driver_version(), version >= connection.SAFE_VERSION)


def describe_ledger(settings: Settings) -> str:
    """Where the ledger is, for messages: the home that contains it, or its file or address without the password."""
    if settings.ledger == str(settings.home.ledger):
        return str(settings.home.path)
    return hide_password(settings.ledger) if "://" in settings.ledger else settings.ledger


def describe_store(session: Session) -> str:
    """What a store or an object holds; empty for another session."""
    if session.namespace.startswith(_OBJECTS):
        return f"object: {session.namespace.split(':')[1].replace('_', ' ')}"
    if not session.namespace.startswith(_STORES):
        return ""
    agent = session.record.get("agent", "")
    return _STORE_TITLES.get(session.namespace, "a store").format(agent=agent or "a deleted agent")
