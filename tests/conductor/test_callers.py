"""Runs requested by an agent: its workers are children of that agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.conductor.plan import load_plan
from fidelio.errors import ConductorFailure, UsageProblem
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.processes.table import AGENT_MARKER
from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools
from fidelio.toolkit import Done
from tests.conductor.run_setup import RunSetup, activity, list_workers, report, write_workflow
from tests.support import proves
from tests.support.tool_calls import call_tool


async def agent(app: Application, setup: RunSetup, name: str, **more: Any) -> AgentSession:
    """Start an agent that runs longer than the test."""
    setup.write_blueprint("busy", {"turns": [[{"say": "Hm."}, {"pause": 100}, {"result": "Done."}]]})
    start = StartAgent(name=name, prompt="Work.", blueprint="busy", project=str(setup.project), **more)
    return await (await app.agents()).start(start)


async def run_below(app: Application, caller: AgentSession, setup: RunSetup, **arguments: Any) -> Done:
    tools = open_tools(app, environ={AGENT_MARKER: caller.run.id})
    done = await call_tool(tools, "run_workflow", {"project_dir": str(setup.project), **arguments})
    assert isinstance(done, Done)
    return done


@proves("families.workflow-workers")
async def test_the_workers_of_an_agents_workflow_are_its_children(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    setup.write_agent("quick", report("one-step"))
    async with setup.app() as app:
        caller = await agent(app, setup, "caller")
        done = await run_below(app, caller, setup, workflow_id="single", agent_blueprint_name="quick", wait_seconds=50)
        assert done.structured is not None
        assert done.structured["status"] == "completed"
        (worker,) = await list_workers(app, done.structured["session_id"])
        assert (worker.parent, worker.depth) == (caller.id, 1)
        await (await app.agents()).stop("caller", str(setup.project))


@proves("families.workflow-workers", "orchestrator.depth")
async def test_an_agent_cannot_go_deeper_by_running_a_workflow(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    async with setup.app() as app:
        most = (await app.agents()).context.limits.depth
        above = await agent(app, setup, "level-0")
        top = above
        for depth in range(1, most + 1):
            above = await agent(app, setup, f"level-{depth}", parent=above.id)
        done = await run_below(app, above, setup, workflow_id="single", agent_blueprint_name="robot")
        assert done.is_error
        assert f"{most + 1} levels below the first; {most} are allowed" in done.text
        await (await app.agents()).stop(top.id)


@proves("families.workflow-workers")
async def test_the_workers_of_a_workflow_are_stopped_with_the_agent_that_runs_it(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    async with setup.app() as app:
        caller = await agent(app, setup, "caller")
        await run_below(app, caller, setup, workflow_id="single", agent_blueprint_name="busy")
        service = await app.agents()
        position = await service.context.ledger.wait(after=-1, timeout=0)
        async with asyncio.timeout(30):
            while not (workers := (await service.list(parent=caller.id)).items):
                position = await service.context.ledger.wait(after=position, timeout=5)
        await service.stop(caller.id)
        (worker,) = (await service.list(parent=caller.id)).items
        assert worker.id == workers[0].id
        assert (worker.run.state, worker.run.reason) == ("stopped", "stop.parent")


@proves("families.workflow-workers")
async def test_a_run_ends_when_its_calling_agent_was_stopped(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    async with setup.app() as app:
        caller = await agent(app, setup, "caller")
        conductor = await app.conductor(lambda _: None)
        session = await conductor.start(setup.plan("single", caller=caller.id))
        await (await app.agents()).stop(caller.id)
        with pytest.raises(ConductorFailure, match="caller was stopped, and cannot start sessions"):
            await conductor.run(session)
        with pytest.raises(UsageProblem, match="was stopped"):
            await conductor.check(setup.plan("single", caller=caller.id))


@proves("families.workflow-workers")
async def test_a_run_that_a_person_resumes_no_longer_belongs_to_the_agent(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    setup.write_agent("lazy", "No.")
    async with setup.app() as app:
        caller = await agent(app, setup, "caller")
        arguments = {"workflow_id": "single", "agent_blueprint_name": "lazy", "wait_seconds": 50}
        failed = (await run_below(app, caller, setup, **arguments)).structured
        assert failed is not None
        ledger = (await app.agents()).context.ledger
        before = await load_plan(ledger, failed["session_id"])
        person = open_tools(app, environ={})
        await call_tool(person, "run_workflow", {**arguments, "project_dir": str(setup.project)})
        after = await load_plan(ledger, failed["session_id"])
        assert before is not None
        assert after is not None
        assert (before.caller, after.caller) == (caller.id, None)
        await (await app.agents()).stop(caller.id)
