"""The budget of a session, changed by a person while the session goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.errors import UsageProblem
from fidelio.ledger.model import NewEvent, NewJob
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import Budget
from fidelio.runtime.agents.versions import load_session_agent
from fidelio.runtime.schedules import require_active
from fidelio.runtime.sessions import check_price
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.ending import queue_wakes, wake_job
from fidelio.runtime.wakes.record import QueuedWake, WakeRecord
from fidelio.runtime.wakes.rules import EXTENSION, find_next

NOTHING_SHOWN: Mapping[str, Any] = {}


async def set_budget(
    context: RuntimeContext, session: str, budget: Mapping[str, float], *, by: str, shown: Mapping[str, Any] = NOTHING_SHOWN
) -> None:
    """Change limits of a session; those that are not named stay. A session that stopped at its budget goes on.

    `shown`: the change as programs are shown it.
    """
    changed = _check(budget)
    record = require_active(await context.unit.load(session))
    agent = await load_session_agent(context, record)
    check_price(context, record.model or agent.definition.model, changed.get("usd"))
    body = {"budget": changed, **({"updated": dict(shown)} if shown else {})}
    event, now = NewEvent(type=e.CONFIGURED, body=body, actor=by), context.clock()

    def change(current: LoadedRuntime) -> SessionDecision[None]:
        more, jobs = plan_resumption(session, require_active(current).wakes, now)
        return SessionDecision(None, events=(event, *more), jobs=jobs)

    await context.unit.update(session, change)


def _check(budget: Mapping[str, float]) -> dict[str, float]:
    names = Budget.__struct_fields__
    unknown = sorted(set(budget) - set(names))
    if not budget or unknown:
        what = f"{unknown[0]!r:.80} is not a limit." if unknown else "No limit was named."
        raise UsageProblem(what, remedy=f"The limits are {', '.join(names)}.")
    remedy = "Use numbers from 0; 0 switches a limit off."
    try:
        checked = msgspec.convert(dict(budget), Budget, strict=False)
    except msgspec.ValidationError as error:
        raise UsageProblem(f"The budget is not valid: {error}.", remedy=remedy) from error
    if checked.usd is not None and not math.isfinite(checked.usd):
        raise UsageProblem("The limit in US dollars is not a finite number.", remedy=remedy)
    return {name: getattr(checked, name) for name in budget}


def plan_resumption(session: str, wakes: WakeRecord, now: int) -> tuple[tuple[NewEvent, ...], tuple[NewJob, ...]]:
    """The events and the job with which a session goes on that has more to use than a moment ago."""
    resumed = _resume(wakes, now)
    return queue_wakes(resumed, ""), _plan_job(session, wakes, resumed, now)


def _resume(wakes: WakeRecord, now: int) -> tuple[QueuedWake, ...]:
    """The wake with which a turn goes on that was cut off at the budget. What is pending or open needs none."""
    is_cut_off = wakes.stop_reason == "budget_reached" and not (wakes.pending or wakes.queued or wakes.open_calls)
    return (QueuedWake(f"{wakes.last}_b{wakes.count}", now, EXTENSION),) if is_cut_off and wakes.last else ()


def _plan_job(session: str, wakes: WakeRecord, resumed: tuple[QueuedWake, ...], now: int) -> tuple[NewJob, ...]:
    """The job of the next wake: what waited may have been used up while the budget was."""
    if wakes.pending or wakes.open_calls or resumed:
        return wake_job(session, now)
    return wake_job(session, find_next(wakes))
