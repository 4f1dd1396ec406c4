"""Errors about agent sessions. Clients match some of these sentences, so all of them are defined in this module."""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import (
    AgentBusy,
    AgentSessionExists,
    AgentSessionNotFound,
    AmbiguousAgentSession,
    Command,
    ExecutorFailure,
    Hint,
    UsageProblem,
)
from fidelio.ledger.model import Session
from fidelio.orchestrator.record.model import AgentSession, Run
from fidelio.orchestrator.record.rules import DIRECTORY_MISSING, MAX_NAME_LENGTH, MAX_QUEUED_MESSAGES, STATUSES

_MAX_CANDIDATES = 10
_END_VERBS = {"failed": "failed", "stopped": "was stopped", "lost": "was lost"}


def _word(name: str) -> str:
    """The name as a word of a command; NAME for what looks like an option, and for what is too long for a name."""
    return "NAME" if name.startswith("-") or len(name) > MAX_NAME_LENGTH else name


def _resume(name: str) -> Command:
    return Command("agents", "resume", _word(name), "PROMPT", tool="resume_agent_session")


def _wait(name: str) -> Command:
    return Command("agents", "wait", _word(name), tool="wait_for_agent_sessions")


def invalid_name(name: str) -> UsageProblem:
    return UsageProblem(
        f"Invalid session name: {name!r:.80}.",
        remedy=f"Check naming rules (alphanumeric, dash, underscore; max {MAX_NAME_LENGTH} chars).",
    )


def session_exists(name: str, project: str) -> AgentSessionExists:
    return AgentSessionExists(
        f"Session already exists: {name} in {project}.", remedy=Hint("Use ", _resume(name), " or choose a different name.")
    )


def session_missing(name: str, project: str | None) -> AgentSessionNotFound:
    where = f" in {project}" if project else ""
    start = Command("agents", "start", _word(name), "PROMPT", tool="start_agent_session")
    return AgentSessionNotFound(
        f"Session does not exist: {name!r:.80}{where}.", remedy=Hint("Use ", start, " to create it first.")
    )


def ambiguous_name(name: str, found: Sequence[Session]) -> AmbiguousAgentSession:
    candidates = ", ".join(f"{session.record.get('project')} ({session.id})" for session in found[:_MAX_CANDIDATES])
    return AmbiguousAgentSession(
        f"Session {name} exists in several projects: {candidates}.",
        remedy="Say which with `project_dir` (`--project`), or use its id.",
    )


def session_busy(session: AgentSession) -> AgentBusy:
    send = Command("agents", "send", _word(session.name), "MESSAGE", tool="send_agent_message")
    stop = Command("agents", "stop", _word(session.name), tool="stop_agent_session")
    return AgentBusy(
        f"Session {session.name} is running: its run {session.run.number} is {session.run.state}.",
        remedy=Hint("Use ", send, " to queue a message for its next turn, or ", stop, " to end this turn."),
    )


def result_pending(session: AgentSession) -> AgentBusy:
    status = Command("agents", "status", _word(session.name), tool="get_agent_session_status")
    return AgentBusy(
        f"Session {session.name} is still running: its run {session.run.number} is {session.run.state}.",
        remedy=Hint("Use ", status, " or ", _wait(session.name), " until it has finished."),
    )


def message_queue_full(session: AgentSession) -> AgentBusy:
    return AgentBusy(
        f"Session {session.name} has {MAX_QUEUED_MESSAGES} messages waiting already.",
        remedy=Hint("Wait for its next turn with ", _wait(session.name), ", or stop the session."),
    )


def stop_timed_out(session: AgentSession) -> AgentBusy:
    return AgentBusy(
        f"Session {session.name} was asked to stop and is still {session.run.state}.",
        remedy=Hint("Try again in a moment; ", Command("doctor"), " shows the agent host of this home."),
    )


def run_unsuccessful(session: AgentSession, run: Run, partial: str) -> ExecutorFailure:
    reason = f" ({run.reason})" if run.reason else ""
    detail = f": {run.detail.rstrip('.')}" if run.detail else ""
    return ExecutorFailure(
        f"Run {run.number} of session {session.name} {_END_VERBS[run.state]}{reason}{detail}.",
        remedy=Hint("Use ", _resume(session.name), " to go on."),
        reason=run.reason or run.state,
        partial=partial,
    )


def run_missing(session: AgentSession, run: str) -> UsageProblem:
    return UsageProblem(
        f"Session {session.name} has no run {run!r:.80}.",
        remedy=f"It has runs 1 to {session.run.number}; give a number or an id.",
    )


def project_not_absolute(project: str) -> UsageProblem:
    return UsageProblem(f"project_dir is not an absolute path: {project!r:.200}.", remedy="Use an absolute path.")


def project_missing(project: str) -> UsageProblem:
    problem = UsageProblem(
        f"The project directory does not exist: {project}.",
        remedy="Create it, or give another with `project_dir` (`--project`).",
    )
    problem.reason = DIRECTORY_MISSING
    return problem


def question_missing(session: AgentSession, request: str | None) -> UsageProblem:
    asks = f"did not ask {request!r:.80}" if request else "asks nothing"
    remedy = Hint("See what waits for an answer with ", Command("inbox"), ".")
    return UsageProblem(f"Session {session.name} {asks}.", remedy=remedy)


def own_question(session: AgentSession) -> UsageProblem:
    return UsageProblem(
        f"Session {session.name} asks a person; an agent cannot answer for itself or for a session that it works for.",
        remedy="Let a person answer, or the session that started it.",
    )


def unknown_status(status: str) -> UsageProblem:
    return UsageProblem(f"{status!r:.80} is not a session status.", remedy=f"Use one of: {', '.join(STATUSES)}.")
