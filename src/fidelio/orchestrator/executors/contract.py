"""The contract between the orchestrator and the executors of agents. This is all that either knows of the other.

An executor carries out one turn and reports what happens while it happens. It keeps no state of its own: what has to survive is
told to the `Reporter`, which makes it durable before it returns. An executor is stopped by cancelling it; it must then leave no
process behind, except when the reporter is `leaving` and the process can be adopted. It raises
`ExecutorFailure` when the agent cannot do its work.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import ProcessOptions
from fidelio.processes.table import ProcessIdentity


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of an agent: everything an executor needs to know.

    `conversation` is the agent's own id of an earlier turn to go on with, None for the first. `fresh` is a UUID for agents that
    let us choose the id of a new conversation. `spool` is a directory of this run alone, for what has to outlive a process,
    made by whoever first puts something into it;
    `keep` is one of the session, for what has to outlive its runs, such as what an agent itself keeps of its conversations.
    `environment` is complete: nothing else may be passed on.
    """

    run: str
    session: str
    prompt: str
    blueprint: Blueprint
    directory: Path
    conversation: str | None
    fresh: str
    spool: Path
    environment: Mapping[str, str]
    keep: Path | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent asks a person. `key` names it within the run, so that it is asked once even when it is told again.

    `options` are (id, label) pairs; none means that any text will do. `kind` is `permission` or `question`.
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


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How the turn ended in the agent's own words. `data` is its structured result, where a schema asked for one."""

    text: str
    data: Any = None


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an executor works on this machine; `why` is one sentence, with the way out when it does not."""

    works: bool
    why: str
    version: str = ""


class Reporter(Protocol):
    """What an executor says while it works. Each call is durable when it returns; any of them may end the run at a limit."""

    @property
    def leaving(self) -> bool:
        """Asked by an executor that is cancelled. True: only whoever watches goes; a process that can be adopted lives on."""

    async def process(self, identity: ProcessIdentity) -> None:
        """The process that does the work, before it is given anything to do."""

    async def conversation(self, name: str) -> None:
        """The agent's own id of the conversation, as early as it is known."""

    async def said(self, text: str) -> None:
        """A whole message of the agent, not a fragment."""

    async def called(self, call: str, tool: str, arguments: Any = None) -> None:
        """The agent uses a tool; `call` names the use."""

    async def returned(self, call: str, *, ok: bool, text: str = "") -> None:
        """What came of it."""

    async def used(self, usage: Usage) -> None:
        """The totals of this run so far."""

    async def output(self, size: int) -> None:
        """This many more bytes came out of the agent. Not recorded one by one, only counted against the limit."""

    async def ask(self, question: Question) -> Reply:
        """Opens a request in the inbox and waits for its answer, however long that takes."""


class Executor(Protocol):
    """One kind of agent."""

    @property
    def name(self) -> str: ...

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        """`added` is what a blueprint adds to the environment: a key, or another PATH, may be just what is missing."""

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        """What is wrong with the blueprint's options for this executor, checked before a session is acknowledged."""

    async def carry_out(self, turn: Turn, reporter: Reporter) -> Finished:
        """One whole turn. Raises `ExecutorFailure`, or `ConversationLost` when `turn.conversation` is not there."""

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> Finished | None:
        """Goes on with a process that outlived whoever watched it. None: this kind cannot be adopted; it is stopped instead.

        Everything the process said since it began may be told again; the reporter of an adopted run drops what it knows.
        """


def process_options(turn: Turn, reporter: Reporter) -> ProcessOptions:
    """How the process of a turn is started or adopted."""
    return ProcessOptions(
        run=turn.run,
        directory=turn.directory,
        spool=turn.spool,
        environment=turn.environment,
        output_bytes=turn.blueprint.limits.output_bytes,
        on_process=reporter.process,
        on_output=reporter.output,
        is_leaving=lambda: reporter.leaving,
    )
