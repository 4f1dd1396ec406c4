"""Content of messages: validated when it is sent, and stored so that no event grows beyond what can be read in pages."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fidelio.errors import UsageProblem
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import BEGINNING, INLINE, StoredText, sanitize_text, store_text

MAX_BLOCKS = 100
MAX_TEXT = 2_000_000
MAX_IMAGE = 5_000_000
# Characters of short texts that stay in an event: many of them together would not fit into it.
MAX_INLINE = 40_000
# What only the runtime or the model itself may write: the notes of a wake, a directive, the marks of a system message.
_TAG = re.compile(r"<(?=\s*/?\s*(?:runtime-notes|fidelio-loop|system-message)\b)", re.IGNORECASE)
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
# How the bytes of an image begin, and the most characters of base64 that every vendor takes.
_SIGNATURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
MAX_RESULT_IMAGE = 5_000_000


class StoredContent(msgspec.Struct, frozen=True):
    """Content for the body of an event, with the blobs that it refers to."""

    content: list[dict[str, Any]]
    digests: tuple[str, ...] = ()
    blobs: tuple[bytes, ...] = ()


def check_content(value: Any, where: str) -> list[dict[str, Any]]:
    """Validate the content of a message: a text, or a list of text and image blocks."""
    blocks = [{"type": "text", "text": value}] if isinstance(value, str) else value
    if not isinstance(blocks, list) or not blocks or len(blocks) > MAX_BLOCKS:
        raise UsageProblem(f"{where} has no content.", remedy=f"Pass a text, or 1 to {MAX_BLOCKS} blocks.")
    return [_check_block(block, f"{where}, block {number}") for number, block in enumerate(blocks, 1)]


def _check_block(block: Any, where: str) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind == "text" and isinstance(block.get("text"), str):
        text = sanitize_text(block["text"])
        if not text.strip():
            raise UsageProblem(f"{where} is an empty text.", remedy="Leave it out, or write something.")
        if len(text) > MAX_TEXT:
            raise UsageProblem(f"{where} has {len(text):,} characters.", remedy=f"Use up to {MAX_TEXT:,}, or send a file.")
        return {"type": "text", "text": text}
    if kind == "image":
        return {"type": "image", "source": _check_image(block.get("source"), where)}
    raise UsageProblem(f"{where} is neither text nor image.", remedy='Use {"type": "text", "text": "..."}.')


def read_image(data: str, media_type: str) -> dict[str, Any] | None:
    """An image that a tool returned, as a block; None if a model could refuse it, and every later request with it."""
    try:
        source = _check_image({"type": "base64", "media_type": media_type, "data": data}, "The image")
    except UsageProblem:
        return None
    head = base64.b64decode(data[:32] + "=" * (-len(data[:32]) % 4))
    is_known = _SIGNATURES[media_type].match(head) is not None and len(data) <= MAX_RESULT_IMAGE
    return {"type": "image", "source": source} if is_known else None


def _check_image(source: Any, where: str) -> dict[str, str]:
    data = source.get("data") if isinstance(source, Mapping) else None
    if not isinstance(data, str) or source.get("type") != "base64" or source.get("media_type") not in IMAGES:
        raise UsageProblem(f"{where} is no image.", remedy=f"Use base64 data of one of: {', '.join(IMAGES)}.")
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UsageProblem(f"{where} is not valid base64.", remedy="Encode the bytes of the image.") from error
    if size > MAX_IMAGE:
        raise UsageProblem(f"{where} has {size:,} bytes.", remedy=f"Use images of up to {MAX_IMAGE:,} bytes.")
    return {"type": "base64", "media_type": source["media_type"], "data": data}


def store_content(blocks: Iterable[Mapping[str, Any]]) -> StoredContent:
    """Prepare content for an event: long texts and images become blobs."""
    content: list[dict[str, Any]] = []
    digests: list[str] = []
    blobs: list[bytes] = []
    room = MAX_INLINE
    for block in blocks:
        if block["type"] == "image":
            stored = store_text(block["source"]["data"])
            content.append({"type": "image", "source": {"media_type": block["source"]["media_type"], "stored": stored.body}})
        elif len(block["text"]) <= min(INLINE, room):
            content.append({"type": "text", "text": block["text"]})
            room -= len(block["text"])
            continue
        else:
            stored = _store_apart(block["text"])
            content.append({"type": "text", "stored": stored.body})
        digests += stored.digests
        blobs += stored.blobs
    return StoredContent(content, tuple(digests), tuple(blobs))


def _store_apart(text: str) -> StoredText:
    """Store a text as a blob, also if it is short."""
    if len(text) > INLINE:
        return store_text(text)
    whole = sanitize_text(text).encode()
    digest = hash_blob(whole)
    return StoredText({"text": text[:BEGINNING], "blob": digest, "size": len(text)}, (digest,), (whole,))


def join_texts(content: Iterable[Mapping[str, Any]]) -> str:
    """The texts of checked or stored content, for cues and previews: of a long text the beginning."""
    return "\n".join(
        block.get("text") or block.get("stored", {}).get("text", "") for block in content if block["type"] == "text"
    )


def escape_tags(text: str) -> str:
    """A text that was received, in which nothing looks like notes of the runtime or a directive."""
    return _TAG.sub("&lt;", text)


def escape_json_tags(text: str) -> str:
    """The same for JSON, whose values stay the same."""
    return _TAG.sub(r"\\u003c", text)
