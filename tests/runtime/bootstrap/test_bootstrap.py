"""The eight files that an agent begins with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.runtime.bootstrap.files import MAX_CHARACTERS, NAMES, BootstrapFile, load_bootstrap, render_text
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.resources.memory_file import SECTIONS, check_memory, write_section
from tests.runtime.resources.support import Bench
from tests.support import proves


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    home = Home(tmp_path / "home").ensure()
    async with await open_ledger(home.ledger) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        yield Bench(home, ledger)


async def load(bench: Bench) -> dict[str, BootstrapFile]:
    files = await load_bootstrap(bench.context, bench.project, "default")
    return {file.name: file for file in files}


@proves("runtime.bootstrap-files")
async def test_a_new_agent_gets_eight_files_whose_first_versions_the_system_has_stored(bench: Bench) -> None:
    files = await load(bench)
    assert tuple(files) == NAMES
    assert "default" in files["IDENTITY.md"].text
    substrate = await bench.substrate()
    for name in NAMES:
        (version,) = await substrate.list_versions(name, 10)
        document = await bench.ledger.document(substrate.store.space, name)
        assert document is not None
        assert (version.origin, document.author, version.content_hash) == ("seed", "system", files[name].digest)


@proves("runtime.bootstrap-files")
def test_all_files_together_are_short_and_say_something() -> None:
    texts = [render_text(name, "a" * 60) for name in NAMES]
    assert sum(map(len, texts)) < 2_000
    assert all(len(text.splitlines()) > 1 for text in texts)


@proves("runtime.bootstrap-files", "runtime.managed-sections")
def test_the_memory_begins_with_both_managed_sections() -> None:
    text = render_text("MEMORY.md", "default")
    for section in SECTIONS:
        changed = write_section(text, section, "new")
        assert changed.count(f"fidelio:{section}:begin") == 1
    check_memory("MEMORY.md", None, text.encode())


@proves("runtime.bootstrap-files")
async def test_unchanged_files_are_neither_stored_nor_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await load(bench)
    first_seq = (await bench.substrate()).store.last_seq
    assert await load(bench) == first

    async def fail(*_: object, **__: object) -> None:
        raise AssertionError("a document was read")

    monkeypatch.setattr(type(bench.ledger), "document", fail)
    monkeypatch.setattr(type(bench.ledger), "blob", fail)
    assert await load(bench) == first
    monkeypatch.undo()
    assert (await bench.substrate()).store.last_seq == first_seq


@proves("runtime.bootstrap-files")
async def test_files_that_exist_stay_and_only_missing_ones_are_stored(bench: Bench) -> None:
    await bench.share("SOUL.md", b"Loud.\n")
    files = await load(bench)
    assert files["SOUL.md"].text == "Loud.\n"
    assert [version.origin for version in await (await bench.substrate()).list_versions("SOUL.md", 10)] == ["person"]
    assert files.keys() == set(NAMES)


@proves("runtime.bootstrap-files")
async def test_a_new_version_is_used_at_once(bench: Bench) -> None:
    await load(bench)
    await bench.share("USER.md", b"Anna likes tables.\n")
    assert (await load(bench))["USER.md"].text == "Anna likes tables.\n"


@proves("runtime.bootstrap-files")
async def test_a_memory_under_its_second_name_is_accepted(bench: Bench) -> None:
    await bench.share("memory.md", b"mine\n")
    files = await load(bench)
    assert files["memory.md"].text == "mine\n"
    assert "MEMORY.md" not in files
    await bench.share("MEMORY.md", b"ours\n")
    assert (await load(bench))["MEMORY.md"].text == "ours\n"


@proves("runtime.bootstrap-files")
async def test_each_agent_and_each_project_has_its_own_files(bench: Bench) -> None:
    await bench.share("USER.md", b"Anna likes tables.\n")
    for project, agent in ((bench.project, "other"), ("/elsewhere", "default")):
        files = await load_bootstrap(bench.context, project, agent)
        assert "Anna" not in next(file.text for file in files if file.name == "USER.md")


@proves("runtime.bootstrap-races")
async def test_processes_that_begin_an_agent_at_once_store_each_file_once(bench: Bench) -> None:
    async with await open_ledger(bench.home.ledger) as ledger:
        ledger.record_type = bench.ledger.record_type
        other = Bench(bench.home, ledger)
        loaded = await asyncio.gather(*(load(each) for each in (bench, other) * 4))
    assert all(files == loaded[0] for files in loaded)
    substrate = await bench.substrate()
    for name in NAMES:
        assert len(await substrate.list_versions(name, 10)) == 1


@proves("runtime.bootstrap-races")
async def test_a_file_that_is_shared_meanwhile_is_not_overwritten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, shared = type(bench.ledger).commit, asyncio.Event()

    async def share_first(ledger: object, *changes: object) -> object:
        if not shared.is_set() and any(len(getattr(change, "events", ())) == 8 for change in changes):
            shared.set()
            await bench.share("SOUL.md", b"Loud.\n")
        return await commit(ledger, *changes)  # type: ignore[arg-type]  # the arguments of the method

    monkeypatch.setattr(type(bench.ledger), "commit", share_first)
    files = await load(bench)
    assert shared.is_set()
    assert files["SOUL.md"].text == "Loud.\n"
    assert files.keys() == set(NAMES)


@proves("runtime.bootstrap-files")
async def test_a_name_that_is_a_directory_of_shared_files_stays_one(bench: Bench) -> None:
    await bench.share("SOUL.md/part.md", b"x")
    files = await load(bench)
    assert files.keys() == set(NAMES) - {"SOUL.md"}
    assert await (await bench.substrate()).find_obstacle("SOUL.md") == "SOUL.md/part.md"


@proves("runtime.bootstrap-files")
async def test_long_binary_and_erased_files_do_not_stop_a_wake(bench: Bench) -> None:
    await bench.share("AGENTS.md", b"x" * (MAX_CHARACTERS + 1))
    await bench.share("TOOLS.md", b"\x00\xff")
    await bench.share("USER.md", b"secret")
    substrate = await bench.substrate()
    (stored,) = [event for event in await bench.ledger.events(substrate.store.id) if "USER.md" in (event.raw or "")]
    await bench.ledger.redact(substrate.store.id, [stored.seq], actor="anna", reason="secret")
    files = await load(bench)
    assert (len(files["AGENTS.md"].text), files["TOOLS.md"].text, files["USER.md"].text) == (MAX_CHARACTERS, "", "")
