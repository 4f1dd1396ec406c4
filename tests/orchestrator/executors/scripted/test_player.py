"""The scripted agent, in the host and in a process of its own: the same script has the same result."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Turn, TurnResult
from fidelio.orchestrator.executors.scripted.executor import ScriptedExecutor
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import find_marked
from fidelio.processes.table import ProcessIdentity
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves

Play = Callable[..., Coroutine[Any, Any, TurnResult]]


def scripted(*turns: list[Any], process: bool = False, **more: Any) -> Blueprint:
    script = {"turns": list(turns), **more}
    return Blueprint(name="a", description="", executor="scripted", options={"script": script, "process": process})


@pytest.fixture(params=[False, True], ids=["here", "process"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Carries out one turn of a script of one turn."""

    async def run(steps: list[Any], reporter: RecordingReporter, prompt: str = "Hello", **changes: Any) -> TurnResult:
        turn = make_turn(tmp_path, prompt, blueprint=scripted(steps, process=request.param), **changes)
        async with asyncio.timeout(SECONDS):
            finished = await ScriptedExecutor().carry_out(turn, reporter)
        assert find_marked(turn.run) == []
        return finished

    return run


@proves("scripted.echo")
async def test_without_a_script_it_is_an_echo(turn: Turn, reporter: RecordingReporter) -> None:
    assert ScriptedExecutor().problems(turn.blueprint) == ()
    assert await ScriptedExecutor().carry_out(turn, reporter) == TurnResult(text="Hello")


@proves("scripted.steps", "scripted.process")
async def test_a_script_says_writes_uses_and_ends_as_it_is_written(
    play: Play, reporter: RecordingReporter, tmp_path: Path
) -> None:
    steps = [
        {"say": "I was told: {prompt}"},
        {"pause": 0},
        {"use": {"input_tokens": 10, "cost_usd": 0.5}},
        {"use": {"input_tokens": 5, "output_tokens": 2, "turns": 1}},
        {"write": {"path": "notes/a.md", "text": "{prompt}!"}},
        {"data": {"turn": "{turn}", "list": ["{prompt}", 1, None]}},
        {"result": "Done with {prompt} in turn {turn}."},
        {"say": "never said"},
    ]

    finished = await play(steps, reporter)

    assert finished == TurnResult(text="Done with Hello in turn 1.", data={"turn": 1, "list": ["Hello", 1, None]})
    assert reporter.texts == ["I was told: Hello"]
    assert reporter.usages == [
        Usage(input_tokens=10, cost_usd=0.5),
        Usage(turns=1, input_tokens=15, output_tokens=2, cost_usd=0.5),
    ]
    assert (tmp_path / "project/notes/a.md").read_text("utf-8") == "Hello!"


@proves("scripted.steps", "scripted.process")
async def test_without_a_result_the_last_message_is_the_result(play: Play, reporter: RecordingReporter) -> None:
    assert (await play([{"say": "one"}, {"say": "two"}], reporter)).text == "two"


@proves("scripted.steps", "scripted.process")
async def test_a_question_waits_for_its_answer(play: Play) -> None:
    reporter = RecordingReporter(Reply(option="yes"), Reply(text="in blue"))
    steps = [
        {"ask": {"text": "May I?", "kind": "permission", "options": {"yes": "Go on", "no": "Stop"}}},
        {"say": "{answer} {answer.option}."},
        {"ask": "What colour?"},
        {"result": "{answer}, {answer.text}."},
    ]

    assert (await play(steps, reporter)).text == "in blue, in blue."
    assert reporter.texts == ["yes yes."]
    assert reporter.questions == [
        AgentQuestion(key="1.1", kind="permission", text="May I?", options=(("yes", "Go on"), ("no", "Stop"))),
        AgentQuestion(key="1.3", kind="question", text="What colour?"),
    ]


