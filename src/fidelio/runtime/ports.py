"""Ports of the runtime that `app` binds: models, skills, backends of recall, and what other packages know about workflows.

The runtime knows neither workflows nor the orchestrator. Without a binding it has no model and no skills, which is enough for
the sessions of external clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from fidelio.errors import AgentDefinitionProblem
from fidelio.providers.model import ModelInfo, Provider
from fidelio.runtime.recall.model import RecallBackend

if TYPE_CHECKING:
    from fidelio.runtime.agent_toolset.web import WebSearch
    from fidelio.runtime.agents.definition import ServerDefinition


class ModelFinder(Protocol):
    """Finds the provider of a model id (`fidelio.providers.registry`)."""

    def find(self, model: str) -> tuple[Provider, str]:
        """The provider and its own name of the model."""
        ...

    def describe(self, model: str) -> ModelInfo: ...


class NoModels:
    """No model at all."""

    def find(self, model: str) -> tuple[Provider, str]:
        raise AgentDefinitionProblem(f"The model {model!r:.100} cannot be used: this process has no providers of models.")

    def describe(self, _: str) -> ModelInfo:
        return ModelInfo()


class SkillRoot(msgspec.Struct, frozen=True):
    """A directory with `SKILL.md` files. `source` is how tools name it: project, user, bundled, library."""

    path: Path
    source: str


class ActivityStatus(msgspec.Struct, frozen=True):
    """What the ledger says about a workflow or an activity of it. `citation` is the id of the event that shows it."""

    is_completed: bool
    reason: str
    citation: str = ""


def _no_skills(_: str) -> tuple[SkillRoot, ...]:
    return ()


async def _no_workflows(_: Mapping[str, Any], __: str) -> ActivityStatus:
    return ActivityStatus(is_completed=False, reason="This process cannot read workflow sessions.")


async def _fill_nothing(_: str, __: str, server: ServerDefinition) -> tuple[ServerDefinition, tuple[str, ...]]:
    return server, ()


class RuntimePorts(msgspec.Struct, frozen=True, kw_only=True):
    """What `app` gives to the runtime. `skill_roots` takes a project, `find_activity` a check and a project.

    `recall_backends` are searched in addition to those that are built in. `fill_server` takes a session, the name of an MCP
    server and its stored definition; it returns what to connect to, which must not be stored, and the secrets in it.
    """

    models: ModelFinder = NoModels()
    skill_roots: Callable[[str], tuple[SkillRoot, ...]] = _no_skills
    find_activity: Callable[[Mapping[str, Any], str], Awaitable[ActivityStatus]] = _no_workflows
    fill_server: Callable[[str, str, ServerDefinition], Awaitable[tuple[ServerDefinition, tuple[str, ...]]]] = _fill_nothing
    recall_backends: tuple[RecallBackend, ...] = ()
    # None: nobody has configured one, and no agent has the tool.
    web_search: WebSearch | None = None
