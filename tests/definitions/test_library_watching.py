"""Watching: what is asked for often costs no look, and no change is missed for it."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fidelio.definitions.library import inotify as watching
from fidelio.definitions.library import memo
from fidelio.definitions.library.memo import Memo, read_signature
from tests.support import proves

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of changes")


@pytest.fixture(autouse=True)
def always_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000)


class Shelf:
    """All texts below a directory, remembered; counts how many times they were read and how many times they were looked at."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.reads = self.looks = 0
        self._memo = Memo()
        look = memo._is_unchanged

        def counting(touched: dict[str, memo.Signature | None]) -> bool:
            self.looks += 1
            return look(touched)

        monkeypatch.setattr(memo, "_is_unchanged", counting)

    def texts(self) -> dict[str, str]:
        return self._memo.get_or_make("texts", self._read)

    def _read(self) -> dict[str, str]:
        self.reads += 1
        found = {}
        for path in (self.root, *sorted(self.root.rglob("*"))):
            self._memo.touch(str(path), read_signature(str(path)))
            if path.is_file():
                found[path.name] = path.read_text()
        return found

    def watched(self) -> Shelf:
        for _ in range(memo.CHECKS_BEFORE_WATCHING + 1):
            self.texts()
        self.looks = self.reads = 0
        return self


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    root = tmp_path / "root"
    (root / "part").mkdir(parents=True)
    (root / "a").write_text("one")
    (root / "part" / "b").write_text("two")
    return Shelf(root, monkeypatch).watched()


@proves("library.watched")
def test_what_is_asked_for_often_is_not_looked_at_any_more(shelf: Shelf) -> None:
    for _ in range(100):
        assert shelf.texts() == {"a": "one", "b": "two"}
    assert (shelf.looks, shelf.reads) == (0, 0)


def _replaced(path: Path) -> None:
    path.with_name(".new").write_text("six")
    path.with_name(".new").replace(path)


def _with_its_time(path: Path) -> None:
    before = path.stat()
    path.write_text("six")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _in_another_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    path.parent.mkdir()
    path.write_text("six")
    shutil.rmtree(path.parent.with_name("old"))


@proves("library.watched")
@pytest.mark.parametrize("change", [Path.unlink, _replaced, _with_its_time, _in_another_directory])
def test_every_kind_of_change_is_seen_at_once(shelf: Shelf, change: Callable[[Path], None]) -> None:
    change(shelf.root / "part" / "b")
    assert shelf.texts().get("b") in (None, "six")
    assert shelf.reads == 1


@proves("library.watched")
def test_a_root_that_was_replaced_is_seen_at_once_and_watched_again(shelf: Shelf) -> None:
    shelf.root.rename(shelf.root.with_name("old"))
    shelf.root.mkdir()
    (shelf.root / "c").write_text("new")
    assert shelf.texts() == {"c": "new"}

    shelf.watched()
    (shelf.root / "c").write_text("newer")
    assert shelf.texts() == {"c": "newer"}


