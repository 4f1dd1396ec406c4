"""Puts the orchestrator together from what is set and what is on this machine."""

from __future__ import annotations

from fidelio.ledger import Ledger
from fidelio.orchestrator.blueprints.catalogue import open_blueprints
from fidelio.orchestrator.executors.registry import executors
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import Settings


def open_agents(settings: Settings, ledger: Ledger) -> AgentService:
    return AgentService(
        ledger,
        open_blueprints(settings.home),
        executors(),
        home=settings.home,
        limits=settings.agents,
        executor=settings.executor,
    )
