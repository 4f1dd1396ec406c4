"""Promotion of learnings into MEMORY.md: the request to a person, and what is done after the answer.

The request does not pause the session. Its answer queues the job of a wake, which carries out what was answered before anything
else. The write, and the event that ends the promotion in the session, are one commit, so it happens once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fidelio.errors import DocumentConflict, LedgerBusy, RequestClosed, SequenceConflict, ToolRefused
from fidelio.inbox import APPROVAL, PROVEN, NewRequest, RequestChange, demand_proof, expire_request, open_request
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Change, NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime.memory.record import PROMOTION_ENDED, PROMOTION_REQUESTED, PendingPromotion
from fidelio.runtime.memory.workspace import (
    LEARNINGS_SOURCE,
    build_version,
    clean_line,
    load_workspace_memory,
)
from fidelio.runtime.permissions.approvals import LIFETIME_MS
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.record import PERSONAL
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.record import WAKE_JOB

_ATTEMPTS = 8
_OPTIONS = (
    {"id": "allow", "label": "Add it", "description": "It becomes part of MEMORY.md."},
    {"id": "deny", "label": "Do not add it", "description": "It stays in the list of learnings only."},
)


class NewPromotion(msgspec.Struct, frozen=True):
    """A request to open, and the event that puts it into the record."""

    request: NewRequest
    event: NewEvent


class PromotionChanges(msgspec.Struct, frozen=True):
    """What carries out the answered promotions of a session; all of it belongs into the same commit."""

    events: tuple[NewEvent, ...] = ()
    linked: tuple[Change, ...] = ()
    requests: tuple[RequestChange, ...] = ()


class PlannedWrite(msgspec.Struct, frozen=True):
    """The next version of the memory file. `refused` are the requests whose learnings are not in it, and why."""

    linked: tuple[Change, ...] = ()
    version: str = ""
    refused: dict[str, str] = msgspec.field(default_factory=dict)


def request_promotion(
    *, learning: str, kind: str, title: str, detail: str, session: LoadedRuntime, wake: str, now: int
) -> NewPromotion:
    """Build the request whether a learning becomes part of MEMORY.md."""
    expires = now + LIFETIME_MS
    question = "\n".join(
        (
            "May this learning become part of MEMORY.md? Every session of this agent in this project gets it in its prompt.",
            f"{kind}: {clean_line(title)}",
            f"Detail: {clean_line(detail)}",
            f"Learned in session {session.id}" + (f", wake {wake}." if wake else "."),
        )
    )
    about = {"learning_id": learning, "kind": kind, "title": title, "detail": detail}
    more = {"answered_by": "person", "job": WAKE_JOB, "root": session.record.root or session.id}
    shown = {**about, **more}
    # Another way into the same file as the tool has, so it asks as the tool does.
    is_proven = find_policy(DEFINITIONS["memory_promote_note"], session.record) == PROVEN
    shown = demand_proof(shown, refusals=("deny",)) if is_proven else shown
    request = open_request(APPROVAL, f"learning:{learning}", question, _OPTIONS, shown, expires_at=expires)
    body = {"request": request.id, **about, "expires": expires, "wake_id": wake}
    return NewPromotion(request, NewEvent(type=PROMOTION_REQUESTED, body=body, actor="agent"))


async def commit_promotions(
    context: RuntimeContext, session: LoadedRuntime, *, assignment: Assignment | None = None
) -> LoadedRuntime:
    """Carry out the answered promotions of a session; commits nothing if there are none."""
    for _ in range(_ATTEMPTS):
        changes = await apply_promotions(context, session)
        if not changes.events:
            return session
        decision = SessionDecision(None, events=changes.events, linked=changes.linked, requests=changes.requests)
        try:
            return await context.unit.commit(session, decision, assignment=assignment)
        except (SequenceConflict, DocumentConflict, RequestClosed):
            # The session or the memory file has changed, or a person has just answered: look again.
            session = await context.unit.load(session.id)
    raise LedgerBusy("The memory of the agent is being changed all the time.", remedy="Try again.")


async def apply_promotions(context: RuntimeContext, session: LoadedRuntime) -> PromotionChanges:
    """Plan what carries out the answered promotions, and ends those that nobody answered in time."""
    now = context.clock()
    due = [each for each in session.record.memory.promotions if each.state != "open" or each.expires <= now]
    if not due:
        return PromotionChanges()
    reasons = {each.request: await _find_reason(context, each) for each in due}
    allowed = [each for each in due if reasons[each.request] == "promoted"]
    write = await _plan_write(context, session, allowed) if allowed else PlannedWrite()
    reasons |= write.refused
    return PromotionChanges(
        events=tuple(_end(each, reasons[each.request], write.version) for each in due),
        linked=write.linked,
        requests=tuple(expire_request(each.request) for each in due if reasons[each.request] == "expired"),
    )


async def _find_reason(context: RuntimeContext, promotion: PendingPromotion) -> str:
    """How a promotion ends: `promoted`, or why it does not."""
    if promotion.state == "open":
        # It may have been dismissed in the inbox.
        state = (await context.ledger.request(promotion.request)).state
        return "expired" if state == "open" else state
    if promotion.state == "denied" or promotion.assurance not in PERSONAL:
        return "denied"
    # A person has redacted the texts since then.
    return "promoted" if promotion.title else "erased"


async def _plan_write(context: RuntimeContext, session: LoadedRuntime, allowed: Sequence[PendingPromotion]) -> PlannedWrite:
    """Plan the next version of the memory file with all learnings that fit into its section."""
    substrate = await Substrate.open(context, session.record.project, session.record.agent)
    refused: dict[str, str] = {}
    try:
        memory = await load_workspace_memory(substrate)
        text, body = memory.text, memory.section("learnings")
    except ToolRefused as error:
        return PlannedWrite(refused={each.request: error.reason for each in allowed})
    for each in allowed:
        longer = "\n".join(filter(None, (body, _render(each, session.id))))
        try:
            text, body = memory.with_section("learnings", longer), longer
        except ToolRefused as error:
            refused[each.request] = error.reason
    if len(refused) == len(allowed):
        return PlannedWrite(refused=refused)
    new = await build_version(substrate, memory, text, session=session.id, source=LEARNINGS_SOURCE)
    return PlannedWrite((new.change,), new.version.version_id, refused)


def _render(promotion: PendingPromotion, session: str) -> str:
    """The line of a learning, with its source and who agreed."""
    source = f"learning {promotion.learning}, session {session}" + (f", wake {promotion.wake}" if promotion.wake else "")
    text = f"- {promotion.kind}: {clean_line(promotion.title)}: {clean_line(promotion.detail)}"
    return f"{text} ({source}, allowed by {clean_line(promotion.by)})"


def _end(promotion: PendingPromotion, reason: str, version: str) -> NewEvent:
    body = {
        "request": promotion.request,
        "learning_id": promotion.learning,
        "reason": reason,
        "by": promotion.by,
        **({"version_id": version} if reason == "promoted" else {}),
    }
    return NewEvent(type=PROMOTION_ENDED, body=body)
