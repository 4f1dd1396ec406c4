"""Memory stores in real sandboxes: what an agent writes becomes a version, and links and read-only mounts lead nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.memory_stores.rules import choose_mount_path
from fidelio.runtime.memory_stores.service import MemoryStore, MemoryStores, MemoryVersion, make_store_id
from fidelio.runtime.permissions.policy import SHELL_COMMANDS
from fidelio.runtime.service import Finished
from tests.runtime.resources.test_whole_path import Runtime
from tests.support import proves

MOUNT = "/mnt/memory/notes"


class Desk:
    """A store that is attached to sessions."""

    def __init__(self, runtime: Runtime, project: Path, store: str) -> None:
        self.runtime, self.project, self.store = runtime, project, store
        self.stores = MemoryStores(runtime.context, str(project))

    async def attach(self, access: str = "read_write", *, name: str = "one") -> str:
        session = await self.runtime.open(self.project, name=name)
        content = {"memory_store_id": make_store_id(self.store), "access": access, "mount_path": choose_mount_path("Notes")}
        body = {"id": "sesrsc_1", "type": "memory_store", "content": {**content, "name": "Notes"}}
        policies = dict.fromkeys((*SHELL_COMMANDS, "write"), "always_allow")
        events = (NewEvent(type=e.RESOURCE_SET, body=body), NewEvent(type=e.CONFIGURED, body={"policies": policies}))
        await self.runtime.context.unit.update(session, lambda _: SessionDecision(None, events=events))
        return session

    async def run(self, session: str, command: str) -> dict[str, Any]:
        done = await self.runtime.call(session, "shell_run", command=command)
        return {**done["output"], **done}

    async def contents(self) -> dict[str, str]:
        memories = (await self.stores.memories(self.store)).entries.values()
        return {memory.path: await self.stores.content(memory.sha256) for memory in memories}

    async def add(self, path: str, content: str) -> str:
        return (await self.stores.add(self.store, path, content.encode(), by="api")).id

    async def versions(self) -> tuple[MemoryVersion, ...]:
        return (await self.stores.versions(self.store, lambda _: True, before=None, limit=100)).items


@pytest.fixture
async def desk(runtime: Runtime, project: Path) -> Desk:
    stores = MemoryStores(runtime.context, str(project))
    return Desk(runtime, project, (await stores.objects.create(MemoryStore("Notes"), by="api")).id)


@proves("memory-stores.mount")
async def test_a_written_file_is_a_version_by_the_session_and_other_sessions_see_it(desk: Desk) -> None:
    await desk.add("/old.md", "old\n")
    one, two = await desk.attach(), await desk.attach(name="two")
    done = await desk.run(one, f"cat {MOUNT}/old.md; mkdir {MOUNT}/deep; echo new > {MOUNT}/deep/new.md; rm {MOUNT}/old.md")

    assert done["stdout"] == "old\n"
    assert await desk.contents() == {"/deep/new.md": "new\n"}
    assert {(version.operation, version.actor) for version in (await desk.versions())[:2]} == {
        ("created", one),
        ("deleted", one),
    }
    assert (await desk.run(two, f"cat {MOUNT}/deep/new.md; echo more >> {MOUNT}/deep/new.md; ls {MOUNT}"))[
        "stdout"
    ] == "new\ndeep\n"
    assert (await desk.run(one, f"cat {MOUNT}/deep/new.md"))["stdout"] == "new\nmore\n"
    (event,) = await desk.runtime.context.ledger.events(two, types=(e.MEMORY_STORE_SYNCED,))
    assert event.body["stored"] == [{"path": "/deep/new.md", "operation": "modified"}]


@proves("memory-stores.mount")
async def test_the_file_tools_see_the_mount(desk: Desk) -> None:
    await desk.add("/todo.md", "buy milk\n")
    session = await desk.attach()

    assert (await desk.runtime.call(session, "read", path=f"{MOUNT}/todo.md"))["output"]["content"] == "buy milk\n"
    await desk.runtime.call(session, "write", path=f"{MOUNT}/done.md", content="slept\n")
    assert await desk.contents() == {"/todo.md": "buy milk\n", "/done.md": "slept\n"}
    mounts = (await desk.runtime.call(session, "sandbox_describe"))["mounts"]
    assert {"mountPath": MOUNT, "access": "read_write"} in [
        {key: each[key] for key in ("mountPath", "access")} for each in mounts
    ]


@proves("memory-stores.mount")
async def test_changes_of_others_arrive_and_deleted_documents_disappear(desk: Desk) -> None:
    memory = await desk.add("/a.md", "one")
    session = await desk.attach()
    assert (await desk.run(session, f"cat {MOUNT}/a.md"))["stdout"] == "one"
    await desk.stores.change(desk.store, memory, content=b"two", by="api")
    assert (await desk.run(session, f"cat {MOUNT}/a.md"))["stdout"] == "two"
    await desk.stores.change(desk.store, memory, path="/b/c.md", by="api")
    assert (await desk.run(session, f"cat {MOUNT}/b/c.md; ls {MOUNT}"))["stdout"] == "twob\n"
    await desk.stores.remove(desk.store, memory, by="api")
    assert (await desk.run(session, f"find {MOUNT} -type f"))["stdout"] == ""
    assert await desk.contents() == {}


@proves("memory-stores.conflicts")
async def test_what_two_sides_wrote_at_once_is_kept_twice_and_said(desk: Desk) -> None:
    memory = await desk.add("/a.md", "one\n")
    session = await desk.attach()
    await desk.run(session, "true")
    # Outside of a call, as a process in the background does: nobody synchronizes in between.
    await desk.runtime.shell(session, f"echo mine > {MOUNT}/a.md")
    await desk.stores.change(desk.store, memory, content=b"theirs\n", by="api")
    done = await desk.run(session, f"cat {MOUNT}/a.md")

    contents = await desk.contents()
    (copy,) = set(contents) - {"/a.md"}
    assert done["stdout"] == "theirs\n"
    assert (contents["/a.md"], contents[copy]) == ("theirs\n", "mine\n")
    assert copy.startswith("/a.conflict-")
    assert any("Somebody else changed the document too" in problem for problem in done["memoryStoreProblems"])
    assert "memoryStoreProblems" not in await desk.run(session, f"cat {MOUNT}{copy}")


@proves("memory-stores.mount-read-only")
async def test_a_read_only_store_is_read_and_cannot_be_written(desk: Desk) -> None:
    memory = await desk.add("/deep/a.md", "one")
    session = await desk.attach("read_only")
    done = await desk.run(
        session, f"cat {MOUNT}/deep/a.md; echo x > {MOUNT}/deep/a.md || echo refused; rm -rf {MOUNT}/deep; true"
    )

    assert done["stdout"] == "onerefused\n"
    assert await desk.contents() == {"/deep/a.md": "one"}
    refused = await desk.runtime.service.call(session, "write", {"path": f"{MOUNT}/b.md", "content": "x"})
    assert isinstance(refused, Finished)
    assert refused.is_error
    await desk.stores.change(desk.store, memory, content=b"two", path="/b.md", by="api")
    assert (await desk.run(session, f"cat {MOUNT}/b.md; ls -R {MOUNT}"))["stdout"] == f"two{MOUNT}:\nb.md\n"


@proves("memory-stores.mount-links")
async def test_links_and_what_is_no_document_lead_nowhere_and_are_said_once(desk: Desk, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of the host")
    await desk.add("/a.md", "one")
    session = await desk.attach()
    plant = (
        f"cd {MOUNT}; ln -s {secret} link.md; ln -s {tmp_path} directory; ln -s /etc/passwd passwd; mkfifo fifo; rm a.md; "
        f"ln -s {secret} a.md; head -c 102401 /dev/zero | tr '\\0' x > big; printf '\\377' > binary; "
        "printf x > $(printf 'bad\\001name'); echo fine > fine.md"
    )
    done = await desk.run(session, plant)
    said = "\n".join(done["memoryStoreProblems"])

    for name in ("link.md", "directory", "passwd", "fifo", "a.md", "big", "binary", "bad\x01name"):
        assert f"{MOUNT}/{name}: " in said, name
    # A document in whose place a link was put is neither changed nor deleted.
    assert await desk.contents() == {"/a.md": "one", "/fine.md": "fine\n"}
    assert "memoryStoreProblems" not in await desk.run(session, "true")
    assert secret.read_text() == "of the host"
    await desk.add("/directory/inside.md", "x")
    await desk.run(session, "true")
    assert not (tmp_path / "inside.md").exists()  # a single stat call


@proves("memory-stores.mount")
async def test_a_file_becomes_a_directory_of_documents(desk: Desk) -> None:
    await desk.add("/a", "one")
    session = await desk.attach()
    await desk.run(session, f"cd {MOUNT}; rm a; mkdir a; echo two > a/b")

    assert await desk.contents() == {"/a/b": "two\n"}


@proves("memory-stores.mount")
async def test_an_archived_store_takes_nothing_and_a_deleted_one_breaks_no_call(desk: Desk) -> None:
    await desk.add("/a", "one")
    session = await desk.attach()
    await desk.run(session, "true")
    await desk.stores.objects.archive(desk.store, by="api")
    done = await desk.run(session, f"echo two > {MOUNT}/b")
    assert any("archived" in problem for problem in done["memoryStoreProblems"])
    assert await desk.contents() == {"/a": "one"}

    await desk.stores.objects.delete(desk.store, by="api")
    done = await desk.run(session, f"echo three > {MOUNT}/b; cat {MOUNT}/a")
    assert done["stdout"] == "one"
    assert any("was deleted" in problem for problem in done["memoryStoreProblems"])
