"""Which kinds of agents there are, each loaded when it is first asked for.

A kind whose library is not installed is there all the same: it says what is missing, instead of hiding the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import cast

from fidelio.errors import ExecutorUnavailable
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import Availability, Executor, Finished, ProcessIdentity, Teller, Turn

_PACKAGE = "fidelio.orchestrator.executors"
# Name: module, class, what its constructor takes.
_KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "scripted": ("scripted", "ScriptedExecutor", ()),
    "command": ("command", "CommandExecutor", ()),
    "claude": ("claude", "ClaudeExecutor", ()),
    "codex": ("codex", "CodexExecutor", ()),
    "gemini": ("acp", "AcpExecutor", ("gemini",)),
    "opencode": ("acp", "AcpExecutor", ("opencode",)),
    "qwen": ("acp", "AcpExecutor", ("qwen",)),
    "local-model": ("local_model", "LocalModelExecutor", ()),
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

    async def carry_out(self, turn: Turn, tell: Teller) -> Finished:  # noqa: ARG002  # it is not there for any turn
        raise ExecutorUnavailable(self._why)

    async def adopt(self, turn: Turn, process: ProcessIdentity, tell: Teller) -> Finished | None:  # noqa: ARG002  # as above
        return None


def executors() -> Mapping[str, Executor]:
    return _Executors()


def find_executor(name: str) -> Executor:
    """Raises when there is no such kind; one that does not work here is found."""
    if name not in _KINDS:
        raise ExecutorUnavailable(f"No executor is called {name!r}.", remedy=f"There are {', '.join(_KINDS)}.")
    return _load(name)


async def first_working(preferred: str | None = None, added: Mapping[str, str] | None = None) -> Executor:
    """Who does a task that no blueprint gives to anybody: the preferred kind, else the first that works on this machine.

    `added` is what the environment has more than ours.
    """
    if preferred is not None:
        return await _working(find_executor(preferred), added)
    for name in _ORDER:
        executor = _load(name)
        if (await executor.availability(added)).works:
            return executor
    raise ExecutorUnavailable("No agent works on this machine.", remedy=_DOCTOR)


async def _working(executor: Executor, added: Mapping[str, str] | None) -> Executor:
    found = await executor.availability(added)
    if not found.works:
        raise ExecutorUnavailable(f"The executor {executor.name} does not work here: {found.why}", remedy=_DOCTOR)
    return executor


@cache
def _load(name: str) -> Executor:
    module, class_, arguments = _KINDS[name]
    try:
        loaded = import_module(f"{_PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fidelio"):
            raise
        return Missing(name, error.name or "", module.replace("_", "-"))
    return cast("Executor", getattr(loaded, class_)(*arguments))
