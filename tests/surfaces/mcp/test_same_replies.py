"""Whichever way a client comes, it gets the same replies: in memory, over standard streams and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.support import proves
from tests.surfaces.mcp.example import ExampleTools, as_json, protocol
from tests.surfaces.mcp.serving import served
from tests.surfaces.mcp.wire import ASKABLE, META, call, initialize, request, wired

AskServer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

CALLS: list[tuple[str, Any]] = [
    ("echo", {"text": "hello"}),
    ("echo", {"text": "é😀\n\t\u2028", "times": 3}),
    ("echo", {"text": "x", "unknown": [1, {"a": None}]}),
    ("echo", {}),
    ("echo", {"text": None}),
    ("echo", {"text": "x", "times": "3"}),
    ("echo", {"text": "x", "times": 5000}),
    ("refuse", {}),
    ("crash", {}),
    ("choose", {}),
    ("count", {"steps": 2}),
    ("no_such_tool", {}),
    ("", {}),
]


@asynccontextmanager
async def in_memory() -> AsyncIterator[AskServer]:
    talk = protocol(ExampleTools()).connect()

    async def ask(message: dict[str, Any]) -> dict[str, Any]:
        return dict(as_json(await talk.answer(as_json(message))))

    yield ask


@asynccontextmanager
async def over_stdio() -> AsyncIterator[AskServer]:
    async with wired() as wire:
        yield wire.ask


@asynccontextmanager
async def over_http() -> AsyncIterator[AskServer]:
    async with served() as server:

        async def ask(message: dict[str, Any]) -> dict[str, Any]:
            stateless = "io.modelcontextprotocol/protocolVersion" in message["params"].get("_meta", {})
            reply = await (server.ask_stateless(message) if stateless else server.post(message))
            return dict(reply.json())

        yield ask


@asynccontextmanager
async def all_ways() -> AsyncIterator[list[AskServer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(way()) for way in (in_memory, over_stdio, over_http)]


async def compare(ways: list[AskServer], message: dict[str, Any]) -> dict[str, Any]:
    expected, *others = await asyncio.gather(*(ask(message) for ask in ways))
    assert all(reply == expected for reply in others), (expected, others)
    return expected


@proves("mcp.same-replies")
@pytest.mark.parametrize("meta", [{}, META], ids=["handshake", "stateless"])
async def test_every_call_has_the_same_reply_on_every_way(meta: dict[str, Any]) -> None:
    async with all_ways() as ways:
        for number, (tool, arguments) in enumerate(CALLS):
            reply = await compare(ways, call(number, tool, arguments, _meta=meta))
            assert "result" in reply


@proves("mcp.same-replies")
async def test_lists_and_introductions_are_the_same_on_every_way() -> None:
    async with all_ways() as ways:
        for message in (
            initialize(),
            initialize("2024-11-05"),
            initialize("2099-01-01"),
            request(1, "tools/list"),
            request(2, "tools/list", _meta=META),
            request(3, "server/discover", _meta=META),
            request(4, "ping"),
        ):
            assert "result" in await compare(ways, message)


@proves("mcp.same-replies", "mcp.errors")
async def test_protocol_errors_have_the_same_code_on_every_way() -> None:
    async with all_ways() as ways:
        for message in (
            request(1, "no/such/method"),
            request(2, "no/such/method", _meta=META),
            request(3, "ping", _meta=META),
            call(4, "echo", "text", _meta=META),
            call(5, "choose", _meta=ASKABLE, requestState="forged"),
        ):
            codes = [reply["error"]["code"] for reply in await asyncio.gather(*(ask(message) for ask in ways))]
            assert len(set(codes)) == 1, codes


@proves("mcp.same-replies", "mcp.input-required")
async def test_a_question_is_the_same_on_every_way_and_its_state_is_good_on_all_of_them() -> None:
    async with all_ways() as ways:
        asked = [(await ask(call(1, "choose", _meta=ASKABLE)))["result"] for ask in ways]
        assert all(one["inputRequests"] == asked[0]["inputRequests"] for one in asked)

        answer = {"person": {"action": "accept", "content": {"answer": "warm"}}}
        states = [one["requestState"] for one in reversed(asked)]
        retried = [call(2, "choose", _meta=ASKABLE, requestState=state, inputResponses=answer) for state in states]
        replies = [await ask(message) for ask, message in zip(ways, retried, strict=True)]
        assert all(reply == replies[0] for reply in replies), replies
        assert "warm" in replies[0]["result"]["content"][0]["text"]
