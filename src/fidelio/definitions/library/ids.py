"""Ids from outside, made safe before they are used for anything.

An id is only ever compared with names that were found by listing a directory; it never becomes a part of a path. This check
comes first all the same: whoever sends `../../etc/passwd` should be told so, and not that no such workflow was found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from fidelio.errors import BadId

_LONGEST = 200
_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')


def checked_id(text: str, what: str = "a workflow") -> str:
    """The id in its normal form, or `BadId`."""
    name = unicodedata.normalize("NFC", text.strip())
    if not name or len(name) > _LONGEST:
        raise BadId(
            f"The id of {what} has 1 to {_LONGEST} characters.",
            remedy="`fidelio list` or the tool list_workflows shows the ids.",
        )
    if name.startswith(".") or _UNSAFE.search(name) or not name.isprintable():
        raise BadId(
            f"{text[:_LONGEST]!r} is no id of {what}.",
            remedy="An id is a plain name, without separators, leading dots and control characters.",
        )
    return name


def safe_id(text: str) -> str | None:
    """What a name on disk is asked for by, or None when nobody can ask for it."""
    try:
        return checked_id(text) if text.isprintable() else None
    except BadId:
        return None


def escaped(name: str) -> str:
    """A name from a directory as text that can be printed anywhere, whatever bytes it is made of."""
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in name)


def _escape(sign: str) -> str:
    # Python stands surrogates in for bytes that are no UTF-8; a person is better served with the byte.
    byte = ord(sign) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else sign.encode("unicode_escape").decode()


def split_reference(reference: str, folder: str) -> tuple[str | None, str]:
    """`name`, `workflow/name` or `workflow/folder/name`; `folder/name` stays in the same workflow."""
    parts = [checked_id(part, "a part of a workflow") for part in reference.strip().split("/")]
    if len(parts) > 1 and parts[-2] == folder:
        del parts[-2]
    if len(parts) > 2:
        raise BadId(f"{reference[:_LONGEST]!r} has too many parts.", remedy="Write `name` or `workflow/name`.")
    return (parts[0] if len(parts) == 2 else None), parts[-1]


def inner_folder(text: str) -> str:
    """A directory below another one, given as text; `BadId` when it could be anywhere else."""
    return "/".join(checked_id(step, "a directory") for step in text.strip().removeprefix("./").rstrip("/").split("/"))


def near(name: str, known: Iterable[str]) -> str:
    """A hint with the names that were probably meant, or an empty text."""
    from difflib import get_close_matches  # noqa: PLC0415  needed only after a mistake

    spelt = {candidate.casefold(): candidate for candidate in known}
    found = [spelt[match] for match in get_close_matches(name.casefold(), spelt, n=3)]
    return f"Did you mean {' or '.join(found)}?" if found else ""
