"""The history of a store: versions explain every memory after any sequence of changes, and redaction changes no memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.errors import MemoryPathConflict, MemoryPreconditionFailed, MemoryProblem, SessionNotFound
from fidelio.ledger.audit import verify_session
from fidelio.runtime.memory_stores import rules
from fidelio.runtime.memory_stores.service import MemoryStore, MemoryStores
from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.support import FakeSandboxes, open_context
from tests.support import proves


class Step(msgspec.Struct, frozen=True):
    action: str
    path: str
    content: str


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["add", "write", "rename", "remove", "redact"]),
        st.sampled_from(["/a", "/b", "/c/d"]),
        st.sampled_from(["", "one", "two"]),
    ),
    max_size=12,
)


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[RuntimeContext]:
    async with open_context(tmp_path, FakeSandboxes()) as opened:
        yield opened


@pytest.fixture
def stores(context: RuntimeContext) -> MemoryStores:
    return MemoryStores(context, "/project")


async def make_store(stores: MemoryStores) -> str:
    return (await stores.objects.create(MemoryStore("notes"), by="api")).id


class Model:
    """What a store should hold: content by path, and every version in order."""

    def __init__(self, stores: MemoryStores, store: str) -> None:
        self.stores, self.store = stores, store
        self.files: dict[str, str] = {}
        self.versions: list[tuple[str, str, str | None]] = []

    async def carry_out(self, step: Step) -> None:
        memory = (await self.stores.memories(self.store)).find(step.path)
        if step.action == "add" and memory is None:
            await self.stores.add(self.store, step.path, step.content.encode(), by="api")
            self._store("created", step.path, step.content)
        elif step.action == "write" and memory is not None:
            await self.stores.change(self.store, memory.id, content=step.content.encode(), by="s_000000000000")
            if self.files[step.path] != step.content:
                self._store("modified", step.path, step.content)
        elif step.action == "rename" and memory is not None and "/z" not in self.files:
            await self.stores.change(self.store, memory.id, path="/z", by="api")
            self._store("modified", "/z", self.files.pop(step.path))
        elif step.action == "remove" and memory is not None:
            await self.stores.remove(self.store, memory.id, by="api")
            del self.files[step.path]
            self.versions.append(("deleted", step.path, None))
        elif step.action == "redact":
            await self._redact_oldest()

    def _store(self, operation: str, path: str, content: str) -> None:
        self.files[path] = content
        self.versions.append((operation, path, content))

    async def _redact_oldest(self) -> None:
        """Redact the oldest version; that of a live memory is refused and stays."""
        page = await self.stores.versions(self.store, lambda found: not found.redacted_at, before=None, limit=1000)
        if page.items:
            try:
                await self.stores.redact(self.store, page.items[-1].number, by="api")
            except MemoryProblem:
                return
            everything = await self.stores.versions(self.store, lambda _: True, before=None, limit=1000)
            numbers = sorted(version.number for version in everything.items)
            index = numbers.index(page.items[-1].number)
            self.versions[index] = (self.versions[index][0], "", None)

    async def check(self) -> None:
        memories = (await self.stores.memories(self.store)).entries.values()
        assert {memory.path: await self.stores.content(memory.sha256) for memory in memories} == self.files
        page = await self.stores.versions(self.store, lambda _: True, before=None, limit=1000)
        shown = [
            (
                version.operation,
                version.path or "",
                None if version.sha256 is None else await self.stores.content(version.sha256),
            )
            for version in reversed(page.items)
        ]
        assert shown == self.versions


@proves("memory-stores.history")
def test_versions_tell_what_happened_and_memories_what_is(tmp_path: Path) -> None:
    async def run(context: RuntimeContext, steps: list[Step]) -> None:
        stores = MemoryStores(context, "/project")
        model = Model(stores, await make_store(stores))
        for step in steps:
            await model.carry_out(step)
        await model.check()
        assert (await verify_session(context.ledger, model.store)).holds

    with asyncio.Runner() as runner:
        opening = open_context(tmp_path, FakeSandboxes())
        context = runner.run(opening.__aenter__())
        try:
            given(STEPS)(settings(max_examples=40, deadline=None)(lambda steps: runner.run(run(context, steps))))()
        finally:
            runner.run(opening.__aexit__(None, None, None))


@proves("memory-stores.history")
async def test_of_writers_at_the_same_time_a_single_one_gets_a_path(stores: MemoryStores) -> None:
    store = await make_store(stores)
    results = await asyncio.gather(
        *(stores.add(store, "/a", str(number).encode(), by="api") for number in range(6)), return_exceptions=True
    )

    assert sum(isinstance(result, MemoryPathConflict) for result in results) == 5
    assert len((await stores.memories(store)).entries) == 1


@proves("memory-stores.history")
async def test_of_two_changes_of_the_same_content_the_second_is_refused(stores: MemoryStores) -> None:
    store = await make_store(stores)
    memory = await stores.add(store, "/a", b"one", by="api")
    results = await asyncio.gather(
        *(stores.change(store, memory.id, content=text, expected=memory.sha256, by="api") for text in (b"two", b"three")),
        return_exceptions=True,
    )

    assert sum(isinstance(result, MemoryPreconditionFailed) for result in results) == 1


@proves("memory-stores.history")
async def test_versions_are_paged_over_a_long_history(stores: MemoryStores) -> None:
    store = await make_store(stores)
    memory = await stores.add(store, "/a", b"", by="api")
    for number in range(30):
        await stores.change(store, memory.id, content=str(number).encode(), by="api")

    found: list[int] = []
    before: int | None = None
    while True:
        page = await stores.versions(store, lambda _: True, before=before, limit=7)
        found += [version.number for version in page.items]
        if page.next is None:
            break
        before = int(page.next)

    assert found == sorted(found, reverse=True)
    assert len(found) == 31


@proves("memory-stores.limits")
async def test_a_full_store_refuses_another_memory(stores: MemoryStores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_MEMORIES", 2)
    store = await make_store(stores)
    memory = await stores.add(store, "/a", b"", by="api")
    await stores.add(store, "/b", b"", by="api")

    with pytest.raises(MemoryProblem, match="2 memories"):
        await stores.add(store, "/c", b"", by="api")
    await stores.remove(store, memory.id, by="api")
    assert (await stores.add(store, "/c", b"", by="api")).path == "/c"


@proves("memory-stores.limits")
async def test_an_unknown_store_takes_no_memory(stores: MemoryStores) -> None:
    with pytest.raises(SessionNotFound):
        await stores.add("s_000000000000", "/b", b"", by="api")
