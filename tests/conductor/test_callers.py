"""Workflows that an agent has carried out: whose children the workers are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.conductor.plan import plan_of
from fidelio.errors import ConductorFailure, UsageProblem
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.processes.table import AGENT_MARKER
from fidelio.surfaces.mcp.toolsets.orchestrator.handlers import AgentToolset
from fidelio.toolkit import Done
from tests.conductor.orchestra import Orchestra, activity, report, workers_of, write_workflow
from tests.support import proves
from tests.support.tool_calls import call_tool


async def agent(house: Application, orchestra: Orchestra, name: str, **more: Any) -> AgentSession:
    """An agent that is at work for as long as the test is."""
    orchestra.blueprint("busy", {"turns": [[{"say": "Hm."}, {"pause": 100}, {"result": "Done."}]]})
    asked = StartAgent(name=name, prompt="Work.", blueprint="busy", project=str(orchestra.project), **more)
    return await (await house.agents()).start(asked)


async def run_below(house: Application, caller: AgentSession, orchestra: Orchestra, **arguments: Any) -> Done:
    tools = AgentToolset(house, environ={AGENT_MARKER: caller.run.id}).tools()
    done = await call_tool(tools, "run_workflow", {"project_dir": str(orchestra.project), **arguments})
    assert isinstance(done, Done)
    return done


@proves("families.workflow-workers")
async def test_the_workers_of_an_agents_workflow_are_its_children(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    orchestra.says("quick", report("one-step"))
    async with orchestra.house() as house:
        caller = await agent(house, orchestra, "caller")
        done = await run_below(house, caller, orchestra, workflow_id="single", agent_blueprint_name="quick", wait_seconds=50)
        assert done.structured is not None
        assert done.structured["status"] == "completed"
        (worker,) = await workers_of(house, done.structured["session_id"])
        assert (worker.parent, worker.depth) == (caller.id, 1)
        await (await house.agents()).stop("caller", str(orchestra.project))


@proves("families.workflow-workers", "orchestrator.depth")
async def test_an_agent_cannot_go_deeper_by_running_a_workflow(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    async with orchestra.house() as house:
        most = (await house.agents()).context.limits.depth
        above = await agent(house, orchestra, "level-0")
        top = above
        for depth in range(1, most + 1):
            above = await agent(house, orchestra, f"level-{depth}", parent=above.id)
        done = await run_below(house, above, orchestra, workflow_id="single", agent_blueprint_name="robot")
        assert done.is_error
        assert f"{most + 1} levels below the first; {most} are allowed" in done.text
        await (await house.agents()).stop(top.id)


@proves("families.workflow-workers")
async def test_the_workers_of_a_workflow_are_stopped_with_the_agent_that_runs_it(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    async with orchestra.house() as house:
        caller = await agent(house, orchestra, "caller")
        await run_below(house, caller, orchestra, workflow_id="single", agent_blueprint_name="busy")
        service = await house.agents()
        position = await service.context.ledger.wait(after=-1, timeout=0)
        async with asyncio.timeout(30):
            while not (workers := (await service.list(parent=caller.id)).items):
                position = await service.context.ledger.wait(after=position, timeout=5)
        await service.stop(caller.id)
        (worker,) = (await service.list(parent=caller.id)).items
        assert worker.id == workers[0].id
        assert (worker.run.state, worker.run.reason) == ("stopped", "stop.parent")


@proves("families.workflow-workers")
async def test_a_workflow_goes_no_further_for_an_agent_that_was_stopped(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    async with orchestra.house() as house:
        caller = await agent(house, orchestra, "caller")
        conductor = await house.conductor(lambda _: None)
        session = await conductor.begin(orchestra.plan("single", caller=caller.id))
        await (await house.agents()).stop(caller.id)
        with pytest.raises(ConductorFailure, match="caller was stopped, and cannot start sessions"):
            await conductor.carry_out(session)
        with pytest.raises(UsageProblem, match="was stopped"):
            await conductor.check(orchestra.plan("single", caller=caller.id))


@proves("families.workflow-workers")
async def test_a_run_that_a_person_goes_on_with_is_no_longer_the_agents(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    orchestra.says("lazy", "No.")
    async with orchestra.house() as house:
        caller = await agent(house, orchestra, "caller")
        arguments = {"workflow_id": "single", "agent_blueprint_name": "lazy", "wait_seconds": 50}
        failed = (await run_below(house, caller, orchestra, **arguments)).structured
        assert failed is not None
        ledger = (await house.agents()).context.ledger
        before = await plan_of(ledger, failed["session_id"])
        person = AgentToolset(house, environ={}).tools()
        await call_tool(person, "run_workflow", {**arguments, "project_dir": str(orchestra.project)})
        after = await plan_of(ledger, failed["session_id"])
        assert before is not None
        assert after is not None
        assert (before.caller, after.caller) == (caller.id, None)
        await (await house.agents()).stop(caller.id)
