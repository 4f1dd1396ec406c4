"""Calls that workers carry out, and their results: which call may have a result, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fidelio.errors import PersonNeeded, UsageProblem
from fidelio.inbox import assurance_of
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.record import PERSONAL, ApprovalRecord, RuntimeRecord
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.runtime.wakes.content import StoredContent, check_content, store_content
from fidelio.runtime.wakes.record import WORKER, OpenCall
from fidelio.runtime.work.rules import CALL_KEY, SelfHostedWork

# Calls that change nothing: another worker may repeat them.
_READING = frozenset({"read", "glob", "grep"})


def check_worker_result(
    loaded: LoadedRuntime, sent: Mapping[str, Any], by: str, channel: str
) -> tuple[NewEvent, StoredContent]:
    """The event of a result, with its content. An agent that has found the key cannot make up results."""
    if assurance_of(channel) not in PERSONAL:
        raise PersonNeeded("Only a worker with the key sends results.", remedy="Run a worker of the environment.", request="")
    name = str(sent.get("tool_use_id"))
    find_handed_over(loaded, name)
    stored = store_content(check_content(sent.get("content") or "(no output)", "The result"))
    body = {"tool_use_id": name, "content": stored.content, "is_error": bool(sent.get("is_error"))}
    return NewEvent(type=e.WORKER_RESULT, body=body, actor=by, blobs=stored.digests), stored


def find_handed_over(current: LoadedRuntime, name: str) -> ApprovalRecord | None:
    """The approval by which a worker may carry out a call; None if it needs none. Raises `UsageProblem` if it may not.

    A worker may see the answer of a person before the session has used it.
    """
    call = current.record.wakes.find_call(name)
    approval = current.record.approvals.get(call.request) if call is not None and call.state == "waiting" else None
    is_allowed = approval is not None and approval.state == "allowed" and approval.tool_use == name
    if call is None or not (call.state == WORKER or (is_allowed and call.runs == WORKER)):
        raise UsageProblem(
            f"The call {name!r:.80} does not wait for a worker.",
            remedy="It has a result already, its session was interrupted, or a person has to allow it first.",
        )
    return approval


def use_approvals(current: LoadedRuntime, results: Sequence[NewEvent]) -> Iterator[NewEvent]:
    """What goes before results of workers. Refuses a result whose call has ended since it was checked."""
    for result in results:
        name = str(result.body["tool_use_id"])
        if (approval := find_handed_over(current, name)) is not None:
            yield NewEvent(type=e.APPROVAL_USED, body={"request": approval.request, "tool_use_id": name}, actor="agent")


def needs_worker(record: RuntimeRecord) -> bool:
    return any(call.state == WORKER for call in record.wakes.open_calls)


def may_have_begun(record: RuntimeRecord, call: OpenCall, item: SelfHostedWork) -> bool:
    """Whether a worker that had the item may have begun the call, so that it must not simply be repeated."""
    approval = record.approvals.get(call.request)
    is_open = call.state == WORKER or (call.runs == WORKER and approval is not None and approval.state == "allowed")
    if not is_open or call.name in _READING:
        return False
    # A worker of ours says what it carries out before it begins.
    named = item.metadata.get(CALL_KEY)
    # On the wire the call has another prefix.
    return named is None or named.rpartition("_")[2] == call.id.rpartition("_")[2]
