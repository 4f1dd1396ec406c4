"""Safety: hostile ids, links that lead out, and things that only look like files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.definitions.library import Library
from fidelio.errors import BadId, ComponentNotFound, DefinitionError, UnreadableDefinition, WorkflowNotFound
from tests.definitions.libraries import activity, library, manifest, save, skill
from tests.support import proves

_SECRET = "id: secret\nversion: 1.0.0\ntitle: Secret\nname: Secret\ncapability: Secret\n"

_opened: list[str] | None = None


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event in ("open", "os.scandir", "os.listdir"):
        _opened.append(os.path.realpath(os.fspath(arguments[0])) if isinstance(arguments[0], (str, bytes, os.PathLike)) else "")  # type: ignore[arg-type]  # bytes never occur


sys.addaudithook(_watch)


@contextmanager
def nothing_outside(root: Path) -> Iterator[None]:
    """Fails when anything of the test's directory but the root was opened."""
    global _opened  # noqa: PLW0603  # an audit hook cannot be removed, so it is switched
    opened: list[str] = []
    _opened = opened
    try:
        yield
    finally:
        _opened = None
    assert not [name for name in opened if name.startswith(str(root.parent)) and not (name + "/").startswith(f"{root}/")]


def asked(shelf: Library, name: str) -> Iterator[Callable[[], object]]:
    yield lambda: shelf.workflow(name)
    yield lambda: shelf.entry(name)
    yield lambda: shelf.activity("w", name)
    yield lambda: shelf.skill(name, workflow="w", owner=name)
    yield lambda: shelf.skill("s", workflow=name)
    yield lambda: shelf.resource(name, workflow="w", last_skill_owner=name)
    yield lambda: shelf.template(name, workflow="w")
    yield lambda: shelf.content_hash(name)
    yield lambda: shelf.source("skill", name, workflow="w")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("safety")
    save(
        place,
        {
            "secret.yaml": _SECRET,
            "outside/workflow.yaml": _SECRET,
            "outside/activities/01-x.yaml": _SECRET,
            "outside/skills/01-x.yaml": _SECRET,
        },
    )
    save(
        place / "root",
        {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a"), "w/skills/01-s.yaml": skill("s")},
    )
    return place / "root"


_HOSTILE = st.lists(
    st.sampled_from(
        [
            "..",
            ".",
            "/",
            "\\",
            "\0",
            "w",
            "outside",
            "secret",
            "secret.yaml",
            "~",
            "%2e",
            "C:",
            "\n",
            "\u202e",
            "skills",
            "activities",
            "*",
            " ",
        ]
    ),
    max_size=6,
).map("".join) | st.text(max_size=10)


@proves("library.ids", "library.inside")
@given(name=_HOSTILE)
@settings(max_examples=150, deadline=None)
def test_no_id_opens_anything_outside_the_root(root: Path, name: str) -> None:
    shelf = library(root)
    with nothing_outside(root):
        for ask in asked(shelf, name):
            try:
                ask()
            except DefinitionError as problem:
                assert "Secret" not in str(problem)  # noqa: PT017  # most of the names are refused, and some are found


@proves("library.ids")
@pytest.mark.parametrize(
    "name", ["", "  ", ".", "..", "../w", "/etc/passwd", "w/../../x", "a\\b", "a\0b", "a\nb", ".hidden", "C:x", "a" * 201]
)
def test_an_id_that_could_be_a_path_is_refused(root: Path, name: str) -> None:
    with pytest.raises(BadId):
        library(root).workflow(name)


@proves("library.ids")
@pytest.mark.parametrize("name", ["w/../s", "../s", "a/b/c", "w//s", "/s", "w/.s"])
def test_a_reference_that_could_be_a_path_is_refused(root: Path, name: str) -> None:
    with pytest.raises(BadId):
        library(root).skill(name, workflow="w")


@proves("library.inside")
def test_links_that_lead_out_are_findings_and_never_followed(root: Path, tmp_path: Path) -> None:
    outside = root.parent
    place = save(tmp_path / "root", {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a")})
    (place / "linked").symlink_to(outside / "outside")
    (place / "single.yaml").symlink_to(outside / "secret.yaml")
    (place / "w/activities/02-x.yaml").symlink_to(outside / "outside/activities/01-x.yaml")
    (place / "w/skills").symlink_to(outside / "outside/skills")
    (place / "inside").symlink_to(place / "w")
    shelf = library(place)

    with nothing_outside(root):
        entries = {entry.id: entry for entry in shelf.list()}
        rules = {finding.rule for finding in shelf.findings()}
        workflow = shelf.workflow("w")

    assert rules == {"outside-root"}
    assert {name for name, entry in entries.items() if entry.broken} == {"linked", "single"}
    assert [found.id for found in workflow.activities] == ["a"]
    assert list(workflow.broken) == ["x"]
    assert [found.id for found in shelf.workflow("inside").activities] == ["a"]
    with pytest.raises(UnreadableDefinition, match="leads out"):
        shelf.skill("x", workflow="w")


@proves("library.inside")
@pytest.mark.parametrize("folder", ["../outside/activities", "/etc", "..", "a/../../x", ""])
def test_the_directory_of_activities_stays_inside_the_workflow(tmp_path: Path, folder: str) -> None:
    place = save(tmp_path / "root", {"w/workflow.yaml": manifest("w", activitiesDir=folder)})
    save(tmp_path, {"outside/activities/01-x.yaml": _SECRET})

    with nothing_outside(place):
        workflow = library(place).workflow("w")

    assert workflow.activities == ()
    assert not folder or workflow.broken["activities"][0].rule == "outside-root"


@proves("library.odd-files")
def test_what_only_looks_like_a_file_is_a_finding_and_stops_nothing(tmp_path: Path) -> None:
    save(
        tmp_path, {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a"), "w/activities/04-empty.yaml": ""}
    )
    (tmp_path / "w/activities/02-dir.yaml").mkdir()
    os.mkfifo(tmp_path / "w/activities/03-pipe.yaml")
    (tmp_path / "w/skills").mkdir()
    (tmp_path / "w/skills/01-gone.yaml").symlink_to("nowhere.yaml")
    (tmp_path / "pipe.yaml").parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "d/workflow.yaml").mkdir(parents=True)
    save(tmp_path, {"w/resources": "not a directory"})
    shelf = library(tmp_path)

    assert [(entry.id, entry.broken) for entry in shelf.list()] == [("d", True), ("pipe", True), ("w", False)]
    assert [found.id for found in shelf.workflow("w").activities] == ["a"]
    assert sorted(shelf.workflow("w").broken) == ["dir", "empty", "pipe"]
    assert {Path(finding.file).name for finding in shelf.findings()} == {
        "workflow.yaml", "pipe.yaml", "02-dir.yaml", "03-pipe.yaml", "04-empty.yaml", "01-gone.yaml",
    }  # fmt: skip
    with pytest.raises(ComponentNotFound):
        shelf.resource("1", workflow="w")


@proves("library.odd-files")
def test_what_may_not_be_read_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(
        tmp_path, {"w/workflow.yaml": manifest("w"), "v/workflow.yaml": manifest("v"), "w/activities/01-a.yaml": activity("a")}
    )
    # Permissions bind everybody but root, and tests often run as root: the refusal is played here.
    for function in ("open", "scandir"):
        monkeypatch.setattr(os, function, _forbidding(getattr(os, function), "01-a.yaml", "/v"))
    shelf = library(tmp_path)

    assert [(entry.id, entry.broken) for entry in shelf.list()] == [("v", True), ("w", False)]
    assert list(shelf.workflow("w").broken) == ["a"]
    assert all("denied" in finding.sentence for finding in shelf.findings())


def _forbidding(function: Callable[..., Any], *ends: str) -> Callable[..., Any]:
    def call(path: str, *arguments: Any) -> Any:
        if str(Path(path).parent).endswith(ends) or path.endswith(ends):
            raise PermissionError(13, "Permission denied")
        return function(path, *arguments)

    return call


@proves("library.odd-files")
def test_a_root_that_is_a_file_is_an_empty_one(tmp_path: Path) -> None:
    shelf = library(save(tmp_path, {"root": "x"}) / "root")

    assert shelf.list() == ()
    with pytest.raises(WorkflowNotFound):
        shelf.workflow("w")
