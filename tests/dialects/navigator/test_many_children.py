"""Children of a session that has more events of children than one page holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from fidelio.engine.record import CHILD_FINISHED, CHILD_STARTED
from fidelio.ledger import open_ledger
from fidelio.ledger.model import NewEvent
from fidelio.settings import Settings
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.support import proves

MORE_THAN_A_PAGE = 1001
QUAY = """
id: quay
version: 1.0.0
title: A crossing once its step is done
initialActivity: wait
activities:
  - {id: wait, version: 1.0.0, name: Wait, steps: [{id: wave, name: Wave}], triggers: {workflow: crossing}}
"""


async def append_to(settings: Settings, workflow: str, events: Iterable[NewEvent]) -> None:
    """What a long life of the session of this workflow would have left."""
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = [one for one in (await ledger.sessions()).items if one.record["workflow"] == workflow]
        await ledger.append(session.id, *events)


def children_started(*workflows: str) -> list[NewEvent]:
    names = enumerate(workflows)
    return [NewEvent(type=CHILD_STARTED, body={"session": f"s_{number}", "workflow": name}) for number, name in names]


@proves("sessions.record-behind", "navigator.triggers")
async def test_the_end_of_a_child_is_found_after_more_than_a_page_of_others(memory: Opens, settings: Settings) -> None:
    others = [NewEvent(type=CHILD_FINISHED, body={"session": f"s_{number}"}) for number in range(MORE_THAN_A_PAGE)]
    async with memory() as play:
        guide = await Guide(play).start("ferry")
        await guide.step("queue", "cross")
        inside = guide.state
        await append_to(settings, "ferry", others)
        await guide.step("steer")
        await guide.go("__terminal__")

        assert guide.place() == ("ferry", "board", "land")
        assert (await Guide(play, inside).look()).place() == ("ferry", "board", "land")


@proves("sessions.record-behind", "navigator.triggers")
@pytest.mark.parametrize(("newest", "place"), [("crossing", "quay"), ("tour", "crossing")])
async def test_a_child_that_was_started_after_more_than_a_page_of_others_is_not_started_again(
    memory: Opens, settings: Settings, library: Path, newest: str, place: str
) -> None:
    (library / "quay.yaml").write_text(QUAY)
    async with memory() as play:
        guide = await Guide(play).start("quay")
        await append_to(settings, "quay", children_started(*["tour"] * MORE_THAN_A_PAGE, newest))
        await guide.step("wave")

    assert guide.place()[0] == place
