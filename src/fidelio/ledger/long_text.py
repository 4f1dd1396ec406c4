"""Texts of any length in a record of bounded size.

Prompts, messages and results can be as long as an agent likes, while events are read in pages and indexed for search. A short
text stands in its event; of a long one the event holds the beginning, and the whole is a blob that lives as long as the event.
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
    """A text as an event holds it. `blob` is the digest of the whole where `text` is only its beginning."""

    text: str = ""
    blob: str = ""
    size: int = 0


class StoredText(msgspec.Struct, frozen=True):
    """A text made ready for an event: what the body says, and what has to be stored beside it."""

    body: dict[str, Any]
    digests: tuple[str, ...] = ()
    blobs: tuple[bytes, ...] = ()


def store_text(text: str) -> StoredText:
    text = sanitize_text(text)
    if len(text) <= INLINE:
        return StoredText({"text": text, "size": len(text)})
    whole = text.encode()
    if len(whole) > MAX_BLOB:
        # Only what has grown by being cleaned gets here: nobody may say more than a blob holds.
        whole = whole[:MAX_BLOB].decode(errors="ignore").encode()
    digest = hash_blob(whole)
    return StoredText({"text": text[:BEGINNING], "blob": digest, "size": len(text)}, (digest,), (whole,))


def sanitize_text(text: str) -> str:
    """The text in signs that every database keeps: programs print NULs and halves of a pair."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def json_text(value: Any) -> str:
    """A value as JSON, whatever an agent has put into it."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:
        # Half a pair somewhere inside: the slower encoder passes it on, and then it can be replaced.
        return sanitize_text(json.dumps(value, ensure_ascii=False, default=str))


async def load_text(ledger: Ledger, kept: dict[str, Any] | None) -> str:
    """The text that `store_text` was given; empty where it has been erased."""
    text = msgspec.convert(kept or {}, TextReference)
    if not text.blob:
        return text.text
    content = await ledger.blob(text.blob)
    return "" if content is None else content.decode()


def one_line(text: str, length: int = 120) -> str:
    line = " ".join(sanitize_text(text[: length * 4]).split())
    return line if len(line) <= length else line[: length - 1] + "…"
