"""Questions that are answered where a person sits, as pictures of a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec
import pytest

from fidelio.home import Home
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession, OpenRequest, Request
from fidelio.processes.table import AGENT_MARKER
from fidelio.surfaces.cli.prompting import Answer as MenuAnswer
from fidelio.surfaces.cli.prompting import Menu, explain_options
from fidelio.surfaces.cli.runtime.answers import Answer as ChatAnswer
from fidelio.surfaces.cli.runtime.answers import read_answer
from fidelio.surfaces.text import Layout
from tests.conductor.run_setup import RunSetup
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.screens.conftest import AtTerminal
from tests.surfaces.screens.terminal import BACKSPACE, DOWN, ENTER, ESCAPE, UP, run_in_terminal

SESSION = "s_000000000001"
OPTIONS: tuple[dict[str, object], ...] = (
    {"id": "warm", "label": "A warm note", "effect": {}},
    {"id": "brief", "label": "A brief note", "effect": {}},
)


async def open_requests(home: Path, *requests: OpenRequest) -> None:
    Home(home).ensure()
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.commit(Change(session=SESSION, create=NewSession(kind="agent", name="player")))
        for request in requests:
            await ledger.commit(Change(session=SESSION, events=(NewEvent(type="asked"),), requests=(request,)))


def ask(name: str, *, kind: str = "checkpoint", options: tuple[dict[str, object], ...] = OPTIONS) -> OpenRequest:
    return OpenRequest(id=name, kind=kind, key=name, question=f"What about {name}?", options=options, detail={})


def make_request(options: Sequence[Mapping[str, object]]) -> Request:
    fields = dict.fromkeys(("subject", "answered_by", "channel", "assurance"), "")
    about = {"id": "r_one", "session": SESSION, "kind": "question", "key": "k", "question": "How?", "options": options}
    closed = {"state": "open", "detail": {}, "answer": {}, "opened_at": 0, "closed_at": None, "expires_at": None}
    return msgspec.convert({**fields, **about, **closed}, Request)


async def answer_of(home: Path, request: str) -> dict[str, object]:
    async with await open_ledger(home / "ledger.db") as ledger:
        return (await ledger.request(request)).answer


@proves("answers.in-place")
@pytest.mark.parametrize("columns", [80, 120])
async def test_answer_asks_all_that_wait_one_after_the_other(at_terminal: AtTerminal, setup: RunSetup, columns: int) -> None:
    await open_requests(setup.home, ask("r_one"), ask("r_two"), ask("r_three"), ask("r_four", options=()))

    async with at_terminal("answer", columns=columns) as terminal:
        await terminal.until("What about r_one?")
        await terminal.until("▸ 1  warm   A warm note")
        terminal.press(DOWN)
        await terminal.until("▸ 2  brief  A brief note")
        terminal.press(ENTER)
        await terminal.until("Answered: brief.")
        await terminal.until("What about r_two?")
        await terminal.until("answer later")
        terminal.press("1")
        await terminal.until("What about r_three?")
        await terminal.until(lambda: terminal.text.count("answer later") == 1)
        terminal.press(UP)
        await terminal.until("▸ s  answer later")
        terminal.press(ENTER)
        await terminal.until("It stays open: fidelio answer r_three")
        await terminal.until("Answer: _")
        terminal.press("Playy" + BACKSPACE)
        await terminal.until("Answer: Play_")
        terminal.press(ENTER)
        assert await terminal.wait() == 0
        assert all(len(line) <= columns for line in terminal.history)
        # A menu that was answered leaves nothing behind.
        assert "Arrow keys" not in "\n".join(terminal.history)

    answers = [await answer_of(setup.home, name) for name in ("r_one", "r_two", "r_three", "r_four")]
    assert answers == [{"option": "brief"}, {"option": "warm"}, {}, {"option": "", "text": "Play"}]


@proves("answers.in-place")
async def test_a_comment_is_typed_before_the_option_is_chosen(at_terminal: AtTerminal, setup: RunSetup) -> None:
    await open_requests(setup.home, ask("r_one"))

    async with at_terminal("answer", "r_o") as terminal:
        await terminal.until("Arrow keys")
        terminal.press("t")
        await terminal.until("Comment: _")
        terminal.press("Shorter.\r")
        await terminal.until("Comment: Shorter.\n")
        terminal.press("2")
        assert await terminal.wait() == 0

    assert await answer_of(setup.home, "r_one") == {"option": "brief", "text": "Shorter."}


@proves("answers.in-place")
async def test_a_terminal_that_gets_narrower_shows_one_menu(at_terminal: AtTerminal, setup: RunSetup) -> None:
    explained = (
        {**OPTIONS[0], "description": "It is longer, and it says what everybody has done for the concert."},
        OPTIONS[1],
    )
    await open_requests(setup.home, ask("r_one", options=explained))

    async with at_terminal("answer", "r_one", columns=80) as terminal:
        await terminal.until("Arrow keys")
        above = terminal.lines[: terminal.lines.index("  ▸ 1  warm   A warm note")]
        assert max(map(len, terminal.lines)) > 50
        terminal.resize(50)
        for mark in ("▸ 2  brief", "▸ s  answer later", "▸ 1  warm"):
            terminal.press(DOWN)
            await terminal.until(mark)
            await terminal.until(lambda: terminal.text.endswith("t adds a comment.") or terminal.text.endswith("…"))
            assert terminal.text.count("A brief note") == terminal.text.count("answer later") == 1
            assert [line for line in above if len(line) <= 50] == [line for line in above if line in terminal.lines]
        terminal.press("2")
        assert await terminal.wait() == 0

    assert await answer_of(setup.home, "r_one") == {"option": "brief"}


@proves("answers.slower-is-told")
async def test_whoever_is_slower_is_told_whose_answer_counts(at_terminal: AtTerminal, setup: RunSetup) -> None:
    await open_requests(setup.home, ask("r_one"))

    async with at_terminal("answer", "r_one") as terminal:
        await terminal.until("Arrow keys")
        async with await open_ledger(setup.home / "ledger.db") as ledger:
            await Inbox(ledger).answer("r_one", "warm", by="person:ops", channel="web")
        await terminal.until("Answered elsewhere: warm,")
        assert "by person:ops" in terminal.text
        assert await terminal.wait() == 0


@proves("answers.in-place")
async def test_enter_alone_never_allows_a_tool(at_terminal: AtTerminal, setup: RunSetup) -> None:
    allow: tuple[dict[str, object], ...] = ({"id": "allow", "label": "Allow"}, {"id": "deny", "label": "Deny"})
    await open_requests(setup.home, ask("r_one", kind="tool_approval", options=allow))

    async with at_terminal("answer", "r_one") as terminal:
        # What was typed before the question appeared is no answer to it either.
        terminal.press("\r1\r")
        await terminal.until("▸ s  answer later")
        terminal.press(ENTER)
        assert await terminal.wait() == 0

    assert await answer_of(setup.home, "r_one") == {}


@proves("answers.in-place")
@pytest.mark.parametrize("key", ["y", "n"])
def test_a_letter_answers_only_where_something_is_allowed(key: str) -> None:
    assert Menu(("allow", "deny"), at=2).press(key) == MenuAnswer({"y": "allow", "n": "deny"}[key])
    assert Menu(("warm", "brief")).press(key) == Menu(("warm", "brief"))


@proves("answers.agents-never")
async def test_an_agent_at_a_terminal_is_not_asked(setup: RunSetup, place: dict[str, str]) -> None:
    await open_requests(setup.home, ask("r_one"))

    environ = {**place, AGENT_MARKER: "s_000000000000.1"}
    async with run_in_terminal("answer", environ=environ, directory=setup.project) as terminal:
        assert await terminal.wait() == 2
        assert "only a person may do this" in terminal.text
    assert await answer_of(setup.home, "r_one") == {}


@proves("answers.in-place")
async def test_a_run_asks_its_question_and_goes_on(at_terminal: AtTerminal) -> None:
    async with at_terminal("run", "hello", "--agent", "robot") as terminal:
        await terminal.until("Arrow keys")
        assert "greet" in terminal.text
        terminal.press("2")
        await terminal.until("Answered: brief.")
        await terminal.until("completed. See: `fidelio report s_")
        assert await terminal.wait() == 0
        assert all(len(line) <= 80 for line in terminal.history)
        # The tree that is drawn afterwards covers neither the question nor the answer.
        shown = "\n".join(terminal.history)
        assert re.search(r"I have looked around.*Only a person may answer.*Answered: brief\..*✓ greet", shown, re.DOTALL)


@proves("answers.in-place")
async def test_an_agent_that_was_started_is_answered_in_place(at_terminal: AtTerminal, setup: RunSetup) -> None:
    question = {"text": "May I play louder?", "kind": "question", "options": {"louder": "Louder", "no": "Not now"}}
    setup.write_blueprint("loud", {"turns": [[{"ask": question}, {"result": "Done."}]]})

    async with at_terminal("agents", "start", "one", "Play.", "-b", "loud") as terminal:
        await terminal.until("May I play louder?")
        await terminal.until("Arrow keys")
        terminal.press(ENTER)
        await terminal.until("Answered: louder.")
        await terminal.until("Done.")
        assert await terminal.wait() == 0


@proves("answers.in-place", "screens.width")
async def test_the_server_of_the_demo_says_where_the_page_is_and_asks_in_its_own_terminal(at_terminal: AtTerminal) -> None:
    async with at_terminal("up", "--demo", "--port", "0", rows=60) as terminal:
        await terminal.until("Arrow keys")
        welcome, _, question = terminal.text.partition("Ctrl-C stops the server.")
        # The link comes first, and it is one line for the terminal, so that it can be clicked and copied.
        lines = [click.unstyle(line) for line in terminal.raw.decode().split("\r\n")]
        assert [line[:23] for line in lines[:2]] == ["Fidelio leads agents th", "  your browser: http://"]
        assert [line for line in lines if len(line) > 80 and " http" not in line] == []
        assert "Authorization: Bearer" in welcome
        # An option is shown once, with what it means.
        assert question.count("A few friendly sentences") == question.count("A warm note") == 1
        assert question.index("1  warm ") < question.index("A few friendly sentences") < question.index("2  brief")
        assert ("entered greet" in question, "called" in question) == (True, False)
        terminal.press("1")
        await terminal.until("The workflow has ended")
        assert all(len(line) <= 80 for line in terminal.history)
        terminal.interrupt()
        assert await terminal.wait() == 130


@proves("answers.in-place")
def test_a_menu_explains_its_options_unless_that_would_fill_the_screen() -> None:
    def explain(*descriptions: str, label: str = "Label") -> list[list[str]] | None:
        options = [{"id": str(at), "label": label, "description": text} for at, text in enumerate(descriptions)]
        return explain_options(make_request(options), Layout(80))

    assert explain("What it means.", "") == [["       │ What it means."], []]
    # A label that is cut on its own line is repeated below it.
    assert explain("", label="word " * 20) == [[f"       │ {'word ' * 14}".rstrip(), f"       │ {'word ' * 6}".rstrip()]]
    assert explain(*["word " * 60] * 3) is None


@proves("answers.in-place")
async def test_a_menu_with_more_options_than_the_screen_has_lines_moves_with_the_mark(
    at_terminal: AtTerminal, setup: RunSetup
) -> None:
    options: tuple[dict[str, object], ...] = tuple(
        {"id": f"o{number:02}", "label": "A label", "description": "What it is."} for number in range(40)
    )
    await open_requests(setup.home, ask("r_one", options=options))

    async with at_terminal("answer", "r_one", rows=24) as terminal:
        await terminal.until("(22 below)")
        for _ in range(20):
            terminal.press(DOWN)
        await terminal.until("▸    o20  A label")
        assert re.search(r"\(11 above\)\n", terminal.text)
        assert terminal.text.count("o20") == terminal.text.count("answer later") == 1
        terminal.press(ENTER)
        assert await terminal.wait() == 0

    assert await answer_of(setup.home, "r_one") == {"option": "o20"}


@proves("answers.lists-options")
async def test_without_a_terminal_the_options_are_listed(setup: RunSetup, place: dict[str, str]) -> None:
    await open_requests(setup.home, ask("r_one"), ask("r_two", options=()))

    def run(*words: str) -> tuple[int, str, str]:
        done = run_fidelio(words, environ=place, directory=setup.project)
        return done.returncode, done.stdout, done.stderr

    code, printed, error = run("answer", "r_one")
    assert (code, "Option brief" in printed) == (2, True)
    assert "needs an option: warm, brief." in error
    code, _, error = run("answer", "r_two", "--json")
    assert (code, json.loads(error)["error"]["code"]) == (2, "usage")
    assert run("answer") == (
        2,
        "",
        "fidelio: answer needs REQUEST where nobody can be asked. `fidelio inbox` lists the requests, and their options.\n",
    )


@proves("answers.in-place")
async def test_escape_leaves_the_question_open_and_restores_the_terminal(at_terminal: AtTerminal, setup: RunSetup) -> None:
    await open_requests(setup.home, ask("r_one"))

    async with at_terminal("answer", "r_one") as terminal:
        await terminal.until("Arrow keys")
        terminal.press(ESCAPE)
        await terminal.until("It stays open: fidelio answer r_one")
        assert await terminal.wait() == 0


@proves("answers.in-place")
def test_a_number_answers_in_a_chat_too() -> None:
    request = make_request(OPTIONS)

    assert read_answer(request, "2") == ChatAnswer("text", "brief")
    assert read_answer(request, "warm") == ChatAnswer("text", "warm")
    assert read_answer(request, "3") == ChatAnswer("text", "3")
    assert read_answer(request, "") == ChatAnswer("later")
