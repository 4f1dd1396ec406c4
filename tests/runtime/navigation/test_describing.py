"""Snapshot, context, environment and setup of a session."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition, AgentVersion
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.navigation.context import (
    ContextBudget,
    budget_document,
    describe_budget,
    describe_pressure,
    load_pressure,
)
from fidelio.runtime.navigation.definitions import DEFINITIONS as NAVIGATION
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.setup.setup import Setup, describe_setup, setup_document
from fidelio.runtime.tools.definitions import DEFINITIONS, SANDBOX_TOOLS
from fidelio.runtime.wakes.record import WakeRecord
from fidelio.sandbox.model import SandboxState
from fidelio.toolkit import read_arguments
from tests.runtime.navigation.support import World, make, message, reply, suggestions, wake
from tests.runtime.navigation.test_listing import approval, evaluated, outcome
from tests.support import proves

AGENT = AgentVersion("default", 1, AgentDefinition(model="scripted:echo"))
WINDOW = 100_000


async def describe(world: World, session: str, **prompt: str) -> Setup:
    loaded = await world.load(session)
    return await describe_setup(world.context, loaded, agent=AGENT, prompt_sections=prompt, tools=SANDBOX_TOOLS)


async def store_setup(world: World, session: str, **prompt: str) -> Setup:
    setup = await describe(world, session, **prompt)
    await world.append(session, *wake("w", setup=setup.fingerprint), documents=(setup_document(session, setup),))
    return setup


@proves("navigation.snapshot")
async def test_a_snapshot_says_where_a_session_stands(world: World) -> None:
    own = await world.start(*wake("w1", setup="a"))
    child = await world.start(message("go"), outcome("Ship", "one", "two"), parent=own, title="a child", vaults=["x"])
    await world.append(
        child,
        *wake("w1", reply("w1", "x"), summary="Half done.", setup="b", messages=1),
        evaluated("Ship", "fail", "stable", 2),
    )
    queued = make(e.WAKE_QUEUED, {"id": "q", "due": 5, "reason": "look", "note": "n", "key": "", "priority": "high"})
    await world.append(child, queued, message("more"))

    found = await world.use(own, "session_get_snapshot", sessionId=child)

    expected = {
        "sessionId": child,
        "title": "a child",
        "parentSessionId": own,
        "relationToCurrent": "child",
        "setupMatchesCurrent": False,
        "setupFingerprint": "b",
        "currentSetupFingerprint": "a",
        "status": "rescheduling",
        "requiresAction": False,
        "childCount": 0,
        "turns": 1,
        "resourceCount": 6,
        "pendingEventCount": 1,
        "lastWakeId": "w1",
        "latestSummary": "Half done.",
        "outcomeStatus": "not_ready",
        "promotionReady": False,
        "evaluationHistoryCount": 1,
        "latestIteration": 2,
        "artifactPaths": {},
    }
    assert {name: found[name] for name in expected} == expected
    assert found["activeOutcome"]["title"] == "Ship"
    assert found["outcomeGrade"]["status"] == "sleeping"
    assert [wake["reason"] for wake in found["queuedWakes"]] == ["look"]
    assert found["nextStep"]["tool"] == "agent_compare_setup"


@proves("navigation.snapshot")
async def test_what_a_session_waits_for_is_in_its_snapshot(world: World) -> None:
    session = await world.start(approval(world))

    found = await world.use(session, "session_get_snapshot")

    assert (found["requiresAction"], found["pendingActionToolName"]) == (True, "shell_run")
    assert [request["requestId"] for request in found["pendingToolConfirmationRequests"]] == ["req_1"]
    assert found["artifactPaths"]["permissionPosture"].startswith("/workspace/.openboa-runtime/")


@proves("navigation.snapshot")
@pytest.mark.parametrize("is_alive", [True, False])
async def test_a_running_command_means_not_ready_only_while_its_sandbox_lives(
    world: World, is_alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = make(e.SHELL_OPEN, {"shell_id": "sh_1", "incarnation": "box_1", "pty": False, "cwd": "/workspace"})
    command = {"command_id": "cmd_1", "tool": "shell_exec", "command": "make", "cwd": "/workspace", "incarnation": "box_1"}
    own = await world.start()
    # A command that begins after an evaluation makes it void.
    other = await world.start(outcome("a"), opened, make(e.COMMAND_STARTED, command), evaluated("a", "pass", "stable"))
    state = SandboxState(other, "box_1", "bubblewrap", 1) if is_alive else None

    async def find_state(_: str) -> SandboxState | None:
        return state

    monkeypatch.setattr(world.context.sandboxes, "state", find_state)

    found = await world.use(own, "session_get_snapshot", sessionId=other)

    assert found["outcomeStatus"] == ("not_ready" if is_alive else "pass")


@proves("navigation.snapshot")
async def test_a_snapshot_leads_to_the_last_wake(world: World) -> None:
    session = await world.start(*wake("w1", reply("w1", "x")))

    own = await world.use(session, "session_get_snapshot")
    found = await world.use(await world.start(), "session_get_snapshot", sessionId=session)

    assert found["nextStep"]["args"] == {"sessionId": session, "wakeId": "w1"}
    for step in suggestions([own, found]):
        read_arguments(step["tool"], DEFINITIONS[step["tool"]].parameters, step["args"])


@proves("context.pressure")
@pytest.mark.parametrize(
    ("used", "dropped", "level", "reasons"),
    [
        (0, 0, "low", []),
        (85_000, 0, "low", []),
        (85_001, 0, "moderate", ["narrow_headroom:14999"]),
        (95_000, 0, "moderate", ["narrow_headroom:5000"]),
        (95_001, 0, "high", ["low_headroom:4999"]),
        (200_000, 0, "high", ["low_headroom:0"]),
        (10_000, 7, "moderate", ["dropped_conversation:7"]),
        (99_000, 7, "high", ["low_headroom:1000", "dropped_conversation:7"]),
    ],
)
def test_pressure_follows_the_free_part_of_the_window_and_what_was_dropped(
    used: int, dropped: int, level: str, reasons: list[str]
) -> None:
    record = RuntimeRecord(wakes=WakeRecord(context_tokens=used, compacted_messages=dropped))

    found = describe_pressure(record, WINDOW)

    assert (found["level"], found["reasons"]) == (level, reasons)
    assert bool(found["recommendedTools"]) == (level != "low")
    assert describe_pressure(record, WINDOW, tools=frozenset())["recommendedTools"] == []


BUDGET = ContextBudget(
    window=WINDOW,
    reply=8_000,
    system={"guidance": 2_000, "bootstrap": 1_000},
    tools={"read": 500, "write": 700},
    bootstrap={"AGENTS.md": 900},
    skills={"review": 80},
    skill_count=12,
    notes=400,
    message=200,
    history=40_000,
    history_messages=31,
)


@proves("context.budget")
def test_the_parts_of_a_request_are_measured_and_corrected_by_what_the_provider_reported() -> None:
    estimated = describe_budget(BUDGET, RuntimeRecord())
    reported = describe_budget(BUDGET, RuntimeRecord(wakes=WakeRecord(context_tokens=13_000, compacted_messages=4)))

    assert (estimated["usedTokens"], estimated["usedTokensSource"]) == (11_200, "estimated")
    assert (reported["usedTokens"], reported["usedTokensSource"], reported["estimatedTokens"]) == (13_000, "reported", 11_200)
    assert reported["freeTokens"] == WINDOW - 8_000 - 13_000
    assert reported["tools"] == {
        "count": 2,
        "characters": 1_200,
        "estimatedTokens": 300,
        "largest": {"write": 700, "read": 500},
    }
    assert reported["skills"]["available"] == 12
    assert reported["history"] == {"characters": 40_000, "estimatedTokens": 10_000, "messages": 31, "droppedMessages": 4}


@proves("context.budget")
async def test_the_context_of_the_last_wake_is_described(world: World) -> None:
    session = await world.start(agent_version=1)
    before = await world.use(session, "session_describe_context")
    usage = make(e.MODEL_REQUEST_ENDED, {"model_usage": {"input_tokens": 9}, "context_tokens": 195_000})
    await world.append(session, usage, documents=(budget_document(session, BUDGET),))

    after = await world.use(session, "session_describe_context")

    assert (before["available"], before["contextBudget"], before["artifactPaths"]) == (False, None, {})
    assert before["reason"]
    assert (after["available"], after["contextBudget"]["usedTokens"]) == (True, 195_000)
    # The window of an unknown model counts as 200,000 tokens.
    assert after["pressure"]["level"] == "high"
    assert after["pressure"]["recommendedTools"] == ["retrieval_search", "session_search_context"]


@proves("context.pressure")
async def test_a_session_without_a_model_has_no_pressure(world: World) -> None:
    assert await load_pressure(world.context, await world.load(await world.start()), frozenset()) is None


@proves("navigation.environment")
async def test_the_environment_is_described_without_directories_of_the_host(world: World) -> None:
    content = Environment(network="limited", hosts=("pypi.org",), read_only=("/opt/tools",), variables={"TOKEN": "s3cret"})
    version = await define(world.context, "online", content, by="test")
    body: dict[str, Any] = {"environment": "online", "environment_version": version.version}
    session = await world.start(mount_mode="ro", mount_source="/home/anna", vaults=["github"], **body)
    same = await world.start(mount_mode="ro", mount_source="/home/ben", vaults=["github"], **body)

    found, other = [await world.use(each, "environment_describe") for each in (session, same)]

    assert found == other
    assert (found["name"], found["sandbox"]["network"], found["sandbox"]["variables"]) == ("online", "limited", ["TOKEN"])
    assert {"mountPath": "/vaults/github", "access": "read_only", "kind": "vault"} in found["mountedResources"]
    assert {"mountPath": "/workspace/project", "access": "read_only", "kind": "project"} in found["mountedResources"]
    text = msgspec.json.encode(found).decode()
    assert "s3cret" not in text
    assert "/home/" not in text


@proves("navigation.environment", "setup.stored")
async def test_the_fingerprints_of_the_environment_are_those_of_the_setup(world: World) -> None:
    session = await world.start()
    setup = await store_setup(world, session)

    found = await world.use(session, "environment_describe")

    assert found["fingerprint"] == setup.environment_fingerprint
    assert found["resourceContractFingerprint"] == setup.resource_contract_fingerprint
    assert found["agentSetupFingerprint"] == setup.fingerprint


@proves("setup.stored", "setup.sections")
async def test_setups_of_two_sessions_are_described_and_compared(world: World) -> None:
    own, same, other = [await world.start() for _ in range(3)]
    setup = await store_setup(world, own, base="one")
    await store_setup(world, same, base="one")
    await store_setup(world, other, base="two")

    described = await world.use(own, "agent_describe_setup", sessionId=same)
    equal = await world.use(own, "agent_compare_setup", sessionId=same)
    different = await world.use(own, "agent_compare_setup", sessionId=other)
    itself = await world.use(own, "agent_compare_setup")

    assert (described["available"], described["agentSetup"]["fingerprint"]) == (True, setup.fingerprint)
    assert (equal["sameSetup"], equal["changedSections"]) == (True, [])
    assert (different["sameSetup"], different["changedSections"]) == (False, ["prompt"])
    assert different["differences"]["prompt"]["changed"] == ["base"]
    assert itself["sameSetup"] is True
    matches = await world.use(own, "session_list", includeCurrent=False)
    assert [each["sessionId"] for each in matches["sessions"] if each["setupMatchesCurrent"]] == [same]


@proves("setup.stored")
async def test_a_session_without_a_wake_has_no_setup_to_compare(world: World) -> None:
    own, other = await world.start(), await world.start()
    await store_setup(world, own)

    described = await world.use(own, "agent_describe_setup", sessionId=other)
    compared = await world.use(own, "agent_compare_setup", sessionId=other)

    assert (described["available"], described["agentSetup"]) == (False, None)
    assert (compared["available"], compared["sameSetup"]) == (False, False)
    assert other in compared["reason"]


@proves("navigation.fields")
@pytest.mark.parametrize("tool", [tool for tool in NAVIGATION if tool.name != "session_get_trace"], ids=lambda tool: tool.name)
async def test_a_tool_returns_the_fields_that_its_definition_names(world: World, tool: Any) -> None:
    session = await world.start(*wake("w", reply("w", "x")))
    await store_setup(world, session)
    await world.append(session, documents=(budget_document(session, replace(BUDGET, notes=1)),))

    found = await world.use(session, tool.name)

    assert set(tool.output) <= set(found)
    assert (tool.read_only, tool.group, tool.policy) == (True, "navigation", "always_allow")
