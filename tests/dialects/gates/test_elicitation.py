"""One of several pending questions that only a person may answer, put to them by their own client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.gates.conftest import TUNE
from tests.dialects.test_elicitation import call, client
from tests.support import proves


@proves("gates.person")
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_what_the_person_says_counts_and_the_others_stay_pending(settings: Settings, library: Path, era: str) -> None:
    person = ElicitResult(action="accept", content={"answer": "wait"})
    async with client(settings, library, era, person, dialect="gates") as connected:
        _, started = await call(connected, "start_session", workflow_id="score")
        _, entered = await call(connected, "next_activity", session_token=started["session_token"], activity_id="tune")
        asked: dict[str, Any] = {"session_token": entered["session_token"], "checkpoint_id": "conductor"}
        failed, answered = await call(connected, "respond_checkpoint", **asked, option_id="begin")
    async with await open_ledger(settings.ledger) as ledger:
        (event,) = await ledger.events(types=["request.answered"])

    assert not failed
    assert answered["resolved_option"] == "wait"
    assert answered["remaining_checkpoints"] == TUNE[:3]
    assert (event.body["channel"], event.body["assurance"]) == ("elicited", "elicited")


@proves("gates.person")
async def test_when_the_person_declines_the_question_stays_pending(settings: Settings, library: Path) -> None:
    async with client(settings, library, "legacy", ElicitResult(action="decline"), dialect="gates") as connected:
        _, started = await call(connected, "start_session", workflow_id="score")
        _, entered = await call(connected, "next_activity", session_token=started["session_token"], activity_id="tune")
        asked: dict[str, Any] = {"session_token": entered["session_token"], "checkpoint_id": "conductor"}
        failed, said = await call(connected, "respond_checkpoint", **asked, option_id="begin")
        _, again = await call(connected, "next_activity", session_token=entered["session_token"], activity_id="tune")

    assert failed
    assert "fidelio answer" in said
    assert [one["checkpoint_id"] for one in again["pending_checkpoints"]] == TUNE
