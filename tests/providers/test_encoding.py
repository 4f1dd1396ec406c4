"""Requests as the vendors get them: every block arrives, in order, with the marks of the cache."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.providers import anthropic, chat, openai
from fidelio.providers.model import (
    ImageBlock,
    Message,
    ModelRequest,
    TextBlock,
    ThinkingBlock,
    ToolDeclaration,
    ToolResultBlock,
    ToolUseBlock,
)
from tests.providers.requests import WEATHER, ask, assistant, result, use, user
from tests.support import proves

MARK = {"cache_control": {"type": "ephemeral"}}
IMAGE = ImageBlock("image/png", "aW1hZ2U=")


def count_marks(value: Any) -> int:
    return msgspec.json.encode(value).decode().count('"cache_control"')


@proves("providers.caching")
def test_anthropic_gets_marks_on_the_system_text_the_last_tool_and_the_last_message() -> None:
    other = ToolDeclaration("other", "Another one.", {"type": "object"})
    request = ask("First", assistant(use("weather")), user(result("Sunny"), "<runtime-notes>"), tools=(WEATHER, other))

    body = anthropic.encode_request(request)

    assert body["system"] == [{"type": "text", "text": "Be brief.", **MARK}]
    assert body["tools"][1]["cache_control"] == MARK["cache_control"]
    assert body["messages"][-1]["content"][-1] == {"type": "text", "text": "<runtime-notes>", **MARK}
    assert count_marks(body) == 3


@proves("providers.caching")
def test_the_beginning_of_a_conversation_is_encoded_the_same_in_every_turn() -> None:
    first = ask("First", tools=(WEATHER,), conversation="s1")
    second = ask("First", assistant("Answer"), "Second", tools=(WEATHER,), conversation="s1")

    for encode, key in (
        (anthropic.encode_request, "messages"),
        (openai.encode_request, "input"),
        (chat.encode_request, "messages"),
    ):
        earlier, later = (encode(request) for request in (first, second))
        beginning = [_unmarked(item) for item in earlier.pop(key)]
        assert beginning == [_unmarked(item) for item in later.pop(key)][: len(beginning)]
        assert earlier == later


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


@proves("providers.caching")
def test_openai_gets_the_session_as_the_key_of_its_cache_and_stores_nothing() -> None:
    body = openai.encode_request(ask("Hello", conversation="s" * 100, max_tokens=1))

    assert (body["prompt_cache_key"], body["store"], body["max_output_tokens"]) == ("s" * 64, False, 16)
    assert "prompt_cache_key" not in openai.encode_request(ask("Hello"))


@proves("providers.reasoning")
@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("gpt-5", True),
        ("gpt-5.2-codex", True),
        ("o3", True),
        ("gpt-4.1", False),
        ("gpt-5-chat-latest", False),
        ("llama", False),
    ],
)
def test_encrypted_reasoning_is_requested_only_of_models_that_reason(model: str, asked: bool) -> None:
    assert ("include" in openai.encode_request(ask("Hello", model=model))) is asked


@proves("providers.requests")
def test_a_forced_tool_is_forced_in_the_words_of_each_vendor() -> None:
    request = ask("Hello", tools=(WEATHER,), force_tool="weather")

    assert anthropic.encode_request(request)["tool_choice"] == {"type": "tool", "name": "weather"}
    assert openai.encode_request(request)["tool_choice"] == {"type": "function", "name": "weather"}
    assert chat.encode_request(request)["tool_choice"] == {"type": "function", "function": {"name": "weather"}}


@proves("providers.requests")
def test_a_request_without_system_and_tools_has_no_empty_fields() -> None:
    request = ask("Hello", system="")

    for body in (anthropic.encode_request(request), openai.encode_request(request), chat.encode_request(request)):
        assert {"system", "instructions", "tools", "tool_choice", "parallel_tool_calls"}.isdisjoint(body)


@proves("providers.requests")
def test_images_of_the_user_and_of_a_tool_reach_each_vendor() -> None:
    request = ask(user("See", IMAGE), assistant(use("shot")), user(ToolResultBlock("t1", (TextBlock("Done"), IMAGE))))

    messages = anthropic.encode_request(request)["messages"]
    source = {"type": "base64", "media_type": "image/png", "data": "aW1hZ2U="}
    assert messages[0]["content"][1] == {"type": "image", "source": source}
    assert messages[2]["content"][0]["content"] == [{"type": "text", "text": "Done"}, {"type": "image", "source": source}]

    items = openai.encode_request(request)["input"]
    image = {"type": "input_image", "image_url": "data:image/png;base64,aW1hZ2U="}
    assert items[0]["content"] == [{"type": "input_text", "text": "See"}, image]
    assert items[2]["output"] == [{"type": "input_text", "text": "Done"}, image]

    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1hZ2U="}}
    encoded = chat.encode_request(request)["messages"][1:]
    assert encoded[0]["content"] == [{"type": "text", "text": "See"}, url]
    # A result has only text there, so the image follows it.
    assert encoded[2:] == [{"role": "tool", "tool_call_id": "t1", "content": "Done"}, {"role": "user", "content": [url]}]


@proves("providers.requests")
def test_the_error_of_a_tool_is_told_to_each_vendor() -> None:
    request = ask("Hello", assistant(use("weather")), user(result("No such place", is_error=True)))

    assert anthropic.encode_request(request)["messages"][2]["content"][0]["is_error"] is True
    assert openai.encode_request(request)["input"][2]["output"] == "Error:\nNo such place"
    assert chat.encode_request(request)["messages"][3]["content"] == "Error:\nNo such place"


@proves("providers.requests")
def test_results_come_before_texts_and_empty_texts_are_left_out_for_anthropic() -> None:
    request = ask("Hello", assistant(" ", use("weather")), user("Note", "", result("Sunny")), assistant(""), "Go on")

    messages = anthropic.encode_request(request)["messages"]

    assert [[block["type"] for block in message["content"]] for message in messages] == [
        ["text"],
        ["tool_use"],
        ["tool_result", "text"],
        ["text"],
    ]


names = st.sampled_from(["weather", "read", "write"])
texts = st.text(min_size=1).map(lambda text: f"t{text}")
blobs = st.binary(min_size=1, max_size=8).map(lambda data: ImageBlock("image/png", data.hex()))
inputs = st.dictionaries(st.text(max_size=5), st.none() | st.integers(-(2**53), 2**53) | st.text(), max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> ModelRequest:
    """Turns with texts, images, calls and their results."""
    messages: list[Message] = []
    for turn in range(draw(st.integers(1, 4))):
        calls = [ToolUseBlock(f"c{turn}-{number}", draw(names), draw(inputs)) for number in range(draw(st.integers(0, 3)))]
        contents = [tuple(draw(st.lists(texts.map(TextBlock) | blobs, min_size=1, max_size=3))) for _ in calls]
        results = [
            ToolResultBlock(call.id, content, draw(st.booleans())) for call, content in zip(calls, contents, strict=True)
        ]
        messages.append(user(*draw(st.lists(texts.map(TextBlock) | blobs, min_size=1, max_size=3))))
        messages.append(assistant(ThinkingBlock("Hm", "signed"), draw(texts), *calls))
        if results:
            messages.append(user(*results, *draw(st.lists(texts, max_size=1))))
    return ModelRequest(model="m", system=draw(st.text()), messages=tuple(messages))


@proves("providers.requests")
@given(conversations())
def test_every_block_of_a_conversation_reaches_each_vendor(request: ModelRequest) -> None:
    blocks = [block for message in request.messages for block in message.content]
    inner = [part for block in blocks if isinstance(block, ToolResultBlock) for part in block.content]
    said = sorted(block.text for block in (*blocks, *inner) if isinstance(block, TextBlock))
    images = sorted(block.data for block in (*blocks, *inner) if isinstance(block, ImageBlock))
    calls = [(block.id, block.name, block.input) for block in blocks if isinstance(block, ToolUseBlock)]
    answered = [block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock)]

    for decode in (decode_anthropic, decode_openai, decode_chat):
        found = decode(request)
        assert found["calls"] == calls
        assert found["results"] == answered
        assert sorted(found["images"]) == images
        # Texts may be joined, but none is lost or changed.
        assert all(text in "\n".join(found["texts"]) for text in said)


def decode_anthropic(request: ModelRequest) -> dict[str, list[Any]]:
    blocks = [block for message in anthropic.encode_request(request)["messages"] for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    every = [*blocks, *(part for block in results for part in block["content"])]
    return {
        "calls": [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        "results": [block["tool_use_id"] for block in results],
        "images": [block["source"]["data"] for block in every if block["type"] == "image"],
        "texts": [block["text"] for block in every if block["type"] == "text"],
    }


def decode_openai(request: ModelRequest) -> dict[str, list[Any]]:
    items = openai.encode_request(request)["input"]
    calls = [item for item in items if item["type"] == "function_call"]
    results = [item for item in items if item["type"] == "function_call_output"]
    outputs = [item["output"] for item in results]
    parts = [part for item in items for part in item.get("content", ())]
    parts += [part for output in outputs if isinstance(output, list) for part in output]
    return {
        "calls": [(item["call_id"], item["name"], msgspec.json.decode(item["arguments"])) for item in calls],
        "results": [item["call_id"] for item in results],
        "images": [part["image_url"].rpartition(",")[2] for part in parts if part["type"] == "input_image"],
        "texts": [part["text"] for part in parts if "text" in part] + [output for output in outputs if isinstance(output, str)],
    }


def decode_chat(request: ModelRequest) -> dict[str, list[Any]]:
    messages = chat.encode_request(request)["messages"]
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    contents = [message["content"] for message in messages if message["role"] != "system" and message["content"]]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return {
        "calls": [(call["id"], call["function"]["name"], msgspec.json.decode(call["function"]["arguments"])) for call in calls],
        "results": [message["tool_call_id"] for message in messages if message["role"] == "tool"],
        "images": [part["image_url"]["url"].rpartition(",")[2] for part in parts if part["type"] == "image_url"],
        "texts": [part["text"] for part in parts if "text" in part]
        + [content for content in contents if isinstance(content, str)],
    }


@proves("providers.effort")
@pytest.mark.parametrize(
    ("effort", "of_anthropic", "of_openai"),
    [
        ("", None, None),
        ("low", {"effort": "low"}, {"effort": "low"}),
        ("high", None, {"effort": "high"}),
        ("max", {"effort": "max"}, {"effort": "xhigh"}),
    ],
)
def test_an_effort_reaches_the_vendors_that_have_the_setting(effort: Any, of_anthropic: Any, of_openai: Any) -> None:
    request = msgspec.structs.replace(ask("First"), effort=effort)

    assert anthropic.encode_request(request).get("output_config") == of_anthropic
    assert openai.encode_request(msgspec.structs.replace(request, model="o3")).get("reasoning") == of_openai
    assert "reasoning" not in openai.encode_request(msgspec.structs.replace(request, model="gpt-4o"))
    assert chat.encode_request(request) == chat.encode_request(ask("First"))
