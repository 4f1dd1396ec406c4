"""What the application needs of the orchestrator. The first call that needs agents imports it, which takes 40 ms."""

from __future__ import annotations

from fidelio.ledger import Ledger
from fidelio.orchestrator.blueprints.catalogue import open_blueprints
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.orchestrator.runs.host_process import has_active_runs, host_agents, spawn_worker_if_needed, work_until_idle
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import Settings

__all__ = [
    "has_active_runs",
    "host_agents",
    "open_agents",
    "open_blueprints",
    "spawn_worker_if_needed",
    "work_until_idle",
]


def open_agents(settings: Settings, ledger: Ledger) -> AgentService:
    """The agent service over an open ledger. It runs no agents by itself."""
    return AgentService(
        ledger,
        open_blueprints(settings.home),
        get_executors(),
        home=settings.home,
        limits=settings.agents,
        executor=settings.executor,
    )
