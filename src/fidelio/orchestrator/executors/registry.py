"""Registry of the executors by name, each imported at its first use.

An executor whose library is not installed is in the registry all the same and reports what is missing, so that it does not hide
the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import cast

from fidelio.errors import Command, ExecutorUnavailable, Hint
from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint
from fidelio.orchestrator.executors.contract import Availability, Executor, Reporter, Turn, TurnResult
from fidelio.processes.table import ProcessIdentity

_PACKAGE = "fidelio.orchestrator.executors"
# Name: module, class, arguments of its constructor.
_KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "scripted": ("scripted.executor", "ScriptedExecutor", ()),
    "command": ("command", "CommandExecutor", ()),
    "claude": ("claude.executor", "ClaudeExecutor", ()),
    "codex": ("codex.executor", "CodexExecutor", ()),
    "gemini": ("acp.executor", "AcpExecutor", ("gemini",)),
    "opencode": ("acp.executor", "AcpExecutor", ("opencode",)),
    "qwen": ("acp.executor", "AcpExecutor", ("qwen",)),
    "local-model": ("local_model.executor", "LocalModelExecutor", ()),
}
# Order of preference where no executor is named, the most capable first. Without `scripted`, which does no real work, and
# `command`, which needs a blueprint.
_ORDER = ("claude", "codex", "gemini", "opencode", "qwen", "local-model")
_REMEDY = Hint("Run ", Command("doctor"), ": it says which agents work on this machine and what the others need.")


class _Executors(Mapping[str, Executor]):
    """All executors by name, imported at their first lookup."""

    def __getitem__(self, name: str) -> Executor:
        return _load_executor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_KINDS)

    def __len__(self) -> int:
        return len(_KINDS)


class MissingExecutor:
    """Placeholder for an executor whose library is not installed."""

    def __init__(self, name: str, library: str, extra: str) -> None:
        self.name = name
        self._why = f"The Python package {library} is not installed. Run: pip install 'fidelio-agents[{extra}]'"

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        return Availability(works=False, why=self._why)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:  # noqa: ARG002  # missing for every blueprint
        return (self._why,)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:  # noqa: ARG002  # missing for every turn
        raise ExecutorUnavailable(self._why)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:  # noqa: ARG002  # missing for every turn
        return None


def get_executors() -> Mapping[str, Executor]:
    return _Executors()


async def find_working_executor(blueprint: Blueprint = DEFAULT_BLUEPRINT) -> Executor:
    """Find the first executor, in order of preference, that works on this machine and accepts the blueprint."""
    unsuitable, missing = [], []
    for name in _ORDER:
        executor = _load_executor(name)
        availability = await executor.availability(blueprint.environment)
        if not availability.works:
            missing.append(f"{name}: {availability.why}")
        elif problems := executor.problems(blueprint):
            unsuitable.append(f" {name} does, but: {' '.join(problems)}")
        else:
            return executor
    if not unsuitable:
        raise ExecutorUnavailable("No agent works on this machine.", remedy=_REMEDY)
    # The first missing executor is the most capable of them.
    remedy = Hint(*(f"{why} " for why in missing[:1]), _REMEDY)
    raise ExecutorUnavailable(f"No agent that could do this works on this machine.{''.join(unsuitable)}", remedy=remedy)


@cache
def _load_executor(name: str) -> Executor:
    module, class_, arguments = _KINDS[name]
    try:
        loaded = import_module(f"{_PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fidelio"):
            raise
        return MissingExecutor(name, error.name or "", module.partition(".")[0].replace("_", "-"))
    return cast("Executor", getattr(loaded, class_)(*arguments))
