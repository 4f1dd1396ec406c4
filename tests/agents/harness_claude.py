"""Harness of Claude Code for the test bench."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.claude.executor import ClaudeExecutor
from fidelio.orchestrator.executors.contract import Executor
from tests.agents.agent import QUIET
from tests.agents.model import ModelCall
from tests.agents.programs import require_claude


@dataclass(frozen=True)
class ClaudeHarness:
    can_be_adopted: bool = True

    def executor(self) -> Executor:
        return ClaudeExecutor()

    def environment(self, home: Path, model: str) -> dict[str, str]:
        require_claude()
        return {**QUIET, "ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "test", "PATH": os.defpath, "TMPDIR": str(home)}

    def adjusted(self, blueprint: Blueprint, model: str) -> Blueprint:  # noqa: ARG002  # its environment says where it is
        return blueprint

    def shell(self, command: str, *, asks: bool = False) -> ModelCall:  # noqa: ARG002  # the signature is that of the executor contract; this agent asks by itself
        return ModelCall("Bash", {"command": command, "description": "Does it."})
