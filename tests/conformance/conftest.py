"""The fixture server, once for all scenarios, in a process of its own as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.node import HOW_TO_INSTALL, is_installed, programs
from tests.support.parts import require_part


@pytest.fixture(scope="session")
def javascript() -> Path:
    """The directory with the pinned programs."""
    if not is_installed():
        require_part("The conformance suite (with its node)", HOW_TO_INSTALL)
    return programs()


@pytest.fixture(scope="session")
def fixture_server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.conformance.fixture_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
            server.wait(timeout=30)
