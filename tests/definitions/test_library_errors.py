"""What the system does not give is not taken for what is not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library import memo
from fidelio.errors import InaccessibleDefinition, WorkflowNotFound
from tests.definitions.libraries import activity, library, manifest, save
from tests.support import proves

FAULTS = [errno.EMFILE, errno.EACCES, errno.EIO]


def withheld(monkeypatch: pytest.MonkeyPatch, function: str, path: Path, number: int) -> None:
    """Plays a fault: permissions bind everybody but root, and the disks of tests do not fail."""
    real: Callable[..., Any] = getattr(os, function)

    def call(asked: Any, *arguments: Any, **more: Any) -> Any:
        if str(asked) == str(path):
            raise OSError(number, os.strerror(number))
        return real(asked, *arguments, **more)

    monkeypatch.setattr(os, function, call)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return save(tmp_path / "root", {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a")})


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as written long ago, so that everything is remembered that may be."""
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000)


@proves("reach.faults")
@pytest.mark.parametrize("number", FAULTS)
@pytest.mark.parametrize(
    ("function", "place"),
    [("scandir", "."), ("stat", "."), ("scandir", "w"), ("stat", "w"), ("open", "w/workflow.yaml")],
)
@pytest.mark.usefixtures("settled")
def test_a_workflow_that_nobody_can_look_for_is_not_called_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch, function: str, place: str, number: int
) -> None:
    shelf = library(root)
    with monkeypatch.context() as fault:
        withheld(fault, function, root / place, number)
        with pytest.raises(InaccessibleDefinition, match=os.strerror(number)) as raised:
            shelf.version("w")
        with pytest.raises((InaccessibleDefinition, WorkflowNotFound)):
            shelf.version("v")

    assert str(root.parent) not in str(raised.value) or place == "w/workflow.yaml"
    assert [one.id for one in shelf.version("w").workflow.activities] == ["a"]


@proves("reach.faults", "library.broken")
@pytest.mark.parametrize(("function", "place"), [("scandir", "w/activities"), ("open", "w/activities/01-a.yaml")])
@pytest.mark.usefixtures("settled")
def test_an_activity_that_the_system_keeps_back_is_left_out_for_as_long_as_it_does(
    root: Path, monkeypatch: pytest.MonkeyPatch, function: str, place: str
) -> None:
    shelf = library(root)
    with monkeypatch.context() as fault:
        withheld(fault, function, root / place, errno.EMFILE)
        version = shelf.version("w")
    whole = shelf.version("w")

    assert version.workflow.activities == ()
    assert "Too many open files" in next(iter(version.workflow.broken.values()))[0].sentence
    assert ([one.id for one in whole.workflow.activities], whole.workflow.broken) == (["a"], {})


@proves("reach.faults", "library.roots")
@pytest.mark.usefixtures("settled")
def test_a_root_that_cannot_be_looked_at_is_not_passed_over_for_another(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = save(tmp_path / "below", {"w.yaml": manifest("w", title="Another one"), "v.yaml": manifest("v")})
    shelf = library(below, root)
    with monkeypatch.context() as fault:
        withheld(fault, "scandir", root, errno.EMFILE)
        with pytest.raises(InaccessibleDefinition):
            shelf.workflow("w")
        listed = [entry.id for entry in shelf.list()]

    assert listed == ["v", "w"]
    assert shelf.workflow("w").title == "W"


@proves("reach.faults")
def test_a_borrowed_activity_that_the_system_keeps_back_is_no_missing_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(root, {"b/workflow.yaml": manifest("b", activities=["w/a"])})
    shelf = library(root)
    with monkeypatch.context() as fault:
        withheld(fault, "open", root / "w/workflow.yaml", errno.EIO)
        broken = shelf.version("b").workflow.broken

    assert "Input/output error" in next(iter(broken.values()))[0].sentence
    assert not shelf.version("b").workflow.broken


@proves("reach.faults")
def test_a_directory_behind_a_link_that_cannot_be_followed_is_no_missing_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "linked").symlink_to("w")

    class Entry:
        """What `scandir` gives, for a link into a place where nobody may look."""

        name = "linked"

        def is_dir(self) -> bool:
            raise PermissionError(errno.EACCES, "Permission denied")

    class Listing:
        def __enter__(self) -> list[Entry]:
            return [Entry()]

        def __exit__(self, *_: object) -> None: ...

    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: Listing() if path == str(root) else real(path))
    withheld(monkeypatch, "stat", root / "linked", errno.EACCES)

    with pytest.raises(InaccessibleDefinition, match="Permission denied"):
        library(root).workflow("linked")
