"""Changes: nothing is parsed twice, and no change is missed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library import Library, Root, files, memo
from fidelio.definitions.library.library import LISTING_MAX_AGE
from fidelio.definitions.library.search_path import open_library
from fidelio.definitions.reading.document import ParsedDocument, read_bytes
from fidelio.errors import WorkflowNotFound
from fidelio.home import Home
from tests.definitions.libraries import activity, library, manifest, save, skill
from tests.support import proves


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save(
        tmp_path,
        {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a"), "w/activities/02-b.yaml": activity("b")},
    )
    save(tmp_path, {"w/skills/01-s.yaml": skill("s"), "w/resources/01-r.md": "# R", "w/templates/t.md": "T"})
    return save(tmp_path, {"v/workflow.yaml": manifest("v", activities=["w/a"]), "meta/workflow.yaml": manifest("meta")})


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def counting(raw: bytes, name: str) -> ParsedDocument:
        names.append(Path(name).name)
        return read_bytes(raw, name)

    monkeypatch.setattr(files, "read_bytes", counting)
    return names


@proves("library.changes")
def test_a_home_without_workflows_has_them_as_soon_as_the_first_is_written(tmp_path: Path) -> None:
    shelf = open_library(Home(tmp_path / "home"))
    with pytest.raises(WorkflowNotFound):
        shelf.workflow("w")
    save(tmp_path / "home" / "workflows", {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a")})

    assert shelf.workflow("w").id == "w"
    assert "w" in [found.id for found in shelf.list()]


def everything(shelf: Library) -> tuple[object, ...]:
    return (
        shelf.list(),
        shelf.workflow("w"),
        shelf.workflow("v"),
        shelf.skill("s", workflow="w"),
        shelf.resource("1", workflow="w"),
        shelf.template("t", workflow="w"),
    )


@proves("library.once")
def test_nothing_is_read_before_it_is_needed(root: Path, parsed: list[str]) -> None:
    shelf = library(root)
    assert parsed == []

    shelf.list()
    assert parsed == ["workflow.yaml"] * 3

    shelf.skill("s", workflow="w")
    assert parsed[3:] == ["01-s.yaml"]


@proves("library.once")
@pytest.mark.parametrize("settled", [True, False])
def test_nothing_is_parsed_twice(root: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch, settled: bool) -> None:
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000 if settled else 1_000_000)
    shelf = library(root)

    first = everything(shelf)
    count = len(parsed)
    again = everything(shelf)
    shelf.findings()
    shelf.content_hash("w")

    assert len(parsed) == count == 8
    assert again == first
    assert again[1] is first[1]


@proves("library.changes")
@pytest.mark.parametrize("edit", ["in place", "replaced", "old times"])
def test_a_change_of_the_same_size_is_seen_at_once(root: Path, edit: str) -> None:
    shelf = library(root)
    file = root / "w/activities/01-a.yaml"
    assert shelf.activity("w", "a").name == "A"
    before = file.stat()

    changed = file.read_text().replace('name": "A"', 'name": "Z"')
    if edit == "replaced":
        (root / "new").write_text(changed)
        (root / "new").replace(file)
    else:
        file.write_text(changed)
    if edit == "old times":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert file.stat().st_size == before.st_size
    assert shelf.activity("w", "a").name == "Z"
    assert shelf.activity("v", "a").name == "Z"


@contextmanager
def different(value: Callable[[], Any]) -> Iterator[None]:
    before = value()
    yield
    assert value() != before


@proves("library.changes")
def test_new_removed_and_mended_files_are_seen(root: Path) -> None:
    shelf = library(root)

    def ids() -> list[str]:
        return [found.id for found in shelf.workflow("w").activities]

    assert ids() == ["a", "b"]
    save(root, {"w/activities/03-c.yaml": activity("c"), "u.yaml": manifest("u")})
    assert ids() == ["a", "b", "c"]
    assert [entry.id for entry in shelf.list()] == ["meta", "u", "v", "w"]
    (root / "w/activities/01-a.yaml").unlink()
    assert ids() == ["b", "c"]
    assert list(shelf.workflow("v").broken) == ["w/a"]
    save(root, {"w/activities/02-b.yaml": "id: ["})
    assert ids() == ["c"]
    save(root, {"w/activities/02-b.yaml": activity("b")})
    assert ids() == ["b", "c"]


@proves("library.changes")
def test_a_file_that_appears_behind_a_link_is_seen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000)
    shelf = library(root)
    (root / "elsewhere").mkdir()
    (root / "w/activities/03-c.yaml").symlink_to("../../elsewhere/c.yaml")
    assert [found.id for found in shelf.workflow("w").activities] == ["a", "b"]

    save(root, {"elsewhere/c.yaml": activity("c")})

    assert [found.id for found in shelf.workflow("w").activities] == ["a", "b", "c"]


@proves("library.hash")
def test_the_hash_changes_with_every_file_of_the_workflow_and_with_nothing_else(root: Path) -> None:
    shelf = library(root)
    for file in ("workflow.yaml", "activities/02-b.yaml", "skills/01-s.yaml", "resources/01-r.md", "templates/t.md"):
        with different(lambda: shelf.content_hash("w")):
            (root / "w" / file).write_text((root / "w" / file).read_text() + "\n")
    before = shelf.content_hash("w")
    save(root, {"w/README.md": "x", "v/workflow.yaml": manifest("v"), "meta/skills/01-x.yaml": skill("x")})
    assert shelf.content_hash("w") == before
    assert library(root).content_hash("w") == before


@proves("library.hash")
def test_the_hash_covers_borrowed_activities_and_not_where_the_library_lies(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shelf = library(root)
    copy = tmp_path_factory.mktemp("copy") / "library"
    root.rename(copy)
    moved = library(copy)
    copy.rename(root)

    with different(lambda: shelf.content_hash("v")):
        save(root, {"w/activities/01-a.yaml": activity("a", problem="New.")})
    here = shelf.content_hash("v")
    root.rename(copy)
    assert moved.content_hash("v") == here


@proves("library.list-age")
def test_a_list_is_made_again_when_it_is_250_ms_old(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    shelf = Library([Root(root, "root")], clock=lambda: now)
    listed = shelf.list()
    looks = list[str]()

    stat = os.stat

    def looking(path: str) -> os.stat_result:
        looks.append(path)
        return stat(path)

    save(root, {"u.yaml": manifest("u")})
    now += LISTING_MAX_AGE - 0.001
    with monkeypatch.context() as patches:
        patches.setattr(os, "stat", looking)
        assert shelf.list() is listed
    assert looks == []

    now += 0.001
    assert [entry.id for entry in shelf.list()] == ["meta", "u", "v", "w"]


@proves("library.list-age")
def test_an_old_list_is_kept_while_nothing_has_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000)
    times = count()
    shelf = Library([Root(root, "root")], clock=lambda: next(times))

    assert shelf.list() is shelf.list()


@proves("library.changes")
def test_the_definition_of_a_session_is_never_old(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000)
    shelf = Library([Root(root, "root")], clock=lambda: 0.0)
    before = shelf.version("w")
    assert shelf.version("w") is before

    save(root, {"w/activities/01-a.yaml": activity("a", description="Changed.")})

    assert shelf.version("w").hash != before.hash


@proves("library.changes")
def test_what_two_threads_compute_at_once_is_recorded_for_each(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000)
    shared, inside, done = memo.Memo(), threading.Event(), threading.Event()
    reader = files.Files(str(root), shared)

    def slow(_: str | None) -> str:
        inside.set()
        assert done.wait(10)
        return reader.read(str(root / "w" / "workflow.yaml")).raw.decode()

    with ThreadPoolExecutor(1) as pool:

        def start_slow(_: Future[str] | None) -> Future[str]:
            waiting = pool.submit(shared.get_or_make, "slow", slow)
            assert inside.wait(10)
            return waiting

        waiting = shared.get_or_make("quick", start_slow)
        done.set()
        first = waiting.result(10)
    save(root, {"w/workflow.yaml": manifest("w", description="Changed.")})

    assert shared.get_or_make("slow", slow) != first
