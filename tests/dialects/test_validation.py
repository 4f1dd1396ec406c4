"""What the `sessions` dialect warns of, and what it refuses where it enforces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dialects.conftest import Opens, Player, ToolReply
from tests.support import proves

TUNED = [{"step_id": "hear", "output": "442 Hz"}, {"step_id": "ask", "output": "asked"}]


async def leave_tune(play: Player, *, answer: str = "forte", to: str = "play", **more: Any) -> ToolReply:
    token = await play.at("tune")
    handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
    token = (await play("respond_checkpoint", checkpoint_handle=handle, option_id=answer)).token
    return await play("next_activity", session_token=token, activity_id=to, **{"step_manifest": TUNED, **more})


@proves("sessions.validation")
async def test_a_wrong_first_activity_is_one_warning(play: Player) -> None:
    entered = await play("next_activity", session_token=await play.start(), activity_id="play")

    assert entered.warnings == [
        "First activity must be 'tune' but 'play' was requested. Start with the workflow's initialActivity."
    ]
    assert entered.meta["validation"]["status"] == "warning"


@proves("sessions.validation")
@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        ({"step_manifest": TUNED[:1]}, "Missing steps in manifest: [ask]"),
        ({"step_manifest": TUNED[::-1]}, "order mismatch"),
        ({"step_manifest": [*TUNED, {"step_id": "x", "output": "y"}]}, "Unexpected steps in manifest: [x]"),
        ({"step_manifest": [TUNED[0], {"step_id": "ask", "output": " "}]}, "empty output in manifest: [ask]"),
        ({"transition_condition": "loud == false"}, "Condition mismatch"),
        ({"transition_condition": "default"}, "Condition mismatch"),
        ({"activity_manifest": []}, "Empty activity_manifest"),
        ({"activity_manifest": [{"activity_id": "coda", "outcome": "x"}]}, "unknown activity 'coda'"),
        ({"activity_manifest": [{"activity_id": "tune", "outcome": ""}]}, "Activity 'tune' has empty outcome"),
        ({"variables": {"tempo": 120}}, "not declared"),
        ({"variables": {"bars": "many"}}, "declared as number"),
    ],
)
async def test_each_problem_gets_its_one_warning(opens: Opens, more: dict[str, Any], phrase: str) -> None:
    async with opens() as play:
        left = await leave_tune(play, **more)

    assert len(left.warnings) == 1
    assert phrase in left.warnings[0]


@proves("sessions.validation")
async def test_no_manifest_and_no_direct_transition_are_warned_of(opens: Opens) -> None:
    async with opens() as play:
        token = await play.at("bow")
        moved = await play("next_activity", session_token=token, activity_id="play")

    assert len(moved.warnings) == 2
    assert "not a direct transition" in moved.warnings[0]
    assert "No step_manifest" in moved.warnings[1]


@proves("sessions.validation")
@pytest.mark.parametrize("claim", ["loud == true", 'mood == "bright"'])
async def test_a_claim_is_right_when_any_edge_to_the_target_fits(opens: Opens, claim: str) -> None:
    async with opens() as play:
        left = await leave_tune(play, transition_condition=claim, variables={"mood": "bright"})

    assert left.warnings == []


@proves("sessions.validation")
async def test_a_claim_that_is_known_to_be_false_is_warned_of_although_another_way_leads_there(opens: Opens) -> None:
    async with opens() as play:
        left = await leave_tune(play, transition_condition='mood == "bright"', variables={"mood": "dull"})

    assert len(left.warnings) == 1
    assert "does not hold" in left.warnings[0]
    assert left.json["warnings"] == left.warnings


@proves("sessions.enforce")
@pytest.mark.every_transport
async def test_where_it_is_enforced_a_step_is_not_done_before_its_question_is_answered(opens: Opens) -> None:
    async with opens(fidelity="enforce") as play:
        token = await play.at("tune")
        skipped = await play(
            "next_activity", session_token=token, activity_id="play", step_manifest=TUNED, variables={"loud": True}
        )

    assert skipped.is_error
    assert "its checkpoint 'how' has not been answered" in skipped.text


@proves("sessions.validation")
async def test_a_move_that_an_answer_contradicts_is_warned_of(opens: Opens) -> None:
    async with opens() as play:
        softened = [*TUNED, {"step_id": "soften", "output": "x"}]
        left = await leave_tune(play, answer="piano", to="play", step_manifest=softened, variables={"mood": "dull"})

    assert len(left.warnings) == 1
    assert "does not hold" in left.warnings[0]


@proves("sessions.enforce")
@pytest.mark.parametrize("how", ["server", "session", "workflow"])
async def test_where_it_is_enforced_the_same_problems_are_refused(opens: Opens, library: Path, how: str) -> None:
    if how == "workflow":
        file = library / "score" / "workflow.yaml"
        file.write_text(file.read_text() + "fidelity: enforce\n")
    options = {"fidelity": "enforce"} if how == "server" else {}
    async with opens(**options) as play:
        more = {"fidelity": "enforce"} if how == "session" else {}
        token = await play.start(**more)
        wrong = await play("next_activity", session_token=token, activity_id="play")
        right = await play("next_activity", session_token=token, activity_id="tune")
        unknown = await play("next_activity", session_token=right.token, activity_id="play", step_manifest=TUNED)
        status = (await play("get_workflow_status", session_token=right.token)).json

    assert wrong.is_error
    assert "First activity must be 'tune'" in wrong.text
    assert unknown.is_error
    assert "Report loud" in unknown.text
    assert status["current_activity"] == "tune"


@proves("sessions.drift")
@pytest.mark.every_transport
async def test_a_definition_that_changes_during_a_session_is_noticed(opens: Opens, library: Path) -> None:
    file = library / "score" / "activities" / "03-bow.yaml"
    async with opens() as play:
        token = await play.at("tune")
        before = await play("get_activity", session_token=token)
        file.write_text(file.read_text().replace("Smile", "Grin"))
        same_version = await play("get_activity", session_token=token)
        manifest = library / "score" / "workflow.yaml"
        manifest.write_text(manifest.read_text().replace("1.2.3", "1.3.0"))
        new_version = await play("next_activity", session_token=token, activity_id="tune")

        handle = await play("yield_checkpoint", session_token=new_version.token, checkpoint_id="how")
        answered = await play("respond_checkpoint", checkpoint_handle=handle.token, option_id="forte")
        resumed = await play("resume_checkpoint", session_token=answered.token)
        inherited = await play("start_session", session_token=resumed.token)

    assert all("version drift" in reply.warnings[0] for reply in (handle, answered, resumed, inherited))
    assert before.warnings == []
    assert "has changed since the session started" in same_version.warnings[0]
    assert "started with version '1.2.3', the definition is now '1.3.0'" in new_version.warnings[0]


@proves("sessions.validation")
async def test_every_way_on_says_whether_it_holds(opens: Opens) -> None:
    async with opens() as play:
        token = await play.at("tune")
        unknown = (await play("get_activity", session_token=token)).meta["transitions"]
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        await play("respond_checkpoint", checkpoint_handle=handle, option_id="piano")
        known = (await play("get_workflow_status", session_token=token)).json["transitions"]

    assert [(way["to"], way["holds"]) for way in unknown[:3]] == [("play", None), ("play", None), ("bow", None)]
    assert [(way["to"], way["holds"]) for way in known[:3]] == [("play", False), ("play", None), ("bow", True)]
