"""Reading of Claude Code's messages, with lines that the tests write instead of the program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.executors.claude.messages import read_message
from fidelio.orchestrator.executors.claude.stream import encode_first_input, follow_turn
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess, ProcessExit
from tests.orchestrator.executors.recording import RecordingReporter, make_turn
from tests.support import proves

Json = dict[str, Any]
END: Json = {"type": "result", "subtype": "success", "result": "Done.", "modelUsage": {}}


class Played(AgentProcess):
    """A process that prints given messages. What is awaitable among them is waited for, until the next may come."""

    def __init__(self, *messages: Json | Callable[[], Awaitable[None]], complaint: str = "") -> None:
        self.answers: list[Json] = []
        self._messages, self._complaint = messages, complaint
        self._changed = asyncio.Event()

    async def lines(self) -> AsyncIterator[str]:
        for message in self._messages:
            if callable(message):
                await message()
            else:
                yield json.dumps(message)

    async def answered(self, times: int) -> None:
        while len(self.answers) < times:
            self._changed.clear()
            await self._changed.wait()

    async def write(self, data: bytes) -> None:
        self.answers.append(json.loads(data)["response"])
        self._changed.set()

    def close_stdin(self) -> None:
        pass

    def is_running(self) -> bool:
        return False

    async def wait_for_exit(self) -> ProcessExit:
        return ProcessExit(1 if self._complaint else 0)

    def stderr_tail(self) -> str:
        return self._complaint

    def failure(self, exit_: ProcessExit, *, partial: str = "") -> ExecutorFailure:
        return ExecutorFailure(self._complaint, reason=exit_.reason, partial=partial)


def asks(name: str, tool: str = "Bash", **more: Any) -> Json:
    request = {"subtype": "can_use_tool", "tool_name": tool, "tool_use_id": f"toolu_{name}", "input": {"name": name}, **more}
    return {"type": "control_request", "request_id": name, "request": request}


def says(name: str, *blocks: Json, parent: str | None = None, model: str = "m", **usage: int) -> Json:
    message = {"id": name, "model": model, "content": list(blocks), "usage": usage}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def asking_turn(place: Path, **changes: Any) -> Turn:
    blueprint = Blueprint(name="x", description="x", permissions=Permissions(mode="ask"))
    return make_turn(place, blueprint=blueprint, **changes)


async def watched(process: Played, turn: Turn, reporter: RecordingReporter) -> TurnResult:
    async with asyncio.timeout(20):
        return await follow_turn(process, turn, reporter)


class Slow(RecordingReporter):
    """Answers the newest question first."""

    async def ask(self, question: AgentQuestion) -> Reply:
        self.questions.append(question)
        self._changed.set()
        name = question.detail["input"]["name"]
        await self.until(lambda: len(self.questions) == 2 and (name == "second" or self.texts))
        await self.report_message(name)
        return Reply(option="allow" if name == "first" else "refuse")


class Patient(RecordingReporter):
    """Never answers, and notices when nobody waits for that any more."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.is_left = asyncio.Event(), asyncio.Event()

    async def asked(self) -> None:
        await self.is_asked.wait()

    async def left(self) -> None:
        await self.is_left.wait()

    async def ask(self, question: AgentQuestion) -> Reply:
        self.is_asked.set()
        try:
            return await super().ask(question)
        finally:
            self.is_left.set()


@proves("agents.leave")
async def test_two_questions_are_open_at_once_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    process = Played(asks("first"), asks("second"), lambda: process.answered(2), END)
    await watched(process, asking_turn(tmp_path), Slow())

    given = {answer["request_id"]: answer["response"]["behavior"] for answer in process.answers}
    assert list(given.items()) == [("second", "deny"), ("first", "allow")]


@proves("agents.leave")
async def test_a_withdrawn_question_is_cancelled(tmp_path: Path) -> None:
    reporter = Patient()
    process = Played(
        asks("first"), reporter.asked, {"type": "control_cancel_request", "request_id": "first"}, reporter.left, END
    )

    assert (await watched(process, asking_turn(tmp_path), reporter)).text == "Done."
    assert process.answers == []


@proves("agents.leave")
async def test_other_requests_are_declined(tmp_path: Path) -> None:
    elicitation = {"type": "control_request", "request_id": "a", "request": {"subtype": "elicitation"}}
    unheard = {"type": "control_request", "request_id": "b", "request": {"subtype": "sing"}}
    process = Played(elicitation, unheard, lambda: process.answered(2), END)
    await watched(process, asking_turn(tmp_path), RecordingReporter())

    assert process.answers == [
        {"subtype": "success", "request_id": "a", "response": {"action": "cancel"}},
        {"subtype": "error", "request_id": "b", "error": "sing is not known here."},
    ]


