"""What the command line tells people to type: it works as it stands."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.orchestrator.host import Host
from fidelio.orchestrator.model import StartAgent
from fidelio.orchestrator.opening import open_agents
from fidelio.settings import load_settings
from fidelio.surfaces.cli.commands import COMMANDS, as_typed, typed
from tests.dialects.conftest import playing
from tests.dialects.gates.conftest import payload
from tests.dialects.score import write_score
from tests.orchestrator.fakes import PATIENCE, finished, until
from tests.support import proves
from tests.surfaces.conftest import Fidelio

Typing = Callable[[str], subprocess.CompletedProcess[str]]
HOME = "my home"
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


@pytest.fixture
def asked(tmp_path: Path) -> str:
    """A question that waits in a home that no environment names; gives its session."""
    library = write_score(tmp_path / "workflows")
    settings = load_settings(str(tmp_path / HOME), environ={})

    async def ask() -> str:
        async with playing(settings, library) as play:
            token = await play.at("tune")
            await play("yield_checkpoint", session_token=token, checkpoint_id="how")
            return str(payload(token)["sid"])

    return asyncio.run(ask())


@pytest.fixture
def typing(environ: dict[str, str], tmp_path: Path) -> Typing:
    """Types a line as it stands, in the same directory, where nothing else says which home is meant."""
    outside = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}

    def type_(line: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", line]
        return subprocess.run(command, env=outside, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return type_


def hinted(text: str, command: str) -> str:
    """The command line of a text that calls this command, up to its end."""
    found = re.search(rf"(?:: |`|^ *)([^`:\n]*--home 'my home' {command}[^`\n]*)", text, re.MULTILINE)
    assert found, text
    return found[1].strip()


@proves("hints.home", "hints.program")
@pytest.mark.parametrize(("command", "shown"), [(("inbox",), "Answer with"), (("report",), "waits for an answer")])
def test_a_question_is_answered_with_what_is_shown_beside_it(
    fidelio: Fidelio, asked: str, typing: Typing, command: tuple[str, ...], shown: str
) -> None:
    done = fidelio(*HERE, *command, *([asked] if command == ("report",) else []))
    assert shown in done.stdout
    answered = typing(hinted(done.stdout, "answer").replace("OPTION", "forte"))

    assert answered.returncode == 0, answered.stderr
    assert "is answered with forte" in answered.stdout


@proves("hints.home")
def test_the_rest_of_a_list_is_had_with_what_is_shown_below_it(fidelio: Fidelio, asked: str, typing: Typing) -> None:
    fidelio(*HERE, "tour")
    more = typing(hinted(fidelio(*HERE, "sessions", "--limit", "1").stdout, "sessions"))

    assert more.returncode == 0
    assert asked in more.stdout


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

    assert hinted(done.stdout + done.stderr, named)
    assert not re.search(rf"fidelio (?:{'|'.join(COMMANDS)})\b", done.stdout + done.stderr)


@proves("hints.home")
async def test_an_agent_that_waits_is_answered_with_what_its_status_shows(
    fidelio: Fidelio, typing: Typing, tmp_path: Path
) -> None:
    settings = load_settings(str(tmp_path / HOME), environ={})
    settings.home.ensure().agents.mkdir()
    (settings.home.agents / "asker.md").write_text(ASKER)
    async with await open_ledger(settings.ledger) as ledger, asyncio.timeout(PATIENCE):
        service = open_agents(settings, ledger)
        async with Host(service, grace=0.1):
            await service.start(StartAgent(name="aria", prompt="?", blueprint="asker", project=str(tmp_path)))
            await until(service, "aria", lambda now: now.run.state == "waiting")
            plain, exact = [
                await asyncio.to_thread(fidelio, *HERE, "agents", "status", "aria", *more) for more in ((), ("--json",))
            ]
            answered = await asyncio.to_thread(typing, hinted(plain.stdout, "answer").replace("OPTION", "go"))
            await finished(service, "aria")

    assert answered.returncode == 0, answered.stderr
    assert hinted(json.loads(exact.stdout)["question"], "answer")


@proves("hints.home")
def test_nothing_is_added_where_the_environment_says_the_same(fidelio: Fidelio, home: Path) -> None:
    same = fidelio("--home", str(home), "events", "nobody")
    none = fidelio("events", "nobody")

    assert same.stderr == none.stderr
    assert "--home" not in same.stderr


@proves("hints.program")
def test_who_has_no_program_of_that_name_is_told_what_they_have(fidelio: Fidelio) -> None:
    done = fidelio("events", "nobody", PATH="/nowhere")

    assert f"`{sys.executable} -m fidelio sessions`" in done.stderr


@proves("hints.home", "hints.program")
def test_only_commands_are_rewritten_and_each_once() -> None:
    program = typed("bin/fidelio", "there")

    assert as_typed("`fidelio sessions`, or fidelio answer r_1 OPTION.", program) == (
        "`bin/fidelio --home there sessions`, or bin/fidelio --home there answer r_1 OPTION."
    )
    for text in ("the fidelio server", "fidelio: no", as_typed("`fidelio inbox`", program), "x/fidelio inbox"):
        assert as_typed(text, program) == text
