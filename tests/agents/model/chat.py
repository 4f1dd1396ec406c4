"""OpenAI chat completions: what OpenCode and Qwen Code speak."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

from tests.agents.model.parts import ApiAnswer, Heard, Json, ModelText, ModelTool, Refuse, Seen, data, texts

_numbers = count(1)


def read(body: Json) -> Heard:
    messages = body.get("messages", [])

    def of(*roles: str) -> tuple[str, ...]:
        return tuple(text for message in messages if message["role"] in roles for text in texts(message.get("content")))

    results = [message for message in messages if message["role"] == "tool"]
    return Heard(
        wire="chat",
        body=body,
        system="\n".join(of("system", "developer")),
        said=of("user"),
        seen=tuple(Seen("\n".join(texts(message["content"]))) for message in results),
        tools=tuple(ModelTool(tool["function"]["name"]) for tool in body.get("tools") or [] if tool["type"] == "function"),
    )


def stream(answer: ApiAnswer, body: Json) -> Iterator[str]:
    completion = whole(answer, body)
    (choice,) = completion["choices"]
    common = {**completion, "object": "chat.completion.chunk", "usage": None}
    yield data({**common, "choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}]})
    yield data({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield data({**common, "choices": [], "usage": completion["usage"]})
    yield "data: [DONE]\n\n"


def whole(answer: ApiAnswer, body: Json) -> Json:
    finish = "stop" if isinstance(answer, ModelText) else "tool_calls"
    spent = answer.spent
    return {
        "id": f"chatcmpl-{next(_numbers)}",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": _message(answer), "finish_reason": finish}],
        "usage": {
            "prompt_tokens": spent.heard,
            "completion_tokens": spent.said,
            "total_tokens": spent.heard + spent.said,
        },
    }


def refusal(refuse: Refuse) -> Json:
    return {"error": {"type": "invalid_request_error", "message": refuse.sentence, "code": None, "param": None}}


def _message(answer: ApiAnswer) -> Json:
    if isinstance(answer, ModelText):
        return {"role": "assistant", "content": answer.text}
    function = {"name": answer.tool.name, "arguments": json.dumps(answer.arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"index": 0, "id": answer.id, "type": "function", "function": function}],
    }
