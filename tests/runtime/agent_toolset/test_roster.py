"""An agent with a roster delegates to its agents, and a child has at most what its parent has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.delegation.roster import narrow_policies
from fidelio.runtime.record import RuntimeRecord
from tests.runtime.agent_toolset.conftest import TOOLSET, text_of
from tests.runtime.wakes.support import Runtime, open_runtime, results_of, say, texts_of, use
from tests.support import proves

ROSTER = {"agents": [{"agent": "writer"}]}
OWN: dict[str, Any] = {"toolset": "fidelio_toolset"}


async def _delegate(runtime: Runtime, **arguments: Any) -> str:
    """Let the coordinator delegate once; returns the result that it got."""

    def reply(request: ModelRequest) -> ModelReply:
        if "Coordinate." not in texts_of(request) or results_of(request):
            return say("Done.")
        return use(("session_delegate", {"message": "Write.", **arguments}))

    runtime.script(reply)
    session = await runtime.start(agent="boss")
    await runtime.tell(session, "Coordinate.")
    await runtime.work()
    request = [each for each in runtime.requests if "Coordinate." in texts_of(each)][-1]
    return text_of(results_of(request)[-1])


async def _find_child(runtime: Runtime) -> tuple[RuntimeRecord, ModelRequest]:
    sessions = await runtime.ledger.sessions(kind="runtime", limit=50)
    records = [await runtime.record(found.id) for found in sessions.items]
    (child,) = [record for record in records if record.depth == 1]
    return child, next(each for each in runtime.requests if "Write." in texts_of(each) and "Coordinate." not in texts_of(each))


def _names(request: ModelRequest) -> set[str]:
    return {tool.name for tool in request.tools}


@proves("toolset.roster")
async def test_only_an_agent_with_a_roster_has_the_tools_to_delegate(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.define("writer", tools=TOOLSET)
        await runtime.define("boss", tools=TOOLSET, multiagent=ROSTER)
        result = await _delegate(runtime, agent="writer")

        child, request = await _find_child(runtime)
        assert "childSession" in result
        assert child.agent == "writer"
        boss = next(each for each in runtime.requests if "Coordinate." in texts_of(each))
        assert {"session_delegate", "session_run_child"} <= _names(boss)
        assert "one of these agents: self, writer." in boss.system
        assert _names(request) == {"bash", "edit", "read", "write", "glob", "grep", "web_fetch"}


@proves("toolset.roster")
@pytest.mark.parametrize("agent", ["other", "boss2", ""])
async def test_an_agent_outside_of_the_roster_gets_no_task(tmp_path: Path, agent: str) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.define("other", tools=TOOLSET)
        await runtime.define("writer", tools=TOOLSET)
        await runtime.define("boss", tools=TOOLSET, multiagent=ROSTER)

        assert '"ok":false' in await _delegate(runtime, agent=agent)
        assert not [each for each in runtime.requests if "Coordinate." not in texts_of(each)]


@proves("toolset.roster")
async def test_self_is_the_agent_itself(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.define("writer", tools=TOOLSET)
        await runtime.define("boss", tools=TOOLSET, multiagent=ROSTER)
        await _delegate(runtime, agent="self")

        assert (await _find_child(runtime))[0].agent == "boss"


@proves("toolset.roster")
@pytest.mark.parametrize(
    ("boss", "writer", "names"),
    [
        ({**TOOLSET, "only": ["read"]}, TOOLSET, {"read"}),
        ({"toolset": "none"}, TOOLSET, set()),
        # `bash` of our own toolset only reads: it is no right to the shell.
        ({**OWN, "only": ["bash", "read", "session_delegate"]}, TOOLSET, {"read"}),
        ({**TOOLSET, "without": ["bash"]}, {**OWN, "only": ["shell_exec", "read"]}, {"read", "tools_open", "tool_call"}),
    ],
)
async def test_a_child_has_no_tool_that_its_parent_has_not(
    tmp_path: Path, boss: dict[str, Any], writer: dict[str, Any], names: set[str]
) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.define("writer", tools=writer)
        await runtime.define("boss", tools=boss, multiagent=ROSTER)
        await _delegate(runtime, agent="writer")

        assert _names((await _find_child(runtime))[1]) == names


@proves("toolset.roster")
@pytest.mark.parametrize(
    ("boss", "writer", "tool", "policy"),
    [
        (OWN, TOOLSET, "bash", "always_ask"),
        ({**OWN, "policies": {"shell_exec": "always_allow"}}, TOOLSET, "bash", "always_allow"),
        ({**TOOLSET, "policies": {"write": "always_ask"}}, TOOLSET, "write", "always_ask"),
        (TOOLSET, {**TOOLSET, "policies": {"write": "auto"}}, "write", "auto"),
        (
            {**TOOLSET, "policies": {"bash": "always_ask"}},
            {**OWN, "policies": {"shell_exec": "always_allow"}},
            "shell_exec",
            "always_ask",
        ),
        (TOOLSET, OWN, "shell_exec", "always_ask"),
    ],
)
def test_a_child_asks_where_its_parent_asks(boss: dict[str, Any], writer: dict[str, Any], tool: str, policy: str) -> None:
    parent = parse_agent({"model": "scripted:test", "tools": boss}, "The agent")
    child = parse_agent({"model": "scripted:test", "tools": writer}, "The agent")
    record = RuntimeRecord(policies=dict(parent.tools.list_policies()))

    assert narrow_policies(record, parent, child)[tool] == policy
