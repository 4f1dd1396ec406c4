"""The surroundings of the attempts: a home with secrets, another session, a project, and processes and sockets of the host.

Run as a program it does all of this as another user, because everything that it needs is loaded before the user changes.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # an unprivileged user may be unable to load it later
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fidelio.sandbox import seccomp
from fidelio.sandbox.directory import create_directory, empty_directory, host_uid, may_switch_user, share
from fidelio.sandbox.launch import build_launch, python_inside
from fidelio.sandbox.launch.plan import SHARED_MEMORY_BYTES
from fidelio.sandbox.model import (
    LEARNINGS,
    PROJECT,
    RUNTIME,
    SUBSTRATE,
    WORKSPACE,
    Level,
    LevelReport,
    Mount,
    SandboxLimits,
    SandboxSpec,
)
from tests.sandbox.isolation.attempts import files, harness, kernel, processes

# Small limits, so that reaching them is quick.
LIMITS = SandboxLimits(processes=64, memory_bytes=1 << 30, file_bytes=256 << 20, open_files=256)
SECONDS = 100
_OUR_IMPORTS = re.compile(r"^from (tests\.\S+|__future__) import (\([^)]*\)|.*)$", re.MULTILINE)
_MODULES = (harness, files, kernel, processes)


class Scene(msgspec.Struct):
    """What the attempts are run against. `base` is removed at the end."""

    base: Path
    home: Path
    project: Path
    directory: Path
    spec: SandboxSpec
    canary: str


def build_scene(base: Path) -> Scene:
    """Create a project with a home that has secrets, two sessions, and the specification of one of them."""
    canary = "canary-7f1e"
    project = base / "named-project"
    home = project / ".fidelio"
    home.mkdir(parents=True, mode=0o700)
    for path in (base / "secret", home / "ledger.db", home / "keys.json", home / "http-token"):
        path.write_text(f"{canary}\n")
    (project / "readme").write_text("a project\n")
    other, directory = create_directory(home), create_directory(home)
    (other / "workspace" / "secret").write_text(canary)
    (directory / "substrate" / "MEMORY.md").write_text("kept\n")
    share(directory / "substrate", host_uid(directory))
    return Scene(base, home, project, directory, make_spec(directory, project), canary)


def make_spec(directory: Path, project: Path | Mount | None = None) -> SandboxSpec:
    """The specification of a session, with a project or another mount."""
    mounts = [
        Mount(WORKSPACE, str(directory / "workspace"), "read_write", "session_workspace"),
        Mount(SUBSTRATE, str(directory / "substrate"), "read_only", "agent_workspace_substrate"),
        Mount(RUNTIME, str(directory / "runtime"), "read_only", "session_runtime_memory"),
        Mount(LEARNINGS, str(directory / "learnings"), "read_only", "learnings_memory_store"),
    ]
    if project is not None:
        mounts.append(project if isinstance(project, Mount) else Mount(PROJECT, str(project), "read_only", "project"))
    return SandboxSpec("named-session", str(directory), tuple(mounts), limits=LIMITS)


def python_text() -> str:
    """The text of the attempts as one program: inside there are no modules of the tests."""
    texts = [Path(module.__file__ or "").read_text("utf-8") for module in _MODULES]
    return "\n".join([*(_OUR_IMPORTS.sub("", text) for text in texts), "main()"])


def make_context(scene: Scene, level: Level) -> dict[str, Any]:
    """What the attempts know. Where there are no mounts they get the paths of the host: they are to fail with them."""
    has_mounts = level != "landlock"
    chosen = [name for name, tried in harness.ATTEMPTS.items() if has_mounts or tried.without_commands]
    substrate = SUBSTRATE if has_mounts else str(scene.directory / "substrate")
    runtime = RUNTIME if has_mounts else str(scene.directory / "runtime")
    return {
        "names": chosen,
        "commands": has_mounts,
        "canary": scene.canary,
        "secret": str(scene.base / "secret"),
        "home": str(scene.home),
        "other_session": str(
            next(path for path in scene.directory.parent.iterdir() if path != scene.directory) / "workspace/secret"
        ),
        "workspace": WORKSPACE if has_mounts else str(scene.directory / "workspace"),
        "read_only_file": f"{substrate}/MEMORY.md",
        "read_only_directories": [substrate, runtime, *([f"{WORKSPACE}/.openboa-runtime", LEARNINGS] if has_mounts else [])],
        "project": PROJECT if has_mounts else str(scene.project),
        "private_names": ["named-session"],
        "calls": dict(seccomp._ARCHITECTURES[os.uname().machine].numbers),
        "socket": str(scene.base / "socket"),
        "abstract": f"fidelio-{scene.directory.name}",
        "mark": f"fidelio-host-{scene.directory.name}",
        "survivor": f"fidelio-survivor-{scene.directory.name}",
        "processes": LIMITS.processes,
        "memory_bytes": LIMITS.memory_bytes,
        "file_bytes": LIMITS.file_bytes,
        "open_files": LIMITS.open_files,
        "shared_memory_bytes": SHARED_MEMORY_BYTES,
    }


@contextlib.contextmanager
def serve_host(scene: Scene, context: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Listen on sockets as services of the host do, and run a process whose name the attempts look for."""
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        context["port"] = tcp.getsockname()[1]
        for address in (context["socket"], "\0" + context["abstract"], f"{scene.home}/sandboxes.sock"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        process = stack.enter_context(subprocess.Popen([context["mark"], "300"], executable="/bin/sleep"))
        stack.callback(process.kill)
        context["process"] = process.pid
        yield process


def run_program(spec: SandboxSpec, level: Level, program: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    launch = build_launch(spec, LevelReport(level, ""), program)
    # A secret of the host process that must not get in.
    os.environ["FIDELIO_TEST_SECRET"] = "canary-7f1e"
    try:
        return subprocess.run(
            launch.argv, pass_fds=launch.pass_fds, env=launch.environment, input=text,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    finally:
        launch.close()


def run_attempts(level: Level, base: Path) -> dict[str, str]:
    """Run all attempts at a level, as the user of this process. What the host alone can see is judged here."""
    scene = build_scene(base)
    spec = scene.spec if level != "landlock" else make_spec(scene.directory)
    context = make_context(scene, level)
    with serve_host(scene, context) as process:
        done = run_program(spec, level, [*python_inside(spec), "-c", python_text()], json.dumps(context))
        assert done.returncode == 0, done.stderr
        outcome: dict[str, str] = json.loads(done.stdout)
        if process.poll() is not None:
            outcome["signal-host"] = "escaped: a process of the host has ended"
        if level != "landlock" and is_running(context["survivor"]):
            outcome["daemon"] = "escaped: it outlives the sandbox"
    if (scene.directory / "substrate" / "MEMORY.md").read_text() != "kept\n":
        outcome["remount"] = "escaped: a file that may only be read was changed"
    return outcome


def run_outside(base: Path) -> dict[str, str]:
    """Run the attempts that an ordinary user can carry out without a sandbox."""
    scene = build_scene(base)
    context = make_context(scene, "landlock")
    context["names"] = [name for name, tried in harness.ATTEMPTS.items() if tried.outside]
    with serve_host(scene, context):
        return harness.run_all(context)


def is_running(name: str) -> bool:
    """Whether a process with this first argument runs. The kernel may need a moment to end those of a namespace."""
    deadline = time.monotonic() + 5
    while any(_first_argument(path) == name for path in Path("/proc").glob("[0-9]*")):
        if time.monotonic() > deadline:
            return True
    return False


def _first_argument(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return ""


def main() -> None:
    """Run the attempts as the user whose number is the first argument, and print the outcome."""
    user, level = int(sys.argv[1]), sys.argv[2]
    if may_switch_user():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        may_switch_user.cache_clear()
    base = Path(tempfile.mkdtemp(prefix="fidelio-scene-"))
    try:
        outcome = run_outside(base) if level == "outside" else run_attempts(msgspec.convert(level, Level), base)
        sys.stdout.write(json.dumps(outcome))
    finally:
        empty_directory(base)
        base.rmdir()


if __name__ == "__main__":
    main()
