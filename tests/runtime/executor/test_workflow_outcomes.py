"""An outcome of an agent that is a workflow, judged from the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.runtime import WorkflowActivities
from fidelio.conductor.context import ProgressEvent
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.service import NewAgentSession
from tests.conductor.run_setup import RunSetup
from tests.support import proves

OUTCOME = {
    "type": "user.define_outcome",
    "title": "Hello is completed",
    "successCriteria": [{"text": "The workflow is completed.", "check": {"type": "workflow_activity", "workflow": "hello"}}],
    "max_iterations": 1,
}
HELLO = {"type": "user.message", "content": "Look again."}


@pytest.fixture
def setup(tmp_path: Path) -> RunSetup:
    return RunSetup(tmp_path)


async def judge(setup: RunSetup, session: str, sent: Mapping[str, Any]) -> tuple[str, str]:
    """The verdict and its reason after the agent has been told something."""
    async with setup.app() as app:
        service = await app.runtime()
        await app.host_runtime()
        (told,) = await service.send(session, [sent], by="person:test", channel="cli")
        async for event in service.follow(session, after=told.seq):
            if event.type == e.STATUS_IDLE:
                break
        *_, verdict = await service.context.ledger.events(session, types=(e.EVALUATION_ENDED,))
        return str(verdict.body["status"]), str(verdict.body["results"][0]["reason"])


async def start_session(setup: RunSetup) -> str:
    async with setup.app() as app:
        service = await app.runtime()
        agent = parse_agent({"model": "scripted:quiet"}, "The agent")
        await define_agent(service.context, str(setup.project), "quiet", agent, by="person:test")
        return await service.start_session(NewAgentSession(project=str(setup.project), agent="quiet"))


@proves("runtime.outcome-workflow")
async def test_an_outcome_about_a_workflow_is_judged_by_runs_of_its_project_after_its_definition(
    setup: RunSetup, tmp_path: Path
) -> None:
    before = await setup.execute(setup.plan("hello"), answers={"choose-tone": "brief"})
    session = await start_session(setup)

    assert before.status == "completed"
    # What was completed before the outcome was defined is not its work.
    assert (await judge(setup, session, OUTCOME))[0] == "fail"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    await setup.execute(setup.plan("hello", project=str(elsewhere)), answers={"choose-tone": "brief"})
    assert (await judge(setup, session, HELLO))[0] == "fail"
    seen: list[ProgressEvent] = []
    await setup.execute(setup.plan("hello"), seen, answers={"choose-tone": "brief"})
    status, reason = await judge(setup, session, HELLO)
    assert (status, seen[0].session in reason) == ("pass", True)


async def test_an_activity_is_completed_if_the_record_of_its_session_says_so(setup: RunSetup) -> None:
    seen: list[ProgressEvent] = []
    await setup.execute(setup.plan("hello"), seen, answers={"choose-tone": "brief"})
    async with setup.app() as app:
        activities = WorkflowActivities((await app.runtime()).context.ledger)
        session = seen[0].session

        assert (await activities.find({"session": session, "activity": "greet"}, "")).is_completed
        assert not (await activities.find({"session": session, "activity": "nothing"}, "")).is_completed
        assert not (await activities.find({"session": session, "workflow": "other"}, "")).is_completed
        assert not (await activities.find({"session": "s_nothing"}, "")).is_completed
        assert (await activities.find({"session": session}, str(setup.project))).is_completed
        assert not (await activities.find({"session": session}, "/elsewhere")).is_completed
        assert not (await activities.find({"session": session, "since": 2**52}, str(setup.project))).is_completed
