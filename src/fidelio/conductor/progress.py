"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a run: where it is, who is at work, and what there is to know about it.

    `kind` is `entered`, `working`, `waiting`, `resumed`, `left`, `completed` or `failed`.
    """

    kind: str
    workflow: str
    session: str
    activity: str = ""
    step: str = ""
    agent: str = ""
    detail: str = ""
    request: str = ""
    elapsed_ms: int = 0
    cost_usd: float = 0.0


Watcher = Callable[[Happening], None]


def nobody(_: Happening) -> None:
    """Nobody watches."""
