"""A genuine token that knows of later events than the ledger has: the ledger was replaced by an older copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import playing
from tests.dialects.navigator.conftest import Guide
from tests.dialects.navigator.sample_workflows import write_sample_workflows
from tests.support import proves

PUT_BACK = "it was put back to an older copy"


@proves("tokens.ledger-put-back")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_token_says_that_the_ledger_was_put_back(
    settings: Settings, library: Path, tmp_path: Path, dialect: str
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        early = await play.start()
    shutil.copy(settings.ledger, tmp_path / "older.db")
    async with playing(settings, library, dialect=dialect) as play:
        moved = await play("next_activity", session_token=early, activity_id="bow")
        assert not (await play("get_trace", session_token=early)).is_error
    shutil.copy(tmp_path / "older.db", settings.ledger)

    async with playing(settings, library, dialect=dialect) as play:
        replies = [
            await play("get_workflow", session_token=moved.token, workflow_id="score"),
            await play("next_activity", session_token=moved.token, activity_id="bow"),
            await play("start_session", workflow_id="score", session_token=moved.token),
        ]
        traced = await play("get_trace", session_token=early, trace_tokens=[moved.meta["trace_token"]])

    assert [reply.is_error and PUT_BACK in reply.text for reply in replies] == [True] * 3
    assert PUT_BACK in traced.json["token_errors"][0]


@proves("tokens.ledger-put-back")
async def test_a_state_says_that_the_ledger_was_put_back(settings: Settings, tmp_path: Path) -> None:
    library = write_sample_workflows(tmp_path / "workflows")
    async with playing(settings, library, dialect="navigator") as play:
        guide = await Guide(play).start("tour")
    shutil.copy(settings.ledger, tmp_path / "older.db")
    async with playing(settings, library, dialect="navigator") as play:
        later = (await Guide(play, guide.state).step("list")).state
    shutil.copy(tmp_path / "older.db", settings.ledger)

    async with playing(settings, library, dialect="navigator") as play:
        looked = await play("nav_situation", state=later)
        acted = await play("nav_action", state=later, action="complete_step", step_id="list")

    assert [reply.is_error and PUT_BACK in reply.text for reply in (looked, acted)] == [True, True]