@proves("scripted.steps", "scripted.process")
@pytest.mark.parametrize(
    ("step", "sentence", "reason"),
    [
        ({"fail": "No {prompt} today."}, "No Hello today.", "scripted"),
        ({"fail": {"text": "No key.", "reason": "auth"}}, "No key.", "auth"),
        ({"crash": 3}, "The agent ended with exit 3. It said nothing about why.", "exit.3"),
        ({"find": {"token": "tok_[a-z]+"}}, "The script cannot continue: the prompt has nothing that matches", "script"),
        ({"say": "{saved.token}"}, "The script cannot continue: {saved.token} has no value at this point.", "script"),
        ({"write": {"path": "../out", "text": ""}}, "The script cannot continue: ../out is outside of the project.", "script"),
        ({"call": {"tool": "x"}}, "The script cannot continue: there is no MCP server ''; the blueprint names none.", "script"),
        ({"pause": {"until": "gone", "seconds": 0.05}}, "The script cannot continue: ", "script"),
    ],
)
async def test_a_turn_that_fails_says_why(
    play: Play, reporter: RecordingReporter, step: Any, sentence: str, reason: str
) -> None:
    with pytest.raises(ExecutorFailure) as caught:
        await play([{"say": "so far"}, step], reporter)

    assert caught.value.sentence.startswith(sentence)
    assert caught.value.reason == reason
    assert reporter.texts == ["so far"]


@proves("scripted.steps")
async def test_a_pause_can_wait_for_a_file(play: Play, reporter: RecordingReporter, tmp_path: Path) -> None:
    playing = asyncio.create_task(play([{"say": "waiting"}, {"pause": {"until": "go"}}, {"result": "went"}], reporter))
    async with asyncio.timeout(SECONDS):
        await reporter.until(lambda: reporter.texts)
        assert not playing.done()
        (tmp_path / "project" / "go").touch()
        assert (await playing).text == "went"


@proves("scripted.placeholders", "scripted.process")
async def test_nothing_in_a_prompt_is_read_as_a_placeholder(play: Play, reporter: RecordingReporter) -> None:
    prompt = "{turn} {prompt.__class__} {saved.x} {0} {{}} %s\n\0\u2028é"

    finished = await play([{"result": '{"json": {prompt}, {other}, {}}'}], reporter, prompt)

    assert finished.text == '{"json": ' + prompt + ", {other}, {}}"


@proves("scripted.placeholders")
@given(prompt=st.text())
async def test_an_echo_repeats_every_prompt(tmp_path_factory: pytest.TempPathFactory, prompt: str) -> None:
    turn = make_turn(tmp_path_factory.getbasetemp(), prompt)

    assert (await ScriptedExecutor().carry_out(turn, RecordingReporter())).text == prompt


@proves("scripted.turns")
@pytest.mark.parametrize(("loop", "expected"), [(False, "a b c c c"), (True, "a b c a b")])
async def test_each_run_plays_the_next_turn(tmp_path: Path, loop: bool, expected: str) -> None:
    blueprint = scripted(*([{"result": text}] for text in "abc"), loop=loop)
    reporter, said = RecordingReporter(), []
    for _ in range(5):
        conversation = reporter.conversations[-1] if reporter.conversations else None
        turn = make_turn(tmp_path, blueprint=blueprint, conversation=conversation)
        said.append((await ScriptedExecutor().carry_out(turn, reporter)).text)

    assert " ".join(said) == expected
    assert reporter.conversations[0] == f"{turn.fresh}.1"


@proves("scripted.turns")
async def test_a_run_that_was_lost_counts(tmp_path: Path, reporter: RecordingReporter) -> None:
    blueprint = scripted([{"crash": 1}], [{"result": "again, {prompt}"}], process=True)
    with pytest.raises(ExecutorFailure):
        await ScriptedExecutor().carry_out(make_turn(tmp_path, blueprint=blueprint), reporter)

    resumed = make_turn(tmp_path, "go on", blueprint=blueprint, conversation=reporter.conversations[-1])

    assert (await ScriptedExecutor().carry_out(resumed, reporter)).text == "again, go on"


@proves("scripted.turns")
@pytest.mark.parametrize("conversation", ["", "abc", "abc.x", ".1"])
async def test_a_conversation_that_is_not_ours_is_lost(tmp_path: Path, reporter: RecordingReporter, conversation: str) -> None:
    with pytest.raises(ConversationLost):
        await ScriptedExecutor().carry_out(make_turn(tmp_path, conversation=conversation), reporter)

    assert reporter.conversations == []


