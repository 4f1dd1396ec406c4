"""What the command line tells people to type: it works as it stands."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fidelio as package
from fidelio.app.agents import open_agents
from fidelio.app.application import Application
from fidelio.errors import UsageProblem
from fidelio.ledger import open_ledger
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.settings import load_settings
from fidelio.surfaces.cli.main import run
from fidelio.surfaces.commands import COMMANDS, add_home_option, substitute_program
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
    more = shell(command_in(fidelio(*HERE, "sessions", "--limit", "1").stdout, "sessions"))

    assert more.returncode == 0
    assert waiting_session in more.stdout


@proves("hints.home")
@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("answer", "r_000000000000", "yes"), "inbox"),
        (("events", "nobody"), "sessions"),
        (("verify",), "sessions"),
        (("agents", "list"), "agents start"),
        (("sessions",), "tour"),
        (("agents", "result", "nobody"), "agents start"),
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
        (("agents", "result", "nobody"), "agents start"),
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
def test_commands_in_an_error_are_replaced_and_similar_text_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UsageProblem("It was not begun by `fidelio run` in my fidelio run/x.")

    monkeypatch.setattr(Application, "open_library", fail)
    code = run(["--home", HOME, "list"])

    assert code == UsageProblem.exit_code
    assert " --home 'my home' run` in my fidelio run/x.\n" in capsys.readouterr().err


@proves("hints.home", "hints.program")
def test_only_commands_are_rewritten_and_each_once() -> None:
    program = add_home_option("bin/fidelio", "there")

    assert substitute_program("Try `fidelio sessions`, or: fidelio answer r_1 OPTION.", program) == (
        "Try `bin/fidelio --home there sessions`, or: bin/fidelio --home there answer r_1 OPTION."
    )
    for text in ("the fidelio server", "fidelio: no", substitute_program("`fidelio inbox`", program), "a fidelio run/x"):
        assert substitute_program(text, program) == text


@proves("hints.home", "hints.servers")
def test_every_command_in_the_source_is_in_backticks_or_after_a_colon() -> None:
    """Also at the beginning of a string."""
    named = re.compile(rf"(?<!^)(?<!`)(?<!: )\bfidelio (?:{'|'.join(COMMANDS)})\b")
    for file in SOURCE.rglob("*.py"):
        found = [text for text in strings_in(ast.parse(file.read_text())) if named.search(text)]
        assert not found, file


def strings_in(tree: ast.Module) -> Iterator[str]:
    """All string constants except docstrings."""
    about = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in about:
            yield node.value
