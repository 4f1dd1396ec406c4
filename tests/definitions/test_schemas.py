"""Schemas and reference page are what the models say, and both explain every key."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library.search_path import bundled_root
from fidelio.definitions.models import Activity
from fidelio.definitions.reading import read_bytes
from fidelio.errors import UnreadableDefinition
from scripts import generate_schemas as generator
from tests.definitions.test_models import ACTIVITY
from tests.support import proves
from tests.support.shared import shared_workflow_roots

FILES = generator.files()


@proves("models.schemas")
@pytest.mark.parametrize("place", FILES, ids=lambda place: place.name)
def test_what_is_generated_is_up_to_date(place: Path) -> None:
    assert place.read_text("utf-8") == FILES[place], f"{place.name} is stale: run `make docs`"


@proves("models.schemas")
@pytest.mark.parametrize("kind", generator.KINDS)
def test_every_key_is_explained(kind: str) -> None:
    models = generator._models(generator.schema(kind))

    silent = [
        f"{name}.{key}"
        for name, model in models.items()
        for key, value in model["properties"].items()
        if "description" not in value and key != "type"
    ]

    assert silent == []
    assert all(model["description"] for model in models.values())


@cache
def validator(kind: str) -> Any:
    # Untyped, and here only because the MCP client brings it.
    return import_module("jsonschema").Draft202012Validator(generator.schema(kind))


def faults(kind: str, data: Any) -> list[str]:
    return [fault.message for fault in validator(kind).iter_errors(data)]


@proves("models.schemas")
@pytest.mark.parametrize(
    ("change", "sound"),
    [
        ({}, True),
        ({"triggers": {"workflow": "helper"}}, True),
        ({"estimatedTime": "2 Hours"}, True),
        ({"colour": "red"}, True),
        ({"estimatedTime": "soon"}, False),
        ({"version": "1.0"}, False),
        ({"steps": [{"id": "x"}]}, False),
        ({"required": "yes"}, False),
        ({"checkpoints": [{"id": "c", "name": "C", "message": "?", "options": []}]}, False),
    ],
)
def test_an_editor_and_the_server_agree_about_a_file(change: dict[str, Any], sound: bool) -> None:
    try:
        Activity.model_validate(ACTIVITY | change)
    except ValueError:
        accepted = False
    else:
        accepted = True

    assert accepted is sound
    assert (faults("activity", ACTIVITY | change) == []) is sound


@proves("models.schemas")
@pytest.mark.parametrize("kind", generator.KINDS)
def test_an_editor_warns_of_every_key_that_has_no_effect(kind: str) -> None:
    """Editors show a `deprecationMessage` at the key; tried with the YAML language server."""
    models = generator._models(generator.schema(kind)).values()
    free = [model["title"] for model in models if model.get("additionalProperties") not in (False, generator.UNKNOWN_KEY)]

    assert free == []


@proves("models.schemas")
def test_the_schemas_accept_every_bundled_file() -> None:
    folders = {"activities": "activity", "skills": "skill"}
    kinds = {
        file: folders.get(file.parent.name, file.stem)
        for file in bundled_root().path.rglob("*.yaml")
        if file.parent.name in folders or file.stem in generator.KINDS
    }

    assert set(kinds.values()) == {"activity", "skill", "workflow"}
    assert [file for file, kind in kinds.items() if faults(kind, read_bytes(file.read_bytes(), file.name).data)] == []


@proves("models.schemas", "definitions.real-files")
@pytest.mark.parametrize("root", shared_workflow_roots(), ids=lambda root: root.name)
def test_the_schemas_accept_every_real_file_that_can_be_read(root: Path) -> None:
    for file in root.rglob("*.toon"):
        kind = {"activities": "activity", "skills": "skill"}.get(file.parent.name, file.stem)
        try:
            data = read_bytes(file.read_bytes(), file.name).data
        except UnreadableDefinition:
            continue
        assert faults(kind, data) == [], file
