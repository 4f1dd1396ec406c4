"""Fake machine for the setup script: a copy of the project, and programs that log their arguments.

The fake Python makes fake environments and pretends to install, so that a test of the script takes a moment and no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_PYTHON = """#!/bin/sh
# `$0` may be the interpreter of a fake environment; both behave alike.
case "$*" in
  "-m venv --clear "*)
    echo "venv" >>"$LOG"
    rm -rf "$4" && mkdir -p "$4/bin" "$4/lib" && cp "$0" "$4/bin/python" ;;
  "-m pip --version") ;;
  "-m pip install"*)
    echo "pip $*" >>"$LOG"
    [ -z "$KILL_DURING_INSTALL" ] || kill -9 $PPID
    [ -z "$FAIL_INSTALL" ] || { echo "No matching distribution"; exit 1; } ;;
  *sys._base_executable*) echo "$0" ;;
  *"import ensurepip"*) [ -e "$HAS_VENV" ] ;;
  *"sys.version_info < (3, 11)"*) [ -z "$OLD" ] ;;
  "-V") echo "Python 3.9.18" ;;
  *"sys.base_prefix"*) echo "$FAKE_VERSION $(pwd)" ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
"""
_APT = """#!/bin/sh
echo "apt-get $* ($DEBIAN_FRONTEND)" >>"$LOG"
case "$1" in install) touch "$HAS_VENV" ;; esac
"""
_ID = '#!/bin/sh\necho "$USER_ID"\n'


@dataclass(frozen=True, slots=True)
class FakeMachine:
    """`clone` is where the project lies; `log` is what the fake programs were asked to do."""

    place: Path

    @property
    def clone(self) -> Path:
        return self.place / "clone"

    @property
    def has_venv(self) -> Path:
        return self.place / "has-venv"

    def setup(self, wanted: str = "run", **environ: str) -> subprocess.CompletedProcess[str]:
        programs = self.place / "bin"
        settings = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHON": str(programs / "python3"),
            "LOG": str(self.place / "log"),
            "HAS_VENV": str(self.has_venv),
            "REAL_PYTHON": sys.executable,
            "PYTHONDONTWRITEBYTECODE": "1",
            "FAKE_VERSION": "3.11",
            "USER_ID": "1000",
        }
        command = ["bash", str(self.clone / "scripts" / "setup.sh"), wanted]
        return subprocess.run(command, env=settings | environ, check=False, capture_output=True, text=True, timeout=60)

    def calls(self) -> list[str]:
        """What was asked for since the last look."""
        log = self.place / "log"
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def installs(self) -> int:
        return sum("--editable" in call for call in self.calls())


def fake_machine(place: Path, *, has_venv: bool = True) -> FakeMachine:
    machine = FakeMachine(place)
    (machine.clone / "src").mkdir(parents=True)
    (machine.clone / "src" / "product.py").write_text("answer = 42\n", "utf-8")
    shutil.copytree(ROOT / "scripts", machine.clone / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, machine.clone)
    (place / "bin").mkdir()
    for name, text in {"python3": _PYTHON, "apt-get": _APT, "id": _ID}.items():
        (place / "bin" / name).write_text(text, "utf-8")
        (place / "bin" / name).chmod(0o755)
    if has_venv:
        machine.has_venv.touch()
    return machine
