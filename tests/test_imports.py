"""An agent that starts us over stdio waits for our imports, so what an import may load is a promise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fidelio.surfaces.commands import COMMANDS
from tests.support import proves

HEAVY = ("asyncio", "pydantic", "apsw", "asyncpg", "click", "mcp", "yaml")


def loaded_by(module: str) -> set[str]:
    """The heavy packages that a fresh interpreter has in memory after one import."""
    return set(HEAVY) & modules_after(f"import sys, {module}")


def modules_after(statements: str) -> set[str]:
    program = f"{statements}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


@proves("project.light-import")
@pytest.mark.parametrize("module", ["fidelio", "fidelio.__main__", "fidelio.errors", "fidelio.tokens"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(module) == set()


@proves("project.light-import")
@pytest.mark.parametrize(
    ("arguments", "modules"),
    [
        (["--help"], {"main"}),
        (["list", "--help"], {"main", "listing"}),
        (["sessions", "--help"], {"main", "record"}),
        (["up", "--help"], {"main", "serve"}),
        (["work", "--help"], {"main", "serve"}),
    ],
)
def test_a_command_imports_its_own_module_and_help_imports_none(arguments: list[str], modules: set[str]) -> None:
    loaded = modules_after(f"import sys; from fidelio.surfaces.cli.main import run; run({arguments!r})")
    commands = {module for module, _ in COMMANDS.values()} | {"http_server"}

    assert {name for name in commands if f"fidelio.surfaces.cli.{name}" in loaded} == modules
    assert not {"pydantic", "apsw", "asyncpg", "mcp", "yaml", "starlette", "uvicorn"} & loaded


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded_by("asyncio") == {"asyncio"}
