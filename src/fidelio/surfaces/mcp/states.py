"""The `requestState` of a call that waits for a person: our request id, sealed.

From 2026-07-28 on nothing is kept between the call that asks and the call that brings the answer. What the client carries
back is therefore sealed, bound to the tool and its arguments, and refused when it is old or changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import BadToken, ExpiredToken, UsageProblem

if TYPE_CHECKING:
    from fidelio.tokens.keyring import KeyRing
    from fidelio.tokens.seal import Seal

PURPOSE = "request-state"
LIFETIME_MS = 24 * 60 * 60 * 1000


class RequestStates:
    """Makes and checks states. The keys are opened by the first call that needs them."""

    def __init__(self, open_keys: Callable[[], KeyRing], *, clock: Clock = now_ms) -> None:
        self._open_keys = open_keys
        self._clock = clock
        self._opened: Seal | None = None

    def write(self, request_id: str, tool: str, arguments: Mapping[str, Any]) -> str:
        payload = {"req": request_id, "call": _digest(tool, arguments)}
        return self._seal().seal(payload, expires=self._clock() + LIFETIME_MS)

    def read(self, state: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """The request id; a `UsageProblem` that says what to do when the state is not genuine or of another call."""
        try:
            payload = self._seal().open(state, now=self._clock())
        except (BadToken, ExpiredToken) as error:
            raise UsageProblem(
                "This requestState is too old, was changed, or was made by another server; nothing was recorded.",
                remedy="Call the tool again without requestState and inputResponses.",
            ) from error
        if payload["call"] != _digest(tool, arguments):
            raise UsageProblem(
                "This requestState belongs to another call; nothing was recorded.",
                remedy="Repeat the call with the tool and the arguments it was made with.",
            )
        return str(payload["req"])

    def _seal(self) -> Seal:
        if self._opened is None:
            from fidelio.tokens.seal import Seal  # noqa: PLC0415  # few calls ask, and none before the first reply

            self._opened = Seal(self._open_keys(), PURPOSE)
        return self._opened


def _digest(tool: str, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode([tool, arguments], order="deterministic")).hexdigest()[:32]
