"""The output limit of a blueprint: output within it arrives whole, more ends the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import LimitReached
from fidelio.orchestrator.blueprints.model import Blueprint, Limits
from fidelio.orchestrator.executors.acp.conversation import PipeTransport
from fidelio.orchestrator.executors.contract import Reply, TurnResult, process_options
from fidelio.orchestrator.executors.scripted.executor import ScriptedExecutor
from fidelio.processes.piped import spawn_piped
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves

# More than the input and output of most programs take as one line.
LONG = 17_000_000
STEPS = [
    {"say": "begun"},
    {"use": {"turns": 1}},
    {"ask": "Well?"},
    {"data": {"answer": "{answer}"}},
    {"result": "done"},
]


async def carry_out(
    directory: Path, steps: list[Any], reporter: RecordingReporter, prompt: str = "Hello", *, process: bool
) -> TurnResult:
    options = {"script": {"turns": [steps]}, "process": process}
    blueprint = Blueprint(name="a", description="", executor="scripted", options=options)
    async with asyncio.timeout(SECONDS):
        return await ScriptedExecutor().carry_out(make_turn(directory, prompt, blueprint=blueprint), reporter)


@proves("scripted.counted")
@pytest.mark.parametrize("process", [False, True], ids=["here", "process"])
@pytest.mark.parametrize("step", [{"say": "{prompt}"}, {"result": "{prompt}"}, {"data": "{prompt}"}, {"ask": "{prompt}"}])
async def test_a_scripted_agent_that_says_too_much_is_ended_at_its_limit(
    tmp_path: Path, step: dict[str, str], process: bool
) -> None:
    reporter = RecordingReporter(Reply(text="yes"), most_bytes=1_000)

    with pytest.raises(LimitReached):
        await carry_out(tmp_path, [{"say": "begun"}, step], reporter, "x" * 1_000, process=process)

    assert all("x" not in text for text in reporter.texts)


@proves("scripted.counted", "scripted.process")
async def test_a_script_counts_the_same_in_the_host_and_in_a_process(tmp_path: Path) -> None:
    here, there = RecordingReporter(Reply(text="yes")), RecordingReporter(Reply(text="yes"))

    assert await carry_out(tmp_path, STEPS, here, process=False) == await carry_out(tmp_path, STEPS, there, process=True)

    assert here.bytes == there.bytes > 0


@proves("scripted.counted")
async def test_a_lone_surrogate_is_counted_without_an_error(tmp_path: Path, reporter: RecordingReporter) -> None:
    finished = await carry_out(tmp_path, [{"say": "{prompt}"}, {"data": ["{prompt}"]}], reporter, "\ud800", process=False)

    assert (finished.text, finished.data, reporter.texts) == ("\ud800", ["\ud800"], ["\ud800"])
    assert reporter.bytes > 0


@proves("processes.output", "scripted.process")
async def test_a_result_within_the_limit_comes_whole(tmp_path: Path, reporter: RecordingReporter) -> None:
    finished = await carry_out(tmp_path, [{"result": "{prompt}"}], reporter, "x" * LONG, process=True)

    assert len(finished.text) == LONG


@proves("processes.counted", "processes.pipes")
async def test_a_message_on_pipes_that_is_longer_than_the_limit_ends_the_run(tmp_path: Path) -> None:
    blueprint = Blueprint(name="a", description="", limits=Limits(output_bytes=1_000))
    turn, reporter = make_turn(tmp_path, blueprint=blueprint), RecordingReporter(most_bytes=1_000)
    argv = ["sh", "-c", "head -c 2000 /dev/zero | tr '\\0' 1; echo; echo {}; cat"]
    async with asyncio.timeout(SECONDS), await spawn_piped(argv, process_options(turn, reporter)) as process:
        with pytest.raises(LimitReached):
            await PipeTransport(process, reporter.report_output).receive()
