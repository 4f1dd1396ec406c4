"""Replies of the three HTTP APIs: text, tool calls, reasoning, stop reasons and usage are the same values for each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fidelio.providers.model import ModelProblem, ModelReply, TextBlock, ThinkingBlock, TokenUsage, ToolUseBlock
from fidelio.providers.registry import open_providers
from tests.providers.apis import CHAT, MESSAGES, RESPONSES, Api, every_api
from tests.providers.requests import WEATHER, ask, assistant, complete
from tests.providers.servers import ApiReply, Raw, Refuse, ScriptedCall
from tests.support import proves


async def reply_of(api: Api, step: ApiReply | Raw) -> tuple[ModelReply, list[str]]:
    async with api.serve(step) as (provider, _):
        return await complete(provider, ask("Hello", tools=(WEATHER,)))


def stream(*events: dict[str, Any]) -> Raw:
    return Raw(b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events))


@proves("providers.replies")
@every_api
async def test_a_text_is_streamed_and_counted(api: Api) -> None:
    reply, pieces = await reply_of(api, ApiReply("A text in several pieces: äöü 🎼."))

    assert reply.content == (TextBlock("A text in several pieces: äöü 🎼."),)
    assert "".join(pieces) == reply.text
    assert len(pieces) > 3
    assert (reply.stop_reason, reply.model) == ("end_turn", "served-model")
    assert reply.usage == TokenUsage(input_tokens=60, output_tokens=7, cache_read_tokens=40)
    assert reply.usage.context_tokens == 100


@proves("providers.replies")
@every_api
async def test_parallel_tool_calls_arrive_in_order_with_their_ids(api: Api) -> None:
    calls = (
        ScriptedCall("weather", {"place": "Rome"}, "a1"),
        ScriptedCall("weather", {"place": "Oslo", "n": [1, {"x": None}]}, "b2"),
    )

    reply, _ = await reply_of(api, ApiReply("I look.", calls))

    assert reply.content == (
        TextBlock("I look."),
        ToolUseBlock("a1", "weather", {"place": "Rome"}),
        ToolUseBlock("b2", "weather", {"place": "Oslo", "n": [1, {"x": None}]}),
    )
    assert reply.stop_reason == "tool_use"


@proves("providers.malformed-calls")
@every_api
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"place": "Ro', "not valid JSON"),
        ("[1]", "not an object"),
        ('"text"', "not an object"),
        ("[" * 5_000, "not valid JSON"),
    ],
    ids=["cut", "list", "text", "deep"],
)
async def test_a_malformed_tool_call_is_a_problem_of_that_call_alone(api: Api, arguments: str, problem: str) -> None:
    reply, _ = await reply_of(
        api, ApiReply("", (ScriptedCall("weather", arguments, "a1"), ScriptedCall("weather", {"place": "Oslo"}, "b2")))
    )

    broken, fine = reply.tool_uses
    assert problem in broken.problem
    assert (broken.id, broken.name, broken.input) == ("a1", "weather", {})
    assert (fine.input, fine.problem) == ({"place": "Oslo"}, "")


@proves("providers.malformed-calls")
@every_api
async def test_a_call_without_arguments_has_an_empty_input(api: Api) -> None:
    reply, _ = await reply_of(api, ApiReply("", (ScriptedCall("weather", ""),)))

    assert reply.tool_uses == (ToolUseBlock("call_1", "weather", {}),)


@proves("providers.replies")
@pytest.mark.parametrize(
    ("api", "stop", "expected"),
    [
        (MESSAGES, "max_tokens", "max_tokens"),
        (MESSAGES, "stop_sequence", "end_turn"),
        (MESSAGES, "refusal", "refusal"),
        (MESSAGES, "model_context_window_exceeded", "context_too_long"),
        (MESSAGES, "something_new", "end_turn"),
        (RESPONSES, "max_output_tokens", "max_tokens"),
        (RESPONSES, "content_filter", "refusal"),
        (CHAT, "length", "max_tokens"),
        (CHAT, "content_filter", "refusal"),
        (CHAT, "something_new", "end_turn"),
    ],
)
async def test_the_stop_reasons_of_the_vendors_are_translated(api: Api, stop: str, expected: str) -> None:
    reply, _ = await reply_of(api, ApiReply("Text", stop=stop))

    assert (reply.stop_reason, reply.text) == (expected, "Text")


@proves("providers.replies")
@pytest.mark.parametrize("api", [RESPONSES, CHAT], ids=["openai", "chat"])
async def test_a_refusal_is_a_stop_reason_with_its_text(api: Api) -> None:
    reply, pieces = await reply_of(api, ApiReply(refusal="I cannot help with that."))

    assert (reply.stop_reason, reply.text) == ("refusal", "I cannot help with that.")
    assert "".join(pieces) == reply.text


@proves("providers.replies")
@every_api
async def test_usage_that_a_server_does_not_report_is_estimated(api: Api) -> None:
    reply, _ = await reply_of(api, ApiReply("x" * 40, has_usage=False))

    assert reply.usage.output_tokens == 10
    assert reply.usage.input_tokens > 10


@proves("providers.reasoning")
@pytest.mark.parametrize("api", [MESSAGES, RESPONSES], ids=["anthropic", "openai"])
async def test_reasoning_goes_back_unchanged_to_its_vendor_and_to_no_other(api: Api) -> None:
    first, _ = await reply_of(api, ApiReply("Text", thinking="Let me see."))
    thought = first.content[0]
    assert isinstance(thought, ThinkingBlock)
    assert thought.text == "Let me see."
    conversation = ask("Hello", assistant(*first.content), "On")

    bodies = {}
    for other in (MESSAGES, RESPONSES, CHAT):
        async with other.serve(ApiReply("Ok")) as (provider, server):
            await complete(provider, conversation)
            bodies[other.provider.name] = msgspec.json.encode(server.requests[0]).decode()

    sealed = {
        "anthropic": '{"type":"thinking","thinking":"Let me see.","signature":"signed=="}',
        "openai": '"encrypted_content":"sealed=="',
    }
    name = api.provider.name
    assert sealed[name] in bodies.pop(name)
    assert not any("Let me see" in body or "==" in body for body in bodies.values())


@proves("providers.reasoning")
async def test_reasoning_that_the_vendor_has_encrypted_is_kept_whole() -> None:
    step = stream(
        {"type": "message_start", "message": {"model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "sealed"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    async with MESSAGES.serve(step, ApiReply("Ok")) as (provider, server):
        first, _ = await complete(provider, ask("Hello"))
        await complete(provider, ask("Hello", assistant(*first.content)))

        assert server.requests[1]["messages"][1]["content"] == [{"type": "redacted_thinking", "data": "sealed"}]


@proves("providers.streams")
async def test_unknown_events_and_blocks_are_ignored() -> None:
    messages = stream(
        {"type": "novelty", "delta": 7, "index": "x"},
        {"type": "message_start", "message": {"model": "m", "novel": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "novel_block", "x": 1}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "novel_delta"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    responses = stream(
        {"type": "response.novelty", "delta": {"a": 1}},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "novel_call"}},
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
        },
        {"type": "response.completed", "response": {"output": []}},
    )
    chat = Raw(b': comment\n\ndata: {"choices":[{"delta":{"content":"Hi","novel":{}},"finish_reason":"stop"}],"x":1}\n\n')

    for api, step in ((MESSAGES, messages), (RESPONSES, responses), (CHAT, chat)):
        reply, pieces = await reply_of(api, step)
        assert (reply.content, pieces) == ((TextBlock("Hi"),), ["Hi"])


@proves("providers.streams")
@pytest.mark.parametrize(
    ("api", "event", "kind", "retryable"),
    [
        (MESSAGES, {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, "model_overloaded_error", True),
        (MESSAGES, {"type": "error", "error": {"type": "rate_limit_error"}}, "model_rate_limited_error", True),
        (MESSAGES, {"type": "error", "error": {"type": "invalid_request_error"}}, "model_request_failed_error", False),
        (MESSAGES, {"type": "error"}, "model_request_failed_error", True),
        (RESPONSES, {"type": "error", "code": "rate_limit_exceeded", "message": "Slow"}, "model_rate_limited_error", True),
        (
            RESPONSES,
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Oh"}}},
            "model_request_failed_error",
            True,
        ),
        (
            RESPONSES,
            {"type": "error", "error": {"code": "context_length_exceeded", "message": "Too long"}},
            "context_too_long_error",
            False,
        ),
        (CHAT, {"error": {"code": 429, "message": "Slow"}}, "model_rate_limited_error", True),
        (CHAT, {"error": "It broke"}, "model_request_failed_error", True),
    ],
)
async def test_an_error_inside_a_stream_is_classified_like_a_status(
    api: Api, event: dict[str, Any], kind: str, retryable: bool
) -> None:
    with pytest.raises(ModelProblem) as caught:
        await reply_of(api, stream(event))

    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


@proves("providers.replies")
@pytest.mark.parametrize(
    "deltas",
    [
        # Whole calls with an index each; without indexes; with the same index; without ids; with an object instead of text.
        [[{"index": i, "id": f"c{i}", "function": {"name": "f", "arguments": f'{{"n":{i}}}'}}] for i in (0, 1)],
        [[{"id": f"c{i}", "function": {"name": "f", "arguments": f'{{"n":{i}}}'}}] for i in (0, 1)],
        [[{"index": 0, "id": f"c{i}", "function": {"name": "f", "arguments": f'{{"n":{i}}}'}}] for i in (0, 1)],
        [[{"function": {"name": "f", "arguments": f'{{"n":{i}}}'}}] for i in (0, 1)],
        [[{"index": i, "id": f"c{i}", "function": {"name": "f", "arguments": {"n": i}}} for i in (0, 1)]],
        # In parts that repeat the id.
        [
            [{"index": i, "id": f"c{i}", "function": {"name": "f", "arguments": '{"n"'}} for i in (0, 1)],
            [{"index": i, "id": f"c{i}", "function": {"arguments": f":{i}}}"}} for i in (0, 1)],
        ],
    ],
    ids=["usual", "no-index", "same-index", "no-id", "object", "parts"],
)
async def test_the_dialects_of_chat_servers_give_the_same_calls(deltas: list[list[dict[str, Any]]]) -> None:
    chunks = [{"choices": [{"delta": {"tool_calls": calls}}]} for calls in deltas]

    reply, _ = await reply_of(CHAT, stream(*chunks, {"choices": [{"delta": {}, "finish_reason": "stop"}]}))

    assert [(call.name, call.input) for call in reply.tool_uses] == [("f", {"n": 0}), ("f", {"n": 1})]
    assert len({call.id for call in reply.tool_uses}) == 2
    assert all(call.id for call in reply.tool_uses)
    assert reply.stop_reason == "tool_use"


@proves("providers.keys")
@pytest.mark.parametrize(
    ("model_id", "variable"),
    [("claude-x", "ANTHROPIC_API_KEY"), ("gpt-x", "OPENAI_API_KEY"), ("chat/x", "FIDELIO_CHAT_BASE_URL")],
)
async def test_a_missing_key_or_address_is_an_error_of_the_first_request(model_id: str, variable: str) -> None:
    provider, model = open_providers({"ANTHROPIC_API_KEY": "  "}).find(model_id)

    with pytest.raises(ModelProblem) as caught:
        await complete(provider, ask("Hello", model=model))

    assert f"Set {variable}" in str(caught.value.remedy)
    assert not caught.value.retryable


@proves("providers.keys")
async def test_a_token_replaces_the_key_of_anthropic_and_a_chat_server_needs_none() -> None:
    async with MESSAGES.serve(ApiReply("Ok"), ApiReply("Ok")) as (provider, server):
        token = MESSAGES.provider({"ANTHROPIC_BASE_URL": f"{server.address}/v1/", "ANTHROPIC_AUTH_TOKEN": "token-1"})
        await complete(token, ask("Hello"))
        await complete(provider, ask("Hello"))
        await token.close()
        assert server.headers[0]["authorization"] == "Bearer token-1"
        assert "x-api-key" not in server.headers[0]
        assert "authorization" not in server.headers[1]
        assert server.headers[1]["anthropic-version"] == "2023-06-01"
    async with CHAT.serve(ApiReply("Ok")) as (_, server):
        open_ = CHAT.provider({"FIDELIO_CHAT_BASE_URL": f"{server.address}/v1"})
        await complete(open_, ask("Hello"))
        await open_.close()
        assert "authorization" not in server.headers[0]


@proves("providers.secrets")
async def test_a_redirect_to_another_server_gets_no_request() -> None:
    async with MESSAGES.serve(ApiReply("Stolen")) as (_, thief):
        step = Refuse(307, headers={"location": f"{thief.address}/v1/messages"})
        async with MESSAGES.serve(step) as (provider, _):
            with pytest.raises(ModelProblem):
                await complete(provider, ask("Hello"))
        assert thief.requests == []
