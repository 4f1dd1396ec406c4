"""Races: what a person sends while a wake commits is neither lost nor done twice."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from tests.runtime.harness.racing import open_race
from tests.runtime.wakes.support import Runtime, texts_of
from tests.support import proves

INTERRUPT = {"type": "user.interrupt"}
RUN = ("shell_run", {"command": "make"})
WEATHER = {"name": "weather", "description": "The weather.", "input_schema": {"type": "object"}}


async def list_wakes(runtime: Runtime, session: str) -> list[Event]:
    """The events with which wakes began."""
    return [event for event in await runtime.events(session, e.SPAN_STARTED) if event.body["span_kind"] == "wake"]


async def count_inputs(runtime: Runtime, session: str, text: str) -> int:
    """How many wakes got a text as their input."""
    return sum(text in msgspec.json.encode(wake.body["input"]).decode() for wake in await list_wakes(runtime, session))


@proves("runtime.race.send")
@pytest.mark.parametrize("type_", [e.SPAN_STARTED, e.MODEL_REQUEST_ENDED, e.SPAN_COMPLETED])
async def test_a_message_that_is_sent_during_a_commit_of_a_wake_is_processed_once(tmp_path: Path, type_: str) -> None:
    async with open_race(tmp_path) as race:
        runtime = race.runtime
        session = await runtime.begin()
        sent = race.before(type_, lambda: runtime.tell(session, "second"))
        await runtime.tell(session, "first")
        await runtime.work()

        assert sent.has_run
        assert (await runtime.record(session)).wakes.pending == 0
        assert [await count_inputs(runtime, session, text) for text in ("first", "second")] == [1, 1]
        assert "second" in texts_of(runtime.requests[-1])
        assert (await runtime.record(session)).status == "idle"
