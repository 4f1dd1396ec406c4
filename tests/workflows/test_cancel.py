"""A person ends sessions: what becomes of their children, parents and questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.errors import RequestClosed, WorkflowRefusal
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import report_session
from tests.dialects.conftest import Player, playing
from tests.dialects.gates.conftest import payload
from tests.support import proves
from tests.workflows.conftest import list_events

PERSON = "person:test"


async def end(settings: Settings, session: str, reason: str = "") -> tuple[str, ...]:
    async with Application(settings) as app:
        return (await app.end_session(session, by=PERSON, reason=reason)).result


async def start_family(play: Player) -> tuple[str, str]:
    """A parent that waits for its child, and the child."""
    parent = await play.at("play")
    child = (await play("start_session", workflow_id="solo", parent_session_token=parent)).token
    return parent, child


@proves("cancel.withdraws")
async def test_a_session_that_a_person_ended_takes_no_variables(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        yielded = await play("yield_checkpoint", session_token=await play.at("tune"), checkpoint_id="how")
        answered = await play("respond_checkpoint", checkpoint_handle=yielded.token, option_id="forte")
        await end(settings, payload(answered.token)["sid"])
        resumed = await play("resume_checkpoint", session_token=answered.token, variables={"loud": True})

    assert "A person has ended this session." in resumed.text
    assert await list_events(settings, "checkpoint.resumed", "variables.set") == []


@proves("cancel.withdraws")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_activity", {}),
        ("get_skill", {"step_id": "listen"}),
        ("yield_checkpoint", {"checkpoint_id": "how"}),
        ("resume_checkpoint", {}),
    ],
)
async def test_no_tool_tells_the_worker_of_a_session_that_a_person_ended_to_go_on(
    settings: Settings, library: Path, tool: str, arguments: dict[str, str]
) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
        await end(settings, payload(token)["sid"])
        refused = await play(tool, session_token=token, **arguments)

    assert "A person has ended this session." in refused.text
    assert "next_activity" not in refused.text


@proves("cancel.person")
@pytest.mark.parametrize("fidelity", ["advise", "enforce"])
async def test_a_person_ends_an_unfinished_session(settings: Settings, library: Path, fidelity: Any) -> None:
    async with playing(settings, library, fidelity=fidelity) as play:
        token = await play.at("tune")
        session = payload(token)["sid"]
        assert await end(settings, session, "No longer needed.") == (session,)
        assert await end(settings, session) == ()
        moved = await play("next_activity", session_token=token, activity_id="bow")
        child = await play("start_session", workflow_id="solo", parent_session_token=token)
        status = await play("get_workflow_status", session_token=token)
    (event,) = await list_events(settings, "session.cancelled")

    assert event.actor == PERSON
    assert event.body == {
        "from": "tune",
        "by": PERSON,
        "channel": "cli",
        "assurance": "local",
        "reason": "No longer needed.",
        "withdrawn": [],
    }
    assert "A person has ended this session." in moved.text
    assert "A person has ended this session." in child.text
    assert (status.json["status"], status.json["transitions"]) == ("cancelled", [])


@proves("cancel.person")
async def test_a_completed_session_is_left_alone(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.at("bow")
        await play("next_activity", session_token=token, activity_id="__terminal__")
    with pytest.raises(WorkflowRefusal, match="This session is completed"):
        await end(settings, payload(token)["sid"])


@proves("cancel.tree")
async def test_the_sessions_that_it_has_started_end_in_the_same_transaction(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        parent, child = await start_family(play)
        grandchild = (await play("start_session", workflow_id="solo", parent_session_token=child)).token
        ids = [payload(token)["sid"] for token in (parent, child, grandchild)]
        assert await end(settings, ids[0]) == tuple(ids)
    cancelled = await list_events(settings, "session.cancelled")
    async with await open_ledger(settings.ledger) as ledger:
        statuses = {(await ledger.session(name)).status for name in ids}

    assert {event.session for event in cancelled} == set(ids)
    assert [event.body.get("with") for event in cancelled if event.session != ids[0]] == [ids[0], ids[0]]
    assert len({event.time for event in cancelled}) == 1
    assert statuses == {"cancelled"}


@proves("cancel.parent", "cancel.report")
async def test_a_parent_that_waits_goes_on(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        parent, child = await start_family(play)
        waits = await play("next_activity", session_token=parent, activity_id="bow")
        await end(settings, payload(child)["sid"])
        moved = await play("next_activity", session_token=parent, activity_id="bow")
    (finished,) = await list_events(settings, "child.finished")
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, payload(parent)["sid"])

    assert "waits for its child" in waits.text
    assert moved.json["activity_id"] == "bow"
    assert (finished.body["outcome"], finished.body["variables"]) == ("cancelled", {})
    assert any("was ended before its workflow (cancelled)" in difference for difference in report.differences)


@proves("cancel.withdraws", "cancel.report")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_open_questions_are_withdrawn(settings: Settings, library: Path, dialect: str) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        token = (await play("start_session", workflow_id="score")).token
        token = (await play("next_activity", session_token=token, activity_id="tune")).token
        if dialect == "sessions":
            token = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        session = payload(token)["sid"]
        await end(settings, session, "Too late.")
        answer = {"checkpoint_handle": token} if dialect == "sessions" else {"session_token": token, "checkpoint_id": "how"}
        late = await play("respond_checkpoint", option_id="forte", **answer)
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, session)
        (first, *_) = (await ledger.requests(session=session, state=None)).items
        with pytest.raises(RequestClosed):
            await Inbox(ledger).answer(first.id, "forte", by=PERSON, channel="cli")

    assert late.is_error
    assert (first.state, first.answered_by) == ("dismissed", PERSON)
    assert {answer.state for visit in report.visits for answer in visit.answers} == {"withdrawn"}
    assert report.cancelled is not None
    assert (report.cancelled.by, report.cancelled.reason, report.completed) == (PERSON, "Too late.", False)
    assert report.differences[-1] == "The session was ended before its workflow was."
    assert PERSON not in report.agents


@proves("cancel.person")
async def test_the_navigator_says_that_a_person_has_ended_the_session(settings: Settings, library: Path) -> None:
    async with playing(settings, library, dialect="navigator") as play:
        started = await play("nav_start", workflow_id="score")
        await end(settings, payload(started.token)["sid"])
        looked = await play("nav_situation", state=started.json["state"])
        refused = await play("nav_action", state=started.json["state"], action="complete_step", step_id="hear")

    assert looked.json["status"] == "cancelled"
    assert looked.json["message"] == "A person has ended this session before its workflow."
    assert looked.json["availableActions"] == {"required": [], "optional": [], "blocked": []}
    assert refused.is_error
