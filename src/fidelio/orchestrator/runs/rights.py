"""The rights of agents over agents: whatever an agent starts or resumes has at most its own rights.

Rights are the permission mode with its lists, and the directory. They are read from the session of the calling agent in the
ledger, never from its environment. What a child may do is stored with its session, so that it also holds for later runs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fidelio.errors import UsageProblem
from fidelio.orchestrator.blueprints.model import MODES, Blueprint, Permissions, effective_mode, find_own_policies
from fidelio.orchestrator.executors.common import REFUSE
from fidelio.orchestrator.record.record import AgentRecord
from fidelio.orchestrator.record.unit_of_work import LoadedAgent
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.context import OrchestratorContext


class AgentRights(msgspec.Struct, frozen=True):
    """What the agent of a session may do, and where."""

    name: str
    permissions: Permissions
    directories: tuple[str, ...]

    @property
    def is_full(self) -> bool:
        return self.permissions.mode == "full"

    def require_start(self, blueprint: Blueprint, executor: str, project: str) -> None:
        """Raise if an agent of this blueprint, executor and directory could do more."""
        wanted = effective_mode(blueprint, executor)
        if MODES.index(wanted) > MODES.index(self.permissions.mode):
            raise UsageProblem(
                f"Session {self.name} has the permission mode `{self.permissions.mode}` and cannot start an agent of the "
                f"executor {executor} with the mode `{wanted}`.",
                remedy="Let a person start it.",
            )
        if self.permissions.needs_proof and (owner := find_own_policies(blueprint, executor)):
            raise UsageProblem(
                f"Session {self.name} needs signed permissions, and what {owner} asks would need no signature.",
                remedy="Use a blueprint whose own permissions decide, or let a person start it.",
            )
        if not self.is_full and not any(Path(project).is_relative_to(directory) for directory in self.directories):
            raise UsageProblem(
                f"Session {self.name} works in {self.directories[0]} and cannot start an agent in {project}.",
                remedy="Use a directory inside, or let a person start it.",
            )

    def require_answer(self, kind: str, option: str) -> None:
        """Raise if an agent would permit another what it may not do itself without asking."""
        if kind == "permission" and option != REFUSE and not self.is_full:
            raise UsageProblem(
                f"Session {self.name} has the permission mode `{self.permissions.mode}` and cannot permit others anything.",
                remedy=f"Let a person answer, or choose {REFUSE}.",
            )


async def load_rights(context: OrchestratorContext, agent: LoadedAgent) -> AgentRights:
    """The rights of a session in its newest run."""
    record = agent.record
    blueprint = await context.load_run_blueprint(record)
    mode = effective_mode(blueprint, record.executor)
    permissions = msgspec.structs.replace(blueprint.permissions, mode=mode)
    return AgentRights(agent.session.name or agent.id, permissions, _list_directories(record))


def _list_directories(record: AgentRecord) -> tuple[str, ...]:
    own = (worktrees.recorded_worktree(record).directory,) if record.worktree else ()
    return (*own, record.project)
