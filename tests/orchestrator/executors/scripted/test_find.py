"""The step `find`: matches in the prompt, and regular expressions that do not terminate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.scripted.executor import ScriptedExecutor
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves


def finding(**patterns: str) -> Blueprint:
    steps: list[Any] = [{"find": patterns}, {"data": {name: f"{{saved.{name}}}" for name in patterns}}, {"result": "Found."}]
    return Blueprint(name="a", description="", executor="scripted", options={"script": {"turns": [steps]}})


@proves("scripted.steps")
async def test_the_first_group_is_taken_or_else_the_whole(tmp_path: Path, reporter: RecordingReporter) -> None:
    blueprint = finding(key="key: (\\S+)", word="[a-z]+", perhaps="key(!)?")
    turn = make_turn(tmp_path, "my key: tök-1 and more", blueprint=blueprint)

    assert (await ScriptedExecutor().carry_out(turn, reporter)).data == {"key": "tök-1", "word": "my", "perhaps": None}


@proves("scripted.bounded-find")
async def test_a_search_that_does_not_terminate_fails_only_its_own_turn(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, "a" * 60 + "!", blueprint=finding(evil="^(a+)+$"))
    other = make_turn(tmp_path, "a", blueprint=finding(good="a"))

    async with asyncio.timeout(SECONDS):
        evil = asyncio.create_task(ScriptedExecutor().carry_out(turn, reporter))
        assert (await ScriptedExecutor().carry_out(other, reporter)).text == "Found."
        assert not evil.done()
        with pytest.raises(ExecutorFailure, match="more than 2 seconds"):
            await evil


@proves("scripted.bounded-find", "scripted.checked")
@pytest.mark.parametrize("pattern", ["(?i)" + "[\u0100-\uffff]" * 2_000, "(" * 5_000, "a{2,1}", "\ud800"])
def test_an_expression_that_cannot_be_used_is_a_problem_before_the_start(pattern: str) -> None:
    (problem,) = ScriptedExecutor().problems(finding(x=pattern))

    assert "(find) is invalid" in problem
    assert len(problem) < 500
