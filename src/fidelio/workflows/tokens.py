"""Session tokens: a sealed note of where a session stood, which opens the record of where it stands.

The same string serves as the checkpoint handle. The short handle (`s_…`) names a session without proving anything; whoever
accepts it decides whether naming is enough.
"""

from __future__ import annotations

import hashlib
from typing import Any

from fidelio.clock import Clock
from fidelio.engine.record import Record
from fidelio.ids import is_short_handle
from fidelio.tokens.keyring import KeyRing
from fidelio.tokens.seal import Seal

PURPOSE = "session"
# A condition longer than this is carried as its digest, which bounds the token whatever a definition says.
LONGEST_CONDITION = 48


class SessionTokens:
    """Makes and opens the tokens of workflow sessions."""

    def __init__(self, keys: KeyRing, clock: Clock) -> None:
        self._seal = Seal(keys, PURPOSE)
        self._clock = clock

    def make(self, session: str, record: Record, *, agent: str, condition: str = "", skill: str = "") -> str:
        payload: dict[str, Any] = {
            "wf": record.workflow,
            "act": record.activity,
            "skill": skill,
            "cond": bounded(condition),
            "v": record.version,
            "seq": record.seq,
            "ts": self._clock() // 1000,
            "sid": session,
            "aid": agent,
        }
        if record.open is not None:
            payload["bcp"] = record.open.checkpoint
        return self._seal.seal(payload)

    def open(self, token: str) -> dict[str, Any]:
        """What a genuine token or a short handle says; raises `BadToken`."""
        if is_short_handle(token):
            return {"sid": token}
        return self._seal.open(token, now=self._clock())


def bounded(condition: str) -> str:
    if len(condition) <= LONGEST_CONDITION:
        return condition
    return "sha256:" + hashlib.sha256(condition.encode()).hexdigest()[:32]
