"""The report of a session: what the definition asked, what happened, where they differ, and who answered what.

Built from the events and from the definition as it was when the session started, which the session keeps. So a report reads the
same next year, whatever has become of the files.
"""

from __future__ import annotations

from functools import partial

from msgspec import json

from fidelio.definitions.models import Workflow
from fidelio.ledger import Ledger
from fidelio.ledger.paging import all_events, all_pages
from fidelio.workflows.report.builder import build_report
from fidelio.workflows.report.model import AnswerGiven, RefusedCall, Report, Visit

__all__ = ["AnswerGiven", "RefusedCall", "Report", "Visit", "report_session"]


async def report_session(ledger: Ledger, session: str) -> Report:
    events = await all_events(ledger, session)
    snapshot = events[0].body.get("snapshot") if events and not events[0].redacted else None
    blob = await ledger.blob(snapshot) if snapshot else None
    definition = Workflow.model_validate(json.decode(blob)) if blob else None
    report = build_report(session, events, definition)
    # The requests hold the questions in the words in which they were asked, with the values of that moment.
    requests = all_pages(partial(ledger.requests, session=session, state=None))
    worded = {request.id: request.question async for request in requests}
    for given in (answer for visit in report.visits for answer in visit.answers):
        given.question = worded.get(given.request, given.question)
    return report
