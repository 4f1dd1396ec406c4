"""One session in two dialects: begun in one, inspected and continued in the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import Report, report_session
from tests.dialects.conftest import Player, playing
from tests.dialects.gates.conftest import RELAYED, TUNE, answer_all, moved_to, payload, pending, person_answers, respond
from tests.support import proves

REHEARSE = """
id: rehearse
version: 1.0.0
name: Rehearse
loops:
  - id: each-bar
    name: Each bar
    type: while
    condition: {type: simple, variable: loud, operator: "==", value: true}
    steps:
      - {id: again, name: Play it, checkpoint: each}
checkpoints:
  - id: each
    name: Was it good?
    message: Was it good?
    options: [{id: good, label: Good}, {id: bad, label: Bad}]
transitions:
  - {to: bow, isDefault: true}
"""


@dataclass(frozen=True)
class Both:
    """Two servers over one ledger, each with its dialect, as two agents would start them."""

    sessions: Player
    gates: Player

    async def status(self, token: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.sessions("get_workflow_status", session_token=token)).json
        return found

    async def handle(self, token: str) -> str:
        return str((await self.gates("get_trace", session_token=token)).json["traceId"])


@pytest.fixture
async def both(settings: Settings, library: Path) -> AsyncIterator[Both]:
    (library / "score" / "activities" / "04-rehearse.yaml").write_text(REHEARSE)
    async with playing(settings, library) as sessions, playing(settings, library, dialect="gates") as gates:
        yield Both(sessions, gates)


@proves("gates.across")
async def test_an_armed_list_holds_the_sessions_dialect_which_answers_the_first_of_it(both: Both) -> None:
    token = await both.gates.at("tune")
    status = await both.status(token)
    held = {
        tool: await both.sessions(tool, session_token=token, **more)
        for tool, more in {"next_activity": {"activity_id": "play"}, "get_activity": {}, "resume_checkpoint": {}}.items()
    }
    presented = await both.sessions("present_checkpoint", session_token=token)
    answered = await both.sessions("respond_checkpoint", session_token=token, option_id="forte")
    after = await both.status(token)

    assert (status["status"], status["open_checkpoint"], status["pending_checkpoints"]) == ("blocked", "how", TUNE)
    for tool, reply in held.items():
        assert reply.is_error, tool
        assert "Active checkpoint 'how'" in reply.text
    assert "How shall we play?" in presented.text
    assert answered.json["resolved_option"] == "forte"
    assert (after["open_checkpoint"], after["pending_checkpoints"]) == ("encore", TUNE[1:])


@proves("gates.across")
async def test_the_sessions_dialect_clears_an_armed_list_one_by_one_and_goes_on(both: Both, settings: Settings) -> None:
    token = await both.gates.at("tune")
    for checkpoint, choice in RELAYED.items():
        yielded = await both.sessions("yield_checkpoint", session_token=token, checkpoint_id=checkpoint)
        assert yielded.json["status"] == "yielded"
        handle = yielded.json["checkpoint_handle"]
        answered = await both.sessions("respond_checkpoint", checkpoint_handle=handle, **choice)
        assert answered.json["checkpoint_id"] == checkpoint
    await person_answers(settings, "begin", "conductor")
    resumed = await both.sessions("resume_checkpoint", session_token=token)
    moved = await both.sessions("next_activity", session_token=resumed.token, activity_id="play")

    assert resumed.json["checkpoint_id"] == "conductor"
    assert moved.json["activity_id"] == "play"
    assert not (await both.gates("get_workflow", session_token=moved.token)).is_error


@proves("gates.across")
async def test_an_armed_question_that_is_yielded_is_asked_once(both: Both, settings: Settings) -> None:
    token = await both.gates.at("tune")
    yielded = [await both.sessions("yield_checkpoint", session_token=token, checkpoint_id="encore") for _ in range(2)]
    async with await open_ledger(settings.ledger) as ledger:
        asked = (await ledger.requests(state=None)).items

    assert [reply.json["status"] for reply in yielded] == ["yielded"] * 2
    assert len(asked) == len(TUNE)


@proves("gates.across", "gates.held")
async def test_a_yielded_question_holds_the_gates_dialect_which_answers_it(both: Both) -> None:
    token = await both.sessions.at("tune")
    yielded = await both.sessions("yield_checkpoint", session_token=token, checkpoint_id="how")
    held = await both.gates("next_activity", session_token=yielded.token, activity_id="play")
    other = await respond(both.gates, yielded.token, "encore", option_id="some")
    answered = await respond(both.gates, yielded.token, "how", option_id="piano")
    resumed = await both.sessions("resume_checkpoint", session_token=token)

    assert "1 unresolved checkpoint in activity 'tune': [how]" in held.text
    assert "not pending" in other.text
    assert answered.json["remaining_checkpoints"] == []
    assert (resumed.json["option_id"], resumed.json["variables"]) == ("piano", {"loud": False})


@proves("gates.across", "gates.reentry")
async def test_entering_again_in_gates_asks_only_what_the_visit_has_not_asked(both: Both) -> None:
    token = await both.sessions.at("tune")
    first = await both.sessions("yield_checkpoint", session_token=token, checkpoint_id="encore")
    await both.sessions("respond_checkpoint", checkpoint_handle=first.token, option_id="some")
    await both.sessions("yield_checkpoint", session_token=token, checkpoint_id="how")
    entered = await both.gates("next_activity", session_token=token, activity_id="tune")

    assert pending(entered) == ["how", "cold", "conductor"]
    assert (await both.status(token))["open_checkpoint"] == "how"


@proves("gates.across")
async def test_the_handle_opens_the_session_in_both(both: Both) -> None:
    handle = await both.handle(await both.gates.at("tune"))
    presented = await both.sessions("present_checkpoint", session_token=handle)
    answered = await respond(both.gates, handle, "how", option_id="forte")
    next_one = await both.sessions("present_checkpoint", session_token=handle)
    by_token = await both.sessions("present_checkpoint", session_token=answered.token)
    inherited = await both.sessions("start_session", session_token=handle, agent_id="worker-1")

    assert "How shall we play?" in presented.text
    assert payload(answered.token)["sid"] == handle
    assert "Plan an encore?" in next_one.text
    assert "Plan an encore?" in by_token.text
    assert inherited.json["inherited"] is True


@proves("gates.across")
async def test_a_loop_begun_in_sessions_is_answered_in_gates_pass_by_pass(both: Both) -> None:
    token = await both.sessions.at("rehearse")
    for option in ("bad", "bad", "good"):
        yielded = await both.sessions("yield_checkpoint", session_token=token, checkpoint_id="each")
        assert "already_resolved" not in yielded.json
        assert (await both.gates("get_skill", session_token=token, step_id="again")).is_error
        assert (await respond(both.gates, token, "each", option_id=option)).json["resolved_option"] == option
        assert (await both.sessions("resume_checkpoint", session_token=token)).json["option_id"] == option
    entered = await both.gates("next_activity", session_token=token, activity_id="rehearse")
    moved = await both.gates("next_activity", session_token=entered.token, activity_id="bow")

    assert pending(entered) == []
    assert moved.json["id"] == "bow"


@proves("gates.across")
async def test_a_loop_begun_in_gates_goes_on_in_sessions_with_its_next_pass(both: Both) -> None:
    entered = await both.gates("next_activity", session_token=await both.gates.start(), activity_id="rehearse")
    await respond(both.gates, entered.token, "each", option_id="bad")
    known = await both.sessions("yield_checkpoint", session_token=entered.token, checkpoint_id="each")
    second = await both.sessions("yield_checkpoint", session_token=entered.token, checkpoint_id="each")
    held = await both.gates("next_activity", session_token=entered.token, activity_id="bow")
    late = await respond(both.gates, entered.token, "each", option_id="good")
    await respond(both.gates, second.token, "each", option_id="good")

    assert pending(entered) == ["each"]
    assert (known.json["already_resolved"], known.json["resolved_option"]) == (True, "bad")
    assert "already_resolved" not in second.json
    assert "unresolved checkpoint" in held.text
    assert "answered already, with 'bad'" in late.text
    assert (await both.status(entered.token))["last_checkpoint"]["option_id"] == "good"


def comparable(report: Report) -> Report:
    """Without what two plays of one piece never share: moments and ids, and whether a move or the report said it first."""
    report.session, report.started_at, report.ended_at = "", 0, 0
    for visit in report.visits:
        # Only `sessions` warns of a workflow that cannot be started, and says why.
        differences = sorted(text.partition(" This server cannot start it")[0] for text in visit.differences)
        visit.entered_at, visit.left_at, visit.differences = 0, 0, differences
        for answer in visit.answers:
            answer.request, answer.opened_at, answer.after_ms = "", 0, 0
    for refused in report.refused:
        refused.at = 0
    return report


@proves("gates.report")
async def test_the_report_is_the_same_whichever_dialect_was_spoken(both: Both, settings: Settings) -> None:
    manifest = [{"step_id": step, "output": "done"} for step in ("hear", "ask")]
    by_gates = await answer_all(both.gates, settings, await both.gates.at("tune"))
    by_sessions = await both.sessions.at("tune")
    for checkpoint, choice in RELAYED.items():
        yielded = await both.sessions("yield_checkpoint", session_token=by_sessions, checkpoint_id=checkpoint)
        await both.sessions("respond_checkpoint", checkpoint_handle=yielded.token, **choice)
    await both.sessions("yield_checkpoint", session_token=by_sessions, checkpoint_id="conductor")
    await person_answers(settings, "begin", "conductor")
    reports = []
    for play, token in ((both.sessions, by_sessions), (both.gates, by_gates)):
        there = await moved_to(play, token, "play", step_manifest=manifest)
        ended = await moved_to(play, there, "__terminal__", step_manifest=[])
        async with await open_ledger(settings.ledger) as ledger:
            reports.append(comparable(await report_session(ledger, payload(ended)["sid"])))

    assert [answer.checkpoint for answer in reports[0].visits[0].answers] == TUNE
    assert reports[0] == reports[1]
