"""Reports on sessions of the agent runtime, and their tool calls, folded from events page by page."""

from __future__ import annotations

from typing import Any

from fidelio.app.records import Records, describe_store
from fidelio.ledger.model import Session
from fidelio.runtime.events import TOOL_RESULT, TOOL_USE
from fidelio.runtime.report import RuntimeReport


async def load_runtime_report(records: Records, session: Session) -> RuntimeReport:
    """Fold the events of a session."""
    report = RuntimeReport(session=session.id, name=session.name or "", store=describe_store(session))
    async for event in records.all_events(session.id):
        report.add(event)
    return report


async def load_runtime_calls(records: Records, session: Session) -> list[dict[str, Any]]:
    """The tool calls of a session in order, with the keys of those of a workflow. `s` is `open` without a result."""
    calls: dict[str, dict[str, Any]] = {}
    agent = str(session.record.get("agent", ""))
    async for event in records.all_events(session.id, types=[TOOL_USE, TOOL_RESULT]):
        body = event.body
        if event.type == TOOL_USE:
            call = {"seq": event.seq, "time": event.time, "aid": agent, "name": str(body.get("name", "")), "act": ""}
            # The body of a redacted event has no id; its number is one.
            calls[str(body.get("id", event.seq))] = {**call, "s": "erased" if event.redacted else "open", "ms": 0}
        elif (found := calls.get(str(body.get("tool_use_id", "")))) is not None:
            found |= {"s": "error" if body.get("is_error") else "ok", "ms": event.time - found["time"]}
    return list(calls.values())
