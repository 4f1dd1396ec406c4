"""Which kinds of agents there are, each loaded when it is first asked for.

A kind whose library is not installed is there all the same: it says what is missing, instead of hiding the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import cast

from fidelio.errors import ExecutorUnavailable
from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint
from fidelio.orchestrator.executors.contract import Availability, Executor, Finished, Reporter, Turn
from fidelio.processes.table import ProcessIdentity

_PACKAGE = "fidelio.orchestrator.executors"
# Name: module, class, what its constructor takes.
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
# Who is asked to do a task that nobody in particular was named for, the most capable first. A script does no task, and a
# command is nothing without its blueprint.
_ORDER = ("claude", "codex", "gemini", "opencode", "qwen", "local-model")
_DOCTOR = "Run `fidelio doctor`: it says which agents work on this machine and what the others need."


class _Executors(Mapping[str, Executor]):
    """Every kind by name."""

    def __getitem__(self, name: str) -> Executor:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_KINDS)

    def __len__(self) -> int:
        return len(_KINDS)


class Missing:
    """Stands for a kind of agent whose library is not there."""

    def __init__(self, name: str, library: str, extra: str) -> None:
        self.name = name
        self._why = f"The Python package {library} is not installed. Run: pip install 'fidelio-agents[{extra}]'"

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        return Availability(works=False, why=self._why)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:  # noqa: ARG002  # it is not there, whatever the blueprint says
        return (self._why,)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> Finished:  # noqa: ARG002  # it is not there for any turn
        raise ExecutorUnavailable(self._why)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> Finished | None:  # noqa: ARG002  # as above
        return None


def executors() -> Mapping[str, Executor]:
    return _Executors()


async def first_working(blueprint: Blueprint = DEFAULT_BLUEPRINT) -> Executor:
    """Who does a task that is given to nobody in particular: the first that works here and can take the blueprint."""
    unfit, missing = [], []
    for name in _ORDER:
        executor = _load(name)
        found = await executor.availability(blueprint.environment)
        if not found.works:
            missing.append(f"{name}: {found.why}")
        elif problems := executor.problems(blueprint):
            unfit.append(f" {name} does, but: {' '.join(problems)}")
        else:
            return executor
    if not unfit:
        raise ExecutorUnavailable("No agent works on this machine.", remedy=_DOCTOR)
    # The first that is missing is the most capable one.
    remedy = " ".join((*missing[:1], _DOCTOR))
    raise ExecutorUnavailable(f"No agent that could do this works on this machine.{''.join(unfit)}", remedy=remedy)


@cache
def _load(name: str) -> Executor:
    module, class_, arguments = _KINDS[name]
    try:
        loaded = import_module(f"{_PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fidelio"):
            raise
        return Missing(name, error.name or "", module.partition(".")[0].replace("_", "-"))
    return cast("Executor", getattr(loaded, class_)(*arguments))
