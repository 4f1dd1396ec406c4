"""An end that is repeated with a short handle."""

from __future__ import annotations

import pytest

from fidelio.settings import Settings
from fidelio.tokens.packed import PREFIX
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.support import proves
from tests.workflows.conftest import list_events


@proves("gone.repeats")
@pytest.mark.parametrize("whose", ["parent", "child"])
async def test_an_end_that_is_repeated_with_a_short_handle_does_not_end_the_parent(
    memory: Opens, settings: Settings, whose: str
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("relay")
        parent, child = (event.session for event in await list_events(settings, "session.started"))
        await guide.step("steer")
        handle = Guide(play, child if whose == "child" else parent)
        for _ in range(2):
            handle.state = child if whose == "child" else parent
            await handle.do("transition", activity_id="__terminal__")
            assert handle.state.startswith(PREFIX)
    ended = [event.session for event in await list_events(settings, "session.completed")]

    assert handle.code == "STALE_STATE"
    assert ended == ([child] if whose == "child" else [])
