"""Schedules: wakes of a session that a person wants again and again.

A schedule is an event of the session, together with the job of its next wake. The record says when each is due; every wake
queues the next one. What was missed while nothing ran is made up for by a single wake.
"""

from __future__ import annotations

import re

from fidelio.errors import UsageProblem
from fidelio.ledger.long_text import sanitize_text
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.ending import wake_job
from fidelio.runtime.wakes.record import Schedule

MIN_SECONDS = 60
MAX_SECONDS = 366 * 24 * 60 * 60
MAX_SCHEDULES = 20
MAX_NOTE = 1_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


async def set_schedule(context: RuntimeContext, session: str, name: str, every_seconds: int, note: str, *, by: str) -> None:
    """Wake a session every so many seconds, for the first time after that time. The same name replaces a schedule."""
    _check(name, every_seconds, note)
    due = context.clock() + every_seconds * 1000
    body = {"name": name, "every_seconds": every_seconds, "note": sanitize_text(note), "next": due}

    def set_(current: LoadedRuntime) -> SessionDecision[None]:
        record = require_active(current)
        others = [schedule for schedule in record.wakes.schedules if schedule.name != name]
        if len(others) >= MAX_SCHEDULES:
            raise UsageProblem(f"Session {session} has {len(others)} schedules.", remedy="Cancel one of them first.")
        event = NewEvent(type=e.SCHEDULE_SET, body=body, actor=by)
        return SessionDecision(None, events=(event,), jobs=wake_job(session, due))

    await context.unit.update(session, set_)


async def cancel_schedule(context: RuntimeContext, session: str, name: str, *, by: str) -> None:
    """End a schedule. Raises `UsageProblem` if there is none of this name."""

    def cancel(current: LoadedRuntime) -> SessionDecision[None]:
        schedules = require_active(current).wakes.schedules
        if all(schedule.name != name for schedule in schedules):
            raise UsageProblem(f"Session {session} has no schedule {name!r:.80}.", remedy=_list_names(schedules))
        return SessionDecision(None, events=(NewEvent(type=e.SCHEDULE_SET, body={"name": name, "every_seconds": 0}, actor=by),))

    await context.unit.update(session, cancel)


def require_active(session: LoadedRuntime) -> RuntimeRecord:
    """The record of a session that wakes; raises `UsageProblem` for any other."""
    refuse_store(session)
    record = session.record
    if record.status == "terminated" or record.is_archived:
        state = "has ended" if record.status == "terminated" else "is archived"
        raise UsageProblem(f"Session {session.id} {state}.", remedy="Begin another session.")
    if not record.agent_version:
        raise UsageProblem(f"Session {session.id} has no model, so it has no wakes.", remedy="Name a session of an agent.")
    return record


def _check(name: str, every_seconds: int, note: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageProblem(f"{name!r:.80} is not a name of a schedule.", remedy="Use 1 to 60 letters, digits, '-' and '_'.")
    if not MIN_SECONDS <= every_seconds <= MAX_SECONDS:
        raise UsageProblem(f"{every_seconds} seconds is not a valid time.", remedy=f"Use {MIN_SECONDS} to {MAX_SECONDS}.")
    if len(note) > MAX_NOTE:
        raise UsageProblem(f"The note has {len(note)} characters.", remedy=f"Use up to {MAX_NOTE}.")


def _list_names(schedules: tuple[Schedule, ...]) -> str:
    return f"It has: {', '.join(schedule.name for schedule in schedules)}." if schedules else "It has none."
