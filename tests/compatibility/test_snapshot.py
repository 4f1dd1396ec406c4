"""Stored and public names have not changed: compares the running code with `snapshot/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.collect import SNAPSHOT, collect, postgres
from tests.compatibility.program import Json
from tests.compatibility.scenario_shape import scenario_shape
from tests.ledger.postgres.server import HOW_TO_INSTALL
from tests.support import proves
from tests.support.parts import require_part

PARTS = ("commands", "errors", "api", "tools", "sqlite", "structs", "definitions", "source")
HOW_TO_ADD = "If the additions are meant, run `python -m tests.compatibility.collect --write` and commit the snapshot."
HOW_TO_KEEP = "Stored and public names are never renamed: put these back. tests/compatibility/collect.py says more."


def known(part: str) -> Json:
    snapshot: Json = json.loads((SNAPSHOT / f"{part}.json").read_text("utf-8"))
    return snapshot


def names(part: Any, prefix: str = "") -> Iterator[str]:
    """Every name in a part of the snapshot, each with where it stands."""
    if isinstance(part, dict):
        for key, inner in part.items():
            yield f"{prefix}{key}"
            yield from names(inner, f"{prefix}{key}: ")
    elif isinstance(part, list):
        yield from (f"{prefix}{item}" for item in part)
    else:
        yield f"{prefix}{part}"


def difference(before: Json, now: Json, *, additions: bool = True) -> str:
    """What is missing and what is new, in words; empty if nothing is."""
    old, new = set(names(before)), set(names(now))
    missing = [f"- {name}" for name in sorted(old - new)]
    added = [f"+ {name}" for name in sorted(new - old)] if additions else []
    return "\n".join([*missing, *([HOW_TO_KEEP] if missing else []), *added, *([HOW_TO_ADD] if added else [])])


def compare(before: Json, now: Json, *, additions: bool = True) -> None:
    if report := difference(before, now, additions=additions):
        pytest.fail(report, pytrace=False)


@proves("compatibility.names")
def test_no_stored_or_public_name_has_changed(tmp_path: Path) -> None:
    found = collect(tmp_path)

    compare({part: known(part) for part in PARTS}, {part: found[part] for part in PARTS})
    # Any text could be a key of something that is stored, so a new one is no change.
    compare(known("words"), found["words"], additions=False)


@proves("compatibility.names")
def test_what_is_written_and_answered_has_the_keys_that_it_had(tmp_path: Path) -> None:
    compare(known("written"), scenario_shape(tmp_path))


@proves("compatibility.names")
def test_no_table_or_column_of_postgresql_has_changed(tmp_path: Path) -> None:
    now = postgres(tmp_path)
    if now is None:
        require_part("A PostgreSQL server", HOW_TO_INSTALL)
    compare(known("postgres"), now)


@proves("compatibility.names")
def test_a_renamed_name_is_reported_with_its_place_and_a_new_one_with_the_command() -> None:
    report = difference({"events": ["run.lost"]}, {"events": ["run.missing"]})

    assert report.splitlines() == ["- events: run.lost", HOW_TO_KEEP, "+ events: run.missing", HOW_TO_ADD]
    assert difference({"events": ["run.lost"]}, {"events": ["run.lost", "x"]}, additions=False) == ""
