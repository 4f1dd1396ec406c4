"""The command line as a whole: errors, help, completion, keys, doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.surfaces.commands import COMMANDS
from tests.support import proves
from tests.surfaces.conftest import Fidelio


@proves("cli.errors")
def test_an_unknown_command_or_option_says_where_to_look(fidelio: Fidelio) -> None:
    command, option = fidelio("sing"), fidelio("list", "--loud")

    assert (command.returncode, option.returncode) == (2, 2)
    assert command.stderr == "fidelio: No such command 'sing'. `fidelio --help` shows its usage.\n"
    assert option.stderr == "fidelio: No such option '--loud'. `fidelio list --help` shows its usage.\n"
    assert (
        fidelio("agnets").stderr
        == "fidelio: No such command 'agnets'. Did you mean agents? `fidelio --help` shows its usage.\n"
    )
    assert "Did you mean inbox?" in fidelio("requests").stderr


@proves("cli.errors")
def test_a_problem_is_one_sentence_and_a_traceback_only_with_debug(fidelio: Fidelio, home: Path) -> None:
    home.write_text("a file where the home should be")
    plain, debug = fidelio("sessions"), fidelio("--debug", "sessions")

    assert plain.returncode == debug.returncode == 1
    assert plain.stderr.count("\n") == 1
    assert plain.stderr.startswith("fidelio: The home directory ")
    assert "Traceback" in debug.stderr


@proves("cli.errors")
def test_a_closed_pipe_is_no_error(environ: dict[str, str]) -> None:
    command = f"{sys.executable} -m fidelio --help | true"
    done = subprocess.run(["bash", "-c", command], env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert done.stderr == ""


@proves("cli.errors")
def test_without_a_command_the_help_is_shown(fidelio: Fidelio) -> None:
    bare = fidelio()

    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == fidelio("--help").stdout


@proves("cli.errors")
@pytest.mark.parametrize("group", ["agents", "sandbox", "runtime", "vaults", "webhooks", "passkeys", "environments"])
def test_a_group_without_a_command_shows_its_help(fidelio: Fidelio, group: str) -> None:
    bare = fidelio(group)

    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == fidelio(group, "--help").stdout


@proves("cli.errors")
def test_a_group_without_a_command_is_an_error_for_programs(fidelio: Fidelio) -> None:
    done = fidelio("agents", "--json")

    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr)["error"]["code"] == "usage"


@proves("cli.errors")
@pytest.mark.parametrize("command", ["mcp", "list"])
def test_the_short_form_shows_the_same_help(fidelio: Fidelio, command: str) -> None:
    assert fidelio(command, "-h").stdout == fidelio(command, "--help").stdout != ""


@proves("cli.errors")
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_explanation_for_each_option(fidelio: Fidelio, command: str) -> None:
    shown = fidelio(command, "--help")

    assert shown.returncode == 0
    assert shown.stdout.startswith(f"Usage: fidelio {command}")


@proves("cli.completion")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(fidelio: Fidelio, shell: str) -> None:
    assert "_FIDELIO_COMPLETE" in fidelio("completion", shell).stdout


@proves("cli.completion")
def test_commands_are_completed(fidelio: Fidelio) -> None:
    done = fidelio(_FIDELIO_COMPLETE="bash_complete", COMP_WORDS="fidelio ver", COMP_CWORD="1")

    assert done.stdout.split() == ["plain,verify"]


@proves("cli.completion")
def test_an_unknown_shell_is_named(fidelio: Fidelio) -> None:
    done = fidelio("completion", SHELL="/bin/csh")

    assert (done.returncode, done.stderr) == (
        2,
        "fidelio: There is no completion for the shell 'csh'. Use one of: bash, zsh, fish.\n",
    )


@proves("cli.keys")
def test_the_key_is_named_rotated_and_never_printed(fidelio: Fidelio, home: Path) -> None:
    first = json.loads(fidelio("keys", "--json").stdout)["active"]
    second = json.loads(fidelio("keys", "--rotate", "--json").stdout)["active"]
    shown = fidelio("keys").stdout

    secrets = [entry["secret"] for entry in json.loads((home / "keys.json").read_text())["keys"].values()]
    assert first != second
    assert second in shown
    assert len(secrets) == 2
    assert not any(secret in shown for secret in secrets)


@proves("cli.keys")
def test_keys_of_the_environment_cannot_be_rotated_here(fidelio: Fidelio) -> None:
    done = fidelio("keys", "--rotate", FIDELIO_KEY="A" * 43 + "=")

    assert done.returncode == 2
    assert "Put a new key in front of the old one" in done.stderr


@proves("cli.doctor", "cli.json")
def test_a_healthy_installation_is_reported(fidelio: Fidelio) -> None:
    done = fidelio("doctor", "--json")
    report = json.loads(done.stdout)

    assert (done.returncode, report["healthy"]) == (0, True)
    assert {check["name"] for check in report["checks"]} >= {"python", "sqlite", "home", "disk", "keys", "ledger", "workflows"}


@proves("cli.doctor")
def test_a_damaged_ledger_and_open_keys_are_problems_with_a_remedy(fidelio: Fidelio, home: Path) -> None:
    fidelio("keys")
    (home / "keys.json").chmod(0o644)
    (home / "ledger.db").write_bytes(os.urandom(8192))

    done = fidelio("doctor")

    assert done.returncode == 1
    assert "chmod 600" in done.stdout
    assert "Fidelio cannot work until the problems above are solved." in done.stdout


@proves("cli.json-errors")
def test_an_option_that_the_server_of_agents_has_not_is_refused_in_json(fidelio: Fidelio) -> None:
    refused = fidelio("mcp", "--json")

    assert refused.stdout == ""
    assert "--json" in json.loads(refused.stderr)["error"]["message"]
