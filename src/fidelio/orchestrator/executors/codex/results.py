"""How a turn of Codex ends, whichever way it was run."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import msgspec

from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import Finished

NO_THREAD = "no rollout found"


class TurnError(msgspec.Struct, frozen=True, rename="camel"):
    """Why a turn was not completed."""

    message: str = ""
    codex_error_info: Any = None


class Outcome(msgspec.Struct, frozen=True):
    """A turn that is over."""

    status: str
    error: TurnError | None = None


def finished(text: str, blueprint: Blueprint) -> Finished:
    return Finished(text=text, data=_data(text) if blueprint.output_schema is not None else None)


def lost(conversation: str) -> ConversationLost:
    return ConversationLost(
        f"Codex does not know the conversation {conversation}.", reason="conversation-lost", remedy="Start a new session."
    )


def require_thread_id(conversation: str | None) -> None:
    """Codex takes everything else for the name of a conversation."""
    try:
        UUID(conversation or "0" * 32)
    except ValueError as error:
        raise lost(str(conversation)) from error


def turn_failure(turn: Outcome, partial: str) -> ExecutorFailure:
    """The error for a turn that was not completed, as Codex describes it."""
    error = turn.error or TurnError()
    message = error.message or f"The turn was {turn.status}."
    return ExecutorFailure(message, reason=_reason(error.codex_error_info, turn.status), partial=partial)


def _reason(info: Any, status: str) -> str:
    """`usageLimitExceeded` becomes `usage-limit-exceeded`; some come with details, under their name."""
    name = next(iter(info), status) if isinstance(info, dict) else info
    if not isinstance(name, str) or name == "other":
        return f"turn-{status}"
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
