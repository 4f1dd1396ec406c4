"""The tool run_workflow, as an orchestrating agent calls it."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.conductor.workers import Workers
from fidelio.errors import LedgerFull
from fidelio.inbox import Inbox
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools
from fidelio.toolkit import Done
from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.support import proves
from tests.support.tool_calls import call_tool


async def call(app: Application, **arguments: Any) -> Done:
    return await done_by(open_tools(app, environ={}), **arguments)


async def done_by(toolset: ServedTools, **arguments: Any) -> Done:
    done = await call_tool(toolset, "run_workflow", arguments)
    assert isinstance(done, Done)
    return done


@proves("conductor.run-workflow")
async def test_a_run_starts_in_the_background_and_reports_its_open_request(setup: RunSetup) -> None:
    async with setup.app() as app:
        toolset = open_tools(app, environ={})
        arguments = {"workflow_id": "hello", "agent_blueprint_name": "robot", "project_dir": str(setup.project)}
        begun = await call_tool(toolset, "run_workflow", arguments)
        assert isinstance(begun, Done)
        assert begun.structured is not None
        inbox = Inbox((await app.workflows()).unit.ledger)
        request = await anext(aiter(inbox.follow(session=begun.structured["session_id"])))
        waiting = await call_tool(toolset, "run_workflow", arguments)
        assert isinstance(waiting, Done)
        assert waiting.structured is not None
        assert waiting.structured["session_id"] == begun.structured["session_id"]
        assert request.id in waiting.structured["question"]
        await inbox.answer(request.id, "none", by="person:tester", channel="cli")
        ended = await call_tool(toolset, "run_workflow", {**arguments, "wait_seconds": 50})
        assert isinstance(ended, Done)
        assert ended.structured is not None
        assert ended.structured["status"] == "completed"


@proves("conductor.run-workflow")
async def test_a_failed_run_reports_why_and_resumes_when_called_again(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    setup.write_agent("lazy", "No.")
    async with setup.app() as app:
        arguments = {"workflow_id": "single", "agent_blueprint_name": "lazy", "project_dir": str(setup.project)}
        failed = (await call(app, **arguments, wait_seconds=50)).structured
        assert failed is not None
        assert failed["status"] == "failed"
        assert "no JSON object" in failed["reason"]
        setup.write_agent("lazy", *["No."] * 3, report("one-step"))
        mended = (await call(app, **arguments, wait_seconds=50)).structured
        assert mended is not None
        assert mended["session_id"] == failed["session_id"]
        assert mended["status"] == "completed"


@proves("conductor.run-workflow", "conductor.checks-plans")
async def test_a_plan_that_does_not_fit_is_an_error(setup: RunSetup) -> None:
    async with setup.app() as app:
        unknown = await call(app, workflow_id="hello", agent_blueprint_name="robot", inputs={"volume": 3})
        assert unknown.is_error
        assert "volume" in unknown.text


@proves("conductor.run-workflow")
async def test_a_run_whose_task_failed_reports_why_and_resumes_when_called_again(
    setup: RunSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    setup.write_agent("worker", report("one-step"))

    async def full(*_: object) -> None:
        raise LedgerFull("The disk is full.", remedy="Make room.")

    async with setup.app() as app:
        toolset = open_tools(app, environ={})
        arguments = {"workflow_id": "single", "agent_blueprint_name": "worker", "project_dir": str(setup.project)}
        with monkeypatch.context() as broken:
            broken.setattr(Workers, "start", full)
            failed = await call_tool(toolset, "run_workflow", {**arguments, "wait_seconds": 50})
        assert isinstance(failed, Done)
        assert failed.structured is not None
        assert failed.structured["status"] == "failed"
        assert "The disk is full. Make room." in failed.structured["reason"]
        mended = await call_tool(toolset, "run_workflow", {**arguments, "wait_seconds": 50})
        assert isinstance(mended, Done)
        assert mended.structured is not None
        assert mended.structured["status"] == "completed"
        assert mended.structured["session_id"] == failed.structured["session_id"]


@proves("conductor.run-workflow")
async def test_a_run_reports_the_open_request_of_its_child(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "outer", activity("one", triggers={"workflow": "hello"}))
    async with setup.app() as app:
        toolset = open_tools(app, environ={})
        arguments = {"workflow_id": "outer", "agent_blueprint_name": "robot", "project_dir": str(setup.project)}
        begun = (await done_by(toolset, **arguments)).structured
        assert begun is not None
        inbox = Inbox((await app.workflows()).unit.ledger)
        request = await anext(aiter(inbox.follow()))
        waiting = (await done_by(toolset, **arguments)).structured
        assert waiting is not None
        assert request.session != waiting["session_id"] == begun["session_id"]
        assert request.id in waiting["question"]
        await inbox.answer(request.id, "none", by="person:tester", channel="cli")
        ended = (await done_by(toolset, **arguments, wait_seconds=50)).structured
        assert ended is not None
        assert ended["status"] == "completed"
