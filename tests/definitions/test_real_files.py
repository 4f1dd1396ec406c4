"""Files of three generations, written by others: each loads, or is reported with a true finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.definitions.models import Workflow
from fidelio.definitions.reading import read_bytes
from fidelio.errors import UnreadableDefinition
from tests.definitions.libraries import library, written
from tests.definitions.test_reading_properties import paths
from tests.support import proves
from tests.support.shared import shared_workflow_roots

_ROOTS = shared_workflow_roots()
_BROKEN = {"navigation-generation/meta/skills/02-state-management.toon": (5, "half-read")}


def files(root: Path) -> list[Path]:
    return sorted(file for suffix in ("*.toon", "*.yaml", "*.md") for file in root.rglob(suffix))


@proves("definitions.real-files", "reading.whole-or-not")
@pytest.mark.parametrize("root", _ROOTS, ids=lambda root: root.name)
def test_every_file_is_read_whole_or_refused_with_a_true_finding(root: Path) -> None:
    for file in files(root):
        name = str(file.relative_to(root.parent))
        try:
            document = read_bytes(file.read_bytes(), name)
        except UnreadableDefinition as problem:
            assert _BROKEN[name] == (problem.findings[0].line, problem.findings[0].rule)  # noqa: PT017  # one of many is broken
        else:
            assert name not in _BROKEN
            assert set(document.positions) | {("front",)} >= paths(document.data)


@proves("definitions.real-files", "models.generations")
@pytest.mark.parametrize("root", _ROOTS, ids=lambda root: root.name)
def test_every_workflow_loads_with_all_its_parts(root: Path) -> None:
    shelf = library(root)

    for entry in shelf.list():
        workflow = shelf.workflow(entry.id)
        assert not entry.broken
        assert not workflow.broken
        assert len(workflow.activities) == len(list((root / entry.id / "activities").glob("*.toon")))
        assert Workflow.model_validate(shelf.snapshot(entry.id)) == workflow
        assert all(activity.owner == entry.id and activity.artifact_prefix for activity in workflow.activities)
    found = {str(Path(finding.file).relative_to(root.parent)) for finding in shelf.findings()}
    assert found == {name for name in _BROKEN if name.startswith(root.name)}


@proves("definitions.real-files", "library.source")
@pytest.mark.parametrize("root", _ROOTS, ids=lambda root: root.name)
def test_every_activity_is_served_byte_for_byte(root: Path) -> None:
    shelf = library(root)

    for entry in shelf.list():
        for activity in shelf.workflow(entry.id).activities:
            source = shelf.source("activity", activity.id, workflow=entry.id)
            assert source.content == Path(source.file).read_bytes()
            assert source.toon.encode() == source.content


@proves("definitions.real-files", "models.formats-equal")
@pytest.mark.parametrize("root", _ROOTS[:1], ids=lambda root: root.name)
def test_a_real_workflow_means_the_same_in_every_format(root: Path, tmp_path: Path) -> None:
    shelf = library(root)
    for format_ in ("yaml", "json"):
        for file in files(root / "work-package"):
            if file.suffix == ".toon":
                copy = tmp_path / format_ / file.relative_to(root).with_suffix(f".{format_}")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(written(read_bytes(file.read_bytes(), file.name).data, format_), "utf-8")

    assert shelf.workflow("work-package") == library(tmp_path / "yaml").workflow("work-package")
    assert shelf.workflow("work-package") == library(tmp_path / "json").workflow("work-package")
