"""Reading blueprints checks their schemas in threads of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import BrokenBlueprint
from fidelio.orchestrator.blueprints.catalogue import list_in_thread, read_in_thread
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_folder
from tests.support import proves


@proves("blueprints.judged-aside")
@pytest.mark.parametrize("how", [list_in_thread, read_in_thread])
async def test_reading_blueprints_does_not_block_the_event_loop(tmp_path: Path, how: Any) -> None:
    slow = "(?i)" + "[\u0100-\uffff]" * 2_000 + how.__name__
    write_folder(tmp_path / AGENTS, "helper", {"input_schema": {"pattern": slow}})
    blueprints, turns = open_catalogue(), 0
    reading = asyncio.create_task(
        how(blueprints.list, tmp_path) if how is list_in_thread else how(blueprints.get, "helper", tmp_path)
    )
    async with asyncio.timeout(60):
        while not reading.done():
            # Counts turns of the event loop while a thread reads.
            await asyncio.sleep(0.001)
            turns += 1
    # The check of the schema is given up, so the blueprint is broken.
    outcome: Any = (await asyncio.gather(reading, return_exceptions=True))[0]

    assert isinstance(outcome, BrokenBlueprint) or outcome.broken
    assert turns > 5
