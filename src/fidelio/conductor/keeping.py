"""Where a run's plan is kept, and how an unfinished run of the same workflow is found again."""

from __future__ import annotations

import hashlib

import msgspec

from fidelio.conductor.plan import Plan
from fidelio.errors import SessionNotFound
from fidelio.home import Home
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, PutDocument
from fidelio.ledger.paging import all_events
from fidelio.orchestrator.lock import Lock

SPACE = "conductor"
BEGUN, FAILED = "conductor.begun", "conductor.failed"
# Of the run of a worker: that its report is on record, and that the worker was told what people have answered since.
TAKEN, TOLD = "conductor.taken", "conductor.told"


async def keep(ledger: Ledger, session: str, plan: Plan) -> None:
    """Puts the plan on record, and makes this run the one that the next start of the workflow goes on with."""
    event = NewEvent(type=BEGUN, body={"plan": msgspec.to_builtins(plan)}, actor="conductor")
    newest = PutDocument(space=SPACE, path=_path(plan.project, plan.workflow), text=session, author="conductor")
    await ledger.commit(Change(session=session, events=(event,), documents=(newest,)))


async def plan_of(ledger: Ledger, session: str) -> Plan | None:
    """The newest: whoever goes on with a run may change who does the work."""
    begun = await all_events(ledger, session, types=(BEGUN,))
    return msgspec.convert(begun[-1].body["plan"], Plan) if begun and not begun[-1].redacted else None


async def unfinished(ledger: Ledger, project: str, workflow: str) -> str | None:
    """The newest run of this workflow in this project, when it has not come to its end."""
    found = await ledger.document(SPACE, _path(project, workflow))
    if found is None or not found.text:
        return None
    try:
        session = await ledger.session(found.text)
    except SessionNotFound:
        return None
    return session.id if session.status in ("active", "blocked") else None


async def runs_before_failure(ledger: Ledger, session: str, worker: str) -> int:
    """How many runs of a worker were forgiven: those before the last time that somebody started the failed run again."""
    failed = await all_events(ledger, session, types=(FAILED,))
    return max((int(event.body.get("runs", 0)) for event in failed if event.body.get("worker") == worker), default=0)


async def last_failure(ledger: Ledger, session: str) -> str:
    """Why the run stopped, when nothing has happened in it since; else empty."""
    found = await ledger.session(session)
    newest = await ledger.events(session, after=found.last_seq - 1, types=(FAILED,))
    return str(newest[-1].body.get("reason", "")) if newest else ""


def conducting_lock(home: Home, session: str) -> Lock:
    """The right to carry out this run; two processes at it would give the same worker two tasks."""
    return Lock(home.ensure().lock_of(session))


def beginning_lock(home: Home, plan: Plan) -> Lock:
    """Held between the look for an unfinished run and the beginning of one, so that two do not begin at once."""
    return Lock(home.ensure().lock_of(_path(plan.project, plan.workflow).replace("/", "-")))


def _path(project: str, workflow: str) -> str:
    return f"{hashlib.sha256(project.encode()).hexdigest()[:32]}/{workflow}"
