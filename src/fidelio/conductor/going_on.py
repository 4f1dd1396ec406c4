"""The run that a call means: the one of this workflow that has not come to its end, or a new one."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from fidelio.conductor.conducting import Conductor
from fidelio.conductor.keeping import beginning_lock, keep, plan_of, unfinished
from fidelio.conductor.plan import TRIES, WORKER, Plan
from fidelio.errors import ConductorFailure, UsageProblem
from fidelio.home import Home
from fidelio.ledger import Ledger


class Found(msgspec.Struct, frozen=True):
    """A run. `goes_on`: it was there already."""

    session: str
    goes_on: bool


async def find_or_begin(conductor: Conductor, ledger: Ledger, home: Home, plan: Plan, *, anew: bool) -> Found:
    await conductor.check(plan)
    lock = beginning_lock(home, plan)
    if not lock.take():
        raise ConductorFailure(f"Another process begins {plan.workflow} just now.", remedy="Run it again to go on with that.")
    try:
        session = None if anew else await unfinished(ledger, plan.project, plan.workflow)
        if session is None:
            return Found(await conductor.begin(plan), goes_on=False)
        await _change_hands(ledger, session, plan)
        return Found(session, goes_on=True)
    finally:
        lock.release()


async def _change_hands(ledger: Ledger, session: str, asked: Plan) -> None:
    """What was asked for this time counts from now on; what was left out stays as it was. Workers are of whoever asks now."""
    before = await plan_of(ledger, session)
    if before is None:
        return
    if asked.inputs and asked.inputs != before.inputs:
        raise UsageProblem(
            f"{asked.workflow} has begun already, and inputs are for its beginning.",
            remedy="Leave them out to go on, or begin another run with --new (new: true).",
        )
    after = replace(
        before,
        agent=before.agent if asked.agent == WORKER else asked.agent,
        activity_agents={**before.activity_agents, **asked.activity_agents},
        tries=before.tries if asked.tries == TRIES else asked.tries,
        caller=asked.caller,
    )
    if after != before:
        await keep(ledger, session, after)
