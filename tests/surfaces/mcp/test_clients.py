"""The official client in Python, in both eras, over standard streams and over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult, TextResourceContents

from tests.support import proves
from tests.surfaces.mcp.serving import served
from tests.surfaces.mcp.wire import COMMAND, SECONDS

pytestmark = pytest.mark.parametrize("way", ["stdio", "http"])
both_eras = pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])


async def answer_warm(_: Any, params: ElicitRequestParams) -> ElicitResult:
    assert params.message.startswith("How shall it sound?")
    return ElicitResult(action="accept", content={"answer": "warm"})


async def decline(_: Any, __: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="decline")


@asynccontextmanager
async def connected(way: str, mode: Any, **options: Any) -> AsyncIterator[Client]:
    async with asyncio.timeout(SECONDS):
        if way == "stdio":
            server = StdioServerParameters(command=COMMAND[0], args=list(COMMAND[1:]))
            async with Client(server, mode=mode, **options) as client:
                yield client
        else:
            async with served() as running, Client(running.url, mode=mode, **options) as client:
                yield client


def text(result: Any) -> str:
    return str(result.content[0].text)


@proves("mcp.clients")
@both_eras
async def test_tools_are_listed_and_called(way: str, mode: str) -> None:
    async with connected(way, mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        called = await client.call_tool("echo", {"text": "hello"})

        assert listed["echo"].annotations is not None
        assert listed["echo"].annotations.read_only_hint
        assert (text(called), called.structured_content) == ("hello", {"length": 5})
        assert (await client.call_tool("refuse", {})).is_error


@proves("mcp.clients", "mcp.elicitation", "mcp.input-required")
@both_eras
async def test_a_person_is_asked_through_the_client(way: str, mode: str) -> None:
    async with connected(way, mode, elicitation_callback=answer_warm) as client:
        assert text(await client.call_tool("choose", {})) == '["warm", "user of mcp"]'


@proves("mcp.clients", "mcp.declined")
@both_eras
async def test_a_person_may_decline(way: str, mode: str) -> None:
    async with connected(way, mode, elicitation_callback=decline) as client:
        result: Any = await client.call_tool("choose", {})

        assert result.content[1].text == "The person declined to answer. No answer was recorded."


@proves("mcp.clients", "mcp.waits")
@both_eras
async def test_a_client_that_cannot_ask_is_told_how_to_answer(way: str, mode: str) -> None:
    async with connected(way, mode) as client:
        assert "`fidelio answer r_000000000001 OPTION`" in text(await client.call_tool("choose", {}))


@proves("mcp.clients", "mcp.progress")
@pytest.mark.parametrize("mode", ["2026-07-28"])
async def test_progress_reaches_the_client(way: str, mode: str) -> None:
    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with connected(way, mode) as client:
        await client.call_tool("count", {"steps": 3}, progress_callback=on_progress)

    assert told == [1, 2, 3]


@proves("mcp.clients", "mcp.progress")
async def test_progress_reaches_a_client_with_a_session(way: str) -> None:
    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with connected(way, "legacy", elicitation_callback=decline) as client:
        await client.call_tool("count", {"steps": 3}, progress_callback=on_progress)

    assert told == [1, 2, 3]


@proves("mcp.clients", "mcp.http-token")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_with_the_token_is_served(way: str, mode: Any) -> None:
    if way == "stdio":
        return
    headers = {"Authorization": "Bearer secret"}
    async with (
        served(bearer_token="secret") as running,
        httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
        Client(streamable_http_client(running.url, http_client=http), mode=mode) as client,
    ):
        assert text(await client.call_tool("echo", {"text": sys.platform})) == sys.platform


@proves("mcp.schemas", "mcp.clients")
@both_eras
async def test_the_schemas_are_resources(way: str, mode: Any) -> None:
    async with connected(way, mode) as client:
        listed = await client.list_resources()
        names = [str(resource.uri).rpartition("/")[2] for resource in listed.resources]
        assert names == ["schemas", "workflow", "activity", "condition", "skill", "state"]
        read = await client.read_resource("workflow-server://schemas/activity")
        content = read.contents[0]
        assert isinstance(content, TextResourceContents)
        assert content.mime_type == "application/json"
        assert {"id", "steps", "transitions"} <= set(json.loads(content.text)["properties"])


@proves("mcp.schemas")
@both_eras
async def test_an_unknown_resource_is_refused_with_those_there_are(way: str, mode: Any) -> None:
    async with connected(way, mode) as client:
        with pytest.raises(MCPError, match="workflow-server://schemas/skill"):
            await client.read_resource("workflow-server://schemas/../keys.json")
