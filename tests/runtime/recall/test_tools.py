"""The four search tools."""

from __future__ import annotations

import msgspec
import pytest

from fidelio.ledger.model import PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.recall.definitions import DEFINITIONS
from fidelio.runtime.recall.tools import IMPLEMENTATIONS
from fidelio.toolkit import input_schema
from tests.runtime.navigation.support import make, message, reply, suggestions, wake
from tests.runtime.recall.support import TOOLS, RecallWorld, check_call
from tests.support import proves

SEARCHES = ("retrieval_search", "memory_search", "session_search_context", "session_search_traces")


@proves("recall.tools")
def test_every_search_is_defined_and_implemented_and_only_reads() -> None:
    assert tuple(TOOLS) == SEARCHES == tuple(IMPLEMENTATIONS)
    assert all(tool.read_only and tool.policy == "always_allow" and tool.group == "recall" for tool in DEFINITIONS)
    # Every model that opens the group pays for it.
    size = sum(len(tool.description) + len(msgspec.json.encode(input_schema(tool.parameters))) for tool in DEFINITIONS)
    assert size < 3_000


@proves("recall.tools")
async def test_retrieval_search_returns_hits_plan_and_summary_of_all_backends(world: RecallWorld) -> None:
    own = await world.start()
    other = await world.start(message("zebra"), *wake("w1", reply("w1", "painted"), summary="zebra painted"))

    output = await world.use_tool(own, "retrieval_search", query="painted zebra")

    assert list(output) == ["agentId", "query", "count", "backendSummary", "expansionPlan", "hits"]
    assert (output["agentId"], output["query"], output["count"]) == ("default", "painted zebra", len(output["hits"]))
    assert {hit["sessionId"] for hit in output["hits"]} == {other}
    assert [(each["backend"], each["count"]) for each in output["backendSummary"]] == [
        *(("memory", 1), ("session_context", 2), ("session_trace", 1), ("vector", 0)),
    ]
    assert output["expansionPlan"][0]["support"] >= 1
    for step in suggestions(output):
        check_call(step)


@proves("recall.tools")
async def test_each_of_the_narrower_tools_searches_its_own_backend(world: RecallWorld) -> None:
    own = await world.start()
    await world.start(message("zebra"), *wake("w1", summary="zebra"))

    for tool, backend in zip(SEARCHES[1:], ("memory", "session_context", "session_trace"), strict=True):
        output = await world.use_tool(own, tool, query="zebra")
        assert {hit["backend"] for hit in output["hits"]} == {backend}
        assert output["count"] == 1
    assert output["sessionId"] == own


@proves("recall.visible")
async def test_memory_search_also_finds_the_notes_of_this_session(world: RecallWorld) -> None:
    own = await world.start()
    await world.append(own, documents=(PutDocument(space=f"memory:{own}", path="session_state", text="the zebra"),))

    assert [hit["source"] for hit in (await world.use_tool(own, "memory_search", query="zebra"))["hits"]] == ["session_state"]
    assert (await world.use_tool(own, "retrieval_search", query="zebra"))["count"] == 0
    assert (await world.use_tool(own, "retrieval_search", query="zebra", includeCurrent=True))["count"] == 1


@proves("recall.tools")
async def test_types_narrow_the_events(world: RecallWorld) -> None:
    own = await world.start()
    await world.start(*wake("w1", message("zebra"), reply("w1", "zebra"), summary="zebra"))

    async def found(*types: str) -> set[str]:
        hits = (await world.use_tool(own, "session_search_context", query="zebra", types=list(types)))["hits"]
        return {hit["wakeId"] for hit in hits}

    assert await found(e.USER_MESSAGE) == {None}
    assert await found(e.AGENT_MESSAGE) == {"w1"}
    assert await found() == {None, "w1"}
    hits = (await world.use_tool(own, "session_search_context", query="zebra", types=[e.STATUS_IDLE]))["hits"]
    assert [hit["source"] for hit in hits] == ["session_context"]


@proves("recall.tools")
@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("retrieval_search", {}, "query"),
        ("retrieval_search", {"query": ""}, "query"),
        ("retrieval_search", {"query": "..."}, "no word"),
        ("retrieval_search", {"query": "x", "limit": 0}, "limit"),
        ("retrieval_search", {"query": "x", "limit": "3"}, "limit"),
        ("retrieval_search", {"query": "x", "backends": ["sql"]}, "backends"),
        ("memory_search", {"query": "x", "lineage": "cousins"}, "lineage"),
        ("memory_search", {"query": "x", "includeCurrent": True}, "includeCurrent"),
        ("session_search_context", {"query": "x", "types": ["user.mesage"]}, "user.mesage"),
        ("session_search_traces", {"query": "x", "types": []}, "types"),
    ],
)
async def test_wrong_arguments_are_refused_by_name(
    world: RecallWorld, tool: str, arguments: dict[str, object], named: str
) -> None:
    own = await world.start()

    assert named in await world.refuse_tool(own, tool, **arguments)


@proves("recall.tools")
async def test_a_result_is_bounded_however_long_the_texts_are(world: RecallWorld) -> None:
    own = await world.start()
    for _ in range(25):
        await world.start(make(e.AGENT_MESSAGE, {"content": [{"type": "text", "text": "zebra " * 600}], "wake_id": "w"}))

    output = await world.use_tool(own, "retrieval_search", query="zebra", limit=20)

    assert output["count"] == 20
    assert len(msgspec.json.encode(output)) < 30_000
