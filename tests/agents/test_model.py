"""The scripted model itself, called as agents call it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.agents.model import Held, ModelCall, ModelText, Refuse, Spent, scripted_model
from tests.support import proves

Json = dict[str, Any]

ANTHROPIC = {"tools": [{"name": "mcp__fidelio__add"}], "messages": [{"role": "user", "content": "Add."}]}
RESPONSES = {
    "tools": [{"type": "namespace", "name": "mcp__fidelio", "tools": [{"type": "function", "name": "add"}]}],
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Add."}]}],
}
CHAT = {
    "tools": [{"type": "function", "function": {"name": "fidelio_add"}}],
    "messages": [{"role": "user", "content": "Add."}],
}
GEMINI = {
    "tools": [{"functionDeclarations": [{"name": "mcp_fidelio_add"}]}],
    "contents": [{"role": "user", "parts": [{"text": "Add."}]}],
}
WIRES: dict[str, Json] = {
    "/v1/messages": ANTHROPIC,
    "/v1/responses": RESPONSES,
    "/v1/chat/completions": CHAT,
    "/v1beta/models/m:streamGenerateContent": GEMINI,
}
each_wire = pytest.mark.parametrize("path", WIRES)


async def post(address: str, path: str, **more: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=address, timeout=20, trust_env=False) as client:
        return await client.post(path, json={"model": "m", "stream": True, **WIRES.get(path, GEMINI), **more})


def events(response: httpx2.Response) -> list[Json]:
    """The data of a stream, with the mark at the end of a chat left out."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def uses(path: str, said: list[Json]) -> tuple[str, Json]:
    """The name and the arguments of the call, where this interface puts them."""
    find: dict[str, Callable[[], tuple[str, Any]]] = {
        "/v1/messages": lambda: (said[1]["content_block"]["name"], said[2]["delta"]["partial_json"]),
        "/v1/responses": lambda: (
            said[3]["item"]["namespace"] + "." + said[3]["item"]["name"],
            said[3]["item"]["arguments"],
        ),
        "/v1/chat/completions": lambda: tuple(said[0]["choices"][0]["delta"]["tool_calls"][0]["function"].values()),
        "/v1beta/models/m:streamGenerateContent": lambda: (
            said[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["name"],
            said[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["args"],
        ),
    }
    name, arguments = find[path]()
    return name, json.loads(arguments) if isinstance(arguments, str) else arguments


@proves("agents.model")
@each_wire
async def test_a_scripted_call_names_the_tool_as_it_was_offered(path: str) -> None:
    async with scripted_model([ModelCall("fidelio__add" if path == "/v1/responses" else "add", {"a": 1})]) as model:
        name, arguments = uses(path, events(await post(model.address, path)))

    offered = {
        "/v1/messages": "mcp__fidelio__add",
        "/v1/responses": "mcp__fidelio.add",
        "/v1/chat/completions": "fidelio_add",
        "/v1beta/models/m:streamGenerateContent": "mcp_fidelio_add",
    }
    assert (name, arguments) == (offered[path], {"a": 1})
    assert [(heard.said, len(heard.tools)) for heard in model.heard] == [(("Add.",), 1)]


@proves("agents.model")
@each_wire
async def test_a_text_comes_with_what_it_has_cost(path: str) -> None:
    async with scripted_model([ModelText("Three.", Spent(heard=70, said=7))]) as model:
        answer = (await post(model.address, path)).text

    assert "Three." in answer
    assert all(f": {number}" in answer for number in (70, 7))


@proves("agents.model")
async def test_a_request_on_the_side_takes_nothing_from_the_script() -> None:
    async with scripted_model([ModelText("Three.")]) as model:
        title = (await post(model.address, "/v1/messages", tools=[])).text
        answer = (await post(model.address, "/v1/messages")).text

    assert ("Three." in title, "Three." in answer) == (False, True)
    assert (len(model.asides), len(model.heard)) == (1, 1)


@proves("agents.model")
async def test_an_answer_is_held_until_it_is_released() -> None:
    held = Held(ModelText("At last."))
    async with scripted_model([held]) as model:
        asking = asyncio.create_task(post(model.address, "/v1/chat/completions"))
        async with asyncio.timeout(20):
            await held.reached.wait()
        assert not asking.done()
        held.release()
        assert "At last." in (await asking).text


@proves("agents.model")
async def test_the_end_releases_requests_that_still_wait() -> None:
    held = Held(ModelText("Never."))
    async with scripted_model([held]) as model:
        asking = asyncio.create_task(post(model.address, "/v1/responses"))
        async with asyncio.timeout(20):
            await held.reached.wait()

    assert (await asking).status_code == 503


@proves("agents.model")
@each_wire
async def test_a_model_can_refuse(path: str) -> None:
    async with scripted_model([Refuse(401, "No such key.")]) as model:
        answer = await post(model.address, path)

    assert (answer.status_code, answer.json()["error"]["message"]) == (401, "No such key.")


@proves("agents.model")
async def test_what_was_not_asked_for_as_a_stream_is_answered_whole() -> None:
    async with scripted_model([ModelText("Whole.")] * 2) as model:
        chat = await post(model.address, "/v1/chat/completions", stream=False)
        gemini = await post(model.address, "/v1beta/models/m:generateContent", stream=False)

    assert chat.json()["choices"][0]["message"]["content"] == "Whole."
    assert gemini.json()["candidates"][0]["content"]["parts"] == [{"text": "Whole."}]


@proves("agents.model")
async def test_a_call_of_a_tool_that_is_not_there_says_which_are() -> None:
    async with scripted_model([ModelCall("subtract")]) as model:
        answer = (await post(model.address, "/v1/messages")).text

    assert "only ['mcp__fidelio__add']" in answer


@proves("agents.offline")
async def test_a_request_that_no_model_api_has_is_recorded_as_a_stray() -> None:
    async with scripted_model([]) as model:
        assert (await post(model.address, "/telemetry")).status_code == 404

    assert model.strays == ["POST /telemetry"]
