"""Why a turn of Claude Code ended badly, in plain words and with a way out."""

from __future__ import annotations

from collections.abc import Iterable

from fidelio.errors import ConversationLost, ExecutorFailure, LimitReached
from fidelio.orchestrator.executors.claude_messages import Result

_UNKNOWN_CONVERSATION = "No conversation found"
_LOG_IN = (
    "Set ANTHROPIC_API_KEY, or log in with `claude auth login`. "
    "Where the key is in a settings file, name that file's kind in the blueprint's option setting_sources."
)


def of_result(result: Result, partial: str) -> ExecutorFailure:
    """For a turn that the agent itself reports as failed."""
    said = "; ".join(map(str, result.errors or ())) or result.result or result.subtype or "It does not say why."
    if lost := of_complaint(said):
        return lost
    if result.subtype == "error_max_budget_usd":
        return LimitReached("The run has spent what it may spend.", reason="limit.cost_usd", partial=partial)
    status = result.api_error_status
    if status in {401, 403} or "/login" in said:
        return not_logged_in(status, partial)
    reason = f"model.{status}" if status else result.terminal_reason or "failed"
    return ExecutorFailure(f"Claude Code could not finish: {said}", reason=reason, partial=partial)


def not_logged_in(status: int | None, partial: str = "") -> ExecutorFailure:
    sentence = "The model does not accept Claude Code's key." if status else "Claude Code is not logged in."
    return ExecutorFailure(sentence, remedy=_LOG_IN, reason="not-logged-in", partial=partial)


def no_server(names: Iterable[str]) -> ExecutorFailure:
    """An agent without its tools would do something else than it was asked to."""
    missing = ", ".join(sorted(names))
    remedy = "Try the command or the address that its blueprint has for it."
    return ExecutorFailure(f"Claude Code cannot reach the MCP server {missing}.", remedy=remedy, reason="mcp-server")


def of_complaint(said: str) -> ConversationLost | None:
    """For what it writes before it ends without having begun."""
    if _UNKNOWN_CONVERSATION not in said:
        return None
    return ConversationLost("Claude Code does not know this conversation.", reason="conversation-lost")
