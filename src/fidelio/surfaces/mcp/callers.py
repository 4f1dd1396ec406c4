"""Which agent a call comes from, where its client says so.

Over stdio a server is a child of the agent that uses it, and has its mark in the environment. Over HTTP nothing is handed down,
so the agent's client says it with each request. Saying it only takes away: what one starts counts as one's own, and what one
asks is answered by others. Whoever holds the bearer token and says nothing is taken for a person's program.
"""

from __future__ import annotations

from contextvars import ContextVar

from fidelio.errors import UsageProblem
from fidelio.ids import is_run_id, session_of_run

_claim: ContextVar[str] = ContextVar("claimed_run", default="")


def called_by(run: str) -> None:
    """`run` is what the client says, empty where it says nothing. It holds for the task that carries out the call."""
    _claim.set(run)


def claimed_session() -> str | None:
    """The session of the agent that makes this call, or None; raises `UsageProblem` where what was said names none."""
    run = _claim.get()
    if not run:
        return None
    if not is_run_id(run):
        raise UsageProblem(
            f"The header Fidelio-Agent names no run of an agent: {run!r:.80}.",
            remedy="Send what FIDELIO_AGENT is in the environment of the agent, or leave the header out.",
        )
    return session_of_run(run)
