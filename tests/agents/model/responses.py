"""OpenAI Responses: what Codex speaks. It offers the tools of an MCP server as one namespace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.agents.model.parts import ApiAnswer, Heard, Json, ModelText, ModelTool, Refuse, Seen, event, texts

_numbers = count(1)


def read(body: Json) -> Heard:
    given = body.get("input", [])
    items: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return Heard(
        wire="responses",
        body=body,
        system="\n".join([body.get("instructions") or "", *_texts_of("developer", items)]),
        said=tuple(_texts_of("user", items)),
        seen=tuple(_seen(item["output"]) for item in items if item.get("type", "").endswith("_call_output")),
        tools=tuple(tool for offered in body.get("tools", []) for tool in _tools(offered)),
    )


def stream(answer: ApiAnswer, body: Json) -> Iterator[str]:
    response = whole(answer, body)
    (item,) = response["output"]
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", sequence_number=0, response=begun)
    yield event("response.output_item.added", sequence_number=1, output_index=0, item={**item, "status": "in_progress"})
    yield _delta(item)
    yield event("response.output_item.done", sequence_number=3, output_index=0, item=item)
    yield event("response.completed", sequence_number=4, response=response)


def whole(answer: ApiAnswer, body: Json) -> Json:
    spent = answer.spent
    usage = {
        "input_tokens": spent.heard,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spent.said,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": spent.heard + spent.said,
    }
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": body["model"],
        "output": [_item(answer)],
        "usage": usage,
    }


def refusal(refuse: Refuse) -> Json:
    return {"error": {"type": "invalid_request_error", "message": refuse.sentence, "code": None, "param": None}}


def _texts_of(role: str, items: list[Json]) -> Iterator[str]:
    return (text for item in items if item.get("role") == role for text in texts(item.get("content")))


def _item(answer: ApiAnswer) -> Json:
    number = next(_numbers)
    if isinstance(answer, ModelText):
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
    namespace = {"namespace": answer.tool.namespace} if answer.tool.namespace else {}
    arguments = {"name": answer.tool.name, "arguments": json.dumps(answer.arguments)}
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": answer.id,
        "status": "completed",
        **namespace,
        **arguments,
    }


def _delta(item: Json) -> str:
    place = {"sequence_number": 2, "item_id": item["id"], "output_index": 0}
    if item["type"] == "message":
        return event("response.output_text.delta", **place, content_index=0, delta=item["content"][0]["text"])
    return event("response.function_call_arguments.delta", **place, delta=item["arguments"])


def _tools(offered: Json) -> Iterator[ModelTool]:
    if offered["type"] == "namespace":
        yield from (ModelTool(inner["name"], offered["name"]) for inner in offered["tools"])
    elif offered["type"] == "function":
        yield ModelTool(offered["name"])


def _seen(output: Any) -> Seen:
    return Seen("\n".join(texts(output)))