@proves("agents.turn")
async def test_messages_of_a_subagent_are_not_reported(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    reporter = RecordingReporter()
    lines = [
        says("1", text("Mine.")),
        says("2", text("Not mine."), use, parent="t0"),
        says("3", text("A notice."), model="<synthetic>"),
    ]
    await watched(Played(*lines, END), asking_turn(tmp_path), reporter)

    assert (reporter.texts, [tool for _, tool, _ in reporter.calls]) == (["Mine."], ["Read"])


@proves("agents.turn")
async def test_a_message_in_several_lines_is_counted_once_and_the_result_corrects_it(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    lines = [says("1", text("A."), input_tokens=10, cache_read_input_tokens=5, output_tokens=1)] * 2
    models = {"m": {"inputTokens": 10, "cacheReadInputTokens": 5, "outputTokens": 30}}
    await watched(Played(*lines, {**END, "total_cost_usd": 0.5, "modelUsage": models}), asking_turn(tmp_path), reporter)

    first, last = reporter.usages
    assert first == Usage(turns=1, input_tokens=15, output_tokens=1)
    assert last == Usage(turns=1, input_tokens=15, output_tokens=30, cost_usd=0.5)


@proves("agents.claude-cost")
async def test_what_is_spent_never_becomes_less_when_the_agent_goes_on_after_a_result(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    once, twice = ({"m": {"inputTokens": 10 * times, "outputTokens": 30 * times}} for times in (1, 2))
    first = [says("1", text("A."), input_tokens=10, output_tokens=1), {**END, "total_cost_usd": 0.5, "modelUsage": once}]
    then = [says("2", text("B."), input_tokens=10, output_tokens=1), {**END, "total_cost_usd": 0.9, "modelUsage": twice}]
    await watched(Played(*first, *then), asking_turn(tmp_path), reporter)

    assert [(used.turns, used.output_tokens, used.cost_usd) for used in reporter.usages] == [
        (1, 1, 0.0),
        (1, 30, 0.5),
        (2, 31, 0.5),
        (2, 60, 0.9),
    ]


@proves("agents.claude-cost")
async def test_without_the_previous_cost_no_cost_is_reported(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    refusal = {"type": "control_response", "response": {"subtype": "error", "request_id": "fidelio-before", "error": "What?"}}
    said = says("1", text("A."), input_tokens=10, output_tokens=1)
    process = Played(refusal, said, {**END, "total_cost_usd": 0.5, "modelUsage": {"m": {"inputTokens": 900}}})
    await watched(process, asking_turn(tmp_path, conversation="c"), reporter)

    assert reporter.usages == [Usage(turns=1, input_tokens=10, output_tokens=1)]


@proves("agents.claude-failures")
async def test_an_end_without_a_result_is_a_failure_with_the_messages_so_far(tmp_path: Path) -> None:
    process = Played(says("1", text("I begin.")), complaint="Out of memory.")
    with pytest.raises(ExecutorFailure, match=r"Out of memory\.") as failure:
        await watched(process, asking_turn(tmp_path), RecordingReporter())

    assert (failure.value.reason, failure.value.partial) == ("exit.1", "I begin.")


@proves("agents.unknown-conversation")
async def test_an_error_about_the_conversation_on_stderr_means_that_it_is_lost(tmp_path: Path) -> None:
    with pytest.raises(ConversationLost):
        await watched(Played(complaint="No conversation found with session ID: x"), asking_turn(tmp_path), RecordingReporter())


@proves("agents.resume")
def test_a_prompt_is_one_line_however_many_it_has(tmp_path: Path) -> None:
    (line,) = encode_first_input(asking_turn(tmp_path)).splitlines()
    before, again = encode_first_input(asking_turn(tmp_path, conversation="c", prompt="One\ntwo\r\n\u2028three")).split(b"\n")[
        :-1
    ]

    assert json.loads(line)["message"]["content"] == "Hello"
    assert json.loads(before)["request"]["subtype"] == "get_usage"
    assert json.loads(again)["message"]["content"] == "One\ntwo\r\n\u2028three"


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
kinds = st.sampled_from(["system", "assistant", "user", "result", "control_request", "control_response", "song"])
objects = st.dictionaries(
    st.sampled_from(["message", "request", "response", "content", "usage", "subtype", "id"]),
    st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_size=4,
)


@proves("agents.turn")
@given(st.builds(lambda kind, body: json.dumps({**body, "type": kind}), kinds, objects) | st.text(max_size=40))
def test_an_unknown_line_is_ignored(line: str) -> None:
    message = read_message(line)

    assert message is None or json.loads(line)["type"] != "song"
