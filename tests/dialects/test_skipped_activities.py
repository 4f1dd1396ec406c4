"""A workflow whose mode skips twenty layers of activities is served by every dialect."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects.common import MAX_LISTED_TRANSITIONS
from tests.dialects.conftest import Player, playing
from tests.dialects.navigator.conftest import Guide
from tests.support import proves

LAYERS = 20


def write_layers(directory: Path, *, ends: int = 1) -> Path:
    """Layers of two activities, all skipped, that each lead to both of the next layer; then the ends."""
    layers = [[f"l{number}a", f"l{number}b"] for number in range(LAYERS)]
    rows = [["start"], *layers, [f"end{number}" for number in range(ends)]]
    edges = {name: list(below) for above, below in pairwise(rows) for name in above}
    quick = {"name": "quick", "type": "boolean", "defaultValue": True}
    skipped = [name for layer in layers for name in layer]
    document = {
        "id": "layers",
        "version": "1.0.0",
        "title": "Layers",
        "initialActivity": "start",
        "variables": [quick],
        "modes": [{"id": "quick", "name": "Quick", "activationVariable": "quick", "skipActivities": skipped}],
        "activities": [describe(name, edges.get(name, [])) for row in rows for name in row],
    }
    (directory / "layers").mkdir(parents=True)
    (directory / "layers" / "workflow.json").write_text(json.dumps(document))
    return directory


def describe(name: str, targets: list[str]) -> dict[str, Any]:
    return {"id": name, "version": "1.0.0", "name": name, "transitions": [{"to": target} for target in targets]}


@proves("sessions.listed-transitions")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_the_way_around_twenty_layers_is_one_entry(dialect: str, settings: Settings, tmp_path: Path) -> None:
    library = write_layers(tmp_path / "layered")
    async with playing(settings, library, dialect=dialect) as play:
        entered = await _enter(play)
        left = await play("next_activity", session_token=entered.token, activity_id="end0")

    assert entered.meta["transitions"] == [{"to": "end0", "holds": True, "default": False}]
    assert "more_transitions" not in entered.meta
    assert not left.is_error


@proves("sessions.listed-transitions")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_reply_lists_so_many_transitions_and_counts_the_rest(dialect: str, settings: Settings, tmp_path: Path) -> None:
    library = write_layers(tmp_path / "layered", ends=MAX_LISTED_TRANSITIONS + 30)
    async with playing(settings, library, dialect=dialect) as play:
        entered = await _enter(play)
        beyond = await play("next_activity", session_token=entered.token, activity_id=f"end{MAX_LISTED_TRANSITIONS + 29}")

    assert len(entered.meta["transitions"]) == MAX_LISTED_TRANSITIONS
    assert entered.meta["more_transitions"] == 30
    assert beyond.warnings == []


@proves("sessions.listed-transitions")
@pytest.mark.parametrize("fidelity", ["advise", "enforce"])
async def test_the_navigator_offers_the_way_around_once(fidelity: Any, settings: Settings, tmp_path: Path) -> None:
    library = write_layers(tmp_path / "layered")
    async with playing(settings, library, dialect="navigator", fidelity=fidelity) as play:
        guide = await Guide(play).start("layers")
        offered = guide.required
        moved = await guide.go("end0")

    assert offered == [("transition", "end0")]
    assert moved.last["success"]


async def _enter(play: Player) -> Any:
    return await play("next_activity", session_token=await play.start("layers"), activity_id="start")
