"""Protocols and values between the orchestrator and the executors of agents. Neither knows anything else of the other.

An executor carries out one turn and reports events as they happen. It keeps no state: what has to survive goes to the
`Reporter`, which makes it durable before it returns. An executor is stopped by cancelling it; it must then leave no process
behind, except when `Reporter.is_detaching` is true and the process can be adopted. It raises `ExecutorFailure` when the agent
cannot do its work.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import ProcessOptions
from fidelio.processes.table import ProcessIdentity


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Input of an executor for a turn of an agent.

    `conversation` is the agent's own id of the conversation to resume, None for the first turn. `fresh` is a UUID for agents
    that let the client choose the id of a new conversation. `spool` is the directory of this run, for files that must outlive a
    process; the first writer creates it. `template` is the blueprint without secrets and values of this run: an executor stores
    nothing that comes from `blueprint`. `keep` is a directory of the session, for files that must outlive its runs, such as
    the agent's own transcripts. `environment` is complete: no other variable may reach the agent. `proof` is the digest that
    proves the exit status of a process that is adopted. `outlives_host`: the host may end before the turn, so an executor that
    can choose gives the turn a process of its own.
    """

    run: str
    session: str
    prompt: str
    blueprint: Blueprint
    template: Blueprint = DEFAULT_BLUEPRINT
    directory: Path
    conversation: str | None
    fresh: str
    spool: Path
    environment: Mapping[str, str]
    keep: Path | None = None
    proof: str = ""
    outlives_host: bool = False


# The kind of a question whether the agent may do something.
PERMISSION = "permission"


class AgentQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question of an agent to a person. `key` identifies it within the run, so a repeated report opens no second request.

    `options` are (id, label) pairs; without options any text is accepted. `kind` is `permission` or `question`.
    """

    key: str
    kind: str
    text: str
    options: tuple[tuple[str, str], ...] = ()
    detail: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Reply(msgspec.Struct, frozen=True):
    """A person's answer: the option that was chosen, or a text."""

    option: str = ""
    text: str = ""


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """The final message of a turn. `data` is the structured result that an agent returns in addition to it."""

    text: str
    data: Any = None


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an executor works on this machine; `why` is a sentence, with a remedy when it does not."""

    works: bool
    why: str
    version: str = ""


class Reporter(Protocol):
    """Sink for the events of a turn. Each call is durable when it returns; any of them may end the run at a limit."""

    @property
    def is_detaching(self) -> bool:
        """Whether a cancelled executor leaves its process running, for adoption by another host."""

    async def report_process(self, identity: ProcessIdentity, proof: str = "") -> None:
        """Record the process of the agent and the digest that proves its exit status, before it gets any input."""

    async def report_conversation(self, name: str) -> None:
        """Record the agent's own id of the conversation, as early as it is known."""

    async def report_message(self, text: str) -> None:
        """Record a whole message of the agent, not a fragment."""

    async def report_tool_call(self, call: str, tool: str, arguments: Any = None) -> None:
        """Record a tool call; `call` is its id."""

    async def report_tool_result(self, call: str, *, ok: bool, text: str = "") -> None:
        """Record the result of the tool call `call`."""

    async def report_usage(self, usage: Usage) -> None:
        """Record the totals of this run so far."""

    async def report_output(self, size: int) -> None:
        """Count `size` more bytes of output against the limit. They are not recorded as events."""

    async def wait_for(self, request: str) -> None:
        """Wait until a request of another session is closed, without a timeout. The run waits meanwhile."""

    async def ask(self, question: AgentQuestion) -> Reply:
        """Open a request in the inbox and wait for its answer, without a timeout."""


class Executor(Protocol):
    """Adapter to a kind of agent."""

    @property
    def name(self) -> str: ...

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        """Check this machine. `added` are the variables of a blueprint: its API key or PATH may make the agent available."""

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        """Validate the blueprint for this executor, before a session is acknowledged. Return what is wrong with it."""

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        """Carry out a whole turn. Raises `ExecutorFailure`, or `ConversationLost` when the agent has no `turn.conversation`."""

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
        """Follow a process whose host has died to its end. None: this kind cannot be adopted; the process is stopped instead.

        Everything since the start of the process may be reported again; the reporter of an adopted run drops duplicates.
        """


def process_options(turn: Turn, reporter: Reporter) -> ProcessOptions:
    """Build the options with which the process of a turn is started or adopted."""
    return ProcessOptions(
        run=turn.run,
        directory=turn.directory,
        spool=turn.spool,
        environment=turn.environment,
        output_bytes=turn.blueprint.limits.output_bytes,
        on_process=reporter.report_process,
        on_output=reporter.report_output,
        is_leaving=lambda: reporter.is_detaching,
        proof=turn.proof,
    )
