"""Requests that wait for a person. Another package commits them; they are answered once, and the person is recorded."""

from __future__ import annotations

from fidelio.inbox.builders import (
    APPROVAL,
    PROVEN,
    ClosedRequest,
    NewRequest,
    RequestChange,
    answer_request,
    assurance_of,
    demand_proof,
    dismiss_all,
    dismiss_request,
    expire_request,
    needs_person,
    open_request,
)
from fidelio.inbox.inbox import LONGEST_TEXT, AnsweredRequest, Inbox, PreparedAnswer, require_person

__all__ = [
    "APPROVAL",
    "LONGEST_TEXT",
    "PROVEN",
    "AnsweredRequest",
    "ClosedRequest",
    "Inbox",
    "NewRequest",
    "PreparedAnswer",
    "RequestChange",
    "answer_request",
    "assurance_of",
    "demand_proof",
    "dismiss_all",
    "dismiss_request",
    "expire_request",
    "needs_person",
    "open_request",
    "require_person",
]
