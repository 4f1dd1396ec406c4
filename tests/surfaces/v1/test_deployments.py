"""Deployments by the official SDK: their life, their runs, their filters, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from anthropic import APIStatusError, AsyncAnthropic, BadRequestError, ConflictError, NotFoundError
from anthropic.types.beta import (
    BetaFileMetadata,
    BetaManagedAgentsDeployment,
    BetaManagedAgentsDeploymentRun,
    BetaSkill,
)
from anthropic.types.beta.sessions import BetaManagedAgentsFileResource, BetaManagedAgentsMemoryStoreResource
from anthropic.types.beta.skills import BetaSkillVersion
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.runtime import events as e
from fidelio.runtime.deployments.deployments import DEPLOYMENT_JOB, Deployments
from fidelio.runtime.objects import ObjectJob, ObjectPlan
from tests.support import proves
from tests.surfaces.v1.conftest import TOKEN
from tests.surfaces.v1.requests import send
from tests.surfaces.v1.strict import check_json

SCHEDULE = {"type": "cron", "expression": "0 9 * * 1-5", "timezone": "Europe/Berlin"}
HELLO = {"type": "user.message", "content": [{"type": "text", "text": "Write the report."}]}


@pytest.fixture
async def agent(sdk: AsyncAnthropic) -> str:
    return (await sdk.beta.agents.create(name="Helper", model="scripted:test")).id


async def deploy(sdk: AsyncAnthropic, agent: Any, **more: Any) -> Any:
    body: dict[str, Any] = {"name": "Report", "agent": agent, "environment_id": "env_default", "initial_events": [HELLO]}
    return await sdk.beta.deployments.create(**{**body, **more})


@proves("v1-deployments.life")
async def test_a_deployment_is_created_changed_paused_and_archived(sdk: AsyncAnthropic, agent: str) -> None:
    made = await deploy(sdk, agent, schedule=SCHEDULE, description="Daily", metadata={"team": "a", "x": "y"})
    deployments = sdk.beta.deployments

    changed = await deployments.update(made.id, name="Other", description=None, metadata={"x": None, "z": "1"})
    paused = await deployments.pause(made.id)
    again = await deployments.pause(made.id)
    unpaused = await deployments.unpause(made.id)
    manual = await deployments.update(made.id, schedule=None)
    archived = await deployments.archive(made.id)

    assert (made.agent.id, made.agent.version, made.status, made.paused_reason) == (agent, 1, "active", None)
    assert made.schedule is not None
    assert (made.schedule.expression, len(made.schedule.upcoming_runs_at)) == ("0 9 * * 1-5", 5)
    assert all(time > datetime.now(UTC) for time in made.schedule.upcoming_runs_at)
    assert (changed.name, changed.description, changed.metadata) == ("Other", None, {"team": "a", "z": "1"})
    assert [event.type for event in changed.initial_events] == ["user.message"]
    assert paused.status == again.status == "paused"
    assert paused.paused_reason is not None
    assert (paused.paused_reason.type, again.updated_at) == ("manual", paused.updated_at)
    assert paused.schedule is not None
    assert paused.schedule.upcoming_runs_at
    assert (unpaused.status, unpaused.paused_reason) == ("active", None)
    assert manual.schedule is None
    assert archived.archived_at is not None
    assert await deployments.retrieve(made.id) == archived
    with pytest.raises(BadRequestError, match="archived"):
        await deployments.update(made.id, name="Late")
    with pytest.raises(BadRequestError, match="archived"):
        await deployments.run(made.id)


@proves("v1-deployments.run")
async def test_a_run_begins_a_session_of_the_deployment(sdk: AsyncAnthropic, agent: str, application: Application) -> None:
    file = await sdk.beta.files.upload(file=("notes.txt", b"from the file"))
    message = {
        "type": "user.message",
        "content": [
            {"type": "text", "text": "Read this."},
            {"type": "document", "source": {"type": "file", "file_id": file.id}},
        ],
    }
    made = await deploy(
        sdk,
        agent,
        initial_events=[message],
        resources=[{"type": "file", "file_id": file.id, "mount_path": "/workspace/notes.txt"}],
    )

    run = await sdk.beta.deployments.run(made.id)
    retrieved = await sdk.beta.deployment_runs.retrieve(run.id)

    assert retrieved == run
    assert (run.deployment_id, run.trigger_context.type, run.error) == (made.id, "manual", None)
    assert run.session_id is not None
    assert made.resources[0].model_dump(exclude_none=True) == {
        "type": "file", "file_id": file.id, "mount_path": "/workspace/notes.txt"
    }  # fmt: skip
    service = await application.runtime()
    session = f"s_{run.session_id.removeprefix('sesn_')}"
    (event,) = [each for each in await service.context.ledger.events(session) if each.type == e.USER_MESSAGE]
    assert "from the file" in "\n".join(block["text"] for block in event.body["content"])
    assert (await service.load(session)).record.deployment_id == f"s_{made.id.removeprefix('depl_')}"
    assert (await sdk.beta.sessions.resources.list(run.session_id)).data[0].type == "file"


@proves("v1-deployments.run")
async def test_a_repeated_run_with_the_same_key_begins_one_session(sdk: AsyncAnthropic, agent: str) -> None:
    made = await deploy(sdk, agent)
    headers = {"Idempotency-Key": "run with any: characters/."}
    runs = [await sdk.beta.deployments.run(made.id, extra_headers=headers) for _ in range(2)]
    other = await sdk.beta.deployments.run(made.id)

    assert runs[0] == runs[1]
    assert other.session_id != runs[0].session_id


@proves("v1-deployments.scheduled")
async def test_a_scheduled_run_is_listed_with_its_time(
    sdk: AsyncAnthropic, agent: str, application: Application, project: Path
) -> None:
    made = await deploy(sdk, agent, schedule=SCHEDULE)
    context = (await application.runtime()).context
    deployments, id_ = Deployments(context, str(project)), f"s_{made.id.removeprefix('depl_')}"
    due = context.clock() // 60_000 * 60_000 - 3 * 24 * 60 * 60_000
    # As if the server had been down since then.
    plan = ObjectPlan(jobs=(ObjectJob(DEPLOYMENT_JOB),))
    changed = await deployments.objects.update(id_, lambda found: replace(found.content, next_due=due), by="api", plan=plan)

    async with asyncio.timeout(30):
        async for event in context.ledger.follow(id_):
            if event.type == e.OBJECT_DEFINED and event.body["version"] > changed.version:
                break

    (run,) = (await sdk.beta.deployment_runs.list(deployment_id=made.id, trigger_type="schedule")).data
    assert run.trigger_context.type == "schedule"
    assert round(run.trigger_context.scheduled_at.timestamp() * 1000) == due
    found = await sdk.beta.deployments.retrieve(made.id)
    assert found.schedule is not None
    assert found.schedule.last_run_at is not None
    assert found.updated_at == made.updated_at


@proves("v1-deployments.failed")
async def test_a_run_that_fails_says_why(sdk: AsyncAnthropic, agent: str) -> None:
    file = await sdk.beta.files.upload(file=("a", b"x"))
    made = await deploy(sdk, agent, resources=[{"type": "file", "file_id": file.id}])
    good = await deploy(sdk, agent)
    await sdk.beta.files.delete(file.id)

    run = await sdk.beta.deployments.run(made.id)
    await sdk.beta.deployments.run(good.id)

    assert (run.session_id, run.error and run.error.type) == (None, "file_not_found_error")
    failed = await sdk.beta.deployment_runs.list(has_error=True)
    fine = await sdk.beta.deployment_runs.list(has_error=False)
    assert [each.id for each in failed.data] == [run.id]
    assert [each.deployment_id for each in fine.data] == [good.id]


@proves("v1-deployments.list")
async def test_deployments_and_runs_are_listed_in_pages_and_by_filters(sdk: AsyncAnthropic, agent: str) -> None:
    other = (await sdk.beta.agents.create(name="Other", model="scripted:test")).id
    made = [await deploy(sdk, agent, name=str(number)) for number in range(3)] + [await deploy(sdk, other)]
    await sdk.beta.deployments.pause(made[0].id)
    await sdk.beta.deployments.archive(made[1].id)
    runs = [(await sdk.beta.deployments.run(made[2].id)).id for _ in range(3)]

    async def ids(**filters: Any) -> list[str]:
        return [each.id async for each in sdk.beta.deployments.list(limit=1, **filters)]

    assert await ids() == [made[3].id, made[2].id, made[0].id]
    assert await ids(include_archived=True) == [each.id for each in made[::-1]]
    assert await ids(status="paused") == [made[0].id]
    assert await ids(agent_id=other) == [made[3].id]
    assert await ids(created_at_gte=datetime(2100, 1, 1, tzinfo=UTC)) == []
    assert [run.id async for run in sdk.beta.deployment_runs.list(limit=2)] == runs[::-1]
    assert (await sdk.beta.deployment_runs.list(deployment_id="depl_000000000000")).data == []
    assert (await sdk.beta.deployment_runs.list(deployment_id=made[3].id)).data == []
    with pytest.raises(BadRequestError, match="include_archived"):
        await ids(status="active", include_archived=True)


@proves("v1-deployments.refused")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": {**SCHEDULE, "expression": "@daily"}}, "expression"),
        ({"schedule": {**SCHEDULE, "expression": "0 0 30 2 *"}}, "never comes"),
        ({"schedule": {**SCHEDULE, "timezone": "Mars/Base"}}, "timezone"),
        ({"schedule": {**SCHEDULE, "type": "interval"}}, "type"),
        ({"initial_events": []}, "initial_events"),
        ({"initial_events": [HELLO] * 51}, "initial_events"),
        ({"initial_events": [{"type": "user.interrupt"}]}, "initial_events"),
        ({"initial_events": [{"type": "user.message", "content": []}]}, "initial_events.0"),
        ({"initial_events": [{"type": "system.message", "content": "alone"}]}, "last event"),
        ({"initial_events": [{"type": "user.define_outcome", "description": "d"}]}, "rubric"),
        ({"name": ""}, "name"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"budget": {"type": "limit", "max_list_cost": {"amount": "1.5", "currency": "USD"}}}, "amount"),
        ({"resources": [{"type": "github_repository", "url": "https://github.com/a/b"}]}, "github_repository"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_a_wrong_deployment_is_refused_with_the_field(
    sdk: AsyncAnthropic, agent: str, changes: dict[str, Any], words: str
) -> None:
    body = {"name": "x", "agent": agent, "environment_id": "env_default", "initial_events": [HELLO], **changes}
    with pytest.raises(BadRequestError, match=words):
        await sdk.post("/v1/deployments", body=body, cast_to=object)
    assert (await sdk.beta.deployments.list()).data == []


@proves("v1-deployments.refused")
async def test_what_a_deployment_refers_to_must_exist(sdk: AsyncAnthropic, agent: str) -> None:
    for changes in (
        {"agent": "agent_000000000000"},
        {"agent": {"type": "agent", "id": agent, "version": 7}},
        {"environment_id": "env_000000000000"},
        {"vault_ids": ["vlt_000000000000"]},
        {"resources": [{"type": "file", "file_id": "file_000000000000"}]},
        {"initial_events": [{"type": "user.message", "content": [_image("file_000000000000")]}]},
    ):
        with pytest.raises(NotFoundError):
            await deploy(sdk, **{"agent": agent, **changes})


def _image(file: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "file", "file_id": file}}


@proves("v1-deployments.idempotency")
async def test_a_repeated_creation_with_the_same_key_makes_one_deployment(sdk: AsyncAnthropic, agent: str) -> None:
    headers = {"Idempotency-Key": "deployment-1"}
    made = [await deploy(sdk, agent, schedule=SCHEDULE, extra_headers=headers) for _ in range(2)]

    assert made[0].id == made[1].id
    with pytest.raises(ConflictError):
        await deploy(sdk, agent, name="Another", schedule=SCHEDULE, extra_headers=headers)


@proves("v1-deployments.agents")
async def test_an_agent_may_not_deploy_run_or_change_anything(sdk: AsyncAnthropic, url: str, agent: str) -> None:
    made = await deploy(sdk, agent)
    header = {"Fidelio-Agent": "s_0123456789ab.1"}

    async with AsyncAnthropic(base_url=url, api_key=TOKEN, max_retries=0, default_headers=header) as relayed:
        deployments = relayed.beta.deployments
        calls: list[Callable[[], Any]] = [
            lambda: deployments.run(made.id),
            lambda: deployments.pause(made.id),
            lambda: deployments.unpause(made.id),
            lambda: deployments.archive(made.id),
            lambda: deploy(relayed, agent),
        ]
        for call in calls:
            with pytest.raises(APIStatusError) as raised:
                await call()
            assert raised.value.status_code == 403
        assert (await deployments.retrieve(made.id)).id == made.id


@proves("v1-deployments.project")
async def test_a_deployment_of_another_project_is_unknown(
    sdk: AsyncAnthropic, agent: str, application: Application, project: Path
) -> None:
    context = (await application.runtime()).context
    own = await deploy(sdk, agent)
    content = (await Deployments(context, str(project)).load(f"s_{own.id.removeprefix('depl_')}")).content
    theirs = await Deployments(context, "/elsewhere").create(content, by="api")

    for call in (sdk.beta.deployments.retrieve, sdk.beta.deployments.run, sdk.beta.deployments.pause):
        with pytest.raises(NotFoundError):
            await call(f"depl_{theirs.id.removeprefix('s_')}")
    assert [each.id async for each in sdk.beta.deployments.list()] == [own.id]


@proves("v1-deployments.run", "v1-resources.begin")
async def test_a_session_of_a_deployment_has_its_memory_stores(sdk: AsyncAnthropic, agent: str) -> None:
    store = await sdk.beta.memory_stores.create(name="Preferences", description="What users like.")
    resource = {"type": "memory_store", "memory_store_id": store.id, "access": "read_only", "instructions": "Read first."}
    made = await deploy(sdk, agent, resources=[resource])

    run = await sdk.beta.deployments.run(made.id)
    assert run.session_id is not None
    (attached,) = (await sdk.beta.sessions.resources.list(run.session_id)).data

    assert made.resources[0].model_dump(exclude_none=True) == resource
    assert attached.type == "memory_store"
    assert (attached.memory_store_id, attached.access, attached.name) == (store.id, "read_only", "Preferences")
    await sdk.beta.memory_stores.archive(store.id)
    failed = await sdk.beta.deployments.run(made.id)
    assert failed.error is not None
    assert failed.error.type == "memory_store_archived_error"


@proves("v1-deployments.shapes")
async def test_every_object_is_exactly_one_of_the_sdk(sdk: AsyncAnthropic, url: str, agent: str) -> None:
    file = await sdk.beta.files.upload(file=("a.txt", b"x"), expires_in_seconds=3600)
    front = b"---\nname: notes\ndescription: Takes notes.\n---\nText.\n"
    skill = await sdk.beta.skills.create(files=[("notes/SKILL.md", front)])
    store = await sdk.beta.memory_stores.create(name="Store")
    resources = [{"type": "file", "file_id": file.id}, {"type": "memory_store", "memory_store_id": store.id}]
    budget = {"type": "limit", "max_list_cost": {"amount": "250", "currency": "USD"}}
    made = await deploy(sdk, agent, schedule=SCHEDULE, resources=resources)
    run = await sdk.beta.deployments.run(made.id)
    broken = await deploy(sdk, agent, resources=resources[:1], budget=budget)
    await sdk.beta.files.delete(file.id)
    other = await sdk.beta.files.upload(file=("b.txt", b"y"))
    failed = await sdk.beta.deployments.run(broken.id)
    await sdk.beta.deployments.pause(broken.id)
    shapes: dict[str, Any] = {
        f"files/{other.id}": BetaFileMetadata,
        f"skills/{skill.id}": BetaSkill,
        f"skills/{skill.id}/versions/{skill.latest_version_id}": BetaSkillVersion,
        f"deployments/{made.id}": BetaManagedAgentsDeployment,
        f"deployments/{broken.id}": BetaManagedAgentsDeployment,
        f"deployment_runs/{run.id}": BetaManagedAgentsDeploymentRun,
        f"deployment_runs/{failed.id}": BetaManagedAgentsDeploymentRun,
    }

    for path, type_ in shapes.items():
        check_json(type_, (await send("GET", f"{url}/v1/{path}")).json())
    attached = (await send("GET", f"{url}/v1/sessions/{run.session_id}/resources")).json()["data"]
    check_json(BetaManagedAgentsFileResource, attached[0])
    check_json(BetaManagedAgentsMemoryStoreResource, attached[1])
