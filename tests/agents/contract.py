"""Contract tests for executors of real agents. A kind of agent runs them in a subclass with its harness:

class TestClaude(Contract):
    harness = ClaudeHarness()
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from fidelio.errors import ConversationLost, ExecutorFailure, LimitReached
from fidelio.orchestrator.executors.contract import Reply
from fidelio.processes.spooled import end_run_processes, find_marked
from fidelio.processes.table import send_signal
from tests.agents.bench import SYSTEM_PROMPT, Bench, Doorbell, Harness, bench
from tests.agents.model import Held, ModelCall, ModelText, Spent
from tests.agents.watcher import left_behind
from tests.orchestrator.executors.recording import RecordingReporter
from tests.support import proves

UNKNOWN = "11111111-2222-4333-8444-555555555555"
ALLOW, REFUSE = "allow", "refuse"


class Contract:
    """Everything is real but the model."""

    harness: Harness

    @proves("agents.turn", "agents.offline")
    async def test_a_turn_uses_our_own_server_and_is_reported_while_it_runs(self, tmp_path: Path) -> None:
        reporter = RecordingReporter()
        script = [ModelCall("list_workflows", spent=Spent(30, 3)), ModelText("There are three.", Spent(50, 5))]
        async with bench(self.harness, tmp_path, script) as place:
            finished = await place.carry_out(place.turn("/list --help which workflows there are"), reporter)

        assert finished.text == reporter.texts[-1] == "There are three."
        ((call, tool, _),) = reporter.calls
        ((returned, ok, text),) = reporter.returns
        assert "list_workflows" in tool
        assert (returned, ok, "hello" in text) == (call, True, True)
        assert (reporter.usages[-1].input_tokens, reporter.usages[-1].output_tokens) == (80, 8)
        assert len(reporter.processes) == 1
        assert reporter.bytes > 0
        check_what_the_model_heard(place)

    @proves("agents.resume")
    async def test_a_conversation_goes_on_in_a_new_process(self, tmp_path: Path) -> None:
        first, second = RecordingReporter(), RecordingReporter()
        async with bench(
            self.harness, tmp_path, [ModelText("I shall.", Spent(30, 3)), ModelText("Blue.", Spent(50, 5))]
        ) as place:
            await place.carry_out(place.turn("Remember blue."), first)
            again = place.turn("Which colour?", conversation=first.conversations[-1])
            finished = await place.carry_out(again, second)

        assert finished.text == "Blue."
        assert second.conversations[-1] == first.conversations[-1]
        heard = "\n".join(place.model.heard[-1].said)
        assert "Remember blue." in heard
        assert "Which colour?" in heard
        assert (second.usages[-1].input_tokens, second.usages[-1].output_tokens) == (50, 5)

    @proves("agents.killed")
    async def test_an_agent_that_was_killed_in_the_middle_of_a_tool_call_is_resumed(self, tmp_path: Path) -> None:
        bell = Doorbell(tmp_path / "project")
        reporter, after = RecordingReporter(), RecordingReporter()
        script = [self.harness.shell(f"echo on > {bell.path}; sleep 600"), ModelText("I am back.")]
        async with bench(self.harness, tmp_path, script) as place:
            turn = place.turn("Sleep.")
            working = asyncio.create_task(place.carry_out(turn, reporter))
            await bell.rings()
            for process in find_marked(turn.run):
                send_signal(process, signal.SIGKILL)
            with pytest.raises(ExecutorFailure) as failure:
                await working
            finished = await place.carry_out(place.turn("Go on.", conversation=reporter.conversations[-1]), after)

        assert failure.value.reason in {"vanished", "signal.SIGKILL"}
        assert finished.text == "I am back."
        heard = "\n".join(place.model.heard[-1].said)
        assert "Sleep." in heard
        assert "Go on." in heard

    @proves("agents.stop")
    async def test_a_stopped_agent_ends_with_its_command(self, tmp_path: Path) -> None:
        bell = Doorbell(tmp_path / "project")
        async with bench(self.harness, tmp_path, [self.harness.shell(f"echo on > {bell.path}; sleep 600")]) as place:
            turn = place.turn("Sleep.")
            working = asyncio.create_task(place.carry_out(turn, RecordingReporter()))
            await bell.rings()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working

            assert find_marked(turn.run) == []

    @proves("agents.stop")
    async def test_an_agent_is_stopped_while_its_model_thinks(self, tmp_path: Path) -> None:
        held = Held(ModelText("Too late."))
        async with bench(self.harness, tmp_path, [held]) as place:
            turn = place.turn("Think.")
            working = asyncio.create_task(place.carry_out(turn, RecordingReporter()))
            await place.model.asked(1)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working

            assert find_marked(turn.run) == []

    @proves("agents.limit")
    async def test_an_agent_that_reaches_a_limit_is_ended(self, tmp_path: Path) -> None:
        async with bench(self.harness, tmp_path, [ModelText(" ".join(map(str, range(20_000))))]) as place:
            turn = place.turn("Say a lot.")
            with pytest.raises(LimitReached):
                await place.carry_out(turn, RecordingReporter(most_bytes=50_000))

            assert find_marked(turn.run) == []

    @proves("agents.leave")
    @pytest.mark.parametrize(("option", "is_made"), [(ALLOW, True), (REFUSE, False)])
    async def test_a_change_needs_approval_and_the_answer_is_applied(self, tmp_path: Path, option: str, is_made: bool) -> None:
        made = tmp_path / "made"
        reporter = RecordingReporter(Reply(option=option))
        async with bench(self.harness, tmp_path, [self.harness.shell(f"touch {made}", asks=True), ModelText("Done.")]) as place:
            finished = await place.carry_out(place.turn("Make it.", mode="ask"), reporter)

        (question,) = reporter.questions
        assert question.kind == "permission"
        assert {ALLOW, REFUSE} <= {name for name, _ in question.options}
        assert f"touch {made}" in question.text
        assert (finished.text, made.exists()) == ("Done.", is_made)

    @proves("agents.leave")
    async def test_a_read_only_agent_is_refused_without_a_question(self, tmp_path: Path) -> None:
        made = tmp_path / "made"
        reporter = RecordingReporter()
        async with bench(
            self.harness, tmp_path, [self.harness.shell(f"touch {made}", asks=True), ModelText("I may not.")]
        ) as place:
            finished = await place.carry_out(place.turn("Make it.", mode="read"), reporter)

        assert (finished.text, reporter.questions, made.exists()) == ("I may not.", [], False)

    @proves("agents.unknown-conversation")
    async def test_a_conversation_that_the_agent_does_not_know_is_reported_as_lost(self, tmp_path: Path) -> None:
        async with bench(self.harness, tmp_path, [ModelText("Who are you?")]) as place:
            with pytest.raises(ConversationLost):
                await place.carry_out(place.turn("Go on.", conversation=UNKNOWN), RecordingReporter())

        assert place.model.heard == []

    @proves("agents.adopted")
    async def test_an_agent_whose_watcher_died_is_adopted_with_the_question_it_waits_for(self, tmp_path: Path) -> None:
        made = tmp_path / "made"
        reporter = RecordingReporter(Reply(option=ALLOW))
        async with bench(self.harness, tmp_path, [self.harness.shell(f"touch {made}", asks=True), ModelText("Done.")]) as place:
            turn = place.turn("Make it.", mode="ask")
            process = await left_behind(self.harness, turn, until="asked")
            try:
                finished = await place.adopt(turn, process, reporter)
            finally:
                await stop(turn.run)

        if self.harness.can_be_adopted:
            assert finished is not None
            assert (finished.text, made.exists(), len(reporter.questions)) == ("Done.", True, 1)
        else:
            assert (finished, made.exists()) == (None, False)


async def stop(run: str) -> None:
    """What the orchestrator does with an agent that cannot be adopted."""
    await end_run_processes(run, grace=1.0)


def check_what_the_model_heard(place: Bench) -> None:
    """The prompt and the system prompt are data: none of their words is taken for an option or a command."""
    heard = place.model.heard[0]
    assert "/list --help which workflows there are" in "\n".join(heard.said)
    assert SYSTEM_PROMPT in "\n".join([heard.system, *heard.said])
    assert place.model.strays == []
