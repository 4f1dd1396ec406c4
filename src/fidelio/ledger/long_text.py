"""Storage of long texts: a short text is stored in its event, a long text as a blob.

Prompts, messages and results can have any length, while events are read in pages and indexed for search. The event of a long
text contains its beginning and the digest of the blob, which is deleted with the event.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from fidelio.ledger import Ledger
from fidelio.ledger.checks import MAX_BLOB
from fidelio.ledger.encoding import hash_blob

INLINE = 4_000
BEGINNING = 400


class TextReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text in the body of an event. If `blob`, the digest of the whole text, is set, `text` is only its beginning."""

    text: str = ""
    blob: str = ""
    size: int = 0


class StoredText(msgspec.Struct, frozen=True):
    """A text prepared for an event: the keys of the body, and the blobs to commit with it."""

    body: dict[str, Any]
    digests: tuple[str, ...] = ()
    blobs: tuple[bytes, ...] = ()


def store_text(text: str) -> StoredText:
    """Prepare a text for an event."""
    text = sanitize_text(text)
    if len(text) <= INLINE:
        return StoredText({"text": text, "size": len(text)})
    whole = text.encode()
    if len(whole) > MAX_BLOB:
        # Callers limit the length; only sanitizing can make a text longer than a blob may be.
        whole = whole[:MAX_BLOB].decode(errors="ignore").encode()
    digest = hash_blob(whole)
    return StoredText({"text": text[:BEGINNING], "blob": digest, "size": len(text)}, (digest,), (whole,))


def sanitize_text(text: str) -> str:
    """Replace NUL characters and lone surrogates, which programs print and not every database can store."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def json_text(value: Any) -> str:
    """Encode a value as JSON; anything that JSON cannot represent is converted to text."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:
        # msgspec refuses lone surrogates; the slower encoder passes them through, so that they can be replaced.
        return sanitize_text(json.dumps(value, ensure_ascii=False, default=str))


async def load_text(ledger: Ledger, body: dict[str, Any] | None) -> str:
    """Load the text that `store_text` stored; empty if it was erased."""
    reference = msgspec.convert(body or {}, TextReference)
    if not reference.blob:
        return reference.text
    content = await ledger.blob(reference.blob)
    return "" if content is None else content.decode()


def shorten_to_line(text: str, length: int = 120) -> str:
    """Return a text as a single line of at most `length` characters."""
    line = " ".join(sanitize_text(text[: length * 4]).split())
    return line if len(line) <= length else line[: length - 1] + "…"
