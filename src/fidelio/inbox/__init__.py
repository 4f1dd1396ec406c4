"""Requests, which wait for a person: opened in another package's unit of work, answered once, by a recorded person."""

from __future__ import annotations

from fidelio.inbox.builders import (
    ClosedRequest,
    NewRequest,
    RequestChange,
    answer_request,
    assurance_of,
    dismiss_all,
    dismiss_request,
    open_request,
)
from fidelio.inbox.inbox import LONGEST_TEXT, Answered, Inbox
from fidelio.inbox.people import this_person

__all__ = [
    "LONGEST_TEXT",
    "Answered",
    "ClosedRequest",
    "Inbox",
    "NewRequest",
    "RequestChange",
    "answer_request",
    "assurance_of",
    "dismiss_all",
    "dismiss_request",
    "open_request",
    "this_person",
]
