"""A second user of the machine, for attacks that only another user can try. The tests must run as root for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can act as another user")


def open_to_all(directory: Path) -> None:
    """Let other users look into the directory and those above it that the tests have made."""
    for path in (directory, *directory.parents):
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)


async def as_other_user(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as another user, while the event loop serves."""
    return await asyncio.to_thread(run_as_other_user, program, *arguments)


# The interpreter and our modules may be readable for root alone, so they are loaded before the user changes.
_BECOME = f"""
import encodings.idna, http.client, os, pathlib, socket, stringprep, sys, urllib.error, urllib.request
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
"""


def run_as_other_user(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as another user."""
    command = [sys.executable, "-c", _BECOME + program, *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FIDELIO_", "XDG_"))}
    return subprocess.run(command, cwd="/", env=environ, capture_output=True, text=True, timeout=60, check=False)
