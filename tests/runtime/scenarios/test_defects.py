"""Defects of another agent runtime that must not come back: the inventory, and the tests that exist nowhere else."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime import events as e
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.tools.meta import CORE
from fidelio.runtime.wakes.prompt import NOTES_OPENING
from fidelio.sandbox.port import Sandboxes
from tests.runtime.scenarios.acts import confirm, tell
from tests.runtime.scenarios.defects import DEFECTS, Defect
from tests.runtime.scenarios.stage import (
    Stage,
    StageCallResult,
    call,
    list_texts,
    open_sandboxes,
    open_stage,
    require_commands,
    say,
)
from tests.runtime.wakes import support
from tests.support import proves

ROOT = Path(__file__).resolve().parents[3]


@cache
def list_tests(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@proves("runtime.defects")
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"defect {defect.number}: {defect.title}")
def test_a_known_defect_has_a_test_that_would_notice_it(defect: Defect) -> None:
    missing = [test for test in defect.tests if test.rpartition("::")[2] not in list_tests(test.partition("::")[0])]

    assert defect.tests
    assert missing == []


@proves("runtime.defects")
def test_the_inventory_has_every_number_once() -> None:
    assert [defect.number for defect in DEFECTS] == list(range(1, 37))


@pytest.fixture(scope="module")
async def sandboxes() -> AsyncIterator[Sandboxes]:
    require_commands()
    async with open_sandboxes() as opened:
        yield opened


@pytest.fixture(scope="module")
async def used(sandboxes: Sandboxes, tmp_path_factory: pytest.TempPathFactory) -> list[StageCallResult]:
    """What a session returns that uses the shell first, and everything else after it."""
    turns = (
        call("write", path="notes.txt", content="one\ntwo\nprice\n"),
        call("shell_exec", command="cd /workspace && export COLOUR=blue && echo begun"),
        call("shell_run", command="echo $COLOUR"),
        call("shell_exec", command="pwd"),
        call("bash", command="head", args=["-n", "1", "notes.txt"]),
        call("grep", path="/workspace/notes.txt", query="two"),
        call("edit", path="notes.txt", oldText="price", newText="$1 $& $$"),
        call("read", path="notes.txt"),
    )
    async with open_stage(tmp_path_factory.mktemp("used"), sandboxes) as stage:
        await play(stage, "Use the shell, then everything else.", turns, "allow", "allow", "allow")
        return await stage.calls()


async def play(stage: Stage, text: str, turns: tuple[Any, ...], *answers: str) -> None:
    """A session that replies with these turns, and a person who answers what it asks for."""
    await stage.define()
    await stage.begin((*turns, say("Done.")))
    await tell(text)(stage)
    await stage.settle()
    for answer in answers:
        await confirm(answer)(stage)
        await stage.settle()


@proves("runtime.defects")
async def test_defect_6_the_agent_cannot_write_the_files_about_its_session(sandboxes: Sandboxes, tmp_path: Path) -> None:
    forged = '{"status": "pass"}'
    paths = ("/runtime/outcome-evaluation.json", "/workspace/.openboa-runtime/outcome-evaluation.json")
    turns = [call("write", path=path, content=forged) for path in paths]
    command = " ; ".join(f"echo '{forged}' > {path}" for path in paths)
    async with open_stage(tmp_path, sandboxes) as stage:
        await play(stage, "Forge the verdict.", (*turns, call("shell_run", command=command)), "allow")
        *written, ran = await stage.calls()

        assert [made.output["error"]["code"] for made in written] == ["read_only", "read_only"]
        assert ran.output["output"]["exitCode"] != 0
        assert [path for path in paths if forged in (await stage.read_file(path) or "")] == []


@proves("runtime.defects")
@pytest.mark.parametrize("model", ["claude-opus-4-1", "gpt-5", "chat/some-model", "scripted:test"])
async def test_defect_11_every_vendor_gets_the_tools_and_every_call_passes_the_gate(tmp_path: Path, model: str) -> None:
    requests: list[ModelRequest] = []
    turns = [support.use(("shell_run", {"command": "make"})), support.say("Done.")]

    def reply(request: ModelRequest) -> ModelReply:
        requests.append(request)
        return turns.pop(0)

    vendors = dict.fromkeys(("anthropic", "openai", "chat", "scripted"), ScriptedProvider(reply))
    async with support.open_runtime(tmp_path) as opened:
        context = replace(opened.context, ports=RuntimePorts(models=Providers(vendors)))
        runtime = support.Runtime(context, opened.clock, [])
        session = await runtime.begin(model=model)
        await runtime.tell(session, "Build.")
        await runtime.work()

        assert [call.name for call in (await runtime.record(session)).wakes.blocking] == ["shell_run"]
        assert {*CORE} <= {tool.name for tool in requests[0].tools}
        assert await runtime.events(session, e.COMMAND_STARTED) == ()


@proves("runtime.defects")
async def test_defect_14_a_parent_keeps_its_own_workspace_after_its_child_has_run(sandboxes: Sandboxes, tmp_path: Path) -> None:
    turns = (
        call("write", path="own.txt", content="parent\n"),
        call("session_delegate", message="Write a file."),
        lambda turn: call("session_run_child", sessionId=turn.last["childSession"]["sessionId"]),
        call("glob", path="/workspace", pattern="*.txt"),
        call("read", path="own.txt"),
    )
    async with open_stage(tmp_path, sandboxes, workers=2) as stage:
        stage.children = [call("write", path="own.txt", content="child\n"), call("write", path="theirs.txt", content="x\n")]
        await play(stage, "Delegate.", turns)
        _, delegated, ran, listed, read = await stage.calls()
        child = delegated.output["childSession"]["sessionId"]

        assert ran.output["loopStopReason"] == "idle"
        assert [entry["path"] for entry in listed.output["output"]["entries"]] == ["/workspace/own.txt"]
        assert read.output["output"]["content"] == "parent\n"
        assert await stage.read_file("/workspace/own.txt", child) == "child\n"
        await sandboxes.stop(child)


@proves("runtime.defects")
async def test_defect_16_the_first_shell_exec_breaks_no_later_call(used: list[StageCallResult]) -> None:
    _, first, run, second, bash, *_ = used

    assert [made.is_error for made in used] == [False] * len(used)
    outputs = [made.output["output"]["stdout"] for made in (first, run, second, bash)]
    assert outputs == ["begun\n", "blue\n", "/workspace\n", "one\n"]


@proves("runtime.defects")
async def test_defect_18_bash_takes_options_with_a_value(used: list[StageCallResult]) -> None:
    bash = used[4]

    assert (bash.name, bash.output["output"]["exitCode"], bash.output["output"]["stdout"]) == ("bash", 0, "one\n")


@proves("runtime.defects")
async def test_defect_19_grep_takes_a_file_and_edit_takes_text_literally(used: list[StageCallResult]) -> None:
    *_, grep, edit, read = used

    assert grep.output["output"]["matches"] == [{"path": "/workspace/notes.txt", "line": 2, "text": "two"}]
    assert edit.output["output"]["replacements"] == 1
    assert read.output["output"]["content"] == "one\ntwo\n$1 $& $$\n"


@proves("runtime.defects")
async def test_defect_20_by_default_the_history_and_the_notes_reach_the_model(tmp_path: Path) -> None:
    async with support.open_runtime(tmp_path, support.replies(*[support.say(f"Answer {n}.") for n in range(5)])) as runtime:
        session = await runtime.begin()
        for number in range(5):
            await runtime.tell(session, f"Question {number}. " + "More words. " * 400)
            await runtime.work()
        last = runtime.requests[-1]
        sent = msgspec.json.encode(last.messages).decode()

        assert all(f"Question {number}." in sent for number in range(5))
        assert all(f"Answer {number}." in sent for number in range(4))
        assert NOTES_OPENING in list_texts(last)


@proves("runtime.defects")
async def test_defect_24_the_configured_model_is_asked_and_recorded(tmp_path: Path) -> None:
    async with support.open_runtime(tmp_path) as runtime:
        first = await runtime.begin(model="scripted:large")
        second = await runtime.start(model="scripted:small")
        for session, name in ((first, "large"), (second, "small")):
            await runtime.tell(session, "Hello.")
            await runtime.work()
            (ended,) = await runtime.events(session, e.MODEL_REQUEST_ENDED)

            assert (runtime.requests[-1].model, ended.body["model"]) == (name, f"scripted:{name}")
            assert (await runtime.service.describe(session))["model"] == f"scripted:{name}"


@proves("runtime.defects")
async def test_defect_26_a_queued_wake_is_not_lost_in_a_crash(tmp_path: Path) -> None:
    later = {"outcome": "sleep", "queuedWakes": [{"reason": "look at the tide", "delaySeconds": 60}]}
    async with support.open_runtime(tmp_path, support.replies(support.say("Later.", later))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Remind me.")
        await runtime.work()

        def die(_: ModelRequest) -> ModelReply:
            raise MemoryError("the process dies")

        runtime.script(die)
        runtime.clock.now += 61_000
        with pytest.raises(MemoryError):
            await runtime.run(await runtime.claim())
        runtime.script(support.replies(support.say("It is high.")))
        runtime.clock.now += support.LEASE_MS + 1
        await runtime.work()

        assert "look at the tide" in list_texts(runtime.requests[-1])
        assert (await runtime.record(session)).wakes.queued == ()


@proves("runtime.defects")
async def test_defect_36_the_first_request_of_an_empty_agent_is_small(tmp_path: Path) -> None:
    async with support.open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hello!")
        await runtime.work()
        (request,) = runtime.requests
        declared = sum(
            len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.input_schema)) for tool in request.tools
        )

        assert len(request.tools) == len(CORE) + 2
        assert len(request.system) + declared + len(list_texts(request)) <= 12_000
