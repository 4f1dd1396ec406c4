"""Harness of Codex for the test bench."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.codex.executor import CodexExecutor
from fidelio.orchestrator.executors.contract import Executor
from tests.agents.model import ModelCall
from tests.agents.programs import require_npm_program, search_path


@dataclass(frozen=True)
class CodexHarness:
    """`mode` is the option of that name; without one, the executor chooses."""

    mode: str | None = None
    can_be_adopted: bool = True

    def executor(self) -> Executor:
        return CodexExecutor()

    def environment(self, home: Path, model: str) -> dict[str, str]:  # noqa: ARG002  # its settings say where its model is
        path = os.pathsep.join([str(require_npm_program("codex").parent), search_path()])
        return {"PATH": path, "TMPDIR": str(home), "SCRIPTED_KEY": "test"}

    def adjusted(self, blueprint: Blueprint, model: str) -> Blueprint:
        mode = {"mode": self.mode} if self.mode else {}
        # A model that Codex does not know gets its tools in the plainest way.
        return msgspec.structs.replace(blueprint, model="scripted", options={"config": provider(model), **mode})

    def shell(self, command: str, *, asks: bool = False) -> ModelCall:
        leave = {"sandbox_permissions": "require_escalated", "justification": "It has to be done."} if asks else {}
        return ModelCall("exec_command", {"cmd": command, **leave})


def provider(model: str) -> dict[str, Any]:
    scripted = {
        "name": "scripted",
        "base_url": f"{model}/v1",
        "env_key": "SCRIPTED_KEY",
        "wire_api": "responses",
        "request_max_retries": 0,
        "stream_max_retries": 0,
    }
    return {"model_provider": "scripted", "model_providers": {"scripted": scripted}}
