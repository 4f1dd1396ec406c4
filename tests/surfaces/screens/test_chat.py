"""A chat at a terminal: what the agent asks for is answered by keys, as everywhere."""

from __future__ import annotations

import json

import pytest

from tests.conductor.run_setup import RunSetup
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.screens.conftest import AtTerminal
from tests.surfaces.screens.terminal import ENTER, ESCAPE, UP

CHAT = ("chat", "--model", "scripted:demo", "--new")
KEYS = "Arrow keys and Enter, or a number. y allows, n denies. t adds a comment."


@proves("answers.in-place", "runtime-cli.chat")
@pytest.mark.parametrize(
    ("keys", "printed"),
    [
        (UP * 2 + ENTER, "its bytes are counted"),
        ("1", "its bytes are counted"),
        ("y", "its bytes are counted"),
        ("n", "I was not allowed"),
        ("tNo.\r2", "I was not allowed"),
    ],
)
async def test_a_chat_is_answered_by_arrow_keys_number_letter_and_text(
    at_terminal: AtTerminal, keys: str, printed: str
) -> None:
    async with at_terminal(*CHAT, rows=60) as terminal:
        await terminal.until("\n>")
        terminal.press("Write hello.\r")
        await terminal.until(KEYS)
        assert "▸ s  answer later" in terminal.text
        assert "Empty: later" not in terminal.text
        terminal.press(keys)
        await terminal.until(printed)
        await terminal.until(lambda: terminal.lines[terminal.screen.cursor.y].startswith(">"))
        assert KEYS not in terminal.text
        # Lines are read again.
        terminal.press("Anything else?\r")
        await terminal.until("I am a scripted model.")
        terminal.press("\x04")
        assert await terminal.wait() == 0
    assert all(len(line) <= 80 for line in terminal.history)


@proves("answers.in-place", "runtime-cli.chat")
async def test_a_question_that_is_left_open_stays_so_and_the_chat_goes_on(
    at_terminal: AtTerminal, setup: RunSetup, place: dict[str, str]
) -> None:
    async with at_terminal(*CHAT, rows=60) as terminal:
        await terminal.until("\n>")
        terminal.press("Write hello.\r")
        await terminal.until(KEYS)
        terminal.press(ESCAPE)
        await terminal.until("It stays open: fidelio answer r_")
        await terminal.until(lambda: terminal.lines[terminal.screen.cursor.y].startswith(">"))
        terminal.press("\x04")
        assert await terminal.wait() == 0
    listed = json.loads(run_fidelio(("inbox", "--json"), environ=place, directory=setup.project).stdout)["items"]

    assert [request["state"] for request in listed] == ["open"]


@proves("answers.slower-is-told")
async def test_a_chat_says_whose_answer_counts(at_terminal: AtTerminal, setup: RunSetup, place: dict[str, str]) -> None:
    async with at_terminal(*CHAT, rows=60) as terminal:
        await terminal.until("\n>")
        terminal.press("Write hello.\r")
        await terminal.until(KEYS)
        (request,) = json.loads(run_fidelio(("inbox", "--json"), environ=place, directory=setup.project).stdout)["items"]
        answered = run_fidelio(("answer", request["id"], "deny"), environ=place, directory=setup.project)
        assert answered.returncode == 0, answered.stderr
        await terminal.until("Answered elsewhere: deny")
        await terminal.until("I was not allowed")
        await terminal.until(lambda: terminal.lines[terminal.screen.cursor.y].startswith(">"))
        terminal.press("\x04")
        assert await terminal.wait() == 0


@proves("runtime-cli.chat")
async def test_ctrl_c_interrupts_an_agent_that_asks(at_terminal: AtTerminal) -> None:
    async with at_terminal(*CHAT, rows=60) as terminal:
        await terminal.until("\n>")
        terminal.press("Write hello.\r")
        await terminal.until(KEYS)
        terminal.interrupt()
        await terminal.until("Interrupting. Ctrl-C again leaves.")
        await terminal.until("The person has interrupted")
        await terminal.until(lambda: terminal.lines[terminal.screen.cursor.y].startswith(">"))
        assert KEYS not in terminal.text
        terminal.press("\x04")
        assert await terminal.wait() == 0
