"""The registry of executors, and the choice of one where none is named."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest

from fidelio.errors import ExecutorUnavailable
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors import registry
from fidelio.orchestrator.executors.contract import Availability, Executor, Turn
from fidelio.orchestrator.executors.registry import MissingExecutor, find_working_executor, get_executors
from fidelio.orchestrator.executors.scripted.executor import ScriptedExecutor
from fidelio.processes.table import ProcessIdentity
from tests.orchestrator.executors.recording import RecordingReporter
from tests.support import proves

NAMES = ["scripted", "command", "claude", "codex", "gemini", "opencode", "qwen", "local-model"]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test has loaded in its own way is not there for the next."""
    registry._load_executor.cache_clear()
    yield
    registry._load_executor.cache_clear()


class Working(ScriptedExecutor):
    """An executor of which only the name and the state are of interest."""

    def __init__(self, name: str, *, works: bool) -> None:
        self.name = name
        self._works = works

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        return Availability(works=self._works, why="It has no key.")


def only(monkeypatch: pytest.MonkeyPatch, *working: str) -> None:
    def load(name: str) -> Executor:
        return Working(name, works=name in working)

    load.cache_clear = lambda: None  # type: ignore[attr-defined]  # stands in for a cached function
    monkeypatch.setattr(registry, "_load_executor", load)


def cannot_use_tools(executor: Working, blueprint: Blueprint) -> tuple[str, ...]:
    return ("It uses no tools.",) if blueprint.mcp_servers and executor.name in ("claude", "local-model") else ()


@proves("executors.lazy")
def test_every_kind_of_agent_is_there_under_its_name() -> None:
    assert list(get_executors()) == NAMES
    assert len(get_executors()) == len(NAMES)
    assert [executor.name for executor in get_executors().values()] == NAMES
    assert get_executors()["scripted"] is get_executors()["scripted"]


@proves("executors.lazy")
def test_naming_the_kinds_loads_none_of_them() -> None:
    program = (
        "import sys\nfrom fidelio.orchestrator.executors.registry import get_executors\nlist(get_executors())\n"
        "print([name for name in sys.modules if name.startswith('fidelio.orchestrator.executors.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    loaded = set(eval(done.stdout))
    assert loaded == {f"fidelio.orchestrator.executors.{name}" for name in ("contract", "registry")}


@proves("executors.lazy")
async def test_a_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, turn: Turn, reporter: RecordingReporter
) -> None:
    def fail(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named 'acp', wanted by {name}", name="acp")

    monkeypatch.setattr(registry, "import_module", fail)
    gemini = get_executors()["gemini"]
    why = "The Python package acp is not installed. Run: pip install 'fidelio-agents[acp]'"

    assert isinstance(gemini, MissingExecutor)
    assert gemini.name == "gemini"
    assert await gemini.availability() == Availability(works=False, why=why)
    assert gemini.problems(Blueprint(name="a", description="")) == (why,)
    assert await gemini.adopt(turn, ProcessIdentity(1, ""), reporter) is None
    with pytest.raises(ExecutorUnavailable, match="not installed"):
        await gemini.carry_out(turn, reporter)


@proves("executors.lazy")
def test_an_import_error_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        return importlib.import_module(f"{name}_gone")

    monkeypatch.setattr(registry, "import_module", fail)

    with pytest.raises(ModuleNotFoundError):
        get_executors()["command"]


@proves("executors.first-working")
async def test_without_a_preference_the_first_that_works_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "scripted", "command", "qwen", "opencode")

    assert (await find_working_executor()).name == "opencode"


@proves("executors.first-working")
async def test_where_none_works_the_doctor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "scripted", "command")

    with pytest.raises(ExecutorUnavailable, match=r"No agent works on this machine\. Run `fidelio doctor`"):
        await find_working_executor()


@proves("executors.first-working")
async def test_an_executor_that_works_but_rejects_the_blueprint_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Working, "problems", cannot_use_tools)
    only(monkeypatch, "claude", "qwen", "local-model")
    blueprint = Blueprint(name="a", description="", mcp_servers={"x": McpServer(command="x")})

    assert (await find_working_executor(blueprint)).name == "qwen"
    assert (await find_working_executor()).name == "claude"


@proves("executors.first-working")
async def test_where_none_that_works_can_take_the_blueprint_the_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Working, "problems", cannot_use_tools)
    only(monkeypatch, "local-model")
    blueprint = Blueprint(name="a", description="", mcp_servers={"x": McpServer(command="x")})

    with pytest.raises(ExecutorUnavailable) as caught:
        await find_working_executor(blueprint)

    assert str(caught.value).startswith(
        "No agent that could do this works on this machine. local-model does, but: It uses no tools. claude: It has no key."
    )
    assert "fidelio doctor" in str(caught.value)
