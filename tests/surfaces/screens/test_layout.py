"""What every screen promises: it fits, breaks no words, speaks in words, and is plain where it is no terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import click
import pytest

from fidelio.surfaces.cli.main import cli
from fidelio.surfaces.commands import COMMANDS, SECTIONS
from fidelio.surfaces.text import Layout, measure
from tests.conductor.run_setup import RunSetup
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.screens.conftest import AtTerminal
from tests.surfaces.screens.terminal import run_in_terminal

# Commands that say something in sentences, also where there is nothing.
SENTENCES = (
    "tour", "trace last", "report last", "verify --all", "keys", "trust", "vaults list", "webhooks list", "passkeys list",
    "inbox", "answer", "runtime agents", "runtime sessions", "new mine", "init --dry-run --all", "search nothing",
)  # fmt: skip
LONG = "A description with many words, which goes on and on until it needs more than a line of the table. " * 3


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*words, name))


@proves("screens.width")
@pytest.mark.parametrize("columns", [80, 120])
def test_every_help_page_fits_and_cuts_no_sentence(setup: RunSetup, place: dict[str, str], columns: int) -> None:
    for words, command in commands(cli):
        done = run_fidelio((*words, "--help"), environ={**place, "COLUMNS": str(columns)}, directory=setup.project)
        assert done.returncode == 0, words
        assert max(map(len, done.stdout.splitlines())) <= columns, words
        # No word is broken at its hyphen, and a number is called one.
        assert not re.search(r"\w-\n| RANGE\b", done.stdout), words
        if isinstance(command, click.Group):
            section = done.stdout.partition("Commands:\n")[2]
            assert "..." not in section, words


@proves("screens.help")
def test_the_first_help_page_lists_every_command_in_the_section_where_people_look(
    place: dict[str, str], setup: RunSetup
) -> None:
    page = run_fidelio((), environ={**place, "COLUMNS": "80"}, directory=setup.project).stdout
    listed = [name for names in SECTIONS.values() for name in names]

    assert sorted(listed) == sorted(name for name, (_, summary) in COMMANDS.items() if summary)
    assert re.findall(r"^([A-Z]\w+):$", page, re.MULTILINE) == ["Options", *SECTIONS]
    rows = re.findall(r"^  ([a-z]+) +(?=[A-Z])", page.partition("Begin:")[2], re.MULTILINE)
    assert rows == listed
    # All descriptions begin in the same column.
    assert len({len(row) for row in re.findall(r"^  [a-z]+ +(?=[A-Z])", page.partition("Begin:")[2], re.MULTILINE)}) == 1


@proves("screens.width")
@pytest.mark.parametrize("columns", [80, 120])
async def test_lists_fit_the_terminal(at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str], columns: int) -> None:
    run_fidelio(
        ("agents", "start", "a-rather-long-name-of-an-agent-session", "Play.", "-b", "player"),
        environ=place,
        directory=concert.project,
    )
    for command in (
        ["list"],
        ["sessions"],
        ["agents", "list"],
        ["agents", "blueprints"],
        ["doctor"],
        ["events", "last"],
        ["agents", "status", "last"],
        *([command.split() for command in SENTENCES] if columns == 80 else ()),
    ):
        async with at_terminal(*command, columns=columns, rows=60) as terminal:
            assert await terminal.wait() in (0, 1), terminal.text
            # pyte would wrap a longer line, and the line below would begin with its rest. A path is never broken, to be copied.
            lines = [click.unstyle(line) for line in terminal.raw.decode().split("\r\n")]
            assert not [line for line in lines if len(line) > columns and max(map(len, line.split())) < columns // 2], command


@proves("screens.width")
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_table_fits_and_breaks_no_word(columns: int) -> None:
    rows = [{"id": "s_000000000001", "path": "/0123456789" * 9, "text": LONG}, {"id": "b", "path": "p", "text": "t"}]
    lines = list(Layout(columns).format_table(rows, ["id", "path", "text"], ["path", "text"]))

    assert max(map(measure, lines)) <= columns
    words = set(re.findall(r"[A-Za-z]+", LONG)) | {"ID", "PATH", "TEXT", "s", "b", "p", "t", "text"}
    if columns == 120:
        assert set(re.findall(r"[A-Za-z]+", " ".join(lines))) <= words
    # A line that goes on inside of a cell does not look like a line of ours.
    assert all("│" in line or line[:1] != " " for line in lines)


@proves("screens.width")
def test_a_table_that_cannot_fit_becomes_a_block_for_each_row() -> None:
    rows = [{"id": "s_000000000001", "name": "x" * 30, "state": "stopped", "text": "short"}]
    lines = list(Layout(40).format_table(rows, ["id", "name", "state", "text"], ["text"]))

    assert lines == ["s_000000000001", f"  name   {'x' * 30}", "  state  stopped", "  text   short"]


@proves("screens.run")
async def test_the_tree_shows_activity_step_agent_tokens_and_cost(at_terminal: AtTerminal, concert: RunSetup) -> None:
    command = ("run", "concert", "--agent", "tuner", "--activity-agent", "play=player", "--workflows", str(concert.workflows))
    for columns in (80, 120):
        async with at_terminal(*command, "--new", columns=columns) as terminal:
            await terminal.until("I look at the strings")
            tree = terminal.text
            (concert.root / "gate").touch()
            assert await terminal.wait() == 0, terminal.text
            done = terminal.text
        (concert.root / "gate").unlink()

        assert re.search(r"concert  s_\w+  \d+:\d\d  1,200 tokens  \$0\.25", tree)
        assert re.search(r"└── ▸ tune  tuner +\d+:\d\d  1,200 tokens  \$0\.25", tree)
        assert "    ├── step tune-step\n" in tree
        assert "    └── I look at the strings of all the instruments" in tree
        assert re.search(r"├── ✓ tune  tuner +\d+:\d\d  1,200 tokens  \$0\.25\n└── ✓ play  player", done)
        # The tree that was drawn last is the only one that is left.
        assert done.count("concert  s_") == 1


@proves("screens.run")
def test_a_log_gets_whole_lines(concert: RunSetup, place: dict[str, str]) -> None:
    (concert.root / "gate").touch()
    command = ("run", "concert", "--agent", "tuner", "--activity-agent", "play=player", "--workflows", str(concert.workflows))
    done = run_fidelio(command, environ=place, directory=concert.project)

    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first.startswith("concert begins as s_")
    # No line is wrapped, also where it is longer than a terminal would be.
    assert all(re.match(r" +\d+:\d\d  \S", line) for line in lines)
    assert max(map(len, lines)) > 80
    assert "\x1b" not in done.stdout


@proves("screens.words")
async def test_events_and_status_are_words(at_terminal: AtTerminal, concert: RunSetup, place: dict[str, str]) -> None:
    (concert.root / "gate").touch()
    run_fidelio(("agents", "start", "one", "Tune.", "-b", "tuner"), environ=place, directory=concert.project)
    async with at_terminal("agents", "events", "one", columns=120) as terminal:
        assert await terminal.wait() == 0
        events = terminal.text
    async with at_terminal("agents", "status", "one") as terminal:
        assert await terminal.wait() == 0
        status = terminal.text

    assert re.search(r" 1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d CES?T  session from blueprint tuner, executor scripted", events)
    assert "run 1 is queued: Tune." in events
    assert "has used 1,200 tokens in, 0 out, $0.25" in events
    assert "says: I look at the strings" in events
    assert not re.search(r"[0-9a-f]{16}|\{'|=", events)
    assert re.search(r"  run: 1, began \S+ \S+ CES?T, took [\d.]+ s\n", status)
    assert "  used: 1,200 tokens in, 0 out, $0.25\n" in status
    assert "{" not in status


@proves("screens.words")
async def test_the_events_of_a_workflow_and_of_the_runtime_are_words(at_terminal: AtTerminal, setup: RunSetup) -> None:
    async with at_terminal("tour", rows=80) as terminal:
        assert await terminal.wait() == 0
        tour = terminal.text
    (session,) = set(re.findall(r"events (s_\w+)", tour))
    async with at_terminal("events", session) as terminal:
        assert await terminal.wait() == 0
        narrow = terminal.text
    async with at_terminal("events", session, columns=120) as terminal:
        assert await terminal.wait() == 0
        wide = terminal.text

    assert re.search(r"^    1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d CES?T  tour             started hello$", narrow, re.MULTILINE)
    assert "called start_session\n" in narrow
    assert "entered greet\n" in narrow
    # The type is shown where there is room, because --type selects by it.
    assert re.search(r"tour +activity\.entered +entered greet\n", wide)
    assert not re.search(r"[{}]|[0-9a-f]{13}|activity\.entered", narrow + tour)


@proves("screens.color")
async def test_color_is_for_terminals_and_never_with_no_color(
    at_terminal: AtTerminal, setup: RunSetup, place: dict[str, str]
) -> None:
    async with at_terminal("doctor") as terminal:
        await terminal.wait()
        colored = terminal.raw
    piped = run_fidelio(("doctor",), environ=place, directory=setup.project)

    assert b"\x1b[3" in colored
    assert "\x1b" not in piped.stdout


@proves("screens.color")
@pytest.mark.parametrize(
    ("variable", "value", "is_colored"), [("NO_COLOR", "1", False), ("TERM", "dumb", False), ("TERM", "xterm", True)]
)
async def test_a_terminal_without_color_gets_none(
    setup: RunSetup, place: dict[str, str], variable: str, value: str, is_colored: bool
) -> None:
    run_fidelio(("agents", "start", "one", "Play.", "-b", "robot"), environ=place, directory=setup.project)
    for command in (["doctor"], ["list"], ["agents", "list"], ["show", "hello"], ["tour"]):
        async with run_in_terminal(*command, environ=place, directory=setup.project, variables={variable: value}) as terminal:
            await terminal.wait()
        assert (b"\x1b[" in terminal.raw) is is_colored, command


@proves("json.errors")
@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("show", "nothing", "--json"), "definition.workflow-not-found", 4),
        (("events", "s_nothing00000", "--json"), "ledger.session-not-found", 4),
        (("sessions", "--nothing", "--json"), "usage", 2),
        (("agents", "status", "nobody", "--json"), "agent.session-not-found", 4),
        (("run", "hello", "--input", "x", "--json"), "usage", 2),
    ],
)
def test_an_error_under_json_is_json_with_its_code(
    setup: RunSetup, place: dict[str, str], words: tuple[str, ...], code: str, exit_code: int
) -> None:
    run_fidelio(("tour",), environ=place, directory=setup.project)
    done = run_fidelio(words, environ=place, directory=setup.project)

    assert (done.returncode, done.stdout) == (exit_code, "")
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (error["exit_code"], error["code"]) == (exit_code, code)
    assert error["message"]
    assert error["remedy"]


@proves("json.lists")
def test_every_list_has_items_and_next(setup: RunSetup, place: dict[str, str]) -> None:
    run_fidelio(("agents", "start", "one", "Play.", "-b", "robot"), environ=place, directory=setup.project)
    lists = (
        "list", "sessions", "inbox", "agents list", "agents blueprints", "search word", "runtime sessions", "runtime agents",
        "environments list", "vaults list", "trace last", "lint", "trust", "passkeys list", "webhooks list",
        "webhooks deliveries",
    )  # fmt: skip
    run_fidelio(("tour",), environ=place, directory=setup.project)
    for command in lists:
        done = run_fidelio((*command.split(), "--json"), environ=place, directory=setup.project)
        assert done.returncode == 0, done.stderr
        assert {"items", "next"} <= json.loads(done.stdout).keys(), command


@proves("cli.json")
def test_every_command_takes_json_except_a_conversation_and_a_protocol() -> None:
    without = {
        " ".join(words)
        for words, command in commands(cli)
        if not isinstance(command, click.Group) and not any("--json" in parameter.opts for parameter in command.params)
    }

    assert without == {"mcp"}


@proves("cli.json")
def test_a_command_that_does_something_replies_with_its_facts(setup: RunSetup, place: dict[str, str]) -> None:
    stored = run_fidelio(("vaults", "add", "github"), environ=place, directory=setup.project, text="secret\n")
    removed = run_fidelio(("vaults", "remove", "github", "--json"), environ=place, directory=setup.project)
    script = run_fidelio(("completion", "bash", "--json"), environ=place, directory=setup.project)

    assert stored.returncode == 0, stored.stderr
    assert json.loads(removed.stdout) == {"vault": "github", "removed": True}
    assert json.loads(script.stdout)["shell"] == "bash"
