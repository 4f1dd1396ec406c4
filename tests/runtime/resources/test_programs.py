"""Packages of environments that programs create: the setup installs them once, and an error names the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.errors import EnvironmentProblem
from fidelio.runtime.environments import Environments, EnvironmentVersion
from fidelio.runtime.environments.preparation import find_prepared
from fidelio.runtime.environments.programs import HostedEnvironment, Packages, build_environment, find_apt_problem
from tests.runtime.resources.support import Bench
from tests.runtime.resources.test_preparation import FakeShell
from tests.support import proves

# Writes the package into the directory that the command names, unless it is called `missing`.
INSTALLER = """#!/bin/bash
for last; do :; done
case "$last" in missing*) echo "no such package" >&2; exit 3;; esac
while [ "$1" != --target ] && [ "$1" != --prefix ]; do shift; done
mkdir -p "$2" && touch "$2/${last//\\//_}"
"""


@pytest.fixture
def shell(bench: Bench) -> FakeShell:
    return FakeShell(bench)


async def define(bench: Bench, tmp_path: Path, **packages: Any) -> EnvironmentVersion:
    """An environment whose package managers are ours."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("python3", "npm"):
        (programs / name).write_text(INSTALLER)
        (programs / name).chmod(0o755)
    built = build_environment(HostedEnvironment(name="E", packages=Packages(**packages)))
    environment = replace(built, variables={**built.variables, "PATH": f"{programs}:/usr/bin:/bin"})
    return await Environments(bench.context).define("build", environment, by="anna")


@proves("v1.environments-packages")
async def test_every_package_is_installed_where_commands_find_it(bench: Bench, shell: FakeShell, tmp_path: Path) -> None:
    chosen = await define(bench, tmp_path, pip=("attrs==24.1.0", "rich>=13,<14"), npm=("@scope/tool@2",))

    result = await find_prepared(bench.context, chosen)

    assert result is not None
    found = sorted(str(path.relative_to(result)) for path in result.rglob("*") if path.is_file())
    assert found == ["npm/@scope_tool@2", "python/attrs==24.1.0", "python/rich>=13,<14"]
    assert len(shell.runs) == 1


@proves("v1.environments-packages")
async def test_a_package_that_cannot_be_installed_is_named(bench: Bench, shell: FakeShell, tmp_path: Path) -> None:
    chosen = await define(bench, tmp_path, pip=("rich", "missing==1", "attrs"))

    with pytest.raises(EnvironmentProblem, match=r"no such package\s+The package missing==1 of pip cannot be installed"):
        await find_prepared(bench.context, chosen)


@proves("v1.environments-packages")
@given(st.text(max_size=30))
def test_no_name_of_a_package_is_an_option_or_a_command(name: str) -> None:
    content = HostedEnvironment(name="E", packages=Packages(pip=(name,)))
    try:
        setup = build_environment(content).setup
    except EnvironmentProblem:
        return

    assert not name.startswith("-")
    assert not set(name) & set(" \n\t;&|$`'\"\\(){}#")
    assert name in setup


@proves("v1.environments-packages")
def test_the_database_of_the_machine_says_which_packages_are_installed() -> None:
    status = (
        "Package: git\nStatus: install ok installed\nDescription: vcs\n Package: fake\n Status: x installed\nVersion: 1:2\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 3\n"
    )

    assert find_apt_problem(["git", "git=1:2"], status) == ""
    assert "'fake'" in find_apt_problem(["git", "fake"], status)
    assert "'gone'" in find_apt_problem(["gone"], status)
    assert "has the version 1:2" in find_apt_problem(["git=9"], status)
    assert "'git'" in find_apt_problem(["git"], "")
