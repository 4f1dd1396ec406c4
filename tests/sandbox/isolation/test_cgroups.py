"""Control groups of sessions, on a pretended file system of groups: few machines delegate one to their users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fidelio.sandbox import cgroups
from fidelio.sandbox.cgroups import create_group, find_delegated_group
from fidelio.sandbox.directory import remove_directory
from fidelio.sandbox.model import Level, SandboxLimits, SandboxSpec
from tests.sandbox.isolation.scene import run_program
from tests.support import proves


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The file that names the group of this process: a service below the manager of a user."""
    service = tmp_path / "groups" / "user.slice" / "manager" / "app.slice" / "service"
    service.mkdir(parents=True)
    for path in (service, *service.parents[:3]):
        (path / "cgroup.procs").touch()
        (path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    listing = tmp_path / "cgroup"
    listing.write_text("1:name=systemd:/\n0::/user.slice/manager/app.slice/service\n")
    return listing


@pytest.fixture
def delegated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: Path) -> Path:
    """The manager's group is delegated."""
    manager = tmp_path / "groups" / "user.slice" / "manager"
    monkeypatch.setattr(
        cgroups, "_read_mark", lambda group, name: b"1" if group == manager and name == "user.delegate" else b""
    )
    monkeypatch.setattr(cgroups.find_delegated_group, "__defaults__", (tmp_path / "groups", own))
    return manager


@proves("sandbox.limits")
def test_the_nearest_delegated_group_with_its_controllers_is_used(delegated: Path) -> None:
    assert find_delegated_group() == delegated

    (delegated / "cgroup.subtree_control").write_text("cpu\n")
    assert find_delegated_group() is None


@proves("sandbox.limits")
def test_without_a_delegated_group_none_is_created(own: Path, tmp_path: Path) -> None:
    assert find_delegated_group(tmp_path / "groups", own) is None
    own.write_text("0::/../../escaped\n4:memory:/x\n")
    assert find_delegated_group(tmp_path / "groups", own) is None
    assert find_delegated_group(tmp_path / "groups", tmp_path / "missing") is None


@proves("sandbox.limits")
def test_the_group_of_a_session_has_its_limits(delegated: Path) -> None:
    (delegated / "fidelio-a1").mkdir()
    (delegated / "fidelio-a1" / "memory.swap.max").write_text("max")

    group = create_group("a1", SandboxLimits(processes=10, memory_bytes=1 << 20))

    assert group == delegated / "fidelio-a1"
    assert {path.name: path.read_text() for path in group.iterdir()} == {
        "pids.max": "18",
        "memory.max": "1048576",
        "memory.swap.max": "0",
    }


@proves("sandbox.limits")
def test_a_sandbox_joins_its_group_before_anything_of_an_agent_runs(
    command_level: Level, delegated: Path, spec: SandboxSpec, directory: Path
) -> None:
    group = delegated / f"fidelio-{directory.name}"
    group.mkdir()
    (group / "cgroup.procs").touch()

    done = run_program(spec, command_level, ["/bin/bash", "-c", "echo started"])

    assert done.stdout == "started\n", done.stderr
    # 0 is the process that writes it.
    assert (group / "cgroup.procs").read_text() == "0"


@proves("sandbox.limits")
def test_the_group_is_removed_with_the_directory_of_the_session(delegated: Path, directory: Path) -> None:
    group = delegated / f"fidelio-{directory.name}"
    group.mkdir()

    remove_directory(directory)

    assert not group.exists()
    assert os.path.lexists(delegated)
