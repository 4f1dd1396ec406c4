"""What the application needs of the orchestrator. The first call that needs agents imports it, which takes 40 ms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias

from fidelio.ledger import Ledger
from fidelio.orchestrator.blueprints.catalogue import open_blueprints
from fidelio.orchestrator.executors.contract import Executor
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.orchestrator.runs.host_process import has_active_runs, host_agents, spawn_worker_if_needed, work_until_idle
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import Settings

if TYPE_CHECKING:
    from fidelio.app.fidelio_executor import FidelioExecutor
    from fidelio.runtime.service import RuntimeService

OpenRuntime: TypeAlias = "Callable[[], Awaitable[RuntimeService]]"
_RUNTIME = "fidelio"

__all__ = [
    "has_active_runs",
    "host_agents",
    "open_agents",
    "open_blueprints",
    "spawn_worker_if_needed",
    "work_until_idle",
]


class _AllExecutors(Mapping[str, Executor]):
    """The executors of the orchestrator, and the agents of the runtime, which the orchestrator does not know."""

    def __init__(self, open_runtime: OpenRuntime, resources: AsyncExitStack) -> None:
        self._others, self._open_runtime, self._resources = get_executors(), open_runtime, resources
        self._own: FidelioExecutor | None = None

    def __getitem__(self, name: str) -> Executor:
        if name != _RUNTIME:
            return self._others[name]
        if self._own is None:
            from fidelio.app.fidelio_executor import FidelioExecutor  # noqa: PLC0415  # brings the runtime, 80 ms

            # A single one, whose worker all runs share.
            self._own = FidelioExecutor(self._open_runtime, self._resources)
        return self._own

    def __iter__(self) -> Iterator[str]:
        return iter((*self._others, _RUNTIME))

    def __len__(self) -> int:
        return len(self._others) + 1


def open_agents(
    settings: Settings, ledger: Ledger, open_runtime: OpenRuntime | None = None, resources: AsyncExitStack | None = None
) -> AgentService:
    """The agent service over an open ledger. It runs no agents by itself. Without a runtime it has no executor `fidelio`.

    What runs in the runtime leave behind is closed with `resources`.
    """
    return AgentService(
        ledger,
        open_blueprints(settings.home),
        get_executors() if open_runtime is None or resources is None else _AllExecutors(open_runtime, resources),
        home=settings.home,
        limits=settings.agents,
        executor=settings.executor,
    )
