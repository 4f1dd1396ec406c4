"""Mounts: what may be mounted, what is hidden in it, and what an earlier sandbox left where something is mounted."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from fidelio.errors.runtime import SandboxUnavailable
from fidelio.sandbox.directory import create_directory, may_switch_user
from fidelio.sandbox.launch import build_launch, python_inside
from fidelio.sandbox.launch.library import prepare_library
from fidelio.sandbox.launch.plan import plan_tree
from fidelio.sandbox.model import PROJECT, SUBSTRATE, Level, LevelReport, Mount, SandboxSpec
from tests.sandbox.isolation.conftest import need_level
from tests.sandbox.isolation.scene import make_spec, run_program
from tests.support import proves

RACE = """
import json, os, signal, sys
from fidelio.sandbox.inside.files import ACTIONS, SCANS
from fidelio.sandbox.inside.failures import Failure
from fidelio.sandbox.inside.tree import PlainTree
from fidelio.sandbox.inside.beneath import BeneathTree
table = json.loads(sys.argv[sys.argv.index("--beneath") + 1]) if "--beneath" in sys.argv else None
tree = BeneathTree([tuple(row) for row in table]) if table else PlainTree()
top = {path: descriptor for path, descriptor, _ in table}["/workspace"] if table else os.open("/workspace", os.O_RDONLY)
secret, canary = json.load(sys.stdin)
os.mkdir("real", dir_fd=top)
os.close(os.open("real/secret", os.O_CREAT | os.O_WRONLY, dir_fd=top))
os.symlink(os.path.dirname(secret), "link", dir_fd=top)
os.symlink(secret, "file", dir_fd=top)
os.symlink("real", "swap", dir_fd=top)
racer = os.fork()
if racer == 0:
    while True:
        for target in (os.path.dirname(secret), "real", "../../../../../../../.." + os.path.dirname(secret)):
            os.symlink(target, "next", dir_fd=top)
            os.rename("next", "swap", src_dir_fd=top, dst_dir_fd=top)
every = {"query": "canary", "pattern": "**", "content": "planted", "oldText": canary, "newText": "planted",
         "data": "cGxhbnRlZA==", "regex": False, "caseSensitive": True, "offset": 0, "length": 1000, "append": False}
found = []
for _ in range(40):
    for name, action in {**ACTIONS, **SCANS}.items():
        for path in ("swap/secret", "link/secret", "file", "swap", "../" * 9 + secret, secret):
            if name in ("remove", "write_text", "write_bytes", "append_text", "mkdir") and path == "swap":
                continue
            try:
                if canary in json.dumps(action(tree, {"path": "/workspace/" + path if path != secret else secret, **every})):
                    found.append([name, path])
            except Failure as failure:
                pass
