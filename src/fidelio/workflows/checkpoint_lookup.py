"""Lookup of the checkpoint instance that a call refers to.

A checkpoint is opened anew in every visit and iteration, under the same id. So an answer belongs to the instance that its token
was made for: a call that is repeated late confirms the answer to that instance, and never answers a later one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.engine import phrases
from fidelio.engine.record import CheckpointAnswer, CheckpointInstance, Record
from fidelio.errors import RequestNotFound, WorkflowRefusal
from fidelio.ledger import Ledger
from fidelio.ledger.model import Request
from fidelio.workflows.cancel import is_withdrawn
from fidelio.workflows.tokens import Claims, shorten_claim
from fidelio.workflows.unit_of_work import WorkflowCall

# The iterations in which a checkpoint can be armed: 0 outside of loops, 1 in a loop.
FIRST_ITERATIONS = (0, 1)


class CheckpointReference(msgspec.Struct, frozen=True):
    """The checkpoint instance that a call refers to, its request, and its answer if there is any."""

    instance: CheckpointInstance
    request: str
    answer: CheckpointAnswer | None = None


async def find_by_handle(ledger: Ledger, call: WorkflowCall) -> CheckpointReference:
    """Find the instance that a handle was made for, or the pending instance if the handle names none."""
    request = call.claims.req
    waiting = call.record.waiting
    if waiting is not None and request in (None, waiting.request):
        return CheckpointReference(waiting.instance, waiting.request)
    if request is None:
        raise _not_active()
    return await _load_reference(ledger, call, request)


async def find_by_name(ledger: Ledger, call: WorkflowCall, checkpoint_id: str) -> CheckpointReference:
    """Find the instance that a checkpoint id refers to, in the visit in which the token was made."""
    claims, current = call.claims, find_current(call.record, checkpoint_id)
    if claims.req is not None and claims.bcp == shorten_claim(checkpoint_id):
        if current is not None and current.request == claims.req:
            return current
        return await _load_reference(ledger, call, claims.req)
    if _has_left_visit(claims, call.record):
        return await _find_in_visit(ledger, call, checkpoint_id)
    if current is None:
        raise _not_pending(call.record, checkpoint_id)
    return current


def find_current(record: Record, checkpoint_id: str) -> CheckpointReference | None:
    """Find the instance of the current visit, pending or answered."""
    if (waiting := record.find_pending(checkpoint_id)) is not None:
        return CheckpointReference(waiting.instance, waiting.request)
    answer = record.find_answer(checkpoint_id)
    return CheckpointReference(answer.instance, answer.request, answer) if answer is not None else None


def _has_left_visit(claims: Claims, record: Record) -> bool:
    """Whether the session has left the visit in which the token was made. A short handle names no visit."""
    # A token from before the first visit can only refer to the first visit: there are no earlier instances.
    is_initial = claims.act == "" and record.visit == 1
    if claims.act is None or is_initial:
        return False
    return claims.act != shorten_claim(record.activity) or claims.vis not in (None, record.visit)


async def _load_reference(ledger: Ledger, call: WorkflowCall, request_id: str) -> CheckpointReference:
    try:
        request = await ledger.request(request_id)
    except RequestNotFound:
        raise _not_active() from None
    if request.session != call.session.id:
        raise _not_active()
    return _build_reference(request)


async def _find_in_visit(ledger: Ledger, call: WorkflowCall, checkpoint_id: str) -> CheckpointReference:
    """Find the instance of the visit in which the token was made."""
    activity, visit = call.claims.act or "", call.claims.vis or 0
    for iteration in FIRST_ITERATIONS:
        key = CheckpointInstance(checkpoint_id, activity, visit, iteration).key
        for request in (await ledger.requests(session=call.session.id, state=None, key=key)).items:
            return _build_reference(request)
    raise _newer_than_token(call.record, checkpoint_id)


def _build_reference(request: Request) -> CheckpointReference:
    detail = request.detail
    instance = CheckpointInstance(detail["checkpoint"], detail["activity"], detail["visit"], detail["iteration"])
    if is_withdrawn(request):
        raise _withdrawn(instance.checkpoint)
    return CheckpointReference(instance, request.id, _build_answer(request, instance))


def _build_answer(request: Request, instance: CheckpointInstance) -> CheckpointAnswer | None:
    if request.state not in ("answered", "dismissed"):
        return None
    option = request.answer.get("option", "")
    effect: dict[str, Any] = next((known["effect"] for known in request.options if known["id"] == option), {})
    return CheckpointAnswer(
        instance.checkpoint,
        instance.activity,
        instance.visit,
        option,
        effect,
        request.answered_by,
        request.channel,
        request.assurance,
        request.closed_at or 0,
        resumed=True,
        iteration=instance.iteration,
        mode=request.answer.get("mode", "option"),
        request=request.id,
    )


def _withdrawn(checkpoint_id: str) -> WorkflowRefusal:
    remedy = "Its session is over, so nothing depends on the answer any more."
    return WorkflowRefusal(phrases.checkpoint_withdrawn(checkpoint_id), remedy=remedy, reason="checkpoint.withdrawn")


def _newer_than_token(record: Record, checkpoint_id: str) -> WorkflowRefusal:
    if record.find_pending(checkpoint_id) is None:
        return _not_pending(record, checkpoint_id)
    return WorkflowRefusal(
        phrases.checkpoint_newer_than_token(checkpoint_id),
        remedy="Look at it with get_checkpoint, and answer with the token that returns.",
        reason="checkpoint.asked-since",
    )


def _not_pending(record: Record, checkpoint_id: str) -> WorkflowRefusal:
    pending = [request.checkpoint for request in record.pending]
    return WorkflowRefusal(
        phrases.checkpoint_not_pending(checkpoint_id, pending),
        remedy="Answer one of those." if pending else "Nothing waits for an answer: go on with next_activity.",
        reason="checkpoint.not-pending",
    )


def _not_active() -> WorkflowRefusal:
    remedy = "The worker yields the checkpoint first."
    return WorkflowRefusal(phrases.NO_ACTIVE_CHECKPOINT, remedy=remedy, reason="checkpoint.not-active")
