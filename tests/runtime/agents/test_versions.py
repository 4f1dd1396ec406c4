"""Versions of agents in the ledger."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from fidelio.errors import AgentDefinitionProblem
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition, AgentTools
from fidelio.runtime.agents.versions import define_agent, list_agents, list_versions, load_agent
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.stores import open_store
from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.support import FakeSandboxes, open_context
from tests.support import proves

PROJECT = "/project"
FIRST = AgentDefinition(model="scripted:echo", system="First.")
SECOND = AgentDefinition(model="scripted:demo", tools=AgentTools(policies={"write": "always_ask", "read": "always_ask"}))


@proves("agents.versions")
async def test_each_different_content_is_a_version_and_stays_readable(context: RuntimeContext) -> None:
    first = await define_agent(context, PROJECT, "bob", FIRST, by="person:anna")
    same = await define_agent(context, PROJECT, "bob", FIRST, by="person:bea")
    second = await define_agent(context, PROJECT, "bob", SECOND, by="person:bea")
    again = await define_agent(context, PROJECT, "bob", FIRST, by="person:anna")

    assert [agent.version for agent in (first, same, second, again)] == [1, 1, 2, 3]
    assert (await load_agent(context, PROJECT, "bob", 2)).definition == SECOND
    assert await load_agent(context, PROJECT, "bob") == again
    assert [(entry.version, entry.by, entry.model) for entry in await list_versions(context, PROJECT, "bob")] == [
        (3, "person:anna", "scripted:echo"),
        (2, "person:bea", "scripted:demo"),
        (1, "person:anna", "scripted:echo"),
    ]


@proves("agents.versions")
async def test_the_order_of_keys_makes_no_new_version(context: RuntimeContext) -> None:
    other = AgentDefinition(model="scripted:demo", tools=AgentTools(policies={"read": "always_ask", "write": "always_ask"}))

    assert (await define_agent(context, PROJECT, "bob", SECOND, by="a")).version == 1
    assert (await define_agent(context, PROJECT, "bob", other, by="a")).version == 1


@proves("agents.versions")
async def test_a_definition_is_an_event_of_the_agent(context: RuntimeContext) -> None:
    await define_agent(context, PROJECT, "bob", FIRST, by="person:anna", source="hash")

    store = await open_store(context, "substrate", project=PROJECT, agent="bob")
    (event,) = await context.ledger.events(store.id, types=(e.AGENT_DEFINED,))
    assert event.body == {"name": "bob", "source": "hash", "model": "scripted:echo", "version": 1, "by": "person:anna"}
    assert event.actor == "person:anna"


@proves("agents.versions")
async def test_agents_are_apart_by_project_and_are_no_shared_files(context: RuntimeContext) -> None:
    await define_agent(context, PROJECT, "bob", FIRST, by="a")
    await define_agent(context, PROJECT, "al", SECOND, by="a")
    await define_agent(context, "/other", "bob", SECOND, by="a")
    await open_store(context, "substrate", project=PROJECT, agent="without-definition")

    assert [(agent.name, agent.definition.model) for agent in await list_agents(context, PROJECT)] == [
        ("al", "scripted:demo"),
        ("bob", "scripted:echo"),
    ]
    assert await list_agents(context, "/nowhere") == ()
    assert await (await Substrate.open(context, PROJECT, "bob")).list_paths(10) == ()


@proves("agents.versions")
@pytest.mark.parametrize(("name", "version"), [("nobody", None), ("bob", 7)])
async def test_what_is_not_there_is_named_with_the_command_that_defines_it(
    context: RuntimeContext, name: str, version: int | None
) -> None:
    await define_agent(context, PROJECT, "bob", FIRST, by="a")

    with pytest.raises(AgentDefinitionProblem) as refused:
        await load_agent(context, PROJECT, name, version)

    assert f"There is no agent {name}" in str(refused.value)
    assert "Known in this project: bob." in str(refused.value)
    assert "fidelio runtime define" in str(refused.value)


@proves("agents.versions")
async def test_processes_that_define_at_once_get_one_version_for_each_content(tmp_path: Path, context: RuntimeContext) -> None:
    contents = [AgentDefinition(model="scripted:echo", system=f"{number % 3}") for number in range(6)]

    async def define(definition: AgentDefinition) -> int:
        # A ledger of its own, as another process has.
        async with open_context(tmp_path / "home", FakeSandboxes()) as other:
            return (await define_agent(other, PROJECT, "bob", definition, by="a")).version

    numbers = await asyncio.gather(*map(define, contents))

    newest = max(entry.version for entry in await list_versions(context, PROJECT, "bob"))
    stored = [(await load_agent(context, PROJECT, "bob", version)).definition for version in range(1, newest + 1)]
    assert all(stored[number - 1] == definition for number, definition in zip(numbers, contents, strict=True))
    assert all(one != following for one, following in pairwise(stored))
