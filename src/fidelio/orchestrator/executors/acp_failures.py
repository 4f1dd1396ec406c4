"""How a turn over the protocol can go wrong, in the words of the orchestrator."""

from __future__ import annotations

import asyncio

from acp import RequestError

from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.orchestrator.executors.acp_agents import AcpAgent
from fidelio.orchestrator.processes_piped import PipedProcess

_END_SECONDS = 5.0


def lost(agent: AcpAgent, conversation: str, error: RequestError | None = None) -> ConversationLost:
    why = f"{agent.title} does not know the conversation {conversation}{_words(error)}."
    return ConversationLost(why, reason="conversation-lost", remedy="Start a new session.")


def refused(agent: AcpAgent, error: RequestError, partial: str) -> ExecutorFailure:
    if error.code == RequestError.auth_required().code:
        return ExecutorFailure(f"{agent.title} is not logged in.", remedy=agent.how_to_log_in, reason="not-logged-in")
    return ExecutorFailure(f"{agent.title} could not go on{_words(error)}.", reason="refused", partial=partial)


def stopped(sentence: str, reason: str, partial: str = "") -> ExecutorFailure:
    return ExecutorFailure(sentence, reason=reason.replace("_", "-"), partial=partial)


async def ended_early(process: PipedProcess, partial: str) -> ExecutorFailure:
    try:
        async with asyncio.timeout(_END_SECONDS):
            return process.failure(await process.ended(), partial=partial)
    except TimeoutError:
        return ExecutorFailure("The agent stopped talking without ending.", reason="silent", partial=partial)


def _words(error: RequestError | None) -> str:
    if error is None:
        return ""
    details = error.data.get("details") if isinstance(error.data, dict) else error.data
    return f": {error}" + (f" ({details})" if details else "")
