"""What has to be where in what Codex says. A message that is built otherwise is its failure, and is named as such.

Only what something depends on has a shape; what is merely passed on may be anything, and what is not known here is passed over.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

import msgspec

from fidelio.errors import ExecutorFailure

Json = dict[str, Any]
# As much as every reader of JSON takes for a whole number.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
T = TypeVar("T")


class Named(msgspec.Struct, frozen=True):
    """A thread, a turn: whatever has an id."""

    id: str


class Problem(msgspec.Struct, frozen=True):
    """Why something failed."""

    message: str


def read_line(line: str) -> Json | None:
    """A message; None for a line that is none, because somebody else has written there."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def read(value: Any, shape: type[T], what: str) -> T:
    """Raises when `value` is not built like that; `what` says where it stood."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ExecutorFailure(
            f"Codex said something in {what} that cannot be understood: {error}.",
            reason="protocol",
            remedy="Another version of Codex may do better; `fidelio doctor` says which one is installed.",
        ) from error
