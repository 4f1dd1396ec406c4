"""Runs of deployments: once for each time, whatever crashes, and by whichever server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fidelio.errors import StaleLease
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Completion
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition
from fidelio.runtime.agents.entries import create_agent, load_entry
from fidelio.runtime.deployments import running
from fidelio.runtime.deployments.deployments import (
    DEPLOYMENT_JOB,
    CronSchedule,
    Deployment,
    DeploymentContent,
    DeploymentRun,
    Deployments,
)
from fidelio.runtime.deployments.running import run_due, start_run
from fidelio.runtime.sessions import session_namespace
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.uploads.attaching import plan_file
from fidelio.runtime.uploads.files import StoredFiles
from fidelio.sandbox.model import UPLOADS
from tests.runtime.support import FakeSandboxes, open_context
from tests.support import proves

MINUTE = 60_000
START = 1_800_000_000_000 // MINUTE * MINUTE


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = START + 5_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
async def contexts(tmp_path: Path, clock: Time) -> AsyncIterator[list[RuntimeContext]]:
    """Two servers over a ledger."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_context(tmp_path, FakeSandboxes(), clock=clock)) for _ in range(2)]


@pytest.fixture
def context(contexts: list[RuntimeContext]) -> RuntimeContext:
    return contexts[0]


@pytest.fixture
def project(tmp_path: Path) -> str:
    return str(tmp_path)


async def deploy(context: RuntimeContext, project: str, **more: Any) -> Deployment:
    entry = await create_agent(context, project, AgentDefinition(model="scripted:test", title="Helper"), by="api")
    content = DeploymentContent(
        name="Report",
        agent=entry.name,
        agent_id=entry.id,
        version=entry.version,
        environment="default",
        initial_events=({"type": "user.message", "content": [{"type": "text", "text": "Report."}]},),
        schedule=CronSchedule("*/10 * * * *", "UTC"),
    )
    return await Deployments(context, project).create(replace(content, **more), by="api")


async def work(context: RuntimeContext) -> bool:
    """Claim the job that is due and carry it out, as a worker does."""
    lease = await context.ledger.claim("worker", (DEPLOYMENT_JOB,), lease_ms=30_000)
    if lease is None:
        return False
    assignment = Assignment(context.ledger, lease)
    await run_due(context, assignment)
    if not assignment.is_settled:
        await context.ledger.settle(lease, Completion())
    return True


async def list_runs(context: RuntimeContext, project: str) -> list[DeploymentRun]:
    return list((await Deployments(context, project).list_runs(lambda _: True)).items)


async def list_sessions(context: RuntimeContext, project: str) -> list[str]:
    return [session.id for session in (await context.ledger.sessions(namespace=session_namespace(project))).items]


def next_time(now: int, minutes: int = 10) -> int:
    step = minutes * MINUTE
    return now // step * step + step


@proves("deployments.due")
async def test_a_time_begins_a_session_with_the_initial_events(context: RuntimeContext, project: str, clock: Time) -> None:
    deployment = await deploy(context, project)
    due = next_time(clock.now)

    assert not await work(context)
    clock.now = due
    assert await work(context)

    (run,) = await list_runs(context, project)
    record = (await context.unit.load(run.content.session)).record
    (message,) = [event for event in await context.ledger.events(run.content.session) if event.type == e.USER_MESSAGE]
    assert (run.content.deployment, run.content.scheduled_at, run.content.problem) == (deployment.id, due, None)
    assert (record.deployment_id, record.title, record.status) == (deployment.id, "Report", "rescheduling")
    assert message.body["content"] == [{"type": "text", "text": "Report."}]
    assert not await work(context)
    clock.now = due + 10 * MINUTE
    assert await work(context)
    assert [each.content.scheduled_at for each in await list_runs(context, project)] == [due + 10 * MINUTE, due]


@proves("deployments.missed")
async def test_missed_times_are_made_up_for_by_a_single_run(context: RuntimeContext, project: str, clock: Time) -> None:
    deployment = await deploy(context, project)
    due = next_time(clock.now)
    clock.now = due + 24 * 60 * MINUTE + 1

    assert await work(context)
    assert not await work(context)

    (run,) = await list_runs(context, project)
    found = await Deployments(context, project).load(deployment.id)
    assert run.content.scheduled_at == due
    assert found.content.next_due == next_time(clock.now)
    assert found.content.last_run_at == clock.now


@proves("deployments.once")
async def test_two_servers_run_a_time_once(contexts: list[RuntimeContext], project: str, clock: Time) -> None:
    await deploy(contexts[0], project)
    clock.now = next_time(clock.now)

    worked = await asyncio.gather(*(work(context) for context in contexts * 3))

    assert worked.count(True) == 1
    assert len(await list_runs(contexts[0], project)) == len(await list_sessions(contexts[0], project)) == 1


@proves("deployments.once")
async def test_a_stale_worker_begins_no_second_session_and_commits_nothing(
    contexts: list[RuntimeContext], project: str, clock: Time
) -> None:
    first, second = contexts
    deployment = await deploy(first, project)
    clock.now = next_time(clock.now)
    lease = await first.ledger.claim("slow", (DEPLOYMENT_JOB,), lease_ms=1_000)
    assert lease is not None
    clock.now += 2_000
    assert await work(second)
    before = await Deployments(first, project).load(deployment.id)

    with pytest.raises(StaleLease):
        await run_due(replace(first, clock=lambda: before.content.next_due), Assignment(first.ledger, lease))

    # What it had begun for the next time is found by the worker of that time.
    clock.now = before.content.next_due
    assert await work(second)
    assert len({run.content.scheduled_at for run in await list_runs(second, project)}) == 2
    assert len(await list_runs(second, project)) == len(await list_sessions(second, project)) == 2