@proves("library.watched")
def test_a_change_that_brings_no_notice_is_seen_a_moment_later(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.link(shelf.root / "a", tmp_path / "elsewhere" / "a")
    shelf.watched()
    (tmp_path / "elsewhere" / "a").write_text("through another name")
    assert shelf.texts()["a"] == "one"

    later = time.monotonic() + memo.RECHECK_SECONDS
    monkeypatch.setattr(memo, "monotonic", lambda: later)
    assert shelf.texts()["a"] == "through another name"


@proves("library.watched")
def test_what_lies_behind_a_link_is_looked_at_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x")
    (tmp_path / "root").symlink_to("real")
    shelf = Shelf(tmp_path / "root", monkeypatch).watched()

    (tmp_path / "root").unlink()
    (tmp_path / "root").symlink_to("other")
    assert shelf.texts() == {"x": "x"}


@proves("library.watched")
@pytest.mark.parametrize(
    "reason", ["no ctypes", "no inotify", "no more instances", "no more directories", "too many directories"]
)
def test_without_a_watch_every_change_is_seen_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    class Library:
        """A C library in which one thing does not work."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __getattr__(self, name: str) -> Callable[..., int]:
            if reason == "no inotify":
                raise AttributeError(name)
            wanted = "inotify_init1" if reason == "no more instances" else "inotify_add_watch"
            return (lambda *_: -1) if name == wanted else getattr(real, name)

    real = ctypes.CDLL(None, use_errno=True)
    if reason == "no ctypes":
        monkeypatch.setitem(sys.modules, "fidelio.definitions.library.inotify", None)
    elif reason == "too many directories":
        monkeypatch.setattr(watching, "MAX_DIRECTORIES", 0)
    else:
        monkeypatch.setattr(ctypes, "CDLL", Library)
    (tmp_path / "a").write_text("one")
    shelf = Shelf(tmp_path, monkeypatch).watched()

    assert (shelf.texts(), shelf.looks) == ({"a": "one"}, 1)
    (tmp_path / "a").write_text("changed")
    assert shelf.texts() == {"a": "changed"}


@proves("library.watched")
def test_more_changes_than_the_system_counts_are_seen(shelf: Shelf) -> None:
    # Two files in turn: equal notices in a row would be one.
    for number in range(12_000):
        (shelf.root / "a").write_text(str(number))
        (shelf.root / "part" / "b").write_text(str(number))
    assert shelf.texts() == {"a": "11999", "b": "11999"}
    shelf.watched()
    (shelf.root / "a").write_text("once more")
    assert shelf.texts()["a"] == "once more"


@proves("library.watched")
def test_a_change_of_nothing_but_the_time_is_noticed(shelf: Shelf) -> None:
    os.utime(shelf.root / "a", ns=(1, 1))
    shelf.texts()
    assert shelf.reads == 1


@proves("library.watched")
def test_a_change_between_the_watch_and_the_look_is_in_one_of_the_two(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    look = memo._is_unchanged

    def changing(touched: dict[str, memo.Signature | None]) -> bool:
        unchanged = look(touched)
        monkeypatch.setattr(memo, "_is_unchanged", look)
        (shelf.root / "a").write_text("just now")
        return unchanged

    (shelf.root / "unnoticed").mkdir()
    (shelf.root / "unnoticed").rmdir()
    monkeypatch.setattr(memo, "_is_unchanged", changing)
    shelf.texts()
    assert shelf.texts()["a"] == "just now"


@proves("library.watched")
def test_no_watch_is_left_on_what_has_gone(tmp_path: Path) -> None:
    watch = watching.DirectoryWatch()
    for _ in range(50):
        (tmp_path / "root").mkdir()
        assert watch.add([str(tmp_path / "root")])
        (tmp_path / "root").rename(tmp_path / "old")
        watch.count_changes()
        (tmp_path / "old").rmdir()
    assert "inotify wd:" not in Path(f"/proc/self/fdinfo/{watch._queue}").read_text()


@proves("library.watched")
def test_a_library_that_is_named_with_dots_is_watched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root").mkdir()
    shelf = Shelf(tmp_path / "root" / ".." / "root", monkeypatch).watched()
    shelf.texts()
    assert shelf.looks == 0


NAMES = st.sampled_from(["a", "b", "part/c", "part/d", "new/e"])
OPERATIONS = st.tuples(st.sampled_from(["write", "append", "remove", "move", "chmod", "link", "sweep"]), NAMES, NAMES)


def _carry_out(root: Path, operation: str, path: Path, other: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if operation == "write":
        path.write_text(path.name)
    elif operation == "append":
        with path.open("a") as file:
            file.write("+")
    elif operation == "sweep":
        shutil.rmtree(root / "new", ignore_errors=True)
    elif not path.exists():
        return
    elif operation == "remove":
        path.unlink()
    elif operation == "move":
        other.parent.mkdir(exist_ok=True)
        path.replace(other)
    elif operation == "chmod":
        path.chmod(0o600)
    elif not other.is_symlink() and not other.exists():
        other.parent.mkdir(exist_ok=True)
        other.symlink_to(path)


@proves("library.watched")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=12))
def test_whatever_happens_what_is_remembered_is_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, str]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    (root / "a").write_text("a")
    with pytest.MonkeyPatch.context() as patches:
        shelf = Shelf(root, patches).watched()
        for operation, path, other in operations:
            _carry_out(root, operation, root / path, root / other)
            assert shelf.texts() == {one.name: one.read_text() for one in sorted(root.rglob("*")) if one.is_file()}
            shelf.watched()
