"""The options of `fidelio mcp`, read without the command line's machinery."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.options import MCP_OPTIONS, SERVER_OPTIONS, McpOptions, parse_options
from fidelio.surfaces.mcp.server import load_server_settings, run
from tests.support import proves
from tests.surfaces.mcp.wire import SECONDS, initialize


@proves("mcp.options")
def test_values_may_stand_behind_an_equals_sign_or_alone() -> None:
    options = parse_options(["--workflows=a", "--workflows", "b", "--enforce", "--dialect", "sessions", "--server-name=x=y"])

    assert options == McpOptions(workflows=("a", "b"), enforce=True, dialect="sessions", server_name="x=y")


@proves("mcp.options")
def test_every_option_is_a_field() -> None:
    assert {option.name for option in MCP_OPTIONS} == set(McpOptions.__struct_fields__)


@proves("mcp.options")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--unknown"], "The command mcp has no option '--unknown'."),
        (["--enforce=yes"], "The command mcp has no option '--enforce'."),
        (["stray"], "The command mcp has no option 'stray'."),
        (["--workflows"], "--workflows needs a value."),
        (["--dialect", "klingon"], "'klingon' is not a dialect. Use one of: sessions, gates, navigator."),
    ],
)
def test_a_wrong_option_is_refused_with_a_way_out(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        parse_options(arguments)

    assert str(refused.value).startswith(sentence)


@proves("mcp.options")
def test_an_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIDELIO_MIN_RESPONSE_SECONDS", "7")
    monkeypatch.setenv("FIDELIO_SERVER_NAME", "from-outside")

    settings = load_server_settings(McpOptions(home=str(tmp_path), min_response_seconds="0.5"))

    assert (settings.min_response_ms, settings.server_name) == (500, "from-outside")


@proves("mcp.options", "sessions.adoption-setting")
def test_adoption_is_turned_off_by_an_option_that_every_server_has(tmp_path: Path) -> None:
    assert load_server_settings(parse_options(["--home", str(tmp_path), "--no-adoption"])).adoption is False
    assert "no-adoption" in {option.flag for option in SERVER_OPTIONS}


@proves("mcp.options")
def test_a_wrong_value_ends_the_server_with_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["--home", str(tmp_path), "--min-response-seconds", "soon"]) == 2

    assert "'soon'" in capsys.readouterr().err


@proves("mcp.options")
def test_the_server_says_the_name_and_version_it_was_given(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fidelio", "mcp", "--server-name", "workflow-server", "--server-version", "9.9"],
        input=json.dumps(initialize()) + "\n",
        env={**os.environ, "FIDELIO_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )

    assert json.loads(done.stdout)["result"]["serverInfo"] == {"name": "workflow-server", "version": "9.9"}
