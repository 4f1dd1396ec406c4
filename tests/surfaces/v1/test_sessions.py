"""Sessions over the API, with the official SDK: created, listed, changed, archived and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic, BadRequestError, ConflictError, NotFoundError

from fidelio.app.application import Application
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime.sessions import NewAgentSession
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.http.v1.application import create_routes
from fidelio.surfaces.http.v1.endpoint import ApiServices
from tests.runtime.wakes.support import replies
from tests.support import proves
from tests.surfaces.v1.conftest import KEY, TOKEN, ModelBehaviour
from tests.surfaces.v1.strict import check_object
from tests.surfaces.v1.support import collect, converse, create_session, list_events, message, only, send, start_agent

Script = Callable[[ModelBehaviour], None]


@proves("v1.session")
async def test_a_session_has_everything_that_the_sdk_knows(sdk: AsyncAnthropic) -> None:
    agent, environment = await start_agent(sdk)

    made = await sdk.beta.sessions.create(
        agent=agent.id, environment_id=environment.id, title="A title", metadata={"team": "a"}
    )
    found = check_object(await sdk.beta.sessions.retrieve(made.id))

    assert check_object(made).id == found.id
    assert found.id.startswith("sesn_")
    assert (found.status, found.title, found.metadata) == ("idle", "A title", {"team": "a"})
    assert (found.agent.id, found.agent.version, found.environment_id) == (agent.id, agent.version, environment.id)
    assert (found.usage.input_tokens, found.resources, found.vault_ids, found.budget) == (0, [], [], None)


@proves("v1.session")
async def test_a_session_keeps_the_version_of_its_agent_and_its_overrides(sdk: AsyncAnthropic) -> None:
    agent, environment = await start_agent(sdk, system="First.")
    newer = await sdk.beta.agents.update(agent.id, version=agent.version, system="Second.")
    pinned = await sdk.beta.sessions.create(
        agent={"type": "agent", "id": agent.id, "version": agent.version}, environment_id=environment.id
    )
    latest = await sdk.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    varied = await sdk.beta.sessions.create(
        agent={"type": "agent_with_overrides", "id": agent.id, "system": "Mine."}, environment_id=environment.id
    )

    assert (pinned.agent.version, pinned.agent.system) == (agent.version, "First.")
    assert (latest.agent.version, latest.agent.system) == (newer.version, "Second.")
    assert (varied.agent.version, check_object(varied).agent.system) == (newer.version, "Mine.")


@proves("v1.session")
async def test_usage_and_statistics_grow_with_the_work(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    session = await create_session(sdk)

    events = await converse(sdk, session.id, message("Hello"))
    found = check_object(await sdk.beta.sessions.retrieve(session.id))

    (usage,) = only(events, "session.usage")
    assert found.usage.input_tokens
    assert (usage.usage.input_tokens, usage.usage.output_tokens) == (found.usage.input_tokens, found.usage.output_tokens)
    assert found.stats.duration_seconds is not None
    assert found.updated_at > session.updated_at


@proves("v1.session")
async def test_a_session_begins_with_events(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    agent, environment = await start_agent(sdk)
    session = await sdk.beta.sessions.create(
        agent=agent.id, environment_id=environment.id, initial_events=[message("One"), message("Two")]
    )

    events = await list_events(sdk, session.id, types=["user.message"])

    assert [event.content[0].text for event in events] == ["One", "Two"]
    with pytest.raises(BadRequestError):
        await sdk.beta.sessions.create(
            agent=agent.id,
            environment_id=environment.id,
            initial_events=[{"type": "user.interrupt"}],  # type: ignore[list-item]  # what must be refused
        )


@proves("v1.session")
async def test_an_update_changes_what_it_names_and_is_an_event(sdk: AsyncAnthropic) -> None:
    session = await create_session(sdk, title="Old", metadata={"a": "1", "b": "2"})

    async with await sdk.beta.sessions.events.stream(session.id) as stream:
        changed = check_object(await sdk.beta.sessions.update(session.id, title="New", metadata={"a": None, "c": "3"}))
        (event,) = await collect(stream, "session.updated")
    cleared = await sdk.beta.sessions.update(session.id, title=None)

    assert (changed.title, changed.metadata) == ("New", {"b": "2", "c": "3"})
    assert (check_object(event).title, event.metadata) == ("New", {"b": "2", "c": "3"})
    assert (cleared.title, cleared.metadata) == (None, {"b": "2", "c": "3"})
    with pytest.raises(BadRequestError, match="vault_ids"):
        await sdk.beta.sessions.update(session.id, vault_ids=["vlt_000000000000"])


@proves("v1.session")
async def test_the_tools_of_a_session_can_be_replaced(sdk: AsyncAnthropic) -> None:
    session = await create_session(sdk)
    tool: Any = {"type": "custom", "name": "lookup", "description": "Looks up.", "input_schema": {"type": "object"}}

    changed = check_object(await sdk.beta.sessions.update(session.id, agent={"tools": [tool]}))

    assert [item.type for item in changed.agent.tools] == ["custom"]
    assert changed.agent.version == session.agent.version


@proves("v1.budget")
async def test_a_budget_is_set_at_creation_and_can_be_raised_or_removed(sdk: AsyncAnthropic) -> None:
    def cents(amount: str) -> Any:
        return {"type": "limit", "max_list_cost": {"amount": amount, "currency": "USD"}}

    session = check_object(await create_session(sdk, budget=cents("250")))
    raised = check_object(await sdk.beta.sessions.update(session.id, budget=cents("500")))
    removed = await sdk.beta.sessions.update(session.id, budget=None)

    assert session.budget is not None
    assert raised.budget is not None
    assert (session.budget.max_list_cost.amount, raised.budget.max_list_cost.amount) == ("250", "500")
    assert removed.budget is None
    with pytest.raises(BadRequestError, match="budget_create_only"):
        await sdk.beta.sessions.update(session.id, budget=cents("500"))


@proves("v1.session")
async def test_a_running_session_is_neither_archived_nor_deleted(sdk: AsyncAnthropic, script: Script) -> None:
    begun = asyncio.Event()

    async def think(_: ModelRequest) -> ModelReply:
        begun.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    script(think)
    session = await create_session(sdk)
    await send(sdk, session.id, message("Think"))
    await asyncio.wait_for(begun.wait(), 20)

    assert (await sdk.beta.sessions.retrieve(session.id)).status == "running"
    for refused in (sdk.beta.sessions.archive, sdk.beta.sessions.delete):
        with pytest.raises(BadRequestError):
            await refused(session.id)


@proves("v1.session")
async def test_an_archived_session_can_be_read_and_takes_no_events(sdk: AsyncAnthropic) -> None:
    session = await create_session(sdk)

    archived = check_object(await sdk.beta.sessions.archive(session.id))
    again = await sdk.beta.sessions.archive(session.id)

    assert archived.archived_at is not None
    assert again.archived_at == archived.archived_at
    with pytest.raises(BadRequestError, match="archived"):
        await send(sdk, session.id, message("Hello"))
    assert [item async for item in sdk.beta.sessions.list()] == []
    assert [item.id async for item in sdk.beta.sessions.list(include_archived=True)] == [session.id]


@proves("v1.session-key")
async def test_a_repeated_creation_gives_the_same_session(sdk: AsyncAnthropic) -> None:
    agent, environment = await start_agent(sdk)
    key = {"Idempotency-Key": "once"}

    async def create(title: str) -> str:
        made = await sdk.beta.sessions.create(agent=agent.id, environment_id=environment.id, title=title, extra_headers=key)
        return made.id

    ids = await asyncio.gather(*(create("A") for _ in range(4)))

    assert len(set(ids)) == 1
    with pytest.raises(ConflictError):
        await create("B")
    assert len([item async for item in sdk.beta.sessions.list()]) == 1


@proves("v1.sessions-list")
async def test_a_thousand_sessions_are_listed_without_missing_or_doubling(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    session = await create_session(sdk)
    runtime = await application.runtime()
    record = (await runtime.load(session.id.replace("sesn_", "s_"))).record
    new = NewAgentSession(
        project=str(project), agent=record.agent, version=record.agent_version, environment=record.environment
    )
    made = [session.id]
    for _ in range(10):
        started = await asyncio.gather(*(runtime.start_session(new) for _ in range(100)))
        made += [id_.replace("s_", "sesn_") for id_ in started]

    newest = [item.id async for item in sdk.beta.sessions.list(limit=70)]
    oldest = [item.id async for item in sdk.beta.sessions.list(limit=300, order="asc")]

    assert len(newest) == len(set(newest)) == 1001
    assert set(newest) == set(made)
    assert oldest == newest[::-1]


@proves("v1.sessions-list")
async def test_sessions_are_filtered(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    first, second = await create_session(sdk), await create_session(sdk)
    await converse(sdk, second.id, message("Hello"))

    async def ids(**filters: Any) -> list[str]:
        return [item.id async for item in sdk.beta.sessions.list(**filters)]

    assert await ids() == [second.id, first.id]
    assert await ids(agent_id=first.agent.id) == [first.id]
    assert await ids(agent_id=first.agent.id, agent_version=9) == []
    assert await ids(agent_id="agent_000000000000") == []
    assert await ids(statuses=["idle", "terminated"]) == [second.id, first.id]
    assert await ids(statuses=["running"]) == []
    assert await ids(created_at_gt=first.created_at, created_at_lte=second.created_at) == [second.id]
    assert await ids(created_at_lt=first.created_at) == []
    assert await ids(deployment_id="depl_000000000000") == []
    assert await ids(memory_store_id="memstore_000000000000") == []


@proves("v1.sessions-list")
@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "page=forged", "order=up", "statuses[]=asleep", "created_at[gt]=soon"]
)
async def test_a_query_that_means_nothing_is_refused_with_its_name(sdk: AsyncAnthropic, url: str, query: str) -> None:
    await create_session(sdk)

    async with httpx2.AsyncClient() as client:
        response = await client.get(f"{url}/v1/sessions?{query}", headers=KEY)

    assert response.status_code == 400
    assert query.split("=", maxsplit=1)[0].removesuffix("[]") in response.json()["error"]["message"]


@proves("v1.sessions-list")
async def test_a_cursor_of_another_filter_is_refused(sdk: AsyncAnthropic, url: str) -> None:
    for _ in range(2):
        await create_session(sdk)
    page = await sdk.beta.sessions.list(limit=1)

    with pytest.raises(BadRequestError, match="page"):
        await sdk.beta.sessions.list(limit=1, page=page.next_page or "", include_archived=True)


@pytest.fixture
async def other(application: Application, tmp_path: Path) -> AsyncIterator[AsyncAnthropic]:
    """A client of a server of the same home, in another project."""
    directory = tmp_path / "other"
    directory.mkdir()
    app = create_app({}, bearer_token=TOKEN, routes=create_routes(ApiServices(application, str(directory))))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
    try:
        async with AsyncAnthropic(base_url=await address, api_key=TOKEN, max_retries=0) as client:
            yield client
    finally:
        serving.cancel()
        await asyncio.wait([serving], timeout=30)


@proves("v1.session-foreign")
async def test_a_session_of_another_project_is_unknown_everywhere(sdk: AsyncAnthropic, other: AsyncAnthropic) -> None:
    session = await create_session(sdk)
    sessions = other.beta.sessions

    calls: list[Callable[[], Any]] = [
        lambda: sessions.retrieve(session.id),
        lambda: sessions.update(session.id, title="Mine"),
        lambda: sessions.archive(session.id),
        lambda: sessions.delete(session.id),
        lambda: sessions.events.list(session.id),
        lambda: sessions.events.stream(session.id),
        lambda: sessions.events.send(session.id, events=[message("Hello")]),
        lambda: sessions.threads.list(session.id),
    ]
    for call in calls:
        with pytest.raises(NotFoundError) as raised:
            await call()
        assert "project" not in str(raised.value)
    assert [item async for item in sessions.list()] == []
    assert (await sdk.beta.sessions.retrieve(session.id)).title is None


@proves("v1.foreign-references")
async def test_what_belongs_to_another_project_cannot_be_referred_to(sdk: AsyncAnthropic, other: AsyncAnthropic) -> None:
    foreign, there = await start_agent(sdk)
    agent, here = await start_agent(other)
    vault = await sdk.beta.vaults.create(display_name="Secrets of the project")
    store = await sdk.beta.memory_stores.create(name="Notes of the project")
    file = await sdk.beta.files.upload(file=("private.txt", b"private", "text/plain"))
    skill = await sdk.beta.skills.create(files=[("s/SKILL.md", b"---\ndescription: D\n---\nText", "text/markdown")])
    sessions = other.beta.sessions
    own: dict[str, Any] = {"agent": agent.id, "environment_id": here.id}
    session = await sessions.create(**own)
    block: Any = {"type": "document", "source": {"type": "file", "file_id": file.id}}
    outcome: Any = {"type": "user.define_outcome", "description": "D", "rubric": {"type": "file", "file_id": file.id}}
    resources: list[Any] = [{"type": "memory_store", "memory_store_id": store.id}, {"type": "file", "file_id": file.id}]

    def change(**fields: Any) -> Any:
        return other.beta.agents.update(agent.id, version=1, **fields)

    calls: list[Callable[[], Any]] = [
        lambda: sessions.create(**{**own, "agent": foreign.id}),
        lambda: sessions.create(**{**own, "environment_id": there.id}),
        lambda: sessions.create(**own, vault_ids=[vault.id]),
        lambda: sessions.create(**own, resources=resources[:1]),
        lambda: sessions.create(**own, resources=resources[1:]),
        lambda: sessions.resources.add(session.id, type="file", file_id=file.id),
        lambda: send(other, session.id, {"type": "user.message", "content": [block]}),
        lambda: send(other, session.id, outcome),
        lambda: change(skills=[{"type": "custom", "skill_id": skill.id}]),
        lambda: change(multiagent={"type": "coordinator", "agents": [foreign.id]}),
        lambda: other.beta.deployments.create(**own, name="D", initial_events=[message("x")], vault_ids=[vault.id]),
        lambda: other.beta.deployments.create(**{**own, "agent": foreign.id}, name="D", initial_events=[message("x")]),
        lambda: other.beta.deployments.create(**own, name="D", initial_events=[outcome]),
        lambda: other.beta.environments.work.poll(there.id),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(NotFoundError) as raised:
            await call()
        assert "of the project" not in str(raised.value), number
    await create_session(sdk)
    assert (await sessions.list(agent_id=foreign.id)).data == []
    assert (await sessions.list(memory_store_id=store.id)).data == []


@proves("v1.session")
@pytest.mark.parametrize("id_", ["sesn_000000000000", "nothing", "agent_000000000000", "sesn_../../etc"])
async def test_what_is_no_session_is_unknown(sdk: AsyncAnthropic, id_: str) -> None:
    with pytest.raises(NotFoundError):
        await sdk.beta.sessions.retrieve(id_)
    with pytest.raises(NotFoundError):
        await send(sdk, id_, message("Hello"))


@proves("v1.session")
async def test_of_two_changes_of_the_tools_at_once_none_is_lost(sdk: AsyncAnthropic) -> None:
    session = await create_session(sdk)
    both: list[Any] = [
        [{"type": "custom", "name": name, "description": "D", "input_schema": {"type": "object"}}] for name in "ab"
    ]

    answers = await asyncio.gather(
        *(sdk.beta.sessions.update(session.id, agent={"tools": tools}) for tools in both), return_exceptions=True
    )

    changed = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert all(isinstance(answer, ConflictError) for answer in answers if isinstance(answer, BaseException))
    stored = (await sdk.beta.sessions.retrieve(session.id)).agent.tools
    updates = [event for event in await list_events(sdk, session.id) if event.type == "session.updated"]
    assert len(changed) == len(updates) >= 1
    assert updates[-1].agent.tools == stored