@proves("scripted.checked")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"turns": []}, "The script has no turns."),
        ([], "The script is invalid: Expected `object`, got `array`."),
        ({"turns": [[{"say": "x"}]], "lop": True}, "unknown field `lop`"),
        ({"turns": [[{"say": "x"}, {"shout": "x"}]]}, "Turn 1, step 2 of the script is shout, but must be one of say"),
        ({"turns": [[], [{}]]}, "Turn 2, step 1 of the script is empty"),
        ({"turns": [[{"say": 3}]]}, "Turn 1, step 1 of the script (say) is invalid: Expected `str`, got `int`"),
        ({"turns": [[{"call": {"tol": "x"}}]]}, "(call) is invalid"),
        ({"turns": [[{"find": {"x": "("}}]]}, "(find) is invalid"),
        ({"turns": [[{"say": "x", "ask": "y"}]]}, "is say, ask"),
        (7, "Expected `object`"),
        ("missing.yaml", "missing.yaml cannot be read"),
        ("broken.yaml", "broken.yaml cannot be read"),
    ],
)
def test_an_invalid_script_is_refused_with_the_number_of_the_step(tmp_path: Path, script: Any, words: str) -> None:
    (tmp_path / "broken.yaml").write_text("turns: [", "utf-8")
    blueprint = Blueprint(name="a", description="", options={"script": script}, source=str(tmp_path / "a.md"))

    (problem,) = ScriptedExecutor().problems(blueprint)

    assert words in problem


@proves("scripted.checked")
def test_an_unknown_option_is_named(turn: Turn) -> None:
    blueprint = Blueprint(name="a", description="", options={"scripts": {}})

    assert ScriptedExecutor().problems(blueprint) == (
        "The executor scripted has no option scripts; it has process and script.",
    )


@proves("scripted.checked")
@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=5
    )
)
def test_whatever_a_script_holds_is_read_or_refused(raw: Any) -> None:
    blueprint = Blueprint(name="a", description="", options={"script": {"turns": [[{"call": raw}]]}})

    assert all("Turn 1, step 1" in problem for problem in ScriptedExecutor().problems(blueprint))


@proves("scripted.steps")
@pytest.mark.parametrize("directory", [True, False], ids=["directory", "file"])
async def test_a_script_can_be_a_file_next_to_the_blueprint(
    tmp_path: Path, reporter: RecordingReporter, directory: bool
) -> None:
    (tmp_path / "play.yaml").write_text("turns:\n  - - result: from a file\n", "utf-8")
    source = tmp_path if directory else tmp_path / "a.md"
    blueprint = Blueprint(name="a", description="", options={"script": "play.yaml"}, source=str(source))

    assert (await ScriptedExecutor().carry_out(make_turn(tmp_path, blueprint=blueprint), reporter)).text == "from a file"


@proves("scripted.process")
async def test_a_module_of_the_project_is_not_taken_for_one_of_ours(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, blueprint=scripted([{"result": "fine"}], process=True))
    (turn.directory / "msgspec.py").write_text("raise SystemExit('taken')", "utf-8")

    assert (await ScriptedExecutor().carry_out(turn, reporter)).text == "fine"


@proves("scripted.adopt")
async def test_a_scripted_process_is_adopted_with_its_question(tmp_path: Path) -> None:
    steps = [{"ask": "First?"}, {"say": "{answer}"}, {"ask": "Second?"}, {"result": "{answer}"}]
    turn = make_turn(tmp_path, blueprint=scripted(steps, process=True))
    reporter = RecordingReporter(Reply(text="one"))
    watching = asyncio.create_task(ScriptedExecutor().carry_out(turn, reporter))
    async with asyncio.timeout(SECONDS):
        await reporter.until(lambda: len(reporter.questions) == 2)
        reporter.is_detaching = True
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

        # Whoever goes on is told everything again, and answers the first question as it was answered before.
        after = RecordingReporter(Reply(text="one"), Reply(text="two"))
        assert await ScriptedExecutor().adopt(turn, reporter.processes[0], after) == TurnResult(text="two")

    assert after.texts == ["one"]
    assert [question.text for question in after.questions] == ["First?", "Second?"]


@proves("scripted.adopt")
async def test_what_is_played_in_the_host_cannot_be_adopted(turn: Turn, reporter: RecordingReporter) -> None:
    assert await ScriptedExecutor().adopt(turn, ProcessIdentity(1, ""), reporter) is None


@proves("scripted.process")
async def test_a_process_that_dies_while_a_question_is_open_is_noticed(tmp_path: Path, reporter: RecordingReporter) -> None:
    steps = [{"ask": {"text": "May I?", "kind": "question"}}, {"result": "Thanks."}]
    turn = make_turn(tmp_path, blueprint=scripted(steps, process=True))
    working = asyncio.create_task(ScriptedExecutor().carry_out(turn, reporter))
    async with asyncio.timeout(SECONDS):
        await reporter.until(lambda: reporter.questions)
        for identity in find_marked(turn.run):
            os.kill(identity.pid, signal.SIGKILL)
        with pytest.raises(ExecutorFailure):
            await working
