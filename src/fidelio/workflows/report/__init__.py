"""The report of a session: what its definition required, what happened, the differences, and the answers.

It is built from the events and from the snapshot of the definition, so that later changes of the files do not change it.
"""

from __future__ import annotations

from functools import partial

from fidelio.definitions.models.workflow import parse_snapshot
from fidelio.engine.record import CHILD_STARTED
from fidelio.errors import SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.paging import all_events, all_pages
from fidelio.ledger.redaction import read_left, view_events
from fidelio.workflows.report.builder import build_report
from fidelio.workflows.report.model import RefusedCall, Report, ReportedAnswer, ReportedCancellation, Visit

__all__ = ["RefusedCall", "Report", "ReportedAnswer", "ReportedCancellation", "Visit", "report_session"]


# Children of children are reported down to this depth; a record cannot make the report run without end.
MAX_DEPTH = 64


async def report_session(ledger: Ledger, session: str, *, depth: int = 0) -> Report:
    """Read the events, the snapshot and the requests of a session, and build its report and those of its children."""
    events = await all_events(ledger, session)
    left, _ = await read_left(ledger, session)
    first = next(iter(view_events(events[:1], left)), None)
    snapshot = first.body.get("snapshot") if first is not None else None
    blob = await ledger.blob(snapshot) if isinstance(snapshot, str) and snapshot else None
    definition = parse_snapshot(blob) if blob else None
    report = build_report(session, events, definition, left)
    # The definition has templates; the requests have the texts with the values that were filled in.
    requests = all_pages(partial(ledger.requests, session=session, state=None))
    questions = {request.id: request.question async for request in requests}
    for answer in (answer for visit in report.visits for answer in visit.answers):
        answer.question = questions.get(answer.request, answer.question)
    started = (event.body.get("session") for event in view_events(events, left) if event.type == CHILD_STARTED)
    for child in dict.fromkeys(name for name in started if isinstance(name, str)) if depth < MAX_DEPTH else ():
        report.children.append(await _report_child(ledger, child, depth + 1))
    return report


async def _report_child(ledger: Ledger, session: str, depth: int) -> Report:
    """The report of a child; empty if the child is in the ledger of another server."""
    try:
        return await report_session(ledger, session, depth=depth)
    except SessionNotFound:
        return Report(session)
