"""The whole life of an agent with the official SDK in Python, over a socket and against a process of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError

from tests.support import proves
from tests.surfaces.v1.live.server import LiveServer
from tests.surfaces.v1.live.story import (
    ASKING_TOOLSET,
    DEPLOY,
    MODEL,
    call,
    collect_turn,
    confirm,
    messages,
    results,
    run_turn,
    user,
    waiting,
)


async def prepare(sdk: AsyncAnthropic, **session: Any) -> Any:
    """A session of a new agent in a new environment."""
    environment = await sdk.beta.environments.create(name="Sandbox", config={"type": "cloud"})
    agent = await sdk.beta.agents.create(name="Helper", model=MODEL, system="Be brief.", tools=[ASKING_TOOLSET, DEPLOY])
    return await sdk.beta.sessions.create(agent=agent.id, environment_id=environment.id, **session)


@proves("v1.live-python")
async def test_calls_of_one_turn_wait_for_their_confirmations_and_a_custom_result(sdk: AsyncAnthropic) -> None:
    session = await prepare(sdk, title="Confirmations")
    step = [call("bash", command="echo first | tee first.txt"), call("bash", command="touch second.txt")]

    async with await sdk.beta.sessions.events.stream(session.id) as stream:
        await sdk.beta.sessions.events.send(
            session.id, events=[user("\n".join([*step, call("deploy", to="test")]), "All done.")]
        )
        asked = await collect_turn(stream)
        first, second, custom = waiting(asked)
        await sdk.beta.sessions.events.send(session.id, events=[confirm(first)])
        partly = await collect_turn(stream)
        rest: Any = [
            confirm(second, "deny", deny_message="Not now."),
            {
                "type": "user.custom_tool_result",
                "custom_tool_use_id": custom,
                "content": [{"type": "text", "text": "Deployed."}],
            },
        ]
        await sdk.beta.sessions.events.send(session.id, events=rest)
        done = await collect_turn(stream)

    uses = {event.id: event for event in asked if event.type in ("agent.tool_use", "agent.custom_tool_use")}
    assert [uses[id_].name for id_ in (first, second, custom)] == ["bash", "bash", "deploy"]
    assert uses[custom].input == {"to": "test"}
    assert (waiting(partly), results(partly)[first]) == ([second, custom], "first")
    assert "Not now." in results(done)[second]
    assert (messages(done), done[-1].stop_reason.type) == (["All done."], "end_turn")
    left = await run_turn(sdk, session.id, user(call("glob", pattern="*.txt")))
    assert [text.split() for text in results(left).values()] == [["/workspace/first.txt"]]


@proves("v1.live-python")
async def test_files_and_memory_reach_the_tools_of_a_session(sdk: AsyncAnthropic) -> None:
    uploaded = await sdk.beta.files.upload(file=("report.txt", b"Sales rose.\n", "text/plain"))
    store = await sdk.beta.memory_stores.create(name="Team notes", description="What the team knows.")
    await sdk.beta.memory_stores.memories.create(store.id, path="/style.md", content="Short sentences.\n")
    session = await prepare(
        sdk,
        resources=[
            {"type": "file", "file_id": uploaded.id, "mount_path": "/workspace/report.txt"},
            {"type": "memory_store", "memory_store_id": store.id, "access": "read_write"},
        ],
    )
    mount = next(resource.mount_path for resource in session.resources if resource.type == "memory_store")

    reading = "\n".join([call("read", file_path="/workspace/report.txt"), call("read", file_path=f"{mount}/style.md")])
    read = await run_turn(sdk, session.id, user(reading))
    await run_turn(sdk, session.id, user(call("write", file_path=f"{mount}/sales.md", content="They rose.\n")))

    assert sorted(text.strip() for text in results(read).values()) == ["1\tSales rose.", "1\tShort sentences."]
    kept = [memory async for memory in sdk.beta.memory_stores.memories.list(store.id, view="full")]
    assert {memory.path: memory.content for memory in kept if memory.type == "memory"}["/sales.md"] == "They rose.\n"
    (version,) = [each async for each in sdk.beta.memory_stores.memory_versions.list(store.id, session_id=session.id)]
    assert (version.path, version.operation) == ("/sales.md", "created")


@proves("v1.live-python")
async def test_an_outcome_is_worked_on_until_its_grader_is_satisfied(sdk: AsyncAnthropic) -> None:
    session = await prepare(sdk)
    await run_turn(sdk, session.id, user(call("write", file_path="/workspace/summary.md", content="Short.\n")))
    rubric: Any = {"type": "text", "content": "- summary.md exists"}

    events = await run_turn(
        sdk, session.id, {"type": "user.define_outcome", "description": "A summary.", "rubric": rubric, "max_iterations": 2}
    )

    kinds = [event.type for event in events]
    assert kinds.index("span.outcome_evaluation_start") < kinds.index("span.outcome_evaluation_end")
    (end,) = [event for event in events if event.type == "span.outcome_evaluation_end"]
    (defined,) = [event for event in events if event.type == "user.define_outcome"]
    (evaluation,) = (await sdk.beta.sessions.retrieve(session.id)).outcome_evaluations
    assert (end.outcome_id, end.result, end.iteration) == (defined.outcome_id, "satisfied", 0)
    assert (evaluation.outcome_id, evaluation.result, evaluation.description) == (defined.outcome_id, "satisfied", "A summary.")


@proves("v1.live-python")
async def test_what_is_changed_archived_and_deleted_says_so(sdk: AsyncAnthropic) -> None:
    session = await prepare(sdk, title="First", metadata={"team": "a", "ticket": "1"})
    changed = await sdk.beta.agents.update(session.agent.id, version=1, system="Be briefer.")
    renamed = await sdk.beta.sessions.update(session.id, title="Second", metadata={"ticket": None})

    with pytest.raises(BadRequestError, match="session"):
        await sdk.beta.environments.delete(session.environment_id)
    archived = await sdk.beta.sessions.archive(session.id)
    with pytest.raises(BadRequestError, match="archived"):
        await sdk.beta.sessions.events.send(session.id, events=[user("Hello?")])
    deleted = await sdk.beta.sessions.delete(session.id)
    with pytest.raises(NotFoundError):
        await sdk.beta.sessions.retrieve(session.id)
    environment = await sdk.beta.environments.delete(session.environment_id)
    retired = await sdk.beta.agents.archive(session.agent.id)

    assert (changed.version, renamed.agent.version, renamed.agent.system) == (2, 1, "Be brief.")
    assert (renamed.title, renamed.metadata) == ("Second", {"team": "a"})
    assert archived.archived_at is not None
    assert (deleted.type, environment.type) == ("session_deleted", "environment_deleted")
    assert retired.archived_at is not None
    with pytest.raises(BadRequestError, match="archived"):
        await sdk.beta.sessions.create(agent=session.agent.id, environment_id="env_default")


@proves("v1.live-python")
async def test_an_interrupt_ends_a_turn_that_works(sdk: AsyncAnthropic) -> None:
    environment = await sdk.beta.environments.create(name="Sandbox", config={"type": "cloud"})
    agent = await sdk.beta.agents.create(name="Sleeper", model=MODEL, tools=[{"type": "agent_toolset_20260401"}])
    session = await sdk.beta.sessions.create(agent=agent.id, environment_id=environment.id)

    async with await sdk.beta.sessions.events.stream(session.id) as stream:
        await sdk.beta.sessions.events.send(session.id, events=[user(call("bash", command="sleep 100"))])
        async for event in stream:
            if event.type == "agent.tool_use":
                break
        await sdk.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
        events = await collect_turn(stream)

    assert events[-1].stop_reason.type == "end_turn"
    assert (await sdk.beta.sessions.retrieve(session.id)).status == "idle"


@proves("v1.live-ledger")
async def test_everything_is_in_a_ledger_that_verifies(sdk: AsyncAnthropic, server: LiveServer) -> None:
    session = await prepare(sdk)
    await run_turn(sdk, session.id, user("Hello."))

    verified = await asyncio.to_thread(server.run, "verify", "--all")

    assert (verified.returncode, verified.stderr) == (0, "")
    assert server.errors == ""
