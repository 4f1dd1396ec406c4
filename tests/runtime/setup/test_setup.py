"""Setups: equal for equal sessions, and different in exactly the sections that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fidelio.home import Home
from fidelio.runtime.agents.definition import AgentDefinition, AgentTools, AgentVersion, CustomTool
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.setup.sections import describe_mounts
from fidelio.runtime.setup.setup import SECTION_NAMES, Setup, compare_setups, describe_setup, load_setup, setup_document
from fidelio.runtime.tools.definitions import SANDBOX_TOOLS
from tests.runtime.navigation.support import World, message
from tests.runtime.resources.support import Bench
from tests.support import proves

AGENT = AgentVersion("default", 1, AgentDefinition(model="scripted:echo", system="Be brief."))
LEARNED = "<!-- fidelio:learnings:begin -->\n- {}\n<!-- fidelio:learnings:end -->"


class Named(msgspec.Struct, frozen=True):
    """A bootstrap file or a skill."""

    name: str
    text: str = ""
    description: str = ""
    source: str = "project"
    digest: str = "d1"


PROMPT = {"base": "You are an agent.", "agent": "Be brief."}
FILES = (Named("AGENTS.md", "rules"), Named("MEMORY.md", "# Memory\n" + LEARNED.format("one")))
SKILLS = (Named("review", description="Reviews"),)


async def describe(world: World, session: str, agent: AgentVersion = AGENT, **changes: Any) -> Setup:
    given: dict[str, Any] = {"prompt_sections": PROMPT, "tools": SANDBOX_TOOLS, "bootstrap": FILES, "skills": SKILLS}
    return await describe_setup(world.context, await world.load(session), agent=agent, **{**given, **changes})


@proves("setup.equal")
async def test_two_sessions_of_an_agent_with_the_same_setup_have_equal_fingerprints(world: World) -> None:
    first, second = await world.start(), await world.start()
    parent = await world.start(message("hello"))
    child = await world.start(parent=parent, depth=1, root=parent, title="a child")

    found = [await describe(world, session) for session in (first, second, parent, child)]

    assert {setup.fingerprint for setup in found} == {found[0].fingerprint}
    assert {setup.resource_contract_fingerprint for setup in found} == {found[0].resource_contract_fingerprint}


@proves("setup.equal")
async def test_neither_the_session_nor_the_directory_of_the_host_is_part_of_a_setup(world: World, tmp_path: Path) -> None:
    session = await world.start(mount_mode="ro", mount_source=str(tmp_path))
    elsewhere = await world.start(mount_mode="ro", mount_source=str(tmp_path / "moved"))
    prompts = [{"base": f"You work in session {name}."} for name in (session, elsewhere)]

    setup = await describe(world, session, prompt_sections=prompts[0])
    moved = World(replace(world.context, home=Home(tmp_path / "other-home")))
    other = await describe(moved, elsewhere, prompt_sections=prompts[1])

    assert setup.fingerprint == other.fingerprint
    text = msgspec.json.encode(setup.to_json()).decode()
    assert session not in text
    assert str(tmp_path) not in text


@proves("setup.memory")
async def test_what_was_learned_changes_only_the_fingerprint_of_the_memory(world: World) -> None:
    session = await world.start()
    more = (FILES[0], Named("MEMORY.md", "# Memory\n" + LEARNED.format("two")))
    prompt = {**PROMPT, "bootstrap": more[1].text}

    before = await describe(world, session, prompt_sections={**PROMPT, "bootstrap": FILES[1].text})
    after = await describe(world, session, bootstrap=more, prompt_sections=prompt)
    edited = await describe(world, session, bootstrap=(FILES[0], Named("MEMORY.md", "# Other\n" + LEARNED.format("one"))))

    assert before.fingerprint == after.fingerprint
    assert before.memory_fingerprint != after.memory_fingerprint
    assert compare_setups(before, after) == {"sameSetup": True, "sameMemory": False, "changedSections": [], "differences": {}}
    assert "bootstrap_files" in compare_setups(before, edited)["changedSections"]


def with_tools(**tools: Any) -> AgentVersion:
    return replace(AGENT, definition=replace(AGENT.definition, tools=AgentTools(**tools)))


CHANGES: dict[str, dict[str, Any]] = {
    "provider_model": {"body": {"model": "scripted:other"}},
    "prompt": {"given": {"prompt_sections": {**PROMPT, "agent": "Be long."}}},
    "bootstrap_files": {"given": {"bootstrap": (Named("AGENTS.md", "other rules"), FILES[1])}},
    "tools": {"given": {"agent": with_tools(custom=(CustomTool(name="ask_crm", description="Asks"),))}},
    "skills": {"given": {"skills": (Named("review", digest="d2"),)}},
    "environment": {"body": {"environment": "online"}},
    "mounts": {"body": {"mount_mode": "rw", "mount_source": "/src"}},
    "permissions": {"body": {"policies": {"write": "always_ask"}}},
    "vaults": {"body": {"vaults": ["github"]}},
}


@proves("setup.sections")
@pytest.mark.parametrize("section", SECTION_NAMES)
async def test_a_difference_is_named_by_its_section_and_item(world: World, section: str) -> None:
    await define(world.context, "online", Environment(network="unrestricted"), by="test")
    change = CHANGES[section]
    body = {**change.get("body", {})}
    if body.get("environment"):
        body["environment_version"] = 1
    own, other = await world.start(), await world.start(**body)

    compared = compare_setups(await describe(world, own), await describe(world, other, **change.get("given", {})))

    assert compared["sameSetup"] is False
    assert compared["changedSections"] == [section]
    assert any(compared["differences"][section].values())


@proves("setup.sections")
async def test_a_removed_tool_is_named(world: World) -> None:
    session = await world.start()
    fewer = await describe(world, session, tools=[tool for tool in SANDBOX_TOOLS if tool.name != "grep"])

    compared = compare_setups(await describe(world, session), fewer)

    assert compared["differences"]["tools"] == {"onlyCurrent": ["grep"], "onlyTarget": [], "changed": []}


@proves("setup.stored")
async def test_the_setup_of_the_last_wake_is_read_by_another_session(world: World) -> None:
    session = await world.start()
    setup = await describe(world, session)
    await world.append(session, documents=(setup_document(session, setup),))

    assert await load_setup(world.context, session) == setup
    assert await load_setup(world.context, await world.start()) is None


@proves("setup.stored")
async def test_a_setup_with_other_sections_is_not_compared(world: World) -> None:
    session = await world.start()
    setup = await describe(world, session)
    foreign = replace(setup, sections={**setup.sections, "resilience": "x"}, items={**setup.items, "resilience": {}})
    await world.append(session, documents=(setup_document(session, foreign),))

    assert await load_setup(world.context, session) is None


@proves("setup.sections")
async def test_the_mounts_are_those_of_the_sandbox(bench: Bench) -> None:
    session = await bench.start(mount_mode="ro", mount_source=str(bench.home.path))
    spec = await bench.spec(session)

    shown = {mount.path: f"{mount.access} {mount.kind}" for mount in spec.mounts}
    record = (await bench.context.unit.load(session)).record
    assert describe_mounts(record, Environment()) == shown
