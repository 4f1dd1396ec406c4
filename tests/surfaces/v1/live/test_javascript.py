"""The official SDK in JavaScript against `fidelio up`: the life of an agent, and the objects that the SDK returns."""

from __future__ import annotations

from typing import Any

from anthropic.types import beta
from anthropic.types.beta import memory_stores, sessions

from tests.support import proves
from tests.surfaces.v1.live.conftest import RunJavaScript
from tests.surfaces.v1.live.story import ASKING_TOOLSET, DEPLOY, MODEL, call, user
from tests.surfaces.v1.strict import check_json

TYPES: dict[str, Any] = {
    "Agent": beta.BetaManagedAgentsAgent,
    "DeletedEnvironment": beta.BetaEnvironmentDeleteResponse,
    "DeletedFile": beta.BetaDeletedFile,
    "DeletedMemory": memory_stores.BetaManagedAgentsDeletedMemory,
    "DeletedMemoryStore": beta.BetaManagedAgentsDeletedMemoryStore,
    "DeletedSession": beta.BetaManagedAgentsDeletedSession,
    "Environment": beta.BetaEnvironment,
    "Event": sessions.BetaManagedAgentsSessionEvent,
    "File": beta.BetaFileMetadata,
    "ListedMemory": memory_stores.BetaManagedAgentsMemoryListItem,
    "Memory": memory_stores.BetaManagedAgentsMemory,
    "MemoryStore": beta.BetaManagedAgentsMemoryStore,
    "Resource": sessions.BetaManagedAgentsSessionResource,
    "Session": beta.BetaManagedAgentsSession,
    "Thread": sessions.BetaManagedAgentsSessionThread,
}


@proves("v1.live-javascript", "v1.live-objects")
async def test_the_life_of_an_agent(javascript: RunJavaScript) -> None:
    calls = [call("bash", command="cat report.txt"), call("bash", command="cat report.txt | wc -l"), call("deploy", to="test")]
    writing = call("write", file_path="/workspace/summary.md", content="Short.\n")
    message = user("\n".join(calls), writing, "All done.")

    seen = await javascript("life.mjs", model=MODEL, tools=[ASKING_TOOLSET, DEPLOY], message=message)

    assert seen["bytes"] == "Sales rose.\n"
    assert seen["waiting"] == ["bash", "bash", "deploy"]
    assert [text.strip() for text in seen["results"]][:2] == ["Sales rose.", "1"]
    assert (seen["messages"], seen["outcome"]) == (["All done."], ["satisfied"])
    assert seen["streamed"] == seen["listed"]
    assert seen["refused"][0] is True
    assert "archived" in seen["refused"][1]
    assert seen["missing"] == [True, 404, True]
    assert {name for name, _ in seen["objects"]} == set(TYPES)
    for name, found in seen["objects"]:
        # The SDK adds the id of the request to what it returns.
        check_json(TYPES[name], {key: value for key, value in found.items() if key != "_request_id"})
