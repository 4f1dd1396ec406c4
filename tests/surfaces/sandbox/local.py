"""An application whose sandboxes live in the process of the test: no host process has to be started and ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

import pytest

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.runtime.service import RuntimeService
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from fidelio.surfaces.cli import context
from tests.support.command_line import run_fidelio
from tests.support.parts import require_part

RunFidelio = Callable[..., subprocess.CompletedProcess[str]]


class LocalApplication(Application):
    """Sandboxes of this process, ended with the application."""

    _service: RuntimeService | None = None
    _pool: SandboxPool | None = None

    async def runtime(self) -> RuntimeService:
        if self._service is None:
            self._pool = SandboxPool(_start)
            context = RuntimeContext(
                ledger=await self._open_ledger(),
                clock=now_ms,
                home=self.settings.home,
                sandboxes=LocalSandboxes(self._pool, _read_level),
                open_keys=self.keys,
            )
            self._service = RuntimeService(context)
        return self._service

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            await self._pool.close()
        await super().__aexit__(kind, error, trace)


async def _start(spec: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
    report = await _read_level()
    process = await SandboxProcess.start(spec, report)
    return LaunchedProcess(process, report.level, process.pid)


async def _read_level() -> LevelReport:
    return detect_level()


def require_commands() -> None:
    """Skip or fail the test where sandboxes run no commands."""
    report = detect_level()
    if not report.runs_commands:
        require_part("Isolation for commands", f"{report.reason} {report.remedy}")


def open_command_line(environ: dict[str, str], directory: Path, monkeypatch: pytest.MonkeyPatch) -> RunFidelio:
    """Run commands in a project below the directory, with sandboxes that end with each command."""
    require_commands()
    monkeypatch.setattr(context, "Application", LocalApplication)
    directory.chmod(0o755)
    project = make_project(directory)

    def run(*arguments: str, text: str = "", **changes: str) -> subprocess.CompletedProcess[str]:
        return run_fidelio(arguments, environ={**environ, **changes}, directory=project, text=text)

    return run


def make_project(directory: Path) -> Path:
    """A small project with a test that fails."""
    project = directory / "project"
    project.mkdir()
    (project / "adder.py").write_text("def add(a, b):\n    return a - b\n")
    (project / "check.py").write_text("from adder import add\nassert add(2, 3) == 5, 'wrong sum'\nprint('ok')\n")
    return project
