"""Behaviour of turns that only Claude Code has: settings, permissions, questions and input."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from fidelio.orchestrator.blueprints.model import Limits, Permissions
from fidelio.orchestrator.executors.claude import stream as claude_stream
from fidelio.orchestrator.executors.contract import Reply
from fidelio.processes.spooled import find_marked
from tests.agents.bench import SYSTEM_PROMPT, bench
from tests.agents.harness_claude import ClaudeHarness
from tests.agents.model import Held, ModelCall, ModelText, Spent
from tests.orchestrator.executors.recording import RecordingReporter
from tests.support import proves

CLAUDE = ClaudeHarness()
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
COLOURS = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Red", "description": "Like fire."}, {"label": "Blue", "description": "Like water."}],
}


def bash(command: str, **more: object) -> ModelCall:
    return ModelCall("Bash", {"command": command, "description": "Does it.", **more})


def remember(directory: Path, word: str, mark: Path) -> None:
    """A memory with the word, and a setting that makes the file `mark` whenever a prompt comes in."""
    hook = {"hooks": [{"type": "command", "command": f"touch {mark}"}]}
    settings = directory / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"hooks": {"UserPromptSubmit": [hook]}}), "utf-8")
    (settings.parent / "CLAUDE.md").write_text(word, "utf-8")


@proves("agents.claude-isolated")
@pytest.mark.parametrize("sources", [[], ["user"], ["project"]])
async def test_settings_and_memories_are_read_only_where_the_blueprint_says_so(tmp_path: Path, sources: list[str]) -> None:
    places = {"user": tmp_path / "home", "project": tmp_path / "project"}
    async with bench(CLAUDE, tmp_path, [ModelText("Yes.")]) as place:
        turn = place.turn("Hello.", options={"setting_sources": sources})
        for name, directory in places.items():
            remember(directory, f"memory-of-{name}", tmp_path / f"mark-of-{name}")
        await place.carry_out(turn, RecordingReporter())

    heard = json.dumps(place.model.heard[0].body)
    assert [name for name in places if f"memory-of-{name}" in heard] == sources
    assert [name for name in places if (tmp_path / f"mark-of-{name}").exists()] == sources


@proves("agents.question")
@pytest.mark.parametrize(
    ("reply", "answer"), [(Reply(option="Blue"), "Blue"), (Reply(option="other", text="Green, please"), "Green, please")]
)
async def test_what_the_model_asks_a_person_is_answered_by_one(tmp_path: Path, reply: Reply, answer: str) -> None:
    reporter = RecordingReporter(reply)
    async with bench(CLAUDE, tmp_path, [ModelCall("AskUserQuestion", {"questions": [COLOURS]}), ModelText("I see.")]) as place:
        await place.carry_out(place.turn("Paint."), reporter)

    (question,) = reporter.questions
    assert (question.kind, question.text) == ("question", "Which colour?\n\n- Red: Like fire.\n- Blue: Like water.")
    assert [name for name, _ in question.options] == ["Red", "Blue", "other"]
    assert f'"Which colour?"="{answer}"' in place.model.heard[-1].seen[-1].text


@proves("agents.claude-schema")
async def test_a_structured_result_is_data(tmp_path: Path) -> None:
    async with bench(CLAUDE, tmp_path, [ModelCall("StructuredOutput", {"count": 3})]) as place:
        finished = await place.carry_out(place.turn("Count.", output_schema=SCHEMA), RecordingReporter())

    assert finished.data == {"count": 3}


@proves("agents.claude-permissions")
async def test_permission_for_similar_calls_is_asked_once(tmp_path: Path) -> None:
    reporter = RecordingReporter(Reply(option="allow-always"))
    async with bench(CLAUDE, tmp_path, [bash("touch made"), bash("touch made again"), ModelText("Done.")]) as place:
        finished = await place.carry_out(place.turn("Make it.", mode="ask"), reporter)

    assert (finished.text, len(reporter.questions), (place.project / "again").exists()) == ("Done.", 1, True)
    assert not (place.project / ".claude").exists(), "leave for a turn is not written into the project"


@proves("agents.claude-permissions")
async def test_a_refusal_tells_the_model_why(tmp_path: Path) -> None:
    reporter = RecordingReporter(Reply(option="refuse", text="Use the other door."))
    async with bench(CLAUDE, tmp_path, [bash("touch made"), ModelText("I shall.")]) as place:
        await place.carry_out(place.turn("Make it.", mode="ask"), reporter)

    assert "Use the other door." in place.model.heard[-1].seen[-1].text
    assert reporter.returns[-1][1] is False


@proves("agents.claude-permissions")
async def test_what_the_blueprint_allows_is_not_asked_and_what_it_denies_is_not_offered(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    permissions = Permissions(mode="ask", allow=("Bash(touch *)",), deny=("Write",))
    async with bench(CLAUDE, tmp_path, [bash("touch made"), ModelText("Done.")]) as place:
        await place.carry_out(place.turn("Make it.", permissions=permissions), reporter)

    assert (reporter.questions, (place.project / "made").exists()) == ([], True)
    assert "Write" not in {tool.name for tool in place.model.heard[0].tools}


@proves("agents.claude-permissions")
async def test_an_editing_agent_writes_project_files_and_asks_for_the_rest(tmp_path: Path) -> None:
    reporter = RecordingReporter(Reply(option="refuse"))
    made, outside = tmp_path / "project" / "made", tmp_path / "outside"
    script = [ModelCall("Write", {"file_path": str(made), "content": "x"}), bash(f"touch {outside}"), ModelText("Done.")]
    async with bench(CLAUDE, tmp_path, script) as place:
        await place.carry_out(place.turn("Make it.", mode="edit"), reporter)

    assert (made.exists(), outside.exists(), len(reporter.questions)) == (True, False, 1)


@proves("agents.turn")
async def test_a_prompt_that_is_a_command_of_the_agent_is_a_prompt(tmp_path: Path) -> None:
    async with bench(CLAUDE, tmp_path, [ModelText("Clear.")]) as place:
        finished = await place.carry_out(place.turn("/clear"), RecordingReporter())

    assert finished.text == "Clear."
    assert "/clear" in place.model.heard[0].said


def command_lines(run: str) -> list[str]:
    return [Path(f"/proc/{process.pid}/cmdline").read_text("utf-8") for process in find_marked(run)]


@proves("agents.claude-private")
async def test_no_prompt_is_on_the_command_line_or_in_a_readable_file(tmp_path: Path) -> None:
    held = Held(ModelText("Done."))
    async with bench(CLAUDE, tmp_path, [held]) as place:
        turn = place.turn("The password is swordfish.")
        working = asyncio.create_task(place.carry_out(turn, RecordingReporter()))
        await place.model.asked(1)
        commands = command_lines(turn.run)
        held.release()
        await working

    assert commands
    assert all("swordfish" not in command and SYSTEM_PROMPT not in command for command in commands)
    written = [file for file in turn.spool.iterdir() if file.suffix in {".md", ".json"}]
    assert {file.name for file in written} == {"settings.json", "mcp.json", "system-prompt.md"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in written} == {0o600}


@proves("agents.claude-cost")
async def test_a_resumed_turn_costs_what_it_adds(tmp_path: Path) -> None:
    first, second = RecordingReporter(), RecordingReporter()
    async with bench(CLAUDE, tmp_path, [ModelText("One.", Spent(1000, 1000)), ModelText("Two.", Spent(2000, 2000))]) as place:
        await place.carry_out(place.turn("First."), first)
        limits = Limits(cost_usd=first.usages[-1].cost_usd * 2.5)
        await place.carry_out(place.turn("Second.", conversation=first.conversations[-1], limits=limits), second)

    assert first.usages[-1].cost_usd > 0
    assert second.usages[-1].cost_usd == pytest.approx(2 * first.usages[-1].cost_usd)
    assert second.usages[-1].turns == 1


@proves("agents.claude-background")
async def test_what_an_agent_left_in_the_background_does_not_keep_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_stream, "LINGER_SECONDS", 1.0)
    async with bench(CLAUDE, tmp_path, [bash("sleep 600", run_in_background=True), ModelText("It runs.")]) as place:
        turn = place.turn("Start it.")
        finished = await place.carry_out(turn, RecordingReporter())

        assert finished.text == "It runs."
        assert find_marked(turn.run) == []


@proves("agents.claude-background")
async def test_an_agent_that_goes_on_when_its_command_has_ended_is_still_answered(tmp_path: Path) -> None:
    reporter = RecordingReporter(Reply(option="allow"), Reply(option="allow"))
    script = [bash("touch a; sleep 1", run_in_background=True), ModelText("It runs."), bash("touch b"), ModelText("It ran.")]
    async with bench(CLAUDE, tmp_path, script) as place:
        finished = await place.carry_out(place.turn("Start it.", mode="ask"), reporter)

    assert (finished.text, len(reporter.questions), (place.project / "b").exists()) == ("It ran.", 2, True)


@proves("agents.turn")
async def test_a_long_prompt_arrives_whole(tmp_path: Path) -> None:
    prompt = "".join(f"Line {number} of a long letter.\n" for number in range(20_000))
    async with bench(CLAUDE, tmp_path, [ModelText("Read.")]) as place:
        await place.carry_out(place.turn(prompt), RecordingReporter())

    assert prompt.strip() in "\n".join(place.model.heard[0].said)
