"""The part of a session's record that memory needs: learnings that wait for a person. Pure: no clock, no I/O.

An agent may ask that a learning becomes part of MEMORY.md, which is in every prompt. The request does not pause the session, so
the record says which learnings wait, and what a person has answered until the next wake carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

# Stored event types, of the session that asked.
PROMOTION_REQUESTED = "learning.promotion_requested"
PROMOTION_ENDED = "learning.promotion_ended"
# Learnings that may wait at once. They are in the record, which is stored with every event.
MAX_WAITING = 10

PromotionState = Literal["open", "allowed", "denied"]


class PendingPromotion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A learning with a request to a person. `assurance` says how sure the ledger is that a person answered."""

    request: str
    learning: str
    expires: int
    kind: str = ""
    title: str = ""
    detail: str = ""
    wake: str = ""
    state: PromotionState = "open"
    by: str = ""
    assurance: str = ""


class MemoryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The learnings that wait for a person, or for the next wake after the answer; oldest first."""

    promotions: tuple[PendingPromotion, ...] = ()

    @property
    def open_requests(self) -> tuple[str, ...]:
        """The requests that nobody has answered, to be dismissed when the session ends."""
        return tuple(promotion.request for promotion in self.promotions if promotion.state == "open")


MemoryFold: TypeAlias = Callable[[MemoryRecord, RecordEvent], MemoryRecord]


def _request(memory: MemoryRecord, event: RecordEvent) -> MemoryRecord:
    body = event.body
    promotion = PendingPromotion(
        request=body["request"],
        learning=body["learning_id"],
        expires=body["expires"],
        kind=body.get("kind", ""),
        title=body.get("title", ""),
        detail=body.get("detail", ""),
        wake=body.get("wake_id", ""),
    )
    return replace(memory, promotions=(*memory.promotions, promotion))


def _answer(memory: MemoryRecord, event: RecordEvent) -> MemoryRecord:
    body = event.body
    state: PromotionState = "allowed" if body.get("option") == "allow" else "denied"
    return replace(
        memory,
        promotions=tuple(
            replace(promotion, state=state, by=body.get("by", ""), assurance=body.get("assurance", ""))
            if promotion.request == body.get("request") and promotion.state == "open"
            else promotion
            for promotion in memory.promotions
        ),
    )


def _end(memory: MemoryRecord, event: RecordEvent) -> MemoryRecord:
    request = event.body["request"]
    return replace(memory, promotions=tuple(known for known in memory.promotions if known.request != request))


def _clear(memory: MemoryRecord, _: RecordEvent) -> MemoryRecord:
    return replace(memory, promotions=())


MEMORY_FOLDS: Mapping[str, MemoryFold] = {
    PROMOTION_REQUESTED: _request,
    PROMOTION_ENDED: _end,
    e.REQUEST_ANSWERED: _answer,
    e.ENDED: _clear,
}
