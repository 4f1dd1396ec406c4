"""Decide which level of isolation this machine offers, by trying: kernels, containers and policies differ too much to ask.

Each level is tried by starting a real sandbox that runs `true`. The result says why no better level works, and what a person
can do about it. Nothing is cached; the host process asks once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fidelio.errors.runtime import SandboxError
from fidelio.sandbox.directory import create_directory, empty_directory
from fidelio.sandbox.launch import build_launch, python_inside
from fidelio.sandbox.launch.bubblewrap import find_bubblewrap
from fidelio.sandbox.model import WORKSPACE, Level, LevelReport, Mount, SandboxSpec

VARIABLE = "FIDELIO_SANDBOX_LEVEL"
LEVELS: tuple[Level, ...] = ("bubblewrap", "namespaces", "landlock")
_SHORT = {"a": "bubblewrap", "b": "namespaces", "c": "landlock", "d": "none"}
_TIMEOUT = 20.0
_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_REASONS: Mapping[Level, str] = {
    "bubblewrap": "Sandboxes run in namespaces that bubblewrap creates.",
    "namespaces": "Sandboxes run in namespaces that Fidelio creates.",
    "landlock": "Sandboxes work on files only: they run no commands and no shell and have no network.",
}


def detect_level(environ: Mapping[str, str] = os.environ) -> LevelReport:
    """The best level that works here. FIDELIO_SANDBOX_LEVEL forces a level for tests; if it does not work, it is `none`."""
    forced = environ.get(VARIABLE, "")
    wanted = _SHORT.get(forced, forced)
    if wanted == "none":
        return LevelReport("none", f"{VARIABLE} switches sandboxes off.", f"Remove {VARIABLE} from the environment.")
    if wanted and wanted not in LEVELS:
        names = ", ".join((*LEVELS, "none"))
        return LevelReport("none", f"{VARIABLE} has the unknown value '{forced}'.", f"Use one of: {names}.")
    return _find_best(tuple(level for level in LEVELS if not wanted or level == wanted))


def _find_best(candidates: tuple[Level, ...]) -> LevelReport:
    failures: list[str] = []
    for level in candidates:
        problem = try_level(level)
        if not problem:
            reason = " ".join((_REASONS[level], *failures))
            return LevelReport(level, reason, find_remedy() if failures else "")
        failures.append(problem)
    return LevelReport("none", " ".join(failures), find_remedy())


def try_level(level: Level) -> str:
    """Start a sandbox that does nothing. Returns a sentence about why it cannot be started; empty if it can."""
    if sys.platform != "linux":
        return "Sandboxes need Linux."
    try:
        with tempfile.TemporaryDirectory(prefix="fidelio-level-") as home:
            return _run_probe(level, Path(home))
    except SandboxError as error:
        return error.sentence
    except OSError as error:
        return f"Level '{level}' cannot be tried: {error.strerror}."


def _run_probe(level: Level, home: Path) -> str:
    directory = create_directory(home)
    mounts = (Mount(WORKSPACE, str(directory / "workspace"), "read_write", "session_workspace"),)
    spec = SandboxSpec("probe", str(directory), mounts)
    program = (*python_inside(spec), "-c", "") if level == "landlock" else ("/bin/true",)
    launch = build_launch(spec, LevelReport(level, ""), program)
    try:
        done = subprocess.run(  # noqa: S603  # our own command line
            launch.argv,
            pass_fds=launch.pass_fds,
            env=launch.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Level '{level}' did not start within {_TIMEOUT:.0f} seconds."
    finally:
        launch.close()
    empty_directory(directory)
    if not done.returncode:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
    # A hint may follow the message; in the report of a Python error the message is last.
    message = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return f"Level '{level}' does not work: {message[:200].rstrip('.')}."


def find_remedy() -> str:
    """What a person can do for a better level."""
    if _restricts_namespaces():
        program = find_bubblewrap() or "/usr/bin/bwrap"
        return (
            "AppArmor of this machine refuses user namespaces to programs without a profile (Ubuntu 24.04 and newer). "
            f"Install bubblewrap and give it one: write `profile bwrap {program} flags=(unconfined) {{ userns, }}` to "
            "/etc/apparmor.d/bwrap and run `sudo apparmor_parser -r /etc/apparmor.d/bwrap`."
        )
    if find_bubblewrap() is None:
        return "Install bubblewrap 0.8 or newer: sudo apt-get install bubblewrap."
    return (
        "Use bubblewrap 0.8 or newer and allow user namespaces: sudo sysctl user.max_user_namespaces=10000 (older kernels of "
        "Debian also need kernel.unprivileged_userns_clone=1). In a container, allow the system calls unshare and mount, or "
        "run Fidelio outside of it."
    )


def _restricts_namespaces() -> bool:
    try:
        return _APPARMOR.read_text("ascii").strip() == "1"
    except OSError:
        return False
