"""What the command line tells people to type: it works as it stands."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import fidelio as package
from fidelio.app.agents import open_agents
from fidelio.app.application import Application
from fidelio.errors import Command, Hint, UsageProblem
from fidelio.ledger import open_ledger
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.settings import load_settings
from fidelio.surfaces.cli.main import cli, run
from fidelio.surfaces.commands import COMMANDS, add_home_option
from tests.dialects.conftest import playing
from tests.dialects.gates.conftest import payload
from tests.dialects.sample_workflow import write_sample_workflow
from tests.orchestrator.fakes import TIMEOUT_SECONDS, wait_until, wait_until_finished
from tests.support import proves
from tests.surfaces.conftest import UNNAMED_HOME as HOME
from tests.surfaces.conftest import Fidelio, Shell

ASKER = """---
name: asker
description: Asks and waits.
executor: scripted
options:
  script: {turns: [[{ask: {text: May I?, options: {go: Go on}}}, {result: Done.}]]}
---
Ask.
"""
HERE = ("--home", HOME)
SOURCE = Path(package.__file__).parent


@pytest.fixture
def waiting_session(tmp_path: Path) -> str:
    """The session of an open request, in a home that no environment variable names."""
    library = write_sample_workflow(tmp_path / "workflows")
    settings = load_settings(str(tmp_path / HOME), environ={})

    async def ask() -> str:
        async with playing(settings, library) as play:
            token = await play.at("tune")
            await play("yield_checkpoint", session_token=token, checkpoint_id="how")
            return str(payload(token)["sid"])

    return asyncio.run(ask())


@pytest.fixture(autouse=True)
def existing_homes(home: Path, tmp_path: Path) -> None:
    """Two empty homes."""
    for path in (home, tmp_path / HOME):
        path.mkdir()


def command_in(text: str, command: str) -> str:
    """The command line in `text` that calls `command`."""
    found = re.search(rf"(?:: |`|^ *)([^`:\n]*--home 'my home' {command}[^`\n]*)", text, re.MULTILINE)
    assert found, text
    return found[1].strip()


@proves("hints.home", "hints.program")
@pytest.mark.parametrize(("command", "shown"), [(("inbox",), "Answer with"), (("report",), "waits for an answer")])
def test_a_request_is_answered_with_the_command_that_is_printed(
    fidelio: Fidelio, waiting_session: str, shell: Shell, command: tuple[str, ...], shown: str
) -> None:
    done = fidelio(*HERE, *command, *([waiting_session] if command == ("report",) else []))
    assert shown in done.stdout
    answered = shell(command_in(done.stdout, "answer").replace("OPTION", "forte"))

    assert answered.returncode == 0, answered.stderr
    assert "is answered with forte" in answered.stdout


@proves("hints.home")
def test_the_next_page_of_a_list_is_printed_by_the_command_below_it(
    fidelio: Fidelio, waiting_session: str, shell: Shell
) -> None:
    fidelio(*HERE, "tour")
    shown = fidelio(*HERE, "sessions", "--limit", "1").stdout
    while "More: " in shown:
        more = shell(command_in(shown, "sessions"))
        assert more.returncode == 0
        shown = more.stdout

    # The oldest is on the last page.
    assert waiting_session in shown


@proves("hints.home")
@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("answer", "r_000000000000", "yes"), "inbox"),
        (("events", "nobody"), "sessions"),
        (("verify",), "sessions"),
        (("agents", "list"), "agents start"),
        (("sessions",), "tour"),
        (("agents", "result", "nobody"), "agents start nobody PROMPT"),
    ],
)
def test_every_error_and_every_empty_list_names_commands_of_the_same_home(
    fidelio: Fidelio, command: tuple[str, ...], named: str
) -> None:
    done = fidelio(*HERE, *command)

    assert command_in(done.stdout + done.stderr, named)
    assert not re.search(rf"fidelio (?:{'|'.join(COMMANDS)})\b", done.stdout + done.stderr)


@proves("hints.home")
async def test_a_waiting_agent_is_answered_with_the_command_in_its_status(
    fidelio_process: Fidelio, shell: Shell, tmp_path: Path
) -> None:
    settings = load_settings(str(tmp_path / HOME), environ={})
    settings.home.agents.mkdir()
    (settings.home.agents / "asker.md").write_text(ASKER)
    async with await open_ledger(settings.ledger) as ledger, asyncio.timeout(TIMEOUT_SECONDS):
        service = open_agents(settings, ledger)
        async with AgentHost(service.context, grace=0.1):
            await service.start(StartAgent(name="aria", prompt="?", blueprint="asker", project=str(tmp_path)))
            await wait_until(service, "aria", lambda now: now.run.state == "waiting")
            plain, exact = [
                await asyncio.to_thread(fidelio_process, *HERE, "agents", "status", "aria", *more) for more in ((), ("--json",))
            ]
            answered = await asyncio.to_thread(shell, command_in(plain.stdout, "answer").replace("OPTION", "go"))
            await wait_until_finished(service, "aria")

    assert answered.returncode == 0, answered.stderr
    assert command_in(json.loads(exact.stdout)["question"], "answer")


@proves("hints.home")
def test_an_error_about_a_session_names_whole_commands(fidelio: Fidelio, tmp_path: Path) -> None:
    def command_in(*words: str) -> str:
        (found,) = re.findall(r"`fidelio (agents [^`]*)`", fidelio("agents", *words).stderr)
        return str(found)

    assert command_in("result", "one") == "agents start one PROMPT"
    assert command_in("result", "x" * 100) == "agents start NAME PROMPT"
    assert fidelio("agents", "start", "one", "Sing.", "-b", "echo").returncode == 0
    assert command_in("start", "one", "Sing.", "-b", "echo") == "agents resume one PROMPT"


@proves("hints.home")
def test_no_home_option_is_added_if_the_environment_names_the_same_home(fidelio: Fidelio, home: Path) -> None:
    same = fidelio("--home", str(home), "events", "nobody")
    none = fidelio("events", "nobody")

    assert same.stderr == none.stderr
    assert "--home" not in same.stderr


@proves("hints.program")
def test_a_command_names_python_if_the_program_is_not_on_the_path(fidelio: Fidelio) -> None:
    done = fidelio("events", "nobody", PATH="/nowhere")

    assert f"`{sys.executable} -m fidelio sessions`" in done.stderr


@proves("hints.home", "hints.program")
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("sessions", "--nope"), "sessions --help"),
        (("nosuch",), "--help"),
        (("mcp", "--nope"), "mcp --help"),
        (("lint", "nosuch"), "lint --help"),
        (("agents", "result", "nobody"), "agents start nobody PROMPT"),
    ],
)
def test_a_usage_error_names_a_command_that_works(fidelio: Fidelio, command: tuple[str, ...], shown: str) -> None:
    done = fidelio(*HERE, *command, PATH="/nowhere")

    assert f"`{sys.executable} -m fidelio --home 'my home' {shown}`" in done.stderr


@proves("hints.program")
def test_a_usage_error_without_home_names_only_the_program(fidelio: Fidelio) -> None:
    for command in (("--nope",), ("mcp", "--nope")):
        done = fidelio(*command, PATH="/nowhere")
        (shown,) = re.findall("`(.*)`", done.stderr)
        assert shown == " ".join([sys.executable, "-m fidelio", *command[:-1], "--help"])


@proves("hints.program")
def test_a_script_in_the_working_directory_is_named_so_that_a_shell_finds_it(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "fidelio"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom fidelio.__main__ import main\nsys.exit(main())\n")
    script.chmod(0o755)
    failed = shell("PATH=/nowhere; ./fidelio --home 'my home' events nobody")
    (hint,) = re.findall("`(.*)`", failed.stderr)

    assert hint == "./fidelio --home 'my home' sessions"
    assert shell(f"PATH=/nowhere; {hint}").returncode == 0


@proves("hints.home")
def test_commands_in_an_error_are_rendered_and_similar_text_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UsageProblem("My file is called `fidelio run`: fidelio run/x.", remedy=Hint("See ", Command("run"), "."))

    monkeypatch.setattr(Application, "open_library", fail)
    code = run(["--home", HOME, "list"])

    assert code == UsageProblem.exit_code
    error = capsys.readouterr().err
    assert "`fidelio run`: fidelio run/x. See `" in error
    assert error.endswith(" --home 'my home' run`.\n")


@proves("hints.home", "hints.program")
def test_a_command_is_rendered_with_the_program_and_its_words_are_quoted() -> None:
    hint = Hint("Try ", Command("lint", "my flow"), " or ", Hint(Command("agents", "list", tool="list_agent_sessions"), "."))

    assert str(hint) == "Try `fidelio lint 'my flow'` or `list_agent_sessions`."
    assert hint.render(add_home_option("bin/fidelio", "there"), tools=False) == (
        "Try `bin/fidelio --home there lint 'my flow'` or `bin/fidelio --home there agents list`."
    )


@proves("hints.home", "hints.servers")
def test_a_command_that_is_put_into_a_string_is_an_error() -> None:
    for value in (Command("inbox"), Hint(Command("inbox"))):
        with pytest.raises(TypeError, match="cannot be rendered any more"):
            f"{value}"


@proves("hints.home", "hints.servers")
def test_every_command_in_the_source_exists_and_parses() -> None:
    commands = {words: file for file in SOURCE.rglob("*.py") for words in commands_in(ast.parse(file.read_text()))}

    assert len(commands) > 20
    for words in commands:
        parse(words)


@proves("hints.home", "hints.servers")
@pytest.mark.parametrize("words", [("nosuch",), ("agents", "nosuch"), ("sessions", "--nope"), ("answer", "r_1", "yes", "no")])
def test_a_command_that_does_not_exist_is_found(words: tuple[str, ...]) -> None:
    with pytest.raises((AssertionError, click.UsageError)):
        parse(words)


@proves("hints.home", "hints.servers")
def test_no_string_in_the_source_contains_a_command() -> None:
    """Except docstrings and the help of options, which no surface renders."""
    named = re.compile(rf"\bfidelio (?:{'|'.join(COMMANDS)})\b")
    strings = {text: file for file in SOURCE.rglob("*.py") for text in strings_in(ast.parse(file.read_text()))}

    assert {text: file for text, file in strings.items() if named.search(text)} == {}


@proves("hints.home", "hints.servers")
def test_no_surface_rewrites_text_with_a_regular_expression() -> None:
    for file in (SOURCE / "surfaces").rglob("*.py"):
        calls = (node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
        assert not [call for call in calls if isinstance(call, ast.Attribute) and call.attr in ("sub", "subn")], file


def parse(words: tuple[str, ...]) -> None:
    """Parse a command line without running it. A command without arguments may be named without those that it requires."""
    command: click.Command = cli
    # Commands remember the help option of their first context, so it must be the one of the program.
    context, rest = click.Context(command, **command.context_settings), list(words)
    while isinstance(command, click.Group):
        found = command.get_command(context, rest.pop(0)) if rest else None
        assert found is not None, words
        command = found
    try:
        command.make_context(words[0], list(rest), parent=context)
    except click.exceptions.Exit:
        assert "--help" in rest
    except click.MissingParameter:
        assert not rest, words


def commands_in(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """The words of every `Command`; a word that is not a constant becomes `x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Command":
            words = [word.value if isinstance(word, ast.Constant) else "x" for word in node.args]
            yield tuple(map(str, words))


def strings_in(tree: ast.Module) -> Iterator[str]:
    """All string constants except docstrings and the help of options."""
    about = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    about |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "help"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in about:
            yield node.value
