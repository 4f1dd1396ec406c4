"""Compares a state token with the current record: is it stale, and was the answer it brings given before?

A call whose reply was lost is made again, with the state of that moment. It must not act on what came later: another activity,
visit or pass may have a step or a question of the same name. So a state acts only where it stands. Only an answer that is
repeated is confirmed, because its question has just this one.
"""

from __future__ import annotations

from fidelio.definitions.models import Workflow
from fidelio.engine.checkpoints import find_instance
from fidelio.engine.record import (
    ANSWERED,
    CHILD_FINISHED,
    ENTERED,
    LOOP_ADVANCED,
    RESTORED,
    STARTED,
    STEP_COMPLETED,
    VARIABLES_SET,
    CheckpointAnswer,
    Record,
)
from fidelio.ledger import Ledger
from fidelio.ledger.paging import all_events
from fidelio.workflows.tokens import Claims, StateClaims, shorten_claim
from fidelio.workflows.unit_of_work import WorkflowCall

# What can make a question the one that has to be answered. Looking at it, or trying in vain, does not.
_MOVES = (STARTED, RESTORED, ENTERED, STEP_COMPLETED, LOOP_ADVANCED, ANSWERED, VARIABLES_SET, CHILD_FINISHED)
# Nearly always it has come to something among the last few calls, and the whole record need not be read.
_RECENT = 64


def has_moved_on(call: WorkflowCall) -> bool:
    """Whether the session has gone into another activity, visit or pass since the token was made.

    A session token knows only its activity, and a short handle not even that.
    """
    then, act = carried_record(call.claims), call.claims.act
    if then is not None:
        return _place(then) != _place(call.record)
    return act is not None and act != shorten_claim(call.record.activity)


def carried_record(claims: Claims) -> Record | None:
    """The record as it was when a state was made; None for other tokens, and for a state that was too large to carry it."""
    kept = claims.carried_sessions() if isinstance(claims, StateClaims) else ()
    return kept[-1].record if kept else None


async def find_earlier_answer(
    ledger: Ledger, call: WorkflowCall, workflow: Workflow, checkpoint: str
) -> CheckpointAnswer | None:
    """The answer that the question which the state speaks of got after the state was made."""
    then, claims = carried_record(call.claims), call.claims
    if then is None:
        named = claims.req if claims.bcp == shorten_claim(checkpoint) else None
        if named is None or any(one.request == named for one in call.record.pending):
            return None
        return await _answer(ledger, call.session.id, checkpoint, request=named)
    asked = find_instance(workflow, then, checkpoint)
    if not then.activity or then.find_answer_of(asked) is not None or call.record.find_open(asked) is not None:
        return None
    if (answer := call.record.find_answer_of(asked)) is not None or find_instance(workflow, call.record, checkpoint) == asked:
        return answer
    return await _answer(ledger, call.session.id, checkpoint, key=asked.key)


async def last_move_time(ledger: Ledger, session: str, record: Record) -> int:
    """When a session last came to something new."""
    recent = await ledger.events(session, after=max(0, record.seq - _RECENT), types=_MOVES)
    return max((event.time for event in recent or await all_events(ledger, session, types=_MOVES)), default=0)


async def _answer(
    ledger: Ledger, session: str, checkpoint: str, *, request: str = "", key: str = ""
) -> CheckpointAnswer | None:
    for event in await all_events(ledger, session, types=(ANSWERED,)):
        body = event.body
        if request == body.get("request") or key == body.get("key"):
            option, mode, effect = body.get("option", ""), body.get("mode", "option"), body.get("effect") or {}
            who = (body["by"], body["channel"], body["assurance"])
            return CheckpointAnswer(checkpoint, "", 0, option, effect, *who, event.time, mode=mode)
    return None


def _place(record: Record) -> tuple[str, int, str, int, int]:
    here, running = record.here, record.here.running
    if running is None:
        return here.activity, here.visit, "", 0, 0
    return here.activity, here.visit, running.loop, running.iteration, running.entered
