"""JSON of reports. Apart from the views of records, because the structs of reports bring pydantic and the runtime."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from fidelio.app.runtime_reports import ProvenReport
from fidelio.runtime.report import RuntimeReport
from fidelio.surfaces.views.records import key_json


def report_json(proven: ProvenReport) -> dict[str, Any]:
    """The report with its differences, what its chain proves, and the keys that have signed answers."""
    report, verdict = proven.report, proven.verdict
    chain = {
        "holds": verdict.holds,
        "problems": list(verdict.problems),
        "events": verdict.events,
        "head": verdict.head.hex(),
    }
    body = _convert_report(report) if isinstance(report, RuntimeReport) else to_builtins(report)
    return {**body, "differences": report.differences, "chain": chain, "keys": [key_json(key) for key in proven.keys]}


def _convert_report(report: RuntimeReport) -> dict[str, Any]:
    """The report with lists instead of the mappings by id."""
    listed = {"commands": list(report.commands.values()), "approvals": list(report.approvals.values())}
    state = {"kind": "runtime", "deleted": report.deleted_at is not None}
    return {**to_builtins(report), **to_builtins(listed), **state}
