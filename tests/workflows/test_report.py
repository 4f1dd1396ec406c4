"""The report: what the definition asked for and nobody did, and why calls were refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import Report, report_session
from tests.dialects.conftest import Opens
from tests.dialects.test_tokens import forged
from tests.support import proves

TUNED = [{"step_id": "hear", "output": "x"}, {"step_id": "ask", "output": "the user said loud"}]
SOFTENED = [*TUNED, {"step_id": "soften", "output": "the score says so"}]
NOT_MET = "Step 'soften' was reported although its condition is not met."


async def report_of(settings: Settings, workflow: str = "score") -> Report:
    async with await open_ledger(settings.ledger) as ledger:
        reports = [await report_session(ledger, one.id) for one in (await ledger.sessions()).items]
    return next(report for report in reports if report.workflow == workflow)


@proves("sessions.report", "sessions.validation")
async def test_a_question_that_was_never_asked_is_warned_of_and_reported(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        token = await play.at("tune")
        move = {"activity_id": "play", "step_manifest": TUNED, "variables": {"loud": True}}
        moved = await play("next_activity", session_token=token, **move)
    tune, _ = (await report_of(settings)).visits

    assert moved.warnings == ["Step 'ask' is reported as done, but its checkpoint 'how' has not been answered in this visit."]
    # Whether it was cold, nobody knows.
    assert tune.unopened_checkpoints == ["how", "encore"]
    assert tune.differences == [*moved.warnings, "Checkpoint 'encore' was never asked."]


CHOIR = """
id: choir
version: 1.0.0
title: Choir
initialActivity: sing
activities:
  - id: sing
    version: 1.0.0
    name: Sing
    steps: [{id: shout, name: Shout, checkpoint: sure, condition: {type: simple, variable: loud, operator: "==", value: true}}]
    checkpoints: [{id: sure, name: Sure?, message: Sure?, options: [{id: aye, label: Aye}]}]
