"""Gemini generateContent and streamGenerateContent: what Gemini CLI speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.agents.model.parts import ApiAnswer, Heard, Json, ModelText, ModelTool, Refuse, Seen, data, texts


def read(body: Json) -> Heard:
    parts = [
        part for content in body.get("contents", []) if content.get("role", "user") != "model" for part in content["parts"]
    ]
    results = [part["functionResponse"] for part in parts if "functionResponse" in part]
    declared = [tool for group in body.get("tools", []) for tool in group.get("functionDeclarations", [])]
    return Heard(
        wire="gemini",
        body=body,
        system="\n".join(texts((body.get("systemInstruction") or {}).get("parts"))),
        said=texts(parts),
        seen=tuple(_seen(result["response"]) for result in results),
        tools=tuple(ModelTool(tool["name"]) for tool in declared),
    )


def stream(answer: ApiAnswer, body: Json) -> Iterator[str]:
    yield data(whole(answer, body))


def whole(answer: ApiAnswer, body: Json) -> Json:
    spent = answer.spent
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [_part(answer)]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": spent.heard,
            "candidatesTokenCount": spent.said,
            "totalTokenCount": spent.heard + spent.said,
        },
        "modelVersion": body["model"],
    }


def refusal(refuse: Refuse) -> Json:
    return {"error": {"code": refuse.status, "message": refuse.sentence, "status": "INVALID_ARGUMENT"}}


def _part(answer: ApiAnswer) -> Json:
    if isinstance(answer, ModelText):
        return {"text": answer.text}
    return {"functionCall": {"id": answer.id, "name": answer.tool.name, "args": answer.arguments}}


def _seen(response: Json) -> Seen:
    """The result stands under `output`, the failure under `error`; what else there may be is shown as it is."""
    if "error" in response:
        return Seen(_text(response["error"]), is_error=True)
    return Seen(_text(response.get("output", response)))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
