"""Reports on sessions with what proves them, and the tool calls of the agent runtime, folded from events page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.app.records import ChainVerdict, Records, describe_store
from fidelio.errors import Command, Hint, UsageProblem
from fidelio.ledger.model import Session
from fidelio.runtime.events import TOOL_RESULT, TOOL_USE
from fidelio.runtime.report import RuntimeReport

if TYPE_CHECKING:
    from fidelio.app.passkeys import PersonKey
    from fidelio.workflows.report import Report


class ProvenReport(msgspec.Struct, frozen=True):
    """A report with the verification that it relies on, and the keys that have signed answers in it."""

    report: Report | RuntimeReport
    verdict: ChainVerdict
    keys: list[PersonKey]


async def load_report(records: Records, session: Session) -> ProvenReport:
    """The report on a session, verified now. Raises `UsageProblem` if there is none, and `ChainBroken`."""
    if session.kind == "agent":
        raise UsageProblem(
            f"Session {session.id} is a session of an agent: it follows no workflow that it could be compared with.",
            remedy=Hint(Command("events", session.id), " shows what happened in it."),
        )
    verdict = await records.verify(session.id)
    if session.kind == "runtime":
        loaded = await load_runtime_report(records, session)
        return ProvenReport(loaded, verdict, await records.signing_keys(session.id))
    report = await records.report(session.id, verdict)
    children = (child.session for child in report.iter_children())
    return ProvenReport(report, verdict, await records.signing_keys(session.id, *children))


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
