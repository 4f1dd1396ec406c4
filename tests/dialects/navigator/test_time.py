"""How long a person has had to think: counted from the moment a question had to be answered, whoever looks at it meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.definitions.library import Library, Root
from fidelio.engine.apply_move import MoveRequest
from fidelio.errors import MoveRefused
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.tokens.keyring import FixedKeys
from fidelio.workflows.navigator.service import NavigatorService
from fidelio.workflows.service import WorkflowService
from fidelio.workflows.tokens import SessionTokens
from fidelio.workflows.unit_of_work import ServerPolicy
from tests.support import proves

BIG = MoveRequest("respond_to_checkpoint", "size", "big")


class Watch:
    """A clock that goes on when it is told to."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
async def navigation(settings: Settings, library: Path, watch: Watch) -> AsyncIterator[NavigatorService]:
    settings.home.ensure()
    tokens = SessionTokens(FixedKeys(b"k" * 32), watch)
    async with await open_ledger(settings.ledger) as ledger:
        found = Library([Root(library, "here")])
        rules = ServerPolicy(min_response_ms=2000)
        yield WorkflowService(ledger, found, tokens, clock=watch, policy=rules).navigation


async def at_the_question(navigation: NavigatorService, *steps: str) -> str:
    state = (await navigation.start("tour", {})).state
    for step in steps:
        state = (await navigation.act(state, MoveRequest("complete_step", step), {})).state
    return state


@proves("navigator.time")
@pytest.mark.parametrize("steps", [["list"], ["list", "shine"]])
async def test_looking_and_trying_do_not_make_the_person_think_anew(
    navigation: NavigatorService, watch: Watch, steps: list[str]
) -> None:
    state = await at_the_question(navigation, *steps)
    for wait in (1500, 1000, 500):
        watch.now += 500
        assert (await navigation.look(state)).view.wait_ms == wait
        with pytest.raises(MoveRefused, match="too fast"):
            await navigation.act(state, BIG, {})
    watch.now += 500

    assert (await navigation.look(state)).view.wait_ms == 0
    assert (await navigation.act(state, BIG, {})).message == "Checkpoint 'size' is answered: big"
