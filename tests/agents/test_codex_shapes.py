"""Messages of Codex with an unexpected structure, without a program: the tests write its output."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.executors.codex import exec as codex_exec
from fidelio.orchestrator.executors.codex import server as codex_server
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, TurnResult
from fidelio.processes.spooled import AgentProcess, ProcessExit
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves

Json = dict[str, Any]
Path_ = tuple[str | int, ...]

THREAD = "00000000-0000-4000-8000-00000000000a"
COMMAND = {"type": "commandExecution", "id": "c1", "command": "make", "status": "completed", "aggregatedOutput": "made"}
FILES = {"type": "fileChange", "id": "f1", "changes": [{"path": "a.md", "kind": "add", "diff": "+a"}], "status": "completed"}
RESULT = {"content": [{"type": "text", "text": "three"}, {"type": "image", "data": ""}]}
TOOL = {"type": "mcpToolCall", "id": "m1", "server": "ours", "tool": "list", "arguments": {}, "result": RESULT}
HELPER = {"type": "collabAgentToolCall", "id": "h1", "tool": "spawn", "prompt": "Help.", "error": {"message": "Nobody."}}
MESSAGE = {"type": "agentMessage", "id": "a1", "text": "Done."}
FORM = {"properties": {"tone": {"type": "string", "oneOf": [{"const": "a", "title": "The first"}]}}}
LEAVE = {"codex_approval_kind": "mcp_tool_call", "tool_params": {}}


def told(method: str, **params: Any) -> Json:
    return {"method": method, "params": {"threadId": THREAD, **params}}


def asked(number: int, method: str, **params: Any) -> Json:
    return {"id": number, "method": method, "params": {"threadId": THREAD, "itemId": "f1", **params}}


SERVER: list[Json] = [
    {"id": 1, "result": {"userAgent": "codex"}},
    {"id": 3, "result": {"thread": {"id": THREAD}}},
    {"id": 4, "result": {"turn": {"id": "t1"}}},
    told("turn/started", turn={"id": "t1"}),
    told("item/started", item=COMMAND),
    asked(10, "item/commandExecution/requestApproval", command="make", approvalId="x", reason="Why not?"),
    told("item/completed", item=COMMAND),
    told("item/started", item=FILES),
    asked(11, "item/fileChange/requestApproval", reason="It is new."),
    {"method": "serverRequest/resolved", "params": {"threadId": THREAD, "requestId": 11}},
    asked(12, "item/permissions/requestApproval", permissions={"network": {"enabled": True}}),
    told("item/started", item=TOOL),
    asked(13, "mcpServer/elicitation/request", serverName="ours", message="May it?", _meta=LEAVE),
    told("item/completed", item=TOOL),
    asked(14, "mcpServer/elicitation/request", serverName="ours", message="How?", requestedSchema=FORM),
    asked(15, "item/tool/requestUserInput", questions=[{"id": "q", "question": "Well?", "options": [{"label": "So"}]}]),
    told("item/completed", item=HELPER),
    told("thread/tokenUsage/updated", turnId="t1", tokenUsage={"last": {"inputTokens": 3, "outputTokens": 1}}),
    told("item/completed", item=MESSAGE),
    told("turn/completed", turn={"id": "t1", "status": "completed", "error": None}),
]
EXEC: list[Json] = [
    {"type": "thread.started", "thread_id": THREAD},
    {"type": "item.started", "item": {"type": "command_execution", "id": "c1", "command": "make"}},
    {"type": "item.completed", "item": {"type": "command_execution", "id": "c1", "command": "make", "aggregated_output": "x"}},
    {"type": "item.completed", "item": {"type": "error", "id": "e1", "message": "Careful."}},
    {"type": "item.completed", "item": {"type": "agent_message", "id": "a1", "text": "Done."}},
    {"type": "turn.completed", "usage": {"input_tokens": 3, "output_tokens": 1}},
]
FAILED = told("turn/completed", turn={"id": "t1", "status": "failed", "error": {"message": "No.", "codexErrorInfo": "other"}})
WAYS = {"server": (codex_server, SERVER), "exec": (codex_exec, EXEC)}


class Played(AgentProcess):
    """A process that prints these messages, each after everything that the one before has led to."""

    def __init__(self, messages: list[Any]) -> None:
        self._messages = messages

    async def __aexit__(self, *_: object) -> None:
        pass

    async def lines(self) -> AsyncIterator[str]:
        for message in self._messages:
            yield json.dumps(message)
            for _ in range(5):
                await asyncio.sleep(0)

    async def write(self, data: bytes) -> None:
        json.loads(data)

    def close_stdin(self) -> None:
        pass

    async def wait_for_exit(self) -> ProcessExit:
        return ProcessExit(0)

    def stderr_tail(self) -> str:
        return ""

    def failure(self, exit_: ProcessExit, *, partial: str = "") -> ExecutorFailure:
        return ExecutorFailure("It ended.", reason=exit_.reason, partial=partial)


class Agreeing(RecordingReporter):
    """Answers everything."""

    async def ask(self, question: AgentQuestion) -> Reply:
        self.questions.append(question)
        return Reply(question.options[0][0] if question.options else "", "" if question.options else "{}")


async def play(way: str, messages: list[Any], directory: Path, reporter: RecordingReporter) -> TurnResult:
    blueprint = Blueprint(name="a", description="", executor="codex", permissions=Permissions(mode="ask"))

    async def spawn(*_: object, **__: object) -> AgentProcess:
        return Played(messages)

    module = WAYS[way][0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "spawn", spawn)
        async with asyncio.timeout(SECONDS):
            finished: TurnResult = await module.run(make_turn(directory, blueprint=blueprint), reporter)
            return finished


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Where something stands in a message, from the outside in."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def changed(message: Any, path: Path_, value: Any) -> Any:
    """The message with something else in that place."""
    if not path:
        return value
    whole = copy.deepcopy(message)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return whole


def without(message: Any, path: Path_) -> Any:
    whole = copy.deepcopy(message)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return whole


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("id"), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def spoilt(draw: st.DrawFn, messages: list[Json]) -> list[Any]:
    """A conversation in which one message is not as it should be."""
    number = draw(st.integers(0, len(messages) - 1))
    message = messages[number]
    path: Path_ = draw(st.sampled_from(list(places(message))))
    is_missing = draw(st.booleans())
    other = without(message, path) if path and is_missing else changed(message, path, draw(ANYTHING))
    return [*messages[:number], other, *messages[number + 1 :]]


async def ends_well_or_fails(way: str, messages: list[Any], directory: Path) -> None:
    """Any other error than the one of an agent that fails comes out of here, and is one of ours."""
    with suppress(ExecutorFailure):
        assert isinstance((await play(way, messages, directory, Agreeing())).text, str)


@proves("agents.codex-shapes")
@pytest.mark.parametrize("way", WAYS)
async def test_messages_as_they_should_be_lead_to_the_result(tmp_path: Path, way: str) -> None:
    reporter = Agreeing()

    assert (await play(way, WAYS[way][1], tmp_path, reporter)).text == "Done."

    assert reporter.conversations == [THREAD]
    assert (reporter.usages[-1].input_tokens, reporter.usages[-1].output_tokens) == (3, 1)


@proves("agents.codex-shapes")
async def test_items_and_requests_of_codex_are_reported(tmp_path: Path) -> None:
    reporter = Agreeing()
    await play("server", SERVER, tmp_path, reporter)

    assert [tool for _, tool, _ in reporter.calls] == ["shell", "apply_patch", "mcp__ours__list", "spawn"]
    assert reporter.returns == [
        ("c1", True, "made"),
        ("m1", True, 'three\n{"type": "image", "data": ""}'),
        ("h1", True, "Nobody."),
    ]
    assert [(question.key, question.text) for question in reporter.questions] == [
        ("x", "Codex wants to run: make"),
        ("f1", "Codex wants to change a.md."),
        ("f1", 'Codex wants to be allowed more: {"network": {"enabled": true}}'),
        ("m1", "May it?"),
        ("elicitation-14", "ours asks: How?"),
        ("f1-q", "Well?"),
    ]


@proves("agents.codex-shapes")
@settings(max_examples=150, deadline=None)
@given(messages=spoilt(SERVER))
async def test_a_message_of_another_structure_is_ignored_or_is_a_failure(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any]
) -> None:
    await ends_well_or_fails("server", messages, tmp_path_factory.getbasetemp())


@proves("agents.codex-shapes")
@settings(max_examples=50, deadline=None)
@given(messages=spoilt(EXEC))
async def test_an_event_of_another_structure_is_ignored_or_is_a_failure(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any]
) -> None:
    await ends_well_or_fails("exec", messages, tmp_path_factory.getbasetemp())


@proves("agents.codex-shapes")
@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            told("item/completed", item={"type": "agentMessage", "id": "a1"}),
            "Codex sent the item agentMessage with an unexpected structure",
        ),
        (told("item/started", item=None), "Codex sent an item with an unexpected structure"),
        (told("turn/completed", turn={}), "Object missing required field `status` - at `$.turn`"),
        (asked(9, "item/tool/requestUserInput"), "Object missing required field `questions`"),
        ({"id": 9, "method": "item/fileChange/requestApproval"}, "sent item/fileChange/requestApproval with an unexpected"),
    ],
)
async def test_a_failure_names_the_message_with_an_unexpected_structure(tmp_path: Path, message: Json, sentence: str) -> None:
    with pytest.raises(ExecutorFailure) as caught:
        await play("server", [*SERVER[:4], message, {"method": "later"}], tmp_path, RecordingReporter())

    assert sentence in caught.value.sentence
    assert caught.value.reason == "protocol"


@proves("agents.codex-shapes")
@pytest.mark.parametrize("line", ["", "[", "[1]", '{"method": "new/thing", "params": 3}', "[" * 100_000])
async def test_an_unknown_message_is_ignored(tmp_path: Path, line: str) -> None:
    class Chatting(Played):
        async def lines(self) -> AsyncIterator[str]:
            yield line
            async for other in super().lines():
                yield other

    async def spawn(*_: object, **__: object) -> AgentProcess:
        return Chatting(SERVER)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codex_server, "spawn", spawn)
        async with asyncio.timeout(SECONDS):
            assert (await codex_server.run(make_turn(tmp_path), Agreeing())).text == "Done."


@proves("agents.codex-failures")
async def test_a_failed_turn_has_the_message_of_codex(tmp_path: Path) -> None:
    with pytest.raises(ExecutorFailure) as caught:
        await play("server", [*SERVER[:-1], FAILED], tmp_path, Agreeing())

    assert (caught.value.sentence, caught.value.reason, caught.value.partial) == ("No.", "turn-failed", "Done.")
