"""Virtual paths beneath descriptors (level c): links, `..` and races lead nowhere else."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fidelio.sandbox.inside.beneath import BeneathTree
from fidelio.sandbox.inside.failures import Failure
from tests.sandbox.files.conftest import Actions, names_in
from tests.support import proves


@pytest.fixture
def act(tmp_path: Path) -> Iterator[Actions]:
    for name in ("workspace", "agent", "vault"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret").write_text("secret of the host")
    (tmp_path / "agent/A.md").write_text("agent")
    mounts = {"/workspace": "workspace", "/workspace/agent": "agent", "/vaults/x": "vault"}
    table = [(path, os.open(tmp_path / name, os.O_PATH), path == "/workspace") for path, name in mounts.items()]
    yield Actions(BeneathTree(table), tmp_path / "workspace")
    for _, descriptor, _ in table:
        os.close(descriptor)


@proves("sandbox.beneath-descriptors")
@pytest.mark.parametrize(
    "target", ["../secret", "/secret", "../../../../../../etc/passwd", "/proc/self/root/etc/passwd", "/etc/passwd"]
)
def test_a_link_that_leads_out_finds_nothing_and_writes_nothing(act: Actions, target: str) -> None:
    (act.top / "link").symlink_to(target)
    (act.top / "up").symlink_to("..")

    for path in ("link", target, f"up/{target}", "up/secret"):
        assert act.fail("read_text", path=path).code in ("not_found", "not_a_directory")
        assert act.fail("write_text", path=path, content="x").code in ("read_only", "permission_denied")
    assert (act.top.parent / "secret").read_text() == "secret of the host"


@proves("sandbox.beneath-descriptors")
def test_links_and_dots_cross_mounts_as_if_they_were_real(act: Actions) -> None:
    (act.top / "absolute").symlink_to("/workspace/agent/A.md")
    (act.top / "relative").symlink_to("agent/../agent/A.md")
    (act.top / "root").symlink_to("/")

    for path in (
        "absolute",
        "relative",
        "root/workspace/agent/A.md",
        "/workspace/agent/A.md",
        "/vaults/../workspace/agent/A.md",
    ):
        assert act("read_text", path=path)["content"] == "agent"
    assert act.fail("write_text", path="absolute", content="x").code == "read_only"


@proves("sandbox.beneath-descriptors")
def test_mounts_and_the_directories_above_them_are_listed(act: Actions) -> None:
    assert [entry["name"] for entry in act("list_dir", path="/")["entries"]] == ["vaults", "workspace"]
    assert [entry["name"] for entry in act("list_dir", path="/workspace")["entries"]] == ["agent"]
    assert act.names(act("glob_entries", path="/", pattern="**/*.md")) == ["agent/A.md"]
    assert {mount["mountPath"]: mount["access"] for mount in act("inspect")["mounts"]} == {
        "/vaults/x": "read_only",
        "/workspace": "read_write",
        "/workspace/agent": "read_only",
    }
    assert act("stat", path="/")["kind"] == "directory"
    assert act.fail("remove", path="/workspace", recursive=True).code == "permission_denied"


@proves("sandbox.beneath-descriptors")
def test_a_race_with_a_link_never_reads_or_writes_outside(act: Actions) -> None:
    outside = act.top.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    (act.top / "d").mkdir()
    (act.top / "d/f").write_text("inside")
    (act.top / "evil").symlink_to("../outside")
    is_over = threading.Event()

    def swap() -> None:
        libc, exchange = ctypes.CDLL(None), 2
        while not is_over.is_set():
            libc.renameat2(-100, os.fsencode(act.top / "d"), -100, os.fsencode(act.top / "evil"), exchange)

    swapper = threading.Thread(target=swap)
    swapper.start()
    found = set()
    try:
        for _ in range(300):
            found.add(_content_or_code(act, "d/f"))
            _write(act, "d/f")
    finally:
        is_over.set()
        swapper.join(10)

    assert "inside" in found
    assert "outside" not in found
    assert (outside / "f").read_text() == "outside"
    assert names_in(outside) == ["f"]


def _content_or_code(act: Actions, path: str) -> str:
    try:
        return str(act("read_text", path=path)["content"])
    except Failure as failure:
        return failure.code


def _write(act: Actions, path: str) -> None:
    try:
        act("write_text", path=path, content="inside")
    except Failure:
        # A call may fail when something is swapped meanwhile.
        return
