"""Anthropic Messages: what Claude Code speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

from tests.agents.model.parts import ApiAnswer, Heard, Json, ModelText, ModelTool, Refuse, Seen, event, texts

_numbers = count(1)


def read(body: Json) -> Heard:
    messages = body.get("messages", [])
    users = [message["content"] for message in messages if message["role"] == "user"]
    results = [part for content in users if isinstance(content, list) for part in content if part["type"] == "tool_result"]
    return Heard(
        wire="anthropic",
        body=body,
        system="\n".join(texts(body.get("system"))),
        said=tuple(text for content in users for text in texts(content)),
        seen=tuple(Seen("\n".join(texts(part.get("content"))), bool(part.get("is_error"))) for part in results),
        tools=tuple(ModelTool(tool["name"]) for tool in body.get("tools", [])),
    )


def stream(answer: ApiAnswer, body: Json) -> Iterator[str]:
    """One message with one block, in the pieces in which a real model sends it."""
    whole_message = whole(answer, body)
    (block,) = whole_message["content"]
    yield event("message_start", message={**whole_message, "content": [], "stop_reason": None})
    yield event("content_block_start", index=0, content_block=_empty(block))
    yield event("content_block_delta", index=0, delta=_delta(block))
    yield event("content_block_stop", index=0)
    stop = {"stop_reason": whole_message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=stop, usage=whole_message["usage"])
    yield event("message_stop")


def whole(answer: ApiAnswer, body: Json) -> Json:
    return {
        "id": f"msg_{next(_numbers)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [_block(answer)],
        "stop_reason": "end_turn" if isinstance(answer, ModelText) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": answer.spent.heard, "output_tokens": answer.spent.said},
    }


def refusal(refuse: Refuse) -> Json:
    kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
    kind = kinds.get(refuse.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": refuse.sentence}}


def _block(answer: ApiAnswer) -> Json:
    if isinstance(answer, ModelText):
        return {"type": "text", "text": answer.text}
    return {"type": "tool_use", "id": answer.id, "name": answer.tool.name, "input": answer.arguments}


def _empty(block: Json) -> Json:
    return {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}


def _delta(block: Json) -> Json:
    if block["type"] == "text":
        return {"type": "text_delta", "text": block["text"]}
    return {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
