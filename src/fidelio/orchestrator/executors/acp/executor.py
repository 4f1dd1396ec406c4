"""The executors `gemini`, `opencode` and `qwen`: agents that speak the Agent Client Protocol (ACP).

Each turn is a process; the agent keeps its conversations in a home directory of the session. A permission request of the agent
is decided by the permissions of the blueprint, or becomes a question to a person. The client offers the agent neither a file
system nor a terminal, because it has its own. An agent ends when its pipes are closed, so a process cannot be adopted.

The option `config` of a blueprint holds settings in the agent's own format, such as a provider of models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.acp.agents import AGENTS, prepare_home
from fidelio.orchestrator.executors.acp.conversation import AcpTurn
from fidelio.orchestrator.executors.common import background_tasks, check_npm_program, refuse_sandbox
from fidelio.orchestrator.executors.contract import Availability, Reporter, Turn, TurnResult, process_options
from fidelio.processes.piped import spawn_piped
from fidelio.processes.table import ProcessIdentity

_OPTIONS = frozenset({"config"})
# How long an agent gets to exit by itself after its turn.
_END_SECONDS = 0.5


class AcpExecutor:
    """Executor for the ACP agent with this name."""

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is where the agent's program and login are looked up; None is the environment of this process."""
        self.name = name
        self._agent = AGENTS[name]
        self._environment = os.environ if environment is None else environment

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        agent, environment = self._agent, {**self._environment, **(added or {})}
        has_login, how = agent.has_login(environment), agent.how_to_log_in
        return check_npm_program(
            agent.command[0], agent.title, agent.package, environment, has_login=has_login, how_to_log_in=how
        )

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        title, options = self._agent.title, blueprint.options
        found = [f"{title} has no option {name!r}. It has: config." for name in sorted(options.keys() - _OPTIONS)]
        if not isinstance(options.get("config", {}), Mapping):
            found.append(f"The option `config` of {title} must be a table of settings.")
        return (*found, *refuse_sandbox(blueprint, f"{title} has no switch over ACP that turns its own tools off."))

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        environment = prepare_home(self._agent, turn)
        process = await spawn_piped(self._agent.command, process_options(turn, reporter), environment=environment)
        async with process:
            async with background_tasks() as tasks:
                finished = await AcpTurn(self._agent, turn, reporter, process, tasks).carry_out()
            await process.stop(_END_SECONDS)
        return finished

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:  # noqa: ARG002  # the process ends with its pipes
        return None
