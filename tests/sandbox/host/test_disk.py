"""The disk watcher: what it counts, what an agent cannot hide, and when it stops a sandbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from fidelio.errors import SandboxLost, SandboxUnavailable
from fidelio.sandbox.host import host as host_module
from fidelio.sandbox.model import SandboxLimits
from fidelio.sandbox.watch import DiskLimits, measure_directory
from tests.sandbox.host.fakes import HostHarness
from tests.support import proves
from tests.support.users import NOBODY

MEBIBYTE = 1 << 20


def fill(path: Path, size: int) -> None:
    path.write_bytes(os.urandom(size))


@proves("sandbox.disk-count")
def test_files_count_once_and_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    fill(tmp_path / "outside" / "large", 8 * MEBIBYTE)
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    fill(tree / "a" / "b" / "file", MEBIBYTE)
    os.link(tree / "a" / "b" / "file", tree / "again")
    (tree / "link").symlink_to(tmp_path / "outside")
    (tree / "loop").symlink_to(tree)

    usage = measure_directory(str(tree))

    assert MEBIBYTE <= usage.bytes < 1.1 * MEBIBYTE
    assert usage.problem == ""


@proves("sandbox.disk-count")
def test_many_empty_files_count(tmp_path: Path) -> None:
    for number in range(1_000):
        (tmp_path / str(number)).touch()

    assert measure_directory(str(tmp_path)).bytes >= 1_000 * 1_024


@proves("sandbox.disk-count")
def test_a_sparse_file_counts_what_it_uses(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)

    assert measure_directory(str(tmp_path)).bytes < MEBIBYTE


@proves("sandbox.disk-count")
def test_a_tree_that_is_too_deep_cannot_be_counted(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)

    assert "nested deeper than 200" in measure_directory(str(tmp_path)).problem


@proves("sandbox.disk-count")
def test_a_directory_that_vanishes_counts_nothing(tmp_path: Path) -> None:
    assert measure_directory(str(tmp_path / "missing")) == (0, "")


def hide_and_measure(top: Path) -> None:
    (top / "hidden" / "inner").mkdir(parents=True)
    (top / "listed").mkdir()
    fill(top / "hidden" / "inner" / "file", MEBIBYTE)
    fill(top / "listed" / "file", MEBIBYTE)
    (top / "listed").chmod(0o400)
    (top / "hidden" / "inner").chmod(0)
    (top / "hidden").chmod(0o300)

    usage = measure_directory(str(top))

    assert usage.bytes >= 2 * MEBIBYTE, usage
    assert usage.problem == ""
    assert (top / "hidden").stat().st_mode & 0o777 == 0o300


@proves("sandbox.disk-count")
def test_an_owner_without_permissions_hides_nothing(open_directory: Path) -> None:
    if os.geteuid():
        hide_and_measure(open_directory)
        return
    child = os.fork()
    if not child:
        # Root may read everything, so another user measures what belongs to him.
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            hide_and_measure(open_directory)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@proves("sandbox.disk-limit")
async def test_a_session_that_uses_more_than_its_bytes_is_stopped_and_says_why(harness: HostHarness) -> None:
    async with harness.serving() as host:
        client = harness.client()
        spec = harness.spec(limits=SandboxLimits(disk_bytes=4 * MEBIBYTE))
        other = harness.spec("s_2")
        await client.start(spec)
        await client.start(other)
        fill(Path(spec.directory, "workspace", "file"), 3 * MEBIBYTE)
        await host.check_disk()
        assert len(harness.launcher.live) == 2

        fill(Path(spec.directory, "workspace", "more"), 2 * MEBIBYTE)
        harness.launcher.of("s_1").hold = True
        call = asyncio.create_task(client.call(spec, "run_shell", {}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await host.check_disk()

        with pytest.raises(SandboxLost, match=r"The session uses 5 MiB of the disk, and its limit is 4 MiB\."):
            await call
        assert [process.spec.session for process in harness.launcher.live] == ["s_2"]
        # It starts again, so that the agent can delete files.
        state = await client.start(spec)
        assert state.closed_because is not None
        assert state.closed_because.reason == "disk_bytes"


@proves("sandbox.disk-limit")
async def test_a_session_with_twice_its_bytes_is_not_started_again(harness: HostHarness) -> None:
    async with harness.serving() as host:
        client, spec = harness.client(), harness.spec(limits=SandboxLimits(disk_bytes=MEBIBYTE))
        await client.start(spec)
        fill(Path(spec.directory, "tmp", "file"), 3 * MEBIBYTE)
        await host.check_disk()

        with pytest.raises(SandboxUnavailable, match=r"uses 3 MiB.*limit is 1 MiB.*A person can raise the limit"):
            await client.start(spec)

        assert (await client.start(replace(spec, limits=SandboxLimits(disk_bytes=4 * MEBIBYTE)))).is_new


@proves("sandbox.disk-reserve")
async def test_the_reserve_of_the_host_stops_the_largest_sandbox_first(
    harness: HostHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [10 * MEBIBYTE]
    async with harness.serving(disk=DiskLimits(reserve_bytes=5 * MEBIBYTE)) as host:
        client = harness.client()
        small, large = harness.spec("s_small"), harness.spec("s_large")
        await client.start(small)
        await client.start(large)
        fill(Path(large.directory, "workspace", "file"), MEBIBYTE)

        def read_free(_: str) -> int:
            # What the large one used is free once it has ended.
            return free[0] + (0 if len(harness.launcher.live) == 2 else 3 * MEBIBYTE)

        monkeypatch.setattr(host_module, "read_free_bytes", read_free)
        await host.check_disk()
        assert len(harness.launcher.live) == 2
        free[0] = 4 * MEBIBYTE
        await host.check_disk()

        assert [process.spec.session for process in harness.launcher.live] == ["s_small"]
        state = await client.start(large)
        assert state.closed_because is not None
        assert state.closed_because.reason == "disk_reserve"
        assert "has 4 MiB free, and 5 MiB are reserved" in state.closed_because.message


@proves("sandbox.disk-reserve")
async def test_nothing_is_started_without_the_reserve(harness: HostHarness) -> None:
    async with harness.serving(disk=DiskLimits(reserve_bytes=1 << 60)):
        with pytest.raises(SandboxUnavailable, match=r"are reserved\. Free some space"):
            await harness.client().start(harness.spec())
    assert harness.launcher.started == []


@proves("sandbox.disk-limit")
async def test_the_host_measures_by_itself(harness: HostHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_DISK_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(host_module, "_MEASURING_SHARE", 1.0)
    async with harness.serving():
        client, spec = harness.client(), harness.spec(limits=SandboxLimits(disk_bytes=MEBIBYTE))
        await client.start(spec)
        fill(Path(spec.directory, "workspace", "file"), 2 * MEBIBYTE)

        async with asyncio.timeout(20):
            await harness.launcher.of("s_1").is_closed.wait()
