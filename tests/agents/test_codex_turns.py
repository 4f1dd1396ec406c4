"""Behaviour of turns that only Codex has, with the real program and a scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.blueprints.model import PermissionMode
from fidelio.orchestrator.executors.contract import Reply
from tests.agents.bench import bench
from tests.agents.harness_codex import CodexHarness
from tests.agents.model import Held, ModelCall, ModelText, Refuse, Spent
from tests.agents.watcher import left_behind
from tests.orchestrator.executors.recording import RecordingReporter
from tests.support import proves

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}
ASKS = {
    "questions": [
        {
            "id": "colour",
            "header": "Colour",
            "question": "Which colour?",
            "options": [{"label": "Red", "description": "Warm."}, {"label": "Blue", "description": "Cold."}],
        }
    ]
}


@proves("agents.codex-ways")
@pytest.mark.parametrize(("mode", "is_server"), [("read", False), ("full", False), ("ask", True), ("edit", True)])
async def test_codex_is_a_server_where_something_may_have_to_be_asked(
    tmp_path: Path, mode: PermissionMode, is_server: bool
) -> None:
    reporter = RecordingReporter()
    async with bench(CodexHarness(), tmp_path, [ModelText("Done.")]) as place:
        turn = place.turn("Hello.", mode=mode)
        await place.carry_out(turn, reporter)

    assert (turn.spool / "agent.hold").exists() is is_server


@proves("agents.codex-schema")
@pytest.mark.parametrize("mode", ["exec", "server"])
async def test_the_result_has_the_structure_that_the_blueprint_asks_for(tmp_path: Path, mode: str) -> None:
    async with bench(CodexHarness(mode=mode), tmp_path, [ModelText('{"colour": "blue"}')]) as place:
        finished = await place.carry_out(place.turn("Which colour?", output_schema=SCHEMA), RecordingReporter())

    assert finished.text == '{"colour": "blue"}'
    assert place.model.heard[0].body["text"]["format"]["schema"] == SCHEMA


@proves("agents.codex-question")
async def test_a_question_of_the_model_is_answered_by_a_person(tmp_path: Path) -> None:
    reporter = RecordingReporter(Reply(option="Blue"))
    async with bench(CodexHarness(), tmp_path, [ModelCall("request_user_input", ASKS), ModelText("Blue it is.")]) as place:
        finished = await place.carry_out(place.turn("Paint it.", mode="ask"), reporter)

    (question,) = reporter.questions
    assert (question.kind, question.text) == ("question", "Which colour?")
    assert [name for name, _ in question.options] == ["Red", "Blue"]
    assert "Blue" in place.model.heard[-1].seen[-1].text
    assert finished.text == "Blue it is."


@proves("agents.codex-failures")
@pytest.mark.parametrize("mode", ["exec", "server"])
async def test_a_turn_that_fails_says_why(tmp_path: Path, mode: str) -> None:
    async with bench(CodexHarness(mode=mode), tmp_path, [Refuse(400, "The model is on holiday.")]) as place:
        with pytest.raises(ExecutorFailure, match="on holiday") as failure:
            await place.carry_out(place.turn("Hello."), RecordingReporter())

    assert failure.value.reason


@proves("agents.adopted")
async def test_a_command_whose_watcher_died_is_read_from_the_beginning(tmp_path: Path) -> None:
    reporter, harness = RecordingReporter(), CodexHarness(mode="exec")
    held = Held(ModelText("There are three.", Spent(50, 5)))
    async with bench(harness, tmp_path, [ModelCall("list_workflows", spent=Spent(30, 3)), held]) as place:
        turn = place.turn("Which are there?")
        process = await left_behind(harness, turn, until="called")
        held.release()
        finished = await place.adopt(turn, process, reporter)

    assert finished is not None
    assert (finished.text, len(reporter.calls), len(reporter.conversations)) == ("There are three.", 1, 1)
    assert (reporter.usages[-1].input_tokens, reporter.usages[-1].output_tokens) == (80, 8)
