"""The command line over a runtime in the process of the test: scripted models, and sandboxes without processes."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.service import RuntimeService
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.surfaces.cli import context
from tests.runtime.support import FakeSandboxes
from tests.support.command_line import run_fidelio

ModelBehaviour = Callable[[ModelRequest], ModelReply | Awaitable[ModelReply]]
RunFidelio = Callable[..., subprocess.CompletedProcess[str]]
# A person's part of the request `scripted:test`; other names are the bundled scripts.
CURRENT: list[ModelBehaviour] = []
FILES: dict[str, str] = {}
STARTED_WORKERS: list[str] = []


def make_sandboxes() -> FakeSandboxes:
    """Files in memory, and commands that succeed."""

    def write(given: dict[str, Any]) -> dict[str, Any]:
        FILES[given["path"]] = given["content"]
        return {"path": given["path"], "bytes": len(given["content"])}

    def read(given: dict[str, Any]) -> dict[str, Any]:
        return {"path": given["path"], "content": FILES.get(given["path"], ""), "truncated": False}

    def write_bytes(given: dict[str, Any]) -> dict[str, Any]:
        before = FILES.get(given["path"], "") if given["append"] else ""
        FILES[given["path"]] = before + given["data"]
        return {"path": given["path"]}

    def read_bytes(given: dict[str, Any]) -> dict[str, Any]:
        return {"data": FILES[given["path"]], "size": 1, "eof": True}

    def run(given: dict[str, Any]) -> dict[str, Any]:
        return {"commandId": given.get("commandId"), "status": "completed", "exitCode": 0, "stdout": "20 hello.txt\n"}

    return FakeSandboxes(
        {
            "write_text": write,
            "read_text": read,
            "write_bytes": write_bytes,
            "read_bytes": read_bytes,
            "mkdir": lambda given: {"path": given["path"]},
            "run_shell": run,
        }
    )


class RuntimeApplication(Application):
    """An application without processes of its own."""

    async def _open_runtime(self) -> RuntimeService:
        bundled = ScriptedProvider()

        async def reply(request: ModelRequest) -> ModelReply:
            if request.model != "test":
                return await bundled.complete(request, lambda _: None)
            made = CURRENT[0](request)
            return made if isinstance(made, ModelReply) else await made

        ports = RuntimePorts(models=Providers({"scripted": ScriptedProvider(reply)}))
        return RuntimeService(
            RuntimeContext(await self._open_ledger(), now_ms, self.settings.home, make_sandboxes(), self.keys, ports)
        )

    async def start_runtime_worker(self) -> None:
        STARTED_WORKERS.append(str(self.settings.home.path))

    async def host_sandboxes(self) -> None:
        """There are no processes to host."""


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "Application", RuntimeApplication)
    FILES.clear()
    STARTED_WORKERS.clear()
    CURRENT.clear()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def fidelio(environ: dict[str, str], project: Path, tmp_path: Path) -> RunFidelio:
    """Run a command in the project; `text` is its standard input."""
    named = {**environ, "XDG_DATA_HOME": str(tmp_path / "data"), "COLUMNS": "80"}

    def run(*arguments: str, text: str = "", **changes: str) -> subprocess.CompletedProcess[str]:
        return run_fidelio(arguments, environ={**named, **changes}, directory=project, text=text)

    return run


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelBehaviour], None]:
    """Let the model `scripted:test` reply by a function."""

    def use(function: ModelBehaviour) -> None:
        CURRENT[:] = [function]

    return use
