from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fidelio.errors import UsageProblem
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import NewEvent
from fidelio.providers.model import ModelReply
from fidelio.runtime import events as e
from fidelio.runtime.snapshots import snapshots
from fidelio.runtime.snapshots.record import MAX_SNAPSHOTS
from fidelio.runtime.snapshots.tree import TreeLimits
from tests.runtime.snapshots.support import DiskSandboxes, find_workspace, write
from tests.runtime.wakes.support import LEASE_MS, Runtime, open_runtime, replies, say, texts_of, use
from tests.support import proves


async def work_on(runtime: Runtime, session: str, *contents: tuple[str, str]) -> None:
    """A wake that writes files."""
    runtime.script(replies(use(*(write(path, content) for path, content in contents)), say("Written.")))
    await runtime.tell(session, "Write.")
    await runtime.work()


async def chat(runtime: Runtime, session: str) -> None:
    """A wake without a tool."""
    runtime.script(replies(say("Yes.")))
    await runtime.tell(session, "Are you there?")
    await runtime.work()


@proves("runtime.snapshot-changed")
async def test_a_wake_after_changes_begins_with_a_snapshot(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"), ("sub/b.txt", "two"))
        assert await runtime.events(session, e.SNAPSHOT_TAKEN) == ()
        await chat(runtime, session)

        (taken,) = await runtime.events(session, e.SNAPSHOT_TAKEN)
        (listed,) = await runtime.service.list_snapshots(session)
        assert taken.body["wake_id"] == (await runtime.record(session)).wakes.last
        assert (taken.body["files"], taken.body["bytes"]) == (2, 6)
        assert (listed["snapshotId"], listed["wakeId"]) == (taken.body["snapshot_id"], taken.body["wake_id"])


@proves("runtime.snapshot-idle")
async def test_a_wake_after_which_nothing_can_have_changed_looks_at_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        runtime.script(replies(use(("read", {"path": "a.txt"})), say("Read.")))
        await runtime.tell(session, "Read it.")
        await runtime.work()

        def refuse(*_: object) -> None:
            raise AssertionError("the disk was looked at")

        monkeypatch.setattr(snapshots, "_create", refuse)
        monkeypatch.setattr(snapshots, "session_directory", refuse)
        await chat(runtime, session)

        assert len(await runtime.events(session, e.SNAPSHOT_TAKEN)) == 1
        assert (await runtime.record(session)).status == "idle"


@proves("runtime.snapshot-idle")
async def test_a_state_that_is_stored_keeps_its_snapshot(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)

        first, second = await runtime.events(session, e.SNAPSHOT_TAKEN)
        assert first.body["snapshot_id"] == second.body["snapshot_id"]
        assert len(await runtime.service.list_snapshots(session)) == 1


@proves("runtime.snapshot-live")
async def test_while_a_shell_is_open_every_wake_looks(tmp_path: Path) -> None:
    sandboxes = DiskSandboxes()
    async with open_runtime(tmp_path, sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        incarnation = (await runtime.record(session)).sandbox.incarnation
        opened = {"shell_id": "sh_1", "incarnation": incarnation, "pty": False}
        await runtime.ledger.append(session, NewEvent(type=e.SHELL_OPEN, body=opened))
        await chat(runtime, session)
        (await find_workspace(runtime, session) / "by-process.txt").write_text("from the background")
        await chat(runtime, session)

        assert [entry["files"] for entry in await runtime.service.list_snapshots(session)] == [2, 1]
        await sandboxes.stop(session)
        await chat(runtime, session)
        looks = len(await runtime.events(session, e.SNAPSHOT_TAKEN))
        await chat(runtime, session)
        assert len(await runtime.events(session, e.SNAPSHOT_TAKEN)) == looks


@proves("runtime.snapshot-diff")
async def test_a_diff_names_what_was_added_modified_and_removed(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("same.txt", "same"), ("changed.txt", "before"), ("removed.txt", "old"))
        await chat(runtime, session)
        workspace = await find_workspace(runtime, session)
        (workspace / "removed.txt").unlink()
        (workspace / "new").mkdir()
        (workspace / "new" / "added.txt").write_text("new")
        (workspace / "changed.txt").write_text("behind")
        (taken,) = await runtime.service.list_snapshots(session)

        found = await runtime.service.diff_snapshot(session, taken["snapshotId"])

        assert [(change["path"], change["kind"]) for change in found["changes"]] == [
            ("/workspace/changed.txt", "modified"),
            ("/workspace/new/", "added"),
            ("/workspace/new/added.txt", "added"),
            ("/workspace/removed.txt", "removed"),
        ]
        assert not found["truncated"]
        with pytest.raises(UsageProblem, match="no snapshot 'snap_missing'"):
            await runtime.service.diff_snapshot(session, taken["snapshotId"], "snap_missing")


@proves("runtime.snapshot-restore")
async def test_a_restored_workspace_is_what_it_was_and_the_replaced_state_is_stored(tmp_path: Path) -> None:
    sandboxes = DiskSandboxes()
    async with open_runtime(tmp_path, sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"), ("dir/b.sh", "two"))
        workspace = await find_workspace(runtime, session)
        (workspace / "dir" / "b.sh").chmod(0o755)
        (workspace / "link").symlink_to("/etc/passwd")
        (workspace / "agent").mkdir(exist_ok=True)
        await chat(runtime, session)
        await work_on(runtime, session, ("a.txt", "changed"), ("c.txt", "three"))
        (workspace / "dir" / "b.sh").unlink()
        taken = (await runtime.service.list_snapshots(session))[-1]

        await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test")

        assert (workspace / "a.txt").read_text() == "one"
        assert (workspace / "dir" / "b.sh").stat().st_mode & 0o777 == 0o755
        assert (workspace / "link").readlink() == Path("/etc/passwd")
        assert (workspace / "agent").is_dir()
        assert not (workspace / "c.txt").exists()
        assert await sandboxes.state(session) is None
        (restored,) = await runtime.events(session, e.SNAPSHOT_RESTORED)
        assert (restored.body["snapshot_id"], restored.actor) == (taken["snapshotId"], "person:test")

        newest = (await runtime.service.list_snapshots(session))[0]
        await runtime.service.restore_snapshot(session, newest["snapshotId"], by="person:test")
        assert ((workspace / "a.txt").read_text(), (workspace / "c.txt").read_text()) == ("changed", "three")


@proves("runtime.snapshot-restore")
async def test_the_agent_is_told_once_that_a_person_restored_its_workspace(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        (taken,) = await runtime.service.list_snapshots(session)
        await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test")
        await chat(runtime, session)
        await chat(runtime, session)

        assert texts_of(runtime.requests[-1]).count("restored the workspace") == 1
        assert "restored the workspace" in texts_of(runtime.requests[-2])


@proves("runtime.snapshot-exclusive")
async def test_a_restore_is_refused_while_a_wake_runs(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        (taken,) = await runtime.service.list_snapshots(session)
        refused: list[str] = []

        async def restore_meanwhile(_: object) -> object:
            try:
                await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test")
            except UsageProblem as problem:
                refused.append(str(problem))
            return say("Done.")

        runtime.script(restore_meanwhile)  # type: ignore[arg-type]  # a script returns a reply
        await runtime.tell(session, "Work.")
        await runtime.work()

        assert len(refused) == 1
        assert "is at work" in refused[0]
        assert (await runtime.record(session)).status == "idle"


@proves("runtime.snapshot-exclusive")
async def test_a_restore_is_refused_after_a_crash_until_the_wake_has_ended(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        (stored,) = await runtime.service.list_snapshots(session)

        def crash(_: object) -> ModelReply:
            raise RuntimeError("killed")

        runtime.script(crash)
        await runtime.tell(session, "Work.")
        with pytest.raises(RuntimeError, match="killed"):
            await runtime.work()
        runtime.clock.now += LEASE_MS + 1

        with pytest.raises(UsageProblem, match="is at work"):
            await runtime.service.restore_snapshot(session, stored["snapshotId"], by="person:test")
        runtime.script(replies())
        assert await runtime.work() == 1
        await runtime.service.restore_snapshot(session, stored["snapshotId"], by="person:test")


@proves("runtime.snapshot-exclusive")
async def test_what_is_sent_during_a_restore_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        (taken,) = await runtime.service.list_snapshots(session)
        asked = len(runtime.requests)
        claimed: list[Assignment | None] = []
        stop = runtime.context.sandboxes.stop

        async def send_meanwhile(name: str) -> bool:
            await runtime.tell(session, "Now.")
            lease = await runtime.ledger.claim("worker", ("runtime.wake",), lease_ms=1_000)
            claimed.append(None if lease is None else Assignment(runtime.ledger, lease))
            return await stop(name)

        monkeypatch.setattr(runtime.context.sandboxes, "stop", send_meanwhile)
        await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test")

        assert claimed == [None]
        assert await runtime.work() == 1
        assert len(runtime.requests) == asked + 1
        types = await runtime.types(session)
        assert types.index(e.SNAPSHOT_RESTORED) < len(types) - 1 - types[::-1].index(e.STATUS_RUNNING)


@proves("runtime.snapshot-exclusive")
async def test_sends_and_restores_at_once_lose_nothing(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        (taken,) = await runtime.service.list_snapshots(session)
        runtime.script(replies())

        async def restore() -> bool:
            try:
                await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test")
            except UsageProblem:
                return False
            return True

        tasks = [asyncio.create_task(restore()) for _ in range(3)]
        sends = [asyncio.create_task(runtime.tell(session, f"Message {number}.")) for number in range(5)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(runtime.work() for _ in range(3)), *tasks, *sends)
            await runtime.work()

        record = await runtime.record(session)
        assert (record.status, record.wakes.pending) == ("idle", 0)
        assert any(task.result() for task in tasks)
        assert all(f"Message {number}." in texts_of(runtime.requests[-1]) for number in range(5))


@proves("runtime.snapshot-bounds")
async def test_a_workspace_that_is_too_large_is_skipped_with_an_event(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        await work_on(runtime, session, ("b.txt", "two"))
        with (await find_workspace(runtime, session) / "sparse").open("wb") as file:
            file.truncate(1 << 40)
        await chat(runtime, session)

        (skipped,) = await runtime.events(session, e.SNAPSHOT_SKIPPED)
        assert "more than 200,000,000 bytes" in skipped.body["reason"]
        assert (await runtime.record(session)).status == "idle"
        (taken,) = await runtime.service.list_snapshots(session)
        with pytest.raises(UsageProblem, match="would be lost"):
            await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test")
        await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test", discard=True)
        assert sorted(path.name for path in (await find_workspace(runtime, session)).iterdir()) == ["a.txt"]


@proves("runtime.snapshot-bounds")
async def test_only_the_newest_snapshots_are_left_and_each_can_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def limit(*_: object) -> TreeLimits:
        return TreeLimits()

    monkeypatch.setattr(snapshots, "_find_limits", limit)
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin(limits={"wakes_per_day": 0})
        for number in range(MAX_SNAPSHOTS + 3):
            await work_on(runtime, session, ("a.txt", f"content {number}"))

        listed = await runtime.service.list_snapshots(session)
        assert len(listed) == MAX_SNAPSHOTS
        store = (await find_workspace(runtime, session)).parent / "snapshots"
        assert len(list(store.glob("*.snapshot"))) == MAX_SNAPSHOTS
        assert len(list(store.glob("blobs/*/*"))) == MAX_SNAPSHOTS
        await runtime.service.restore_snapshot(session, listed[-1]["snapshotId"], by="person:test")
        assert (await find_workspace(runtime, session) / "a.txt").read_text() == "content 2"
        assert len(await runtime.service.list_snapshots(session)) == MAX_SNAPSHOTS


@proves("runtime.snapshot-restore")
async def test_a_damaged_snapshot_changes_nothing(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await work_on(runtime, session, ("a.txt", "one"))
        await chat(runtime, session)
        await work_on(runtime, session, ("a.txt", "two"))
        (taken,) = await runtime.service.list_snapshots(session)
        workspace = await find_workspace(runtime, session)
        for blob in (workspace.parent / "snapshots" / "blobs").glob("*/*"):
            blob.write_bytes(b"damaged")

        with pytest.raises(UsageProblem, match=r"'a\.txt' is damaged"):
            await runtime.service.restore_snapshot(session, taken["snapshotId"], by="person:test")

        assert (workspace / "a.txt").read_text() == "two"
        await chat(runtime, session)
        assert (await runtime.record(session)).status == "idle"
