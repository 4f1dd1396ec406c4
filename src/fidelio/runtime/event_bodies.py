"""Events of runtime sessions for readers: texts that are stored apart from their event are put back into its body.

A page of events stays small because a long text is only referred to. Whoever shows an event needs the text itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.ledger import Ledger
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event

# Keys of bodies whose value is a stored text; the text of the first two is JSON.
_JSON_TEXTS = ("input", "result")
_TEXTS = ("text", "summary_text")


async def load_body(ledger: Ledger, event: Event) -> dict[str, Any]:
    """The body of an event with its texts: `content` as blocks, `input` and `result` as values. Images have no data."""
    body = event.body
    for key in _JSON_TEXTS:
        if _is_stored(body.get(key)):
            body[key] = _decode(await load_text(ledger, body[key]))
    for key in _TEXTS:
        if _is_stored(body.get(key)):
            body[key] = await load_text(ledger, body[key])
    if isinstance(body.get("content"), list):
        body["content"] = [await _load_block(ledger, block) for block in body["content"] if isinstance(block, dict)]
    return body


def join_content(body: dict[str, Any]) -> str:
    """The texts of a message; an image is named by its type."""
    blocks = body.get("content") or ()
    return "\n".join(block.get("text") or f"({block.get('media_type', 'image')})" for block in blocks)


async def _load_block(ledger: Ledger, block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "image":
        return {"type": "image", "media_type": (block.get("source") or {}).get("media_type", "image")}
    text = await load_text(ledger, block["stored"]) if "stored" in block else block.get("text", "")
    return {"type": "text", "text": text}


def _is_stored(value: Any) -> bool:
    return isinstance(value, dict) and "text" in value and "size" in value


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
