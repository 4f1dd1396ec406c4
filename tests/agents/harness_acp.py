"""Harnesses of the ACP agents for the test bench."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.acp.executor import AcpExecutor
from fidelio.orchestrator.executors.contract import Executor
from tests.agents.model import ModelCall
from tests.agents.programs import require_npm_program, search_path


@dataclass(frozen=True)
class AcpHarness:
    """What the three have in common."""

    name: str
    model: str
    can_be_adopted: bool = False

    def executor(self) -> Executor:
        return AcpExecutor(self.name)

    def environment(self, home: Path, model: str) -> dict[str, str]:
        path = os.pathsep.join([str(require_npm_program(self.name).parent), search_path()])
        return {"PATH": path, "TMPDIR": str(home), **self.told(model)}

    def told(self, model: str) -> dict[str, str]:
        """What the environment says about the model."""
        raise NotImplementedError

    def adjusted(self, blueprint: Blueprint, model: str) -> Blueprint:  # noqa: ARG002  # its environment says where it is
        return msgspec.structs.replace(blueprint, model=self.model)


@dataclass(frozen=True)
class GeminiHarness(AcpHarness):
    name: str = "gemini"
    model: str = "gemini-2.5-flash"

    def told(self, model: str) -> dict[str, str]:
        # It starts itself a second time, with more memory than a test needs.
        return {"GEMINI_API_KEY": "test", "GOOGLE_GEMINI_BASE_URL": model, "GEMINI_CLI_NO_RELAUNCH": "true"}

    def shell(self, command: str, *, asks: bool = False) -> ModelCall:  # noqa: ARG002  # the signature is that of the executor contract; this agent asks by itself
        return ModelCall("run_shell_command", {"command": command})


@dataclass(frozen=True)
class QwenHarness(AcpHarness):
    name: str = "qwen"
    model: str = "scripted"

    def told(self, model: str) -> dict[str, str]:
        return {"OPENAI_API_KEY": "test", "OPENAI_BASE_URL": f"{model}/v1", "QWEN_CODE_NO_RELAUNCH": "true"}

    def shell(self, command: str, *, asks: bool = False) -> ModelCall:  # noqa: ARG002  # the signature is that of the executor contract; this agent asks by itself
        return ModelCall("run_shell_command", {"command": command, "is_background": False})


@dataclass(frozen=True)
class OpenCodeHarness(AcpHarness):
    name: str = "opencode"
    model: str = "scripted/model"

    def told(self, model: str) -> dict[str, str]:  # noqa: ARG002  # its settings say where its model is
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def adjusted(self, blueprint: Blueprint, model: str) -> Blueprint:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{model}/v1", "apiKey": "test"},
            "models": {"model": {"name": "Scripted"}},
        }
        config = {"provider": {"scripted": provider}, "small_model": self.model}
        return msgspec.structs.replace(blueprint, model=self.model, options={"config": config})

    def shell(self, command: str, *, asks: bool = False) -> ModelCall:  # noqa: ARG002  # the signature is that of the executor contract; this agent asks by itself
        return ModelCall("bash", {"command": command, "description": "Does it."})
