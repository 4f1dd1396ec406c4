"""Agents that speak the Agent Client Protocol: Gemini CLI, OpenCode and Qwen Code.

One process for each turn; the conversation goes on in the agent's own memory, which lies in a home of the session's own. What
the agent asks leave for is decided by the permissions of the blueprint, or becomes a question to a person. We offer it neither
our files nor a terminal: it has its own. An agent ends when whoever talks to it is gone, so there is nothing to adopt.

The option `config` of a blueprint holds settings in the agent's own words, such as a provider of models.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.acp.agents import AGENTS, prepare
from fidelio.orchestrator.executors.acp.conversation import Talk
from fidelio.orchestrator.executors.background import background_tasks
from fidelio.orchestrator.executors.contract import Availability, Finished, Reporter, Turn, process_options
from fidelio.orchestrator.executors.installed import version_of
from fidelio.processes.piped import spawn_piped
from fidelio.processes.spooled import missing_support
from fidelio.processes.table import ProcessIdentity

_OPTIONS = frozenset({"config"})
# After its turn an agent has nothing more to do; one that does not go by itself is not waited for long.
_END_SECONDS = 0.5


class AcpExecutor:
    """One of the agents, by name."""

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """`environment` says where the agent and its login are looked for; None is that of this process."""
        self.name = name
        self._agent = AGENTS[name]
        self._environment = os.environ if environment is None else environment

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        if missing := missing_support():
            return Availability(works=False, why=missing)
        agent, environment = self._agent, {**self._environment, **(added or {})}
        program = shutil.which(agent.command[0], path=environment.get("PATH"))
        if program is None:
            why = f"{agent.title} is not on the PATH. Install it: npm install -g {agent.package}"
            return Availability(works=False, why=why)
        version = version_of(program)
        if not agent.has_login(environment):
            why = f"{agent.title} is installed, but nobody is logged in. {agent.how_to_log_in}"
            return Availability(works=False, why=why, version=version)
        return Availability(works=True, why=f"{agent.title} is installed at {program}.", version=version)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        title, options = self._agent.title, blueprint.options
        found = [f"{title} has no option {name!r}. It has: config." for name in sorted(options.keys() - _OPTIONS)]
        if not isinstance(options.get("config", {}), Mapping):
            found.append(f"`config` of {title} is a table of settings in its own words.")
        return tuple(found)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> Finished:
        environment = prepare(self._agent, turn)
        process = await spawn_piped(self._agent.command, process_options(turn, reporter), environment=environment)
        async with process:
            async with background_tasks() as others:
                finished = await Talk(self._agent, turn, reporter, process, others).carry_out()
            await process.stop(_END_SECONDS)
        return finished

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> Finished | None:  # noqa: ARG002  # see above
        return None
