"""The events with which wakes begin, pause and end. Pure: functions of the record and the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fidelio.inbox import ClosedRequest, dismiss_all, dismiss_request
from fidelio.ledger.long_text import json_text, store_text
from fidelio.ledger.model import NewEvent, NewJob
from fidelio.providers.model import ModelProblem
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import event
from fidelio.runtime.wakes.record import EXPIRY_JOB, WAKE_JOB, WAKE_KEY, OpenCall, QueuedWake

INTERRUPTED = "The person has interrupted the work. This call was stopped or not carried out."


def wake_job(session: str, due: int | None = 0) -> tuple[NewJob, ...]:
    """The job of the next wake; nothing if none is due."""
    return () if due is None else (NewJob(kind=WAKE_JOB, session=session, due=due, key=WAKE_KEY),)


def expiry_job(session: str, due: int | None) -> tuple[NewJob, ...]:
    """The job that ends the wait for an answer; nothing if no request expires."""
    return () if due is None else (NewJob(kind=EXPIRY_JOB, session=session, due=due, key=WAKE_KEY),)


def start_wake(wake: str, body: Mapping[str, Any], blobs: tuple[str, ...] = ()) -> tuple[NewEvent, ...]:
    span = {"span_id": wake, "span_kind": "wake", "name": "session_run", "wake_id": wake, **body}
    return event(e.STATUS_RUNNING, {"wake_id": wake}), event(e.SPAN_STARTED, span, blobs=blobs)


def end_wake(wake: str, result: str, **body: Any) -> NewEvent:
    return event(
        e.SPAN_COMPLETED,
        {"span_id": wake, "span_kind": "wake", "name": "session_run", "wake_id": wake, "result": result, **body},
    )


def go_idle(wake: str, reason: str, summary: str = "", *, blocking: Sequence[str] = (), **body: Any) -> NewEvent:
    """The idle event. `blocking` are the ids of the calls that wait for a person or the caller."""
    stop: dict[str, Any] = {"type": reason, **({"event_ids": list(blocking)} if blocking else {})}
    more = {"wake_id": wake} if wake else {}
    return event(
        e.STATUS_IDLE, {"stop_reason": stop, "blockingEventIds": list(blocking) or None, "summary": summary, **more, **body}
    )


def reschedule(wake: str, reason: str, due: int) -> NewEvent:
    return event(e.STATUS_RESCHEDULED, {"wake_id": wake, "reason": reason, "due": due})


def queue_wakes(wakes: Iterable[QueuedWake], wake_id: str) -> tuple[NewEvent, ...]:
    return tuple(
        event(
            e.WAKE_QUEUED,
            {
                "id": wake.id,
                "due": wake.due,
                "reason": wake.reason,
                "note": wake.note,
                "key": wake.key,
                "priority": wake.priority,
                "wake_id": wake_id,
            },
        )
        for wake in wakes
    )


def report_problem(wake: str, problem: ModelProblem, retry_status: str) -> NewEvent:
    """The error of a request. `retry_status`: retrying, exhausted or terminal."""
    body = {
        "type": problem.kind,
        "message": str(problem.sentence),
        "remedy": str(problem.remedy),
        "retry_status": {"type": retry_status},
        **({"status": problem.status} if problem.status is not None else {}),
    }
    return event(e.SESSION_ERROR, {"error": body, "wake_id": wake})


def report_error(wake: str, kind: str, message: str, remedy: str = "") -> NewEvent:
    body = {"type": kind, "message": message, "remedy": remedy, "retry_status": {"type": "terminal"}}
    return event(e.SESSION_ERROR, {"error": body, **({"wake_id": wake} if wake else {})})


def refuse_open_calls(record: RuntimeRecord, reason: str) -> tuple[NewEvent, ...]:
    """A result for every call that has none: a model's turn is never left with calls that have none."""
    return refuse_calls(record.wakes.open_calls, reason)


def refuse_calls(calls: Iterable[OpenCall], reason: str) -> tuple[NewEvent, ...]:
    return tuple(event_ for call in calls for event_ in _refuse(call, reason))


def _refuse(call: OpenCall, reason: str) -> tuple[NewEvent, ...]:
    unknown = " It had begun, and it is not known how it ended." if call.state == "started" or call.is_unknown else ""
    error = {"code": "interrupted", "message": reason + unknown, "retryable": False}
    stored = store_text(json_text({"ok": False, "error": error}))
    result = {"tool_use_id": call.id, "name": call.name, "is_error": True, "result": stored.body}
    ended = (event(e.APPROVAL_ENDED, {"request": call.request, "reason": "interrupted"}),) if call.request else ()
    return (*ended, event(e.TOOL_RESULT, result))


def close_requests(record: RuntimeRecord, by: str) -> tuple[ClosedRequest, ...]:
    """Dismiss what the open calls ask for: a later answer is refused."""
    waiting = {call.request for call in record.wakes.open_calls if call.request}
    still_open = [name for name in waiting if (approval := record.approvals.get(name)) is not None and approval.state == "open"]
    custom = (
        dismiss_request(call.request, by=by) for call in record.wakes.open_calls if call.state == "custom" and call.request
    )
    return (*dismiss_all(sorted(still_open), by=by), *custom)
