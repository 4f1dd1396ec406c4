"""Sessions and threads as objects of the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.runtime.outcomes.record import Outcome
from fidelio.runtime.reading import list_descendants
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.runtime.wakes.record import UsageTotals
from fidelio.surfaces.http.v1 import agents, environments
from fidelio.surfaces.http.v1.endpoint import ApiRequest
from fidelio.surfaces.http.v1.events.rendering import render_amount, render_usage
from fidelio.surfaces.http.v1.events.types import to_thread
from fidelio.surfaces.http.v1.ids import to_wire
from fidelio.surfaces.http.v1.session_resources import render_resources

MICROS = 1_000_000
# Verdicts after which an outcome is not evaluated any more.
_TERMINAL = ("satisfied", "max_iterations_reached")


async def render_session(request: ApiRequest, loaded: LoadedRuntime) -> dict[str, Any]:
    record, session = loaded.record, loaded.session
    runtime = await request.services.runtime()
    # Only who has delegated has threads beside its own; the others need no further read.
    children = await list_descendants(runtime.context, loaded.id) if record.wakes.reserved else []
    now = runtime.context.clock()
    usage = _sum_usage([record, *(child.record for child in children)], now)
    active = usage["active_ms"]
    return {
        "type": "session",
        "id": to_wire("sesn", loaded.id),
        "agent": await agents.render_snapshot(request, record.agent, record.agent_version, record),
        "environment_id": environments.environment_id(record.environment),
        "status": record.status,
        "title": record.title or None,
        "metadata": dict(record.metadata),
        "resources": render_resources(request, record),
        "vault_ids": [to_wire("vlt", vault) for vault in record.vault_ids],
        "usage": {**render_usage(usage), "active_seconds": _count_active(record, now) / 1000},
        "stats": {"active_seconds": active / 1000, "duration_seconds": _measure_duration(loaded, now)},
        "outcome_evaluations": [_render_outcome(outcome, record) for outcome in record.outcomes.outcomes],
        "budget": render_budget(record),
        "deployment_id": to_wire("depl", record.deployment_id) if record.deployment_id else None,
        "created_at": format_iso(session.created_at),
        "updated_at": format_iso(session.updated_at),
        "archived_at": format_iso(record.archived_at) if record.archived_at else None,
    }


async def render_thread(request: ApiRequest, session: LoadedRuntime, loaded: LoadedRuntime) -> dict[str, Any]:
    record, row = loaded.record, loaded.session
    now = (await request.services.runtime()).context.clock()
    usage = _sum_usage([record], now)
    is_primary = loaded.id == session.id
    times = {"active_seconds": usage["active_ms"] / 1000, "duration_seconds": _measure_duration(loaded, now)}
    return {
        "type": "session_thread",
        "id": to_thread(loaded.id),
        "session_id": to_wire("sesn", session.id),
        "parent_thread_id": None if is_primary else to_thread(row.parent or session.id),
        "agent": await agents.render_snapshot(request, record.agent, record.agent_version, record, thread=True),
        "status": record.status,
        "stats": {**times, "startup_seconds": 0.0} if record.wakes.count else None,
        "usage": render_usage(usage) if record.wakes.last else None,
        "workflow_run_id": None,
        "created_at": format_iso(row.created_at),
        "updated_at": format_iso(row.updated_at),
        "archived_at": format_iso(record.archived_at) if record.archived_at else None,
    }


def render_budget(record: RuntimeRecord) -> dict[str, Any] | None:
    """The limit in money that was set for the session itself."""
    usd = record.budget.get("usd")
    return None if not usd else {"type": "limit", "max_list_cost": render_amount(round(usd * MICROS))}


def _sum_usage(records: Iterable[RuntimeRecord], now: int) -> Mapping[str, int]:
    total = dict.fromkeys(UsageTotals.__struct_fields__, 0)
    for record in records:
        for name, value in msgspec.structs.asdict(record.wakes.usage).items():
            total[name] += value
        total["active_ms"] += _count_active(record, now) - record.wakes.usage.active_ms
    return total


def _count_active(record: RuntimeRecord, now: int) -> int:
    """Milliseconds that a session has worked, including its current wake."""
    wakes = record.wakes
    return wakes.usage.active_ms + (max(0, now - wakes.started_at) if wakes.current else 0)


def _measure_duration(loaded: LoadedRuntime, now: int) -> float:
    record = loaded.record
    is_over = record.status == "terminated" or record.is_archived
    return max(0, (loaded.session.updated_at if is_over else now) - loaded.session.created_at) / 1000


def _render_outcome(outcome: Outcome, record: RuntimeRecord) -> dict[str, Any]:
    latest = outcome.latest
    result = _name_result(outcome, record)
    completed = latest.time if latest is not None and result in _TERMINAL else None
    return {
        "type": "outcome_evaluation",
        "outcome_id": outcome.id,
        "description": "\n\n".join(filter(None, (outcome.title if not outcome.detail else "", outcome.detail))),
        "iteration": latest.iteration if latest is not None else 0,
        "result": result,
        "explanation": latest.summary or None if latest is not None else None,
        "completed_at": None if completed is None else format_iso(completed),
    }


def _name_result(outcome: Outcome, record: RuntimeRecord) -> str:
    """Where an outcome stands, in the vendor's words."""
    latest = outcome.latest
    if outcome.decided == "pass" or (latest is not None and latest.status == "pass" and not latest.is_void):
        return "satisfied"
    if outcome.decided == "fail":
        return "failed"
    if latest is not None and latest.results and latest.iteration + 1 >= outcome.max_iterations:
        return "max_iterations_reached"
    if latest is None:
        return "running" if record.wakes.current else "pending"
    return "running" if record.wakes.current or record.status != "idle" else "needs_revision"
