"""Builders of request changes, which another package commits in its own unit of work.

A package that opens or closes a request adds the result of these functions to the `requests` of its decision, so that the
request and its events are committed together. Packages above do not use the structs of the ledger: only this module knows what
makes a request valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, TypeAlias

from fidelio.ids import new_id
from fidelio.ledger.model import CloseRequest, Json, OpenRequest, Request

# A request that is opened or closed by a commit.
RequestChange: TypeAlias = OpenRequest | CloseRequest
NewRequest: TypeAlias = OpenRequest
ClosedRequest: TypeAlias = CloseRequest
# The kind of a request whether a tool may run. Only a person may answer it, whatever its channel allows otherwise.
APPROVAL = "tool_approval"
# `answered_by` of a request that takes only signed answers, and the assurance of such an answer.
PROVEN: Final = "proven"
# The assurances of a person whose answer is not signed.
_UNSIGNED = frozenset({"local", "elicited"})
# How sure the record can be that a person answered. `local` is tamper-evident, not tamper-proof: it is the same OS user. So is
# the key of the server that `api` stands for; a sender with the signs of an agent is `relayed` instead. Only old records have
# `page`.
_ASSURANCE = {
    "relayed": "relayed",
    "elicited": "elicited",
    "cli": "local",
    "page": "local",
    "web": "local",
    "api": "local",
    "timer": "timer",
}


def assurance_of(channel: str, *, is_seen: bool = True) -> str:
    """The assurance of answers over a channel; `relayed` if the program that sent them was not `is_seen` to be no agent."""
    return _ASSURANCE[channel] if is_seen else "relayed"


def open_request(
    kind: str,
    key: str,
    question: str,
    options: tuple[Json, ...],
    detail: Json,
    *,
    request: str = "",
    expires_at: int | None = None,
) -> NewRequest:
    """Open a request with a new id, or with the id `request` if it comes from another ledger and keeps its id.

    After `expires_at` it cannot be answered any more, which counts as a refusal.
    """
    return OpenRequest(
        id=request or new_id("r_"),
        kind=kind,
        key=key,
        question=question,
        options=options,
        detail=detail,
        expires_at=expires_at,
    )


def demand_proof(detail: Json, *, refusals: Collection[str] = ()) -> dict[str, Any]:
    """The detail of a request that takes only answers signed with a registered key.

    `refusals` are the options that grant nothing. A person may choose them without a signature, as nobody signs when a request
    expires: a key that is lost or out of reach must not keep a person from saying no.
    """
    return {**detail, "answered_by": PROVEN, "unsigned_options": list(refusals)}


def needs_person(request: Request) -> bool:
    """Whether a request takes only the answer of a person."""
    return request.kind == APPROVAL or request.detail.get("answered_by") in ("person", PROVEN)


def needs_signature(request: Request, option: str, channel: str, assurance: str = "") -> bool:
    """Whether an answer over a channel counts only with a signature. `assurance`: that of the answer, if it may be weaker."""
    detail = request.detail
    if detail.get("answered_by") != PROVEN:
        return False
    return (
        option not in detail.get("unsigned_options", ())
        or not {_ASSURANCE.get(channel), assurance or _ASSURANCE.get(channel)} <= _UNSIGNED
    )


def expire_request(request: str) -> ClosedRequest:
    """Close a request that nobody has answered in time."""
    return CloseRequest(id=request, state="expired", by="timer", channel="timer", assurance=assurance_of("timer"))


def answer_request(request: str, answer: Json, *, by: str, channel: str, assurance: str = "") -> ClosedRequest:
    """Close a request with an answer that came over a channel, by default with the assurance of that channel."""
    return CloseRequest(id=request, answer=answer, by=by, channel=channel, assurance=assurance or assurance_of(channel))


def dismiss_request(request: str, *, by: str, channel: str = "", answer: Json | None = None) -> ClosedRequest:
    """Close a request that needs no answer any more; `answer` is the reason if an agent declared that it does not apply."""
    assurance = assurance_of(channel) if channel else ""
    return CloseRequest(id=request, state="dismissed", answer=answer or {}, by=by, channel=channel, assurance=assurance)


def dismiss_all(requests: Iterable[str], *, by: str, channel: str = "", but: Collection[str] = ()) -> tuple[ClosedRequest, ...]:
    """Dismiss what is still open when a run or session ends; `but` are requests that were closed in the meantime."""
    return tuple(dismiss_request(request, by=by, channel=channel) for request in requests if request not in but)
