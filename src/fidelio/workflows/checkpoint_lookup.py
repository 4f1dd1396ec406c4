"""Looks up which request of a checkpoint a call refers to.

A question comes back in every visit and every pass, under the same name. So an answer belongs to the asking that its token was
made for: a call that is repeated late confirms what was said then, and never decides what is asked now.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.engine import phrases
from fidelio.engine.record import CheckpointAnswer, CheckpointInstance, Record
from fidelio.errors import RequestNotFound, WorkflowRefusal
from fidelio.ledger import Ledger
from fidelio.ledger.model import Request
from fidelio.workflows.missing import is_withdrawn
from fidelio.workflows.tokens import Claims, shorten_claim
from fidelio.workflows.unit_of_work import WorkflowCall

# An activity that asks at its door asks a question of a loop for the first pass; outside loops there is none.
FIRST_ITERATIONS = (0, 1)


class CheckpointReference(msgspec.Struct, frozen=True):
    """The asking that a call is about, the request that stands for it, and its answer where it has one."""

    instance: CheckpointInstance
    request: str
    answer: CheckpointAnswer | None = None


async def find_by_handle(ledger: Ledger, call: WorkflowCall) -> CheckpointReference:
    """The asking that a handle means: the one it was made for, else the one that waits."""
    named = call.claims.req
    waiting = call.record.waiting
    if waiting is not None and named in (None, waiting.request):
        return CheckpointReference(waiting.instance, waiting.request)
    if named is None:
        raise _not_active()
    return await _earlier(ledger, call, named)


async def find_by_name(ledger: Ledger, call: WorkflowCall, checkpoint_id: str) -> CheckpointReference:
    """The asking that a checkpoint's name means to whoever holds this token."""
    claims, now = call.claims, find_current(call.record, checkpoint_id)
    if claims.req is not None and claims.bcp == shorten_claim(checkpoint_id):
        return now if now is not None and now.request == claims.req else await _earlier(ledger, call, claims.req)
    if _moved_on(claims, call.record):
        return await _asked_then(ledger, call, checkpoint_id)
    if now is None:
        raise _not_pending(call.record, checkpoint_id)
    return now


def find_current(record: Record, checkpoint_id: str) -> CheckpointReference | None:
    """The question as it stands in the present visit: it waits, or it has got its answer."""
    if (waiting := record.find_pending(checkpoint_id)) is not None:
        return CheckpointReference(waiting.instance, waiting.request)
    answer = record.find_answer(checkpoint_id)
    return CheckpointReference(answer.instance, answer.request, answer) if answer is not None else None


def _moved_on(claims: Claims, record: Record) -> bool:
    """Whether the session is in another visit than when the token was made. A short handle was made for none."""
    before_any = claims.act == "" and record.visit == 1  # nothing was asked before, so the name has only one meaning
    if claims.act is None or before_any:
        return False
    return claims.act != shorten_claim(record.activity) or claims.vis not in (None, record.visit)


async def _earlier(ledger: Ledger, call: WorkflowCall, named: str) -> CheckpointReference:
    try:
        request = await ledger.request(named)
    except RequestNotFound:
        raise _not_active() from None
    if request.session != call.session.id:
        raise _not_active()
    return _of(request)


async def _asked_then(ledger: Ledger, call: WorkflowCall, checkpoint_id: str) -> CheckpointReference:
    """What the name meant in the visit that the token is of."""
    activity, visit = call.claims.act or "", call.claims.vis or 0
    for iteration in FIRST_ITERATIONS:
        key = CheckpointInstance(checkpoint_id, activity, visit, iteration).key
        for request in (await ledger.requests(session=call.session.id, state=None, key=key)).items:
            return _of(request)
    raise _not_asked_then(call.record, checkpoint_id)


def _of(request: Request) -> CheckpointReference:
    detail = request.detail
    asked = CheckpointInstance(detail["checkpoint"], detail["activity"], detail["visit"], detail["iteration"])
    if is_withdrawn(request):
        raise _withdrawn(asked.checkpoint)
    return CheckpointReference(asked, request.id, _answer_of(request, asked))


def _answer_of(request: Request, asked: CheckpointInstance) -> CheckpointAnswer | None:
    if request.state not in ("answered", "dismissed"):
        return None
    option = request.answer.get("option", "")
    effect: dict[str, Any] = next((known["effect"] for known in request.options if known["id"] == option), {})
    return CheckpointAnswer(
        asked.checkpoint,
        asked.activity,
        asked.visit,
        option,
        effect,
        request.answered_by,
        request.channel,
        request.assurance,
        request.closed_at or 0,
        resumed=True,
        iteration=asked.iteration,
        mode=request.answer.get("mode", "option"),
        request=request.id,
    )


def _withdrawn(checkpoint_id: str) -> WorkflowRefusal:
    remedy = "Its session is completed, so nothing depends on the answer any more."
    return WorkflowRefusal(phrases.checkpoint_withdrawn(checkpoint_id), remedy=remedy, reason="checkpoint.withdrawn")


def _not_asked_then(record: Record, checkpoint_id: str) -> WorkflowRefusal:
    if record.find_pending(checkpoint_id) is None:
        return _not_pending(record, checkpoint_id)
    return WorkflowRefusal(
        phrases.checkpoint_newer_than_token(checkpoint_id),
        remedy="Look at it with get_checkpoint, and answer with the token that returns.",
        reason="checkpoint.asked-since",
    )


def _not_pending(record: Record, checkpoint_id: str) -> WorkflowRefusal:
    waiting = [one.checkpoint for one in record.pending]
    return WorkflowRefusal(
        phrases.checkpoint_not_pending(checkpoint_id, waiting),
        remedy="Answer one of those." if waiting else "Nothing waits for an answer: go on with next_activity.",
        reason="checkpoint.not-pending",
    )


def _not_active() -> WorkflowRefusal:
    remedy = "The worker yields the checkpoint first."
    return WorkflowRefusal(phrases.NO_ACTIVE_CHECKPOINT, remedy=remedy, reason="checkpoint.not-active")
