"""Listing: every workflow of every root, cheaply, the broken ones too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.definitions.library import Root
from fidelio.errors import WorkflowNotFound
from tests.definitions.libraries import FORMATS, activity, library, manifest, save, written
from tests.support import proves


@proves("library.list", "library.single-file")
def test_every_workflow_is_listed_with_what_its_manifest_says(tmp_path: Path) -> None:
    head = {"version": "1.0.0", "title": "One", "description": "First.", "tags": ["a", "b"]}
    save(tmp_path, {f"{name}/workflow.{name}": written({"id": name, **head}, name) for name in FORMATS})
    save(tmp_path, {f"single-{name}.{name}": written({"id": f"single-{name}", **head}, name) for name in FORMATS})
    save(tmp_path, {"README.md": "# Hi", "empty/README.md": "", ".git/workflow.yaml": manifest("git"), "notes.txt": ""})

    entries = library(tmp_path).list()

    assert [entry.id for entry in entries] == ["json", "single-json", "single-toon", "single-yaml", "toon", "yaml"]
    assert {(entry.title, entry.version, entry.description, entry.tags, entry.root) for entry in entries} == {
        ("One", "1.0.0", "First.", ("a", "b"), tmp_path.name)
    }
    assert not any(entry.broken for entry in entries)


@proves("library.list")
def test_a_list_does_not_load_the_models(tmp_path: Path) -> None:
    save(tmp_path, {"one/workflow.yaml": manifest("one"), "one/activities/01-a.yaml": "broken: ["})
    program = (
        "import sys; from pathlib import Path; from fidelio.definitions.library import Library, Root\n"
        f"assert len(Library([Root(Path({str(tmp_path)!r}), 'x')]).list()) == 1\n"
        "sys.exit('pydantic' in sys.modules or 'toon_format' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


@proves("library.roots")
def test_a_workflow_is_taken_whole_from_the_last_root_that_has_it(tmp_path: Path) -> None:
    first = save(
        tmp_path / "bundled",
        {
            "w/workflow.yaml": manifest("w"),
            "w/activities/01-a.yaml": activity("a"),
            "w/activities/02-b.yaml": activity("b"),
            "v.yaml": manifest("v"),
        },
    )
    last = save(
        tmp_path / "project", {"w/workflow.yaml": manifest("w", description="Mine."), "w/activities/01-a.yaml": activity("a")}
    )

    shelf = library(first, last)

    assert [(entry.id, entry.root, entry.description) for entry in shelf.list()] == [
        ("v", "bundled", ""),
        ("w", "project", "Mine."),
    ]
    assert [found.id for found in shelf.workflow("w").activities] == ["a"]
    assert [found.id for found in library(last, first).workflow("w").activities] == ["a", "b"]


@proves("library.roots")
def test_a_root_that_is_not_there_is_an_empty_one(tmp_path: Path) -> None:
    shelf = library(tmp_path / "nowhere", save(tmp_path / "here", {"w.yaml": manifest("w")}))

    assert [entry.id for entry in shelf.list()] == ["w"]
    assert shelf.findings() == ()
    assert shelf.roots[0] == Root(tmp_path / "nowhere", "nowhere")


@proves("library.broken")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id: x\nid: y\n", 2),
        ("id: [\n", 2),
        ("", 1),
        ("- a\n", 1),
        ("id: x\nversion: 1.0\ntitle: X\n", 2),
        ("id: x\nversion: 1.0.0\n", 1),
    ],
)
def test_a_broken_manifest_is_listed_with_its_error_beside_the_others(tmp_path: Path, text: str, line: int) -> None:
    save(tmp_path, {"bad/workflow.yaml": text, "good/workflow.yaml": manifest("good")})

    bad, good = library(tmp_path).list()

    assert (bad.id, bad.broken, bad.findings[0].line) == ("bad", True, line)
    assert bad.findings[0].file == str(tmp_path / "bad" / "workflow.yaml")
    assert (good.id, good.broken) == ("good", False)


@proves("library.ids")
def test_an_unknown_workflow_is_answered_with_near_names(tmp_path: Path) -> None:
    shelf = library(save(tmp_path, {"work-package.yaml": manifest("work-package"), "other.yaml": manifest("other")}))

    with pytest.raises(WorkflowNotFound, match="Did you mean work-package"):
        shelf.workflow("Work-Packge")
    with pytest.raises(WorkflowNotFound, match="fidelio list"):
        shelf.entry("zzz")
    assert shelf.entry(" other ").id == "other"
