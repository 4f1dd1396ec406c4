"""An outcome of an agent that is a workflow, judged from the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.app.runtime import WorkflowActivities
from fidelio.conductor.context import ProgressEvent
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.service import NewAgentSession
from tests.conductor.run_setup import RunSetup

OUTCOME = {
    "type": "user.define_outcome",
    "title": "Hello is completed",
    "successCriteria": [{"text": "The workflow is completed.", "check": {"type": "workflow_activity", "workflow": "hello"}}],
    "max_iterations": 1,
}


@pytest.fixture
def setup(tmp_path: Path) -> RunSetup:
    return RunSetup(tmp_path)


async def judge(setup: RunSetup, session: str) -> str:
    """The verdict after the agent has been told about the outcome, or anything else."""
    async with setup.app() as app:
        service = await app.runtime()
        await app.host_runtime()
        (sent,) = await service.send(session, [OUTCOME], by="person:test", channel="cli")
        async for event in service.follow(session, after=sent.seq):
            if event.type == e.STATUS_IDLE:
                break
        *_, verdict = await service.context.ledger.events(session, types=(e.EVALUATION_ENDED,))
        return str(verdict.body["status"])


async def start_session(setup: RunSetup) -> str:
    async with setup.app() as app:
        service = await app.runtime()
        agent = parse_agent({"model": "scripted:quiet"}, "The agent")
        await define_agent(service.context, str(setup.project), "quiet", agent, by="person:test")
        return await service.start_session(NewAgentSession(project=str(setup.project), agent="quiet"))


@pytest.mark.proves("runtime.outcome-workflow")
async def test_an_outcome_about_a_workflow_is_judged_from_the_ledger(setup: RunSetup) -> None:
    before = await setup.execute(setup.plan("hello"), answers={"choose-tone": "brief"})
    session = await start_session(setup)

    # What was completed before the session began is not its work.
    assert before.status == "completed"
    assert await judge(setup, session) == "fail"
    await setup.execute(setup.plan("hello"), answers={"choose-tone": "brief"})
    assert await judge(setup, session) == "pass"


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
