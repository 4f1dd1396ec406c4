"""Errors of agent sessions, blueprints and executors. `fidelio.errors` shows the whole tree."""

from __future__ import annotations

from typing import Any

from fidelio.errors.base import FidelioError
from fidelio.errors.hints import Text
from fidelio.errors.workflows import WorkflowNotFound


class AgentError(FidelioError):
    """Base of what can be wrong with agent sessions, their blueprints and their executors."""

    code = "agent"


class AgentSessionNotFound(AgentError):
    """No agent session has this name here."""

    code = "agent.session-not-found"
    exit_code = 4


class AmbiguousAgentSession(AgentError):
    """Sessions of several projects have this name; the sentence names them."""

    code = "agent.session-ambiguous"
    exit_code = 2


class AgentSessionExists(AgentError):
    """The name is taken in this project."""

    code = "agent.session-exists"


class AgentBusy(AgentError):
    """The session has a run already, and can have only a single run at a time."""

    code = "agent.busy"


class BlueprintNotFound(AgentError):
    """No blueprint of this name can be used."""

    code = "agent.blueprint-not-found"
    exit_code = 4


class UntrustedProject(AgentError, WorkflowNotFound):
    """Only a project that no person has trusted has this workflow or blueprint, or a trusted blueprint has changed.

    A caller that handles a missing workflow, or any error of an agent, handles it too.
    """

    code = "project.untrusted"
    exit_code = 4


class BrokenBlueprint(AgentError):
    """The files of a blueprint cannot be read completely, so the blueprint is not used."""

    code = "agent.blueprint-broken"


class BadAgentInput(AgentError):
    """The input does not fit the schema of the blueprint. `schema` is what it has to fit."""

    code = "agent.bad-input"
    exit_code = 2

    def __init__(self, sentence: Text, *, remedy: Text = "", schema: Any = None) -> None:
        super().__init__(sentence, remedy=remedy)
        self.schema = schema


class UncheckedAgentInput(AgentError):
    """The input could not be checked against the schema of the blueprint."""

    code = "agent.unchecked-input"


class ExecutorUnavailable(AgentError):
    """This kind of agent does not work on this machine."""

    code = "agent.executor-unavailable"


class ExecutorFailure(AgentError):
    """The run of an agent failed. `reason` is a stable code, `partial` the output until then."""

    code = "agent.failed"

    def __init__(self, sentence: Text, *, remedy: Text = "", reason: str = "failed", partial: str = "") -> None:
        super().__init__(sentence, remedy=remedy)
        self.reason, self.partial = reason, partial


class ConversationLost(ExecutorFailure):
    """The agent does not know the conversation to continue. Nothing of this turn has run."""

    code = "agent.conversation-lost"


class LimitReached(ExecutorFailure):
    """The run was ended because it reached a limit."""

    code = "agent.limit-reached"


class ConductorFailure(AgentError):
    """A workflow run by agents cannot continue: a worker did not finish its activity."""

    code = "agent.workflow-failed"
