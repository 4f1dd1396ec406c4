"""Schemas are judged where nobody waits for them, and nobody waits for the same one twice."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import UncheckedAgentInput
from fidelio.orchestrator.blueprints import check_input
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.validation import pool as judging
from fidelio.validation.pool import getting_aside, listing_aside, schema_fault
from tests.orchestrator.blueprints.places import AGENTS, folder, opened
from tests.support import proves


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_MEMORY", {})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[Any]]:
    """What the process was asked, and how its runs are to end, the newest last: a code, or an error."""
    ends: list[Any] = [0]
    seen: list[bytes] = []

    def run(*args: Any, **more: Any) -> subprocess.CompletedProcess[bytes]:
        seen.append(more["input"])
        if isinstance(ends[-1], Exception):
            raise ends[-1]
        return subprocess.CompletedProcess(args, ends[-1], b'""', b"")

    monkeypatch.setattr(subprocess, "run", run)
    return seen, ends


@proves("blueprints.judged-aside")
@pytest.mark.parametrize("how", [listing_aside, getting_aside])
async def test_reading_blueprints_lets_everything_else_go_on(tmp_path: Path, how: Any) -> None:
    folder(tmp_path / AGENTS, "helper", {"input_schema": {"pattern": f"^a{how.__name__}$"}})
    blueprints, turns = opened(), 0
    reading = asyncio.create_task(
        how(blueprints.list, tmp_path) if how is listing_aside else how(blueprints.get, "helper", tmp_path)
    )
    async with asyncio.timeout(60):
        while not reading.done():
            await asyncio.sleep(0.001)
            turns += 1
    await reading

    assert turns > 5


@proves("blueprints.judged-aside")
def test_every_schema_of_a_long_list_is_judged_once(asked: tuple[list[bytes], list[Any]]) -> None:
    seen, _ = asked
    schemas = [{"pattern": f"^{number}$"} for number in range(300)]
    faults = [schema_fault(schema) for schema in (*schemas, *schemas)]

    assert (set(faults), len(seen)) == ({""}, 300)


@proves("blueprints.judged-aside")
async def test_what_takes_too_long_is_tried_once(asked: tuple[list[bytes], list[Any]]) -> None:
    seen, ends = asked
    ends.append(-9)
    blueprint = Blueprint(name="asker", description="Asks.", input_schema={"pattern": "x"}, source="there")
    for _ in range(3):
        with pytest.raises(UncheckedAgentInput, match=r"takes more than 2 seconds.*smaller"):
            await check_input(blueprint, "y")
    for _ in range(3):
        assert "takes more than 2 seconds" in schema_fault({"pattern": "z"})

    assert len(seen) == 2


@proves("blueprints.judged-aside")
async def test_an_overloaded_machine_is_nobodys_fault_and_is_asked_again_later(
    asked: tuple[list[bytes], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, ends = asked
    ends.append(subprocess.TimeoutExpired("judge", 1))
    blueprint = Blueprint(name="asker", description="Asks.", input_schema={"pattern": "x"}, source="there")
    for _ in range(3):
        with pytest.raises(UncheckedAgentInput, match="try again later"):
            await check_input(blueprint, "x")
        assert schema_fault({"pattern": "z"}) == ""
    assert len(seen) == 2

    ends.append(0)
    monkeypatch.setattr(judging, "monotonic", lambda: 1e12)
    assert schema_fault({"pattern": "z"}) == ""
    assert len(seen) == 3
