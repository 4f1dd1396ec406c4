"""The report of a session: what the definition asked, what happened, where they differ, and who answered what.

Built from the events and from the definition as it was when the session started, which the session keeps. So a report reads the
same next year, whatever has become of the files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import json

from fidelio.definitions.models import Workflow
from fidelio.ledger import Ledger
from fidelio.ledger.model import Request
from fidelio.ledger.paging import all_events
from fidelio.workflows.report.builder import build_report
from fidelio.workflows.report.model import AnswerGiven, Refused, Report, Visit

__all__ = ["AnswerGiven", "Refused", "Report", "Visit", "report_session"]

PAGE = 1000


async def report_session(ledger: Ledger, session: str) -> Report:
    events = await all_events(ledger, session)
    snapshot = events[0].body.get("snapshot") if events and not events[0].redacted else None
    blob = await ledger.blob(snapshot) if snapshot else None
    definition = Workflow.model_validate(json.decode(blob)) if blob else None
    report = build_report(session, events, definition)
    worded = {one.id: one.question async for one in _requests(ledger, session)}
    for given in (answer for visit in report.visits for answer in visit.answers):
        given.question = worded.get(given.request, given.question)
    return report


async def _requests(ledger: Ledger, session: str) -> AsyncIterator[Request]:
    """They hold the questions as they were worded when they were asked, with the values of that moment."""
    cursor: str | None = None
    while True:
        page = await ledger.requests(session=session, state=None, cursor=cursor, limit=PAGE)
        for request in page.items:
            yield request
        if (cursor := page.next) is None:
            return
