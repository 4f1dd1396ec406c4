"""What holds for every command: it can print JSON, and with --json its errors are JSON with a code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fidelio.surfaces.cli.main import cli
from tests.support import proves
from tests.support.command_line import run_fidelio

Words = tuple[str, ...]
# Commands without --json, and why.
WITHOUT_JSON = {("mcp",): "Its standard output is the MCP protocol, which is JSON already."}
# Commands whose arguments are no names: a text, a file, or a command of another program with its own options.
FREE_ARGUMENTS = {
    ("agents", "start"): "a new name and a prompt",
    ("new",): "a new name",
    ("sandbox", "run"): "a command",
    ("search",): "a text",
    ("completion",): "covered by its choices",
    ("chat",): "begins a session",
}
NOBODY = "nosuchthing"


def _walk(command: click.Command, path: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _walk(found, (*path, name))


COMMANDS = dict(_walk(cli))
WITH_JSON = {path: command for path, command in COMMANDS.items() if path not in WITHOUT_JSON}


def _list_wrong_calls(path: Words, command: click.Command) -> Iterator[Words]:
    """Arguments that the command refuses, whatever its home has: of usage, and with names that nobody has given."""
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    named = tuple(NOBODY for _ in arguments)
    if path != ("sandbox", "run"):
        yield ("--nonsense",)
    if any(argument.required for argument in arguments):
        yield ()
    if all(argument.nargs != -1 for argument in arguments):
        yield (*named, NOBODY)
    for option in command.params:
        is_checked = isinstance(option.type, click.Choice | click.types.IntParamType | click.types.FloatParamType)
        if isinstance(option, click.Option) and not option.is_flag and is_checked and path != ("sandbox", "run"):
            yield (option.opts[0], "nonsense", *named)
    if any(argument.required for argument in arguments) and path not in FREE_ARGUMENTS:
        yield named


@proves("cli.json")
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_prints_json(path: Words) -> None:
    has_json = any("--json" in parameter.opts for parameter in COMMANDS[path].params)

    assert has_json is (path not in WITHOUT_JSON)


@proves("cli.json-errors")
@pytest.mark.parametrize("path", WITH_JSON, ids=" ".join)
def test_every_error_under_json_is_json_with_its_code(path: Words, environ: dict[str, str], tmp_path: Path) -> None:
    for words in _list_wrong_calls(path, WITH_JSON[path]):
        done = run_fidelio((*path, "--json", *words), environ=environ, directory=tmp_path)

        assert done.returncode != 0, words
        assert done.stdout == "", words
        (line,) = done.stderr.splitlines()
        error = json.loads(line)["error"]
        assert error["code"], words
        assert error["message"].endswith((".", "?", "!", "'")), error
        assert error["exit_code"] == done.returncode, error


@proves("cli.json-errors")
def test_there_are_wrong_calls_of_every_command() -> None:
    assert all(list(_list_wrong_calls(path, command)) for path, command in WITH_JSON.items() if path != ("sandbox", "run"))