@proves("deployments.crash")
@pytest.mark.parametrize("step", ["before sending", "after sending", "after the run"])
async def test_a_run_goes_on_where_a_crash_has_left_it(
    context: RuntimeContext, project: str, clock: Time, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await deploy(context, project)
    clock.now = next_time(clock.now)

    send = running._send

    async def crash(*arguments: Any) -> None:
        if step == "after sending":
            await send(*arguments)
        raise OSError("the process ended here")

    with monkeypatch.context() as patched:
        patched.setattr(running, "_queue" if step == "after the run" else "_send", crash)
        with pytest.raises(OSError, match="ended here"):
            await work(context)
    clock.now += 60_000
    assert await work(context)

    (session,) = await list_sessions(context, project)
    (run,) = await list_runs(context, project)
    messages = [event for event in await context.ledger.events(session) if event.type == e.USER_MESSAGE]
    assert (run.content.session, len(messages)) == (session, 1)


@proves("deployments.paused")
async def test_a_paused_or_archived_deployment_does_not_run(context: RuntimeContext, project: str, clock: Time) -> None:
    deployments = Deployments(context, project)
    paused, archived = await deploy(context, project), await deploy(context, project)
    await deployments.pause(paused.id, by="api")
    await deployments.archive(archived.id, by="api")
    clock.now = next_time(clock.now) + 60 * MINUTE

    while await work(context):
        pass
    assert await list_runs(context, project) == []
    await deployments.unpause(paused.id, by="api")
    while await work(context):
        pass
    # What was missed meanwhile was not wanted.
    assert await list_runs(context, project) == []
    clock.now = next_time(clock.now)
    assert await work(context)
    assert len(await list_runs(context, project)) == 1


@proves("deployments.changed")
async def test_another_schedule_counts_from_its_change(context: RuntimeContext, project: str, clock: Time) -> None:
    deployments = Deployments(context, project)
    deployment = await deploy(context, project)
    hourly = CronSchedule("0 * * * *", "UTC")
    await deployments.update(deployment.id, lambda found: replace(found.content, schedule=hourly), by="api")
    clock.now = next_time(clock.now)

    while await work(context):
        pass
    assert await list_runs(context, project) == []
    clock.now = next_time(clock.now, 60)
    while await work(context):
        pass
    assert [run.content.scheduled_at for run in await list_runs(context, project)] == [clock.now]


@proves("deployments.problems")
async def test_a_run_that_cannot_begin_is_recorded_and_pauses_the_schedule(
    context: RuntimeContext, project: str, clock: Time
) -> None:
    files = StoredFiles(context, project)
    file = await files.store("a.txt", "", [b"x"], by="api")
    resource = {key: value for key, value in plan_file(file, f"{UPLOADS}/a.txt").items() if key != "id"}
    deployment = await deploy(context, project, resources=(resource,))
    await files.delete(file.id, by="api")
    clock.now = next_time(clock.now)

    assert await work(context)

    (run,) = await list_runs(context, project)
    found = await Deployments(context, project).load(deployment.id)
    assert run.content.session == ""
    assert run.content.problem is not None
    assert (run.content.problem.type, found.content.paused) == ("file_not_found_error", "file_not_found_error")
    assert await list_sessions(context, project) == []


@proves("deployments.problems")
@pytest.mark.parametrize("broken", ["agent", "environment", "vault", "message"])
async def test_each_problem_has_its_type(context: RuntimeContext, project: str, broken: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "environment": {"environment": "env_000000000000"},
        "vault": {"vault_ids": ("s_000000000000",)},
        "message": {"initial_events": ({"type": "user.message", "content": []},)},
    }
    deployment = await deploy(context, project, **changes.get(broken, {}))
    if broken == "agent":
        entry = await load_entry(context, project, deployment.content.agent_id)
        await context.ledger.erase([entry.id], actor="api", reason="test")

    run = await start_run(context, project, deployment)

    expected = {
        "agent": "agent_archived_error",
        "environment": "environment_not_found_error",
        "vault": "vault_not_found_error",
        "message": "session_creation_rejected_error",
    }
    assert run.content.problem is not None
    assert run.content.problem.type == expected[broken]
    assert await list_sessions(context, project) == []
    assert [path for path in context.home.path.glob("sandboxes/*") if len(path.name) == 16] == []


@proves("deployments.resources")
async def test_each_session_has_resources_of_its_own(context: RuntimeContext, project: str) -> None:
    file = await StoredFiles(context, project).store("a.txt", "", [b"x"], by="api")
    resource = {key: value for key, value in plan_file(file, f"{UPLOADS}/a.txt").items() if key != "id"}
    deployment = await deploy(context, project, resources=(resource,))

    runs = [await start_run(context, project, deployment) for _ in range(2)]

    records = [(await context.unit.load(run.content.session)).record for run in runs]
    assert len({record.resources[0].id for record in records}) == 2
    assert {record.resources[0].content["mount_path"] for record in records} == {f"{UPLOADS}/a.txt"}
