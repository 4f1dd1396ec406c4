"""A walk through every method of the SDK for hosted agents, against a server. Every response is validated strictly.

`walk_everything` calls the methods in the order in which a program would meet them. `Walk.called` names those that were
answered, `Walk.refused` those that were refused, with their status, and `Walk.events` the types of the events.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import reduce
from typing import Any

from anthropic import APIStatusError, AsyncAnthropic
from anthropic.types.beta.sessions import BetaManagedAgentsSessionEvent, BetaManagedAgentsStreamSessionEvents

from tests.surfaces.v1.live.story import (
    ALLOW,
    ASK,
    ASKING_TOOLSET,
    DEPLOY,
    MODEL,
    TOOLSET,
    call,
    collect_turn,
    confirm,
    user,
    waiting,
)
from tests.surfaces.v1.strict import check_json, check_object

SKILL = b"---\nname: read-invoices\ndescription: How to read invoices.\n---\n\nRead them.\n"
RUBRIC = {"type": "text", "content": "- summary.md exists"}


class Walk:
    """The calls of a walk."""

    def __init__(self, sdk: AsyncAnthropic) -> None:
        self.sdk = sdk
        self.called, self.refused, self.events = set[str](), dict[str, int](), set[str]()

    async def call(self, method: str, *arguments: Any, **fields: Any) -> Any:
        """Call a method such as `sessions.events.send`, validate what it answers, and return it."""
        *path, name = method.split(".")
        resource = reduce(getattr, path, self.sdk.beta)
        response = await getattr(resource.with_raw_response, name)(*arguments, **fields)
        found = response.parse()
        found = await found if inspect.isawaitable(found) else found
        self.called.add(method)
        if "json" in response.headers.get("content-type", ""):
            check_json(type(found), response.http_response.json())
            self._note_events(method, found)
        return found

    async def refuse(self, method: str, *arguments: Any, **fields: Any) -> None:
        """Call a method that is refused."""
        try:
            await self.call(method, *arguments, **fields)
        except APIStatusError as error:
            self.refused[method] = error.status_code

    async def converse(self, session: str, *events: Any) -> list[Any]:
        """Send events, and collect the stream until the session is idle."""
        stream = await self.sdk.beta.sessions.events.stream(session, event_deltas=["agent.message"])
        self.called.add("sessions.events.stream")
        async with stream:
            await self.call("sessions.events.send", session, events=list(events))
            found = await collect_turn(stream)
        for event in found:
            check_json(BetaManagedAgentsStreamSessionEvents, event.to_dict(mode="json"))
        return found

    def _note_events(self, method: str, found: Any) -> None:
        if method.endswith("events.list"):
            for event in found.data:
                check_json(BetaManagedAgentsSessionEvent, event.to_dict(mode="json"))
                self.events.add(event.type)


def list_methods(sdk: AsyncAnthropic, groups: tuple[str, ...]) -> Iterator[str]:
    """All methods of groups of the SDK, with those of the resources below them."""
    for group in groups:
        yield from _list_methods(getattr(sdk.beta, group), group)


def _list_methods(resource: Any, name: str) -> Iterator[str]:
    for member, value in inspect.getmembers(type(resource)):
        if member.startswith(("_", "with_")):
            continue
        if inspect.isfunction(value):
            yield f"{name}.{member}"
        else:
            yield from _list_methods(getattr(resource, member), f"{name}.{member}")


async def walk_everything(sdk: AsyncAnthropic, url: str, key: str) -> Walk:
    """`url`, `key`: of the server, whose tools an agent of the walk uses as an MCP server."""
    walk = Walk(sdk)
    environment = await _walk_environments(walk)
    agent = await _walk_agents(walk)
    file, skill = await _walk_files_and_skills(walk)
    store = await _walk_memory_stores(walk)
    await _walk_vaults(walk)
    await _walk_sessions(walk, agent, environment, file, store)
    await _walk_servers(walk, f"{url}/mcp", key)
    await _walk_threads(walk, environment)
    await _walk_deployments(walk, agent, environment)
    await _walk_work(walk)
    await _walk_endings(walk, agent, environment, file, skill, store)
    return walk


async def _walk_environments(walk: Walk) -> str:
    network: Any = {"type": "limited", "allowed_hosts": ["example.com"], "allow_package_managers": True}
    await walk.call("environments.create", name="Limited", config={"type": "cloud", "networking": network})
    made = await walk.call("environments.create", name="Sandbox", config={"type": "cloud"}, metadata={"team": "a"})
    await walk.call("environments.update", made.id, description="For all.")
    await walk.call("environments.retrieve", made.id)
    await walk.call("environments.list", limit=1)
    return str(made.id)


async def _walk_agents(walk: Walk) -> str:
    web = {"name": "web_fetch", "permission_policy": ALLOW, "allowed_domains": ["example.com"]}
    made = await walk.call(
        "agents.create",
        name="Helper",
        model={"id": MODEL, "effort": "low"},
        tools=[{**ASKING_TOOLSET, "configs": [*ASKING_TOOLSET["configs"], web]}, DEPLOY],
        metadata={"team": "a"},
    )
    await walk.call("agents.update", made.id, version=1, system="Be brief.")
    await walk.call("agents.retrieve", made.id, version=1)
    await walk.call("agents.list")
    await walk.call("agents.versions.list", made.id)
    return str(made.id)


async def _walk_files_and_skills(walk: Walk) -> tuple[str, str]:
    file = await walk.call("files.upload", file=("report.txt", b"Sales rose.\n", "text/plain"), expires_in_seconds=3_600)
    await walk.call("files.retrieve_metadata", file.id)
    await walk.call("files.list")
    await walk.call("files.download", file.id)
    skill = await walk.call("skills.create", files=[("read-invoices/SKILL.md", SKILL, "text/markdown")])
    version = await walk.call("skills.versions.create", skill.id, files=[("read-invoices/SKILL.md", SKILL + b"\nTwice.\n")])
    await walk.call("skills.retrieve", skill.id)
    await walk.call("skills.list")
    await walk.call("skills.versions.retrieve", version.id, skill_id=skill.id)
    await walk.call("skills.versions.list", skill.id)
    await walk.call("skills.versions.download", version.id, skill_id=skill.id)
    await walk.call("skills.versions.delete", version.id, skill_id=skill.id)
    return str(file.id), str(skill.id)


async def _walk_memory_stores(walk: Walk) -> str:
    store = await walk.call("memory_stores.create", name="Notes", description="What the team knows.")
    await walk.call("memory_stores.update", store.id, metadata={"team": "a"})
    await walk.call("memory_stores.retrieve", store.id)
    await walk.call("memory_stores.list")
    kept = await walk.call("memory_stores.memories.create", store.id, path="/style/words.md", content="Short.\n", view="full")
    await walk.call("memory_stores.memories.update", kept.id, memory_store_id=store.id, content="Shorter.\n")
    await walk.call("memory_stores.memories.retrieve", kept.id, memory_store_id=store.id)
    await walk.call("memory_stores.memories.list", store.id, depth=1)
    listed = await walk.call("memory_stores.memory_versions.list", store.id)
    oldest = listed.data[-1].id
    await walk.call("memory_stores.memory_versions.redact", oldest, memory_store_id=store.id)
    await walk.call("memory_stores.memory_versions.retrieve", oldest, memory_store_id=store.id)
    await walk.call("memory_stores.memories.delete", kept.id, memory_store_id=store.id)
    return str(store.id)


async def _walk_vaults(walk: Walk) -> None:
    vault = (await walk.call("vaults.create", display_name="Keys")).id
    await walk.call("vaults.update", vault, metadata={"user": "1"})
    await walk.call("vaults.retrieve", vault)
    await walk.call("vaults.list")
    auth = {"type": "mcp_oauth", "access_token": "token", "mcp_server_url": "http://127.0.0.1:9/mcp"}
    made = (await walk.call("vaults.credentials.create", vault, auth=auth, display_name="Issues")).id
    changed = {"type": "mcp_oauth", "access_token": "other"}
    await walk.call("vaults.credentials.update", made, vault_id=vault, auth=changed)
    await walk.call("vaults.credentials.retrieve", made, vault_id=vault)
    await walk.call("vaults.credentials.list", vault)
    await walk.call("vaults.credentials.mcp_oauth_validate", made, vault_id=vault)
    await walk.call("vaults.credentials.archive", made, vault_id=vault)
    await walk.call("vaults.credentials.delete", made, vault_id=vault)
    await walk.call("vaults.archive", vault)
    await walk.call("vaults.delete", vault)


async def _walk_sessions(walk: Walk, agent: str, environment: str, file: str, store: str) -> None:
    resources: Any = [{"type": "memory_store", "memory_store_id": store, "access": "read_only", "instructions": "Read it."}]
    session = await walk.call(
        "sessions.create", agent=agent, environment_id=environment, title="Walk", metadata={"a": "1"}, resources=resources
    )
    await walk.call("sessions.list", limit=1, statuses=["idle"])
    added = await walk.call("sessions.resources.add", session.id, file_id=file, type="file")
    await walk.call("sessions.resources.list", session.id)
    await walk.call("sessions.resources.retrieve", added.id, session_id=session.id)
    await walk.refuse("sessions.resources.update", added.id, session_id=session.id, authorization_token="x")
    await walk.call("sessions.resources.delete", added.id, session_id=session.id)
    await _walk_turns(walk, session.id)
    await walk.call("sessions.update", session.id, title="Walked", metadata={"a": None}, agent={"tools": [TOOLSET, DEPLOY]})
    await walk.call("sessions.events.list", session.id)
    await walk.call("sessions.retrieve", session.id)
    await walk.call("sessions.archive", session.id)
    await walk.call("sessions.delete", session.id)


async def _walk_turns(walk: Walk, session: str) -> None:
    step = "\n".join(["Working.", call("bash", command="true"), call("bash", command="false"), call("deploy", to="test")])
    asked = waiting(await walk.converse(session, user(step, "Done.")))
    custom = {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": asked[2],
        "content": [{"type": "text", "text": "Deployed."}],
    }
    await walk.converse(session, confirm(asked[0]), confirm(asked[1], "deny", deny_message="No."), custom)
    await walk.converse(session, user(call("write", file_path="/workspace/summary.md", content="Short.\n")))
    system = {"type": "system.message", "content": [{"type": "text", "text": "Be brief."}]}
    await walk.converse(session, user("Hello."), system)
    await walk.converse(session, {"type": "user.define_outcome", "description": "A summary.", "rubric": RUBRIC})
    await walk.converse(session, user(call("deploy", to="nowhere")))
    await walk.call("sessions.events.send", session, events=[{"type": "user.interrupt"}])


async def _walk_servers(walk: Walk, address: str, key: str) -> None:
    """An agent with an MCP server and the credential for it."""
    vault = await walk.call("vaults.create", display_name="Server")
    auth = {"type": "static_bearer", "token": key, "mcp_server_url": address}
    await walk.call("vaults.credentials.create", vault.id, auth=auth)
    tools = [{"type": "mcp_toolset", "mcp_server_name": "flows", "default_config": {"permission_policy": ALLOW}}]
    servers = [{"type": "url", "name": "flows", "url": address}]
    agent = await walk.call("agents.create", name="Connected", model=MODEL, tools=tools, mcp_servers=servers)
    session = await walk.call("sessions.create", agent=agent.id, environment_id="env_default", vault_ids=[vault.id])
    await walk.converse(session.id, user(call("mcp__flows__list_workflows")))
    # There is no file, so its grader is not satisfied, and the session tries again.
    await walk.converse(
        session.id, {"type": "user.define_outcome", "description": "A file.", "rubric": RUBRIC, "max_iterations": 2}
    )
    await walk.call("sessions.events.list", session.id)


async def _walk_threads(walk: Walk, environment: str) -> None:
    """An agent that delegates to itself."""
    agent = await walk.call(
        "agents.create",
        name="Coordinator",
        model=MODEL,
        tools=[{**TOOLSET, "default_config": {"permission_policy": ASK}}],
        multiagent={"type": "coordinator", "agents": [{"type": "self"}]},
    )
    session = await walk.call("sessions.create", agent=agent.id, environment_id=environment)
    child = f"The task.\n{call('bash', command='true')}"
    await walk.converse(session.id, user(call("session_delegate", message=child)))
    threads = (await walk.call("sessions.threads.list", session.id)).data
    thread = next(thread for thread in threads if thread.parent_thread_id)
    await walk.call("sessions.threads.retrieve", thread.id, session_id=session.id)
    await walk.call("sessions.events.list", session.id)
    async with await walk.sdk.beta.sessions.threads.events.stream(thread.id, session_id=session.id) as stream:
        walk.called.add("sessions.threads.events.stream")
        await walk.call("sessions.events.send", session.id, events=[{"type": "user.interrupt"}])
        async for event in stream:
            check_object(event)
            if event.type.endswith("status_idle"):
                break
    await walk.call("sessions.threads.events.list", thread.id, session_id=session.id)
    await walk.call("sessions.threads.archive", thread.id, session_id=session.id)


async def _walk_deployments(walk: Walk, agent: str, environment: str) -> None:
    made = await walk.call(
        "deployments.create",
        name="Nightly",
        agent=agent,
        environment_id=environment,
        initial_events=[user("Good night.")],
        schedule={"type": "cron", "expression": "0 3 * * *", "timezone": "Europe/Berlin"},
    )
    await walk.call("deployments.update", made.id, description="Every night.")
    await walk.call("deployments.pause", made.id)
    await walk.call("deployments.unpause", made.id)
    run = await walk.call("deployments.run", made.id)
    await walk.call("deployments.retrieve", made.id)
    await walk.call("deployments.list")
    await walk.call("deployment_runs.list", deployment_id=made.id)
    await walk.call("deployment_runs.retrieve", run.id)
    await walk.call("deployments.archive", made.id)


async def _walk_work(walk: Walk) -> None:
    """A self-hosted environment, whose tools a worker of somebody else runs: here nobody does."""
    place = await walk.call("environments.create", name="Mine", config={"type": "self_hosted"})
    agent = await walk.call("agents.create", name="Remote", model=MODEL, tools=[TOOLSET])
    session = await walk.call("sessions.create", agent=agent.id, environment_id=place.id)
    events = await walk.converse(session.id, user(call("bash", command="true")))
    work = await walk.call("environments.work.poll", place.id)
    await walk.call("environments.work.ack", work.id, environment_id=place.id)
    await walk.call("environments.work.heartbeat", work.id, environment_id=place.id)
    await walk.call("environments.work.update", work.id, environment_id=place.id, metadata={"host": "a"})
    await walk.call("environments.work.retrieve", work.id, environment_id=place.id)
    await walk.call("environments.work.list", place.id)
    await walk.call("environments.work.stats", place.id)
    (use,) = [event for event in events if event.type == "agent.tool_use"]
    result = {"type": "user.tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "Ran."}]}
    await walk.converse(session.id, result)
    await walk.call("sessions.events.list", session.id)
    await walk.call("environments.work.stop", work.id, environment_id=place.id)


async def _walk_endings(walk: Walk, agent: str, environment: str, file: str, skill: str, store: str) -> None:
    async for session in walk.sdk.beta.sessions.list():
        await walk.sdk.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
        await walk.sdk.beta.sessions.delete(session.id)
    await walk.call("agents.archive", agent)
    await walk.call("environments.archive", environment)
    await walk.call("environments.delete", environment)
    await walk.call("files.delete", file)
    await walk.call("skills.delete", skill)
    await walk.call("memory_stores.archive", store)
    await walk.call("memory_stores.delete", store)
