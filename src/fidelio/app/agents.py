"""What the application needs of the orchestrator. The first call that needs agents imports it, which takes 40 ms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from fidelio.ledger import Ledger
from fidelio.orchestrator.blueprints.catalogue import open_blueprints
from fidelio.orchestrator.executors.contract import Executor
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.orchestrator.runs.host_process import has_active_runs, host_agents, spawn_worker_if_needed, work_until_idle
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import Settings

if TYPE_CHECKING:
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

    def __init__(self, open_runtime: OpenRuntime) -> None:
        self._others, self._open_runtime = get_executors(), open_runtime

    def __getitem__(self, name: str) -> Executor:
        if name != _RUNTIME:
            return self._others[name]
        from fidelio.app.fidelio_executor import FidelioExecutor  # noqa: PLC0415  # brings the runtime, 80 ms

        return FidelioExecutor(self._open_runtime)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._others, _RUNTIME))

    def __len__(self) -> int:
        return len(self._others) + 1


def open_agents(settings: Settings, ledger: Ledger, open_runtime: OpenRuntime | None = None) -> AgentService:
    """The agent service over an open ledger. It runs no agents by itself. Without a runtime it has no executor `fidelio`."""
    return AgentService(
        ledger,
        open_blueprints(settings.home),
        get_executors() if open_runtime is None else _AllExecutors(open_runtime),
        home=settings.home,
        limits=settings.agents,
        executor=settings.executor,
    )
