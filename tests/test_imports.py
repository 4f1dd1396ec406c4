"""An agent that starts us over stdio waits for our imports, so what an import may load is a promise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import proves

HEAVY = ("asyncio", "pydantic", "apsw", "asyncpg", "click", "mcp", "yaml")


def loaded_by(module: str) -> set[str]:
    """The heavy packages that a fresh interpreter has in memory after one import."""
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    return set(HEAVY) & set(done.stdout.split())


@proves("project.light-import")
@pytest.mark.parametrize("module", ["fidelio", "fidelio.__main__", "fidelio.errors", "fidelio.tokens"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(module) == set()


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded_by("asyncio") == {"asyncio"}
