"""Lines of `fidelio runtime status` and `sessions`: what a session does, waits for, has used and will do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fidelio.ledger.model import Session
from fidelio.runtime.agents.definition import DEFAULT_USD, Budget
from fidelio.runtime.record import RuntimeRecord
from fidelio.surfaces.text import Layout, quote_name

_REASONS = {
    "end_turn": "the turn has ended",
    "requires_action": "it waits for an answer",
    "budget_reached": "a limit is reached",
    "retries_exhausted": "it stopped after an error",
    "refusal": "the model refused to answer",
}


def describe_status(about: Mapping[str, Any], layout: Layout) -> Iterator[str]:
    """The status of a session, from what `describe` says."""
    name = f" ({quote_name(about['name'])})" if about.get("name") else ""
    agent = f"agent {quote_name(about['agent'])}, version {about['version']}, model {quote_name(about['model'])}"
    yield from layout.wrap_line(f"Session {about['sessionId']}{name}: {_state(about)}")
    if about.get("title"):
        yield from layout.quote_text(about["title"], "  ")
    yield from layout.wrap_line(agent, "  ")
    yield from layout.wrap_line(_usage(about), "  ")
    if about.get("summary"):
        yield from layout.wrap_line("last wake:", "  ")
        yield from layout.quote_text(about["summary"], "  ")
    yield from _waiting(about, layout)
    yield from _later(about, layout)
    for outcome in about.get("outcomes") or ():
        title, author = quote_name(outcome["title"], 100), quote_name(outcome["author"])
        yield from layout.wrap_line(f"outcome {title} ({author}): {quote_name(outcome['status'])}", "  ")
    if about.get("readers"):
        yield from layout.wrap_line(f"its log is read by sessions with a network up to {quote_name(about['readers'])}", "  ")
    for key in ("parent", "children"):
        names = about.get(key)
        listed = [names] if isinstance(names, str) else [_name_of(child) for child in names or ()]
        if listed:
            yield from layout.wrap_line(f"{key}: {', '.join(map(quote_name, listed))}", "  ")


def _state(about: Mapping[str, Any]) -> str:
    if about.get("isArchived"):
        return "archived"
    reason = _REASONS.get(about.get("stopReason") or "", "")
    pending = f", {about['pending']} pending" if about.get("pending") else ""
    return f"{quote_name(about['status'])}{f', {reason}' if reason and about['status'] == 'idle' else ''}{pending}"


def _usage(about: Mapping[str, Any]) -> str:
    """What was used, each with its limit."""
    usage = about["usage"]
    budget = msgspec.convert(about.get("budget") or {}, Budget)
    tokens = _of(f"{usage['tokens']:,}", f"{budget.tokens:,}" if budget.tokens else "")
    limit = DEFAULT_USD if budget.usd is None else budget.usd
    dollars = _of(f"${about['costUsd']:.4f}", f"${limit:g}" if limit else "")
    return f"used: {tokens} tokens in {usage['requests']} requests, {dollars}, {about['wakes']} wakes"


def _of(used: str, limit: str) -> str:
    return f"{used} of {limit}" if limit else used


def _waiting(about: Mapping[str, Any], layout: Layout) -> Iterator[str]:
    for call in about.get("waiting") or ():
        what = "the result of" if call["kind"] == "custom_tool" else "your yes to"
        request = f", request {call['requestId']}" if call.get("requestId") else ""
        yield from layout.wrap_line(f"waits for {what} {quote_name(call['tool'])}: call {call['toolUseId']}{request}", "  ")


def _later(about: Mapping[str, Any], layout: Layout) -> Iterator[str]:
    for wake in about.get("queuedWakes") or ():
        note = f", note {quote_name(wake['note'], 100)}" if wake.get("note") else ""
        yield from layout.wrap_line(f"wakes at {wake['due']}: {quote_name(wake['reason'], 100)}{note}", "  ")
    for schedule in about.get("schedules") or ():
        every = f"every {describe_seconds(schedule['everySeconds'])}"
        yield from layout.wrap_line(f"schedule {quote_name(schedule['name'])}: {every}, next at {schedule['next']}", "  ")


def _name_of(child: Any) -> str:
    return str(child.get("sessionId", child)) if isinstance(child, Mapping) else str(child)


def describe_seconds(seconds: int) -> str:
    """A duration in the largest unit that divides it."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    return next((f"{seconds // size}{unit}" for unit, size in units if seconds % size == 0 and seconds), f"{seconds}s")


def session_row(session: Session, record: RuntimeRecord) -> dict[str, str]:
    """The cells of a session in a table."""
    waiting = len(record.wakes.blocking)
    return {
        "id": session.id,
        "agent": f"{record.agent} {record.agent_version or '-'}",
        "status": "archived" if record.is_archived else record.status,
        "waits": str(waiting) if waiting else "-",
        "tokens": f"{record.wakes.usage.tokens:,}",
        "about": record.title or session.name or record.wakes.summary,
    }


def session_json(session: Session, record: RuntimeRecord) -> dict[str, Any]:
    return {
        "sessionId": session.id,
        "name": session.name,
        "agent": record.agent,
        "version": record.agent_version,
        "status": record.status,
        "isArchived": record.is_archived,
        "stopReason": record.wakes.stop_reason or None,
        "waiting": len(record.wakes.blocking),
        "pending": record.wakes.pending,
        "tokens": record.wakes.usage.tokens,
        "title": record.title,
        "summary": record.wakes.summary,
        "parent": session.parent,
    }