os.kill(racer, signal.SIGKILL)
os.waitpid(racer, 0)
print(json.dumps(found))
"""


@proves("sandbox.escapes", "sandbox.files-only")
def test_no_file_action_follows_a_link_that_is_exchanged_under_it(level: Level, spec: SandboxSpec, tmp_path: Path) -> None:
    secret = tmp_path / "outside" / "secret"
    secret.parent.mkdir()
    secret.write_text("canary-91")
    secret.parent.chmod(0o777)
    secret.chmod(0o666)
    code = f"import sys; sys.path.insert(0, '/.fidelio/lib')\n{RACE}"

    done = run_program(spec, level, [*python_inside(spec), "-c", code], json.dumps([str(secret), "canary-91"]))

    assert done.stdout == "[]\n", done.stderr
    assert secret.read_text() == "canary-91"
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]


@proves("sandbox.mount-points")
@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
def test_what_was_left_where_a_directory_is_mounted_leads_nowhere(
    command_level: Level, directory: Path, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = directory / "workspace" / "agent"
    if kind == "link":
        place.symlink_to(outside)
    elif kind == "file":
        place.touch()
    else:
        os.mkfifo(place)
    (directory / "substrate" / "MEMORY.md").write_text("mounted")

    done = run_program(make_spec(directory), command_level, ["/bin/bash", "-c", "ls /workspace/agent"])

    assert done.stdout == "MEMORY.md\n", done.stderr
    assert stat.S_ISDIR(place.lstat().st_mode)
    assert list(outside.iterdir()) == []


@proves("sandbox.home-hidden")
@pytest.mark.parametrize("source", [".", "sandboxes", "workflows"])
def test_no_directory_of_the_home_is_mounted(directory: Path, source: str) -> None:
    home = directory.parents[1]
    (home / source).mkdir(exist_ok=True)
    spec = make_spec(directory, home / source)

    with pytest.raises(SandboxUnavailable, match=r"/workspace/project lies in the home of Fidelio"):
        build_launch(spec, LevelReport("namespaces", ""), ["/bin/true"])


@proves("sandbox.home-hidden")
def test_the_directory_of_another_session_is_not_mounted(directory: Path) -> None:
    other = create_directory(directory.parents[1])

    for kind in ("project", "toolchain"):
        mount = Mount("/workspace/other", str(other / "workspace"), "read_only", kind)
        with pytest.raises(SandboxUnavailable, match="lies in the home of Fidelio"):
            build_launch(make_spec(directory, mount), LevelReport("namespaces", ""), ["/bin/true"])


@proves("sandbox.mount-points")
def test_what_sessions_share_is_mounted_as_such_and_not_as_a_project(directory: Path) -> None:
    shared = directory.parents[1] / "sandboxes" / "substrates" / "random"
    shared.mkdir(parents=True)

    build_launch(
        make_spec(directory, Mount("/shared", str(shared), "read_only", "agent_workspace_substrate")),
        LevelReport("namespaces", ""),
        ["/bin/true"],
    ).close()
    with pytest.raises(SandboxUnavailable, match="lies in the home of Fidelio"):
        build_launch(make_spec(directory, shared), LevelReport("namespaces", ""), ["/bin/true"])


@proves("sandbox.home-hidden")
def test_toolchains_that_contain_the_home_or_cover_the_sandbox_are_refused(spec: SandboxSpec, directory: Path) -> None:
    for path, message in (
        (str(directory.parents[2]), "contains the home|cover a directory"),
        ("/", "cover a directory"),
        ("/etc", "cover a directory"),
        ("/proc/1", "cover a directory"),
        ("/usr/../root", "no absolute path"),
        ("relative", "no absolute path"),
        ("/usr/no-such-toolchain", "no absolute path of an existing"),
    ):
        with pytest.raises(SandboxUnavailable, match=message):
            build_launch(msgspec.structs.replace(spec, toolchains=(path,)), LevelReport("namespaces", ""), ["/bin/true"])


@proves("sandbox.mount-points")
def test_mounts_without_a_directory_or_with_a_strange_path_are_refused(spec: SandboxSpec, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for path, source, message in (
        ("/workspace/x", str(tmp_path / "missing"), "does not exist"),
        ("/workspace/../etc", str(tmp_path), "cannot be a mount"),
        ("/", str(tmp_path), "cannot be a mount"),
        ("relative", str(tmp_path), "cannot be a mount"),
        ("/workspace/x/", str(tmp_path), "cannot be a mount"),
        (SUBSTRATE, str(link), "is a link"),
    ):
        mount = Mount(path, source, "read_only", "agent_workspace_substrate")
        with pytest.raises(SandboxUnavailable, match=message):
            build_launch(msgspec.structs.replace(spec, mounts=(mount,)), LevelReport("namespaces", ""), ["/bin/true"])


@proves("sandbox.directory")
def test_bind_sources_of_a_session_name_neither_session_nor_project(spec: SandboxSpec, directory: Path) -> None:
    home = directory.parents[1]
    sources = [operation.source for operation in plan_tree(spec, prepare_library(home)) if operation.kind.startswith("bind")]

    below = [os.path.relpath(source, home) for source in sources if source.startswith(str(home))]
    assert {path.split("/")[0] for path in below} == {"sandboxes", "sandbox-lib"}
    assert not any(spec.session in source for source in sources)


@proves("sandbox.tree")
def test_a_project_that_is_mounted_for_writing_can_be_changed(command_level: Level, directory: Path, tmp_path: Path) -> None:
    need_level(command_level)
    project = tmp_path / "project"
    project.mkdir()
    (project / "file").write_text("before")
    mount = Mount(PROJECT, str(project), "read_write", "project")
    spec = msgspec.structs.replace(make_spec(directory), mounts=(*make_spec(directory).mounts, mount))

    command = "echo after >/workspace/project/file; echo new >/workspace/project/new; cat /workspace/project/file"
    done = run_program(spec, command_level, ["/bin/bash", "-c", command])

    assert done.stdout == "after\n", done.stderr
    assert (project / "new").read_text() == "new\n"
    # The files stay those of the person, also when Fidelio runs as root.
    assert {path.stat().st_uid for path in (project, *project.iterdir())} == {os.geteuid()}
    assert may_switch_user() == (os.geteuid() == 0)
