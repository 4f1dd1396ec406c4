"""Sandboxes for tests: the process inside as it runs behind isolation, and the same process on the bare machine.

Most behaviour does not depend on isolation, and on the bare machine a test can look at the processes of the sandbox itself.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from fidelio.sandbox.directory import create_directory
from fidelio.sandbox.inside.supervisor import find_descendants, kill_all
from fidelio.sandbox.launch import LaunchCommand
from fidelio.sandbox.launch.library import INSIDE
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import LevelReport, Mount, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from tests.support.parts import require_part

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
    "USER": "tester",
    "SHELL": "/bin/bash",
}
_SERVE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from fidelio.sandbox.inside import server, tree
os.setsid() if os.getsid(0) != os.getpid() else None
plain, base = tree.PlainTree, sys.argv[3]
server.PlainTree = lambda: plain(base)
sys.argv = ["-c", sys.argv[2]]
server.main()
"""
LaunchOutput = dict[str, Any]


class Sandbox:
    """A sandbox and short ways to call its actions."""

    def __init__(self, process: SandboxProcess, workspace: Path) -> None:
        self.process, self.workspace = process, workspace

    async def call(self, action: str, **arguments: Any) -> LaunchOutput:
        """The output of an action that must work."""
        result = await self.process.call(action, arguments)
        assert result.error is None, result.error
        return dict(result.output)

    async def refuse(self, action: str, **arguments: Any) -> str:
        """The code of an action that must fail."""
        result = await self.process.call(action, arguments)
        assert result.error is not None, result.output
        assert result.error.message.endswith((".", "?"))
        return result.error.code

    async def run(self, command: str, **arguments: Any) -> LaunchOutput:
        return await self.call("run_shell", command=command, **arguments)

    async def execute(self, command: str, **arguments: Any) -> LaunchOutput:
        return await self.call("exec_persistent_shell", command=command, **arguments)

    async def wait(self, **arguments: Any) -> LaunchOutput:
        return await self.call("wait_persistent_shell", **{"timeoutMs": 20_000, **arguments})


@asynccontextmanager
async def bare_sandbox(directory: Path, program: str = "") -> AsyncIterator[Sandbox]:
    """The process inside without any isolation: commands run on this machine. `program` replaces it by code of a test."""
    workspace = directory / "workspace"
    workspace.mkdir(exist_ok=True)
    ours, theirs = socket.socketpair()
    with theirs:
        argv = _make_argv(directory, workspace, program or _SERVE, theirs.fileno())
        command = LaunchCommand(argv, (theirs.fileno(),), ENVIRONMENT, lambda: None)
        process = await SandboxProcess.launch(command, ours, {})
    try:
        yield Sandbox(process, workspace)
    finally:
        # No namespace ends what commands have left.
        kill_all(lambda: find_descendants((process.pid,)))
        await process.close()


def _make_argv(directory: Path, workspace: Path, program: str, descriptor: int) -> tuple[str, ...]:
    lib = directory / "lib"
    target = lib / "fidelio" / "sandbox" / "inside"
    if not target.exists():
        shutil.copytree(INSIDE, target, ignore=shutil.ignore_patterns("__pycache__"))
    return (sys.executable, "-I", "-S", "-c", program, str(lib), str(descriptor), str(workspace))


def make_spec(home: Path, **options: Any) -> SandboxSpec:
    directory = create_directory(home)
    mount = Mount("/workspace", str(directory / "workspace"), "read_write", "session_workspace")
    return SandboxSpec(session="session", directory=str(directory), mounts=(mount,), **options)


@asynccontextmanager
async def isolated_sandbox(spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    """A real sandbox, at the best level of this machine that runs commands."""
    process = await SandboxProcess.start(spec, find_level())
    try:
        yield Sandbox(process, Path(spec.directory) / "workspace")
    finally:
        await process.close()


def find_level() -> LevelReport:
    report = _detect()
    if not report.runs_commands:
        require_part("a sandbox that runs commands", report.remedy or report.reason)
    return report


@cache
def _detect() -> LevelReport:
    return detect_level({})


async def eventually(holds: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Wait for a change that nobody announces."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.01)


def find_processes(mark: str) -> list[int]:
    """Processes whose command line or environment contains a text."""
    return [pid for pid in _all_processes() if any(mark.encode() in _read(pid, name) for name in ("cmdline", "environ"))]


def find_children(parent: int) -> list[int]:
    return [pid for pid in _all_processes() if _read(pid, "stat").rpartition(b")")[2].split()[1:2] == [str(parent).encode()]]


def _all_processes() -> Iterable[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