"""


@proves("sessions.report")
@pytest.mark.parametrize(("done", "missing"), [(["shout"], ["sure"]), ([], [])])
async def test_the_question_of_a_step_is_missing_only_where_the_step_was_due(
    memory: Opens, settings: Settings, library: Path, done: list[str], missing: list[str]
) -> None:
    (library / "choir.yaml").write_text(CHOIR)
    manifest = [{"step_id": step, "output": "x"} for step in done]
    async with memory() as play:
        token = (await play("start_session", workflow_id="choir")).token
        entered = await play("next_activity", session_token=token, activity_id="sing")
        await play("next_activity", session_token=entered.token, activity_id="__terminal__", step_manifest=manifest)
    (visit,) = (await report_of(settings, "choir")).visits

    assert visit.unopened_checkpoints == missing


@proves("sessions.report")
@pytest.mark.parametrize("starts", [True, False])
async def test_a_workflow_that_was_to_be_started_and_never_was_is_reported(
    memory: Opens, settings: Settings, starts: bool
) -> None:
    async with memory() as play:
        token = await play.at("play")
        if starts:
            child = await play("start_session", workflow_id="solo", parent_session_token=token)
            child = await play("next_activity", session_token=child.token, activity_id="alone")
            await play("next_activity", session_token=child.token, activity_id="__terminal__")
        bars = [{"step_id": "begin", "output": "x"}, *[{"step_id": "bar", "output": f"bar {number}"} for number in (1, 2)]]
        await play("next_activity", session_token=token, activity_id="bow", step_manifest=bars)
    report = await report_of(settings)
    visit = next(one for one in report.visits if one.activity == "play")

    assert visit.never_started == ([] if starts else ["solo"])
    assert ("play: Workflow 'solo' should have been started here and was not." in report.differences) is not starts
    assert (visit.steps, visit.loop_steps) == (["begin"], ["bar"])
    assert [entry["output"] for entry in visit.done] == ["x", "bar 1", "bar 2"]
    assert report.set_by == {"entered": "entry:play"}


@proves("sessions.report", "sessions.adopt")
async def test_a_session_that_claims_to_continue_another_says_so(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        genuine = await play.at("tune")
        adopted = await play("start_session", session_token=forged(genuine))
        real, mine = [(await play("get_trace", session_token=one)).json["traceId"] for one in (genuine, adopted.token)]
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, mine)

    assert (report.unverified, report.claims_to_continue) == (True, real)


@proves("sessions.report")
async def test_what_an_answer_takes_out_of_the_way_is_not_called_forgotten(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        token = await play.at("tune")
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        token = (await play("respond_checkpoint", checkpoint_handle=handle, option_id="stop")).token
        await play("next_activity", session_token=token, activity_id="bow", step_manifest=TUNED)
    tune, _ = (await report_of(settings)).visits

    assert tune.unopened_checkpoints == []


@proves("sessions.report-conditions")
@pytest.mark.parametrize(("option", "named"), [("forte", [NOT_MET]), ("piano", []), ("stop", [])])
async def test_a_step_that_an_answer_before_it_ruled_out_is_named_once_it_is_reported(
    memory: Opens, settings: Settings, option: str, named: list[str]
) -> None:
    async with memory() as play:
        token = await play.at("tune")
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        token = (await play("respond_checkpoint", checkpoint_handle=handle, option_id=option)).token
        moved = await play("next_activity", session_token=token, activity_id="bow", step_manifest=SOFTENED)
    tune, _ = (await report_of(settings)).visits

    assert [difference for difference in tune.differences if "soften" in difference] == named
    # Nothing is said at the call: a step that does not apply may be there.
    assert not any("soften" in warning for warning in moved.warnings)


@proves("sessions.report-conditions")
@pytest.mark.parametrize("meanwhile", [{}, {"loud": True}], ids=["unknown", "changed"])
async def test_what_nobody_could_know_when_the_step_came_is_held_against_nobody(
    memory: Opens, settings: Settings, meanwhile: dict[str, bool]
) -> None:
    async with memory() as play:
        move = {"activity_id": "play", "step_manifest": SOFTENED, "variables": meanwhile}
        await play("next_activity", session_token=await play.at("tune"), **move)
    tune, _ = (await report_of(settings)).visits

    assert not any("soften" in difference for difference in tune.differences)


@proves("sessions.report-conditions")
@pytest.mark.parametrize("at_the_end", [True, False])
async def test_a_step_that_is_reported_before_the_end_of_its_activity_is_named_all_the_same(
    memory: Opens, settings: Settings, at_the_end: bool
) -> None:
    async with memory() as play:
        token = await play.at("tune")
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        token = (await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")).token
        token = (await play("next_activity", session_token=token, activity_id="tune", step_manifest=SOFTENED)).token
        last = SOFTENED if at_the_end else TUNED
        await play("next_activity", session_token=token, activity_id="play", step_manifest=last)
    tune, _ = (await report_of(settings)).visits

    assert tune.differences.count(NOT_MET) == 1


@proves("sessions.report-conditions")
async def test_a_step_that_a_loop_repeats_may_have_been_due_in_one_of_its_passes(
    memory: Opens, settings: Settings, library: Path
) -> None:
    file = library / "score" / "activities" / "01-tune.yaml"
    loop = "{id: again, name: Again, type: forEach, variable: part, over: parts, steps: [{id: soften, name: Soften}]}"
    file.write_text(file.read_text().replace("transitions:", f"loops: [{loop}]\ntransitions:"))
    async with memory() as play:
        token = await play.at("tune")
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        token = (await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")).token
        await play("next_activity", session_token=token, activity_id="play", step_manifest=SOFTENED)
    tune, _ = (await report_of(settings)).visits

    assert NOT_MET not in tune.differences


@proves("sessions.report", "sessions.refusals-named")
async def test_the_reason_of_a_refusal_says_what_the_agent_ran_against(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        start = await play.start()
        token = (await play("next_activity", session_token=start, activity_id="tune")).token
        await play("next_activity", session_token=start, activity_id="play")
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        await play("next_activity", session_token=token, activity_id="play")
        token = (await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")).token
        token = (await play("next_activity", session_token=token, activity_id="play", step_manifest=TUNED)).token
        stopped_at_nothing = await play("resume_checkpoint", session_token=token)
        child = await play("start_session", workflow_id="solo", parent_session_token=token)
        held = await play("next_activity", session_token=token, activity_id="bow")
        named = (await play("get_workflow_status", session_token=token)).json["suspended_by"]
        trace = (await play("get_trace", session_token=token)).json["events"]
    reasons = ["token.stale", "checkpoint.unresolved", "checkpoint.not-resolved", "session.suspended"]

    assert not child.is_error
    assert f"solo ({named})" in held.text
    assert "no resolved checkpoint in this visit of 'play'" in stopped_at_nothing.text
    assert [event["err"] for event in trace if event["s"] == "error"] == reasons
    assert [refused.reason for refused in (await report_of(settings)).refused] == reasons


@proves("sessions.own-ids")
@pytest.mark.parametrize("written", [" play", "play\n"])
async def test_an_id_with_space_around_it_leads_to_the_activity_itself(memory: Opens, written: str) -> None:
    async with memory() as play:
        moved = await play("next_activity", session_token=await play.at("tune"), activity_id=written)
        status = (await play("get_workflow_status", session_token=moved.token)).json

    assert (moved.json["activity_id"], status["current_activity"]) == ("play", "play")
    assert [way["to"] for way in status["transitions"]] == ["bow"]


@proves("sessions.own-ids")
async def test_the_same_letters_in_another_form_are_the_same_activity(memory: Opens, library: Path) -> None:
    (library / "uben.yaml").write_text(
        "id: uben\nversion: 1.0.0\ntitle: U\ninitialActivity: \u00fcben\n"
        "activities:\n  - {id: \u00fcben, version: 1.0.0, name: Practise}\n"
    )
    async with memory() as play:
        token = (await play("start_session", workflow_id="uben")).token
        entered = await play("next_activity", session_token=token, activity_id="u\u0308ben")

    assert (entered.warnings, entered.json["activity_id"]) == ([], "\u00fcben")


@proves("sessions.filled")
async def test_a_question_is_presented_in_the_words_in_which_it_was_asked(
    memory: Opens, settings: Settings, library: Path
) -> None:
    file = library / "score" / "activities" / "01-tune.yaml"
    text = file.read_text().replace("How shall we play?", "How shall we play the {mood} piece?")
    file.write_text(text.replace("label: Loudly", 'label: "Loudly, {mood}"'))
    async with memory() as play:
        token = await play.at("tune")
        yielded = await play("yield_checkpoint", session_token=token, checkpoint_id="how", variables={"mood": "dark"})
        waiting = await play("present_checkpoint", checkpoint_handle=yielded.token)
        token = (await play("respond_checkpoint", checkpoint_handle=yielded.token, option_id="forte")).token
        await play("resume_checkpoint", session_token=token, variables={"mood": "bright"})
        later = await play("present_checkpoint", checkpoint_handle=yielded.token)
    async with await open_ledger(settings.ledger) as ledger:
        (request,) = (await ledger.requests(state=None)).items

    for presented in (waiting, later):
        assert f"message: {request.question}" in presented.text
        assert '"Loudly, dark"' in presented.text


@proves("sessions.drift")
async def test_a_session_whose_activity_vanishes_is_told_what_happened(memory: Opens, library: Path) -> None:
    async with memory() as play:
        token = await play.at("tune")
        (library / "score" / "activities" / "01-tune.yaml").unlink()
        moved = await play("next_activity", session_token=token, activity_id="play")

    assert any("Activity 'tune' is not in the files any more." in warning for warning in moved.warnings)
    assert not any("First activity" in warning for warning in moved.warnings)
