"""`fidelio environments`: list, show, define and check the named configurations of sandboxes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from fidelio.definitions.reading.document import read_bytes
from fidelio.definitions.reading.positions import MAX_BYTES
from fidelio.errors import Command, EnvironmentProblem, Hint, UsageProblem
from fidelio.inbox import require_person
from fidelio.runtime.environments.versions import (
    EnvironmentFile,
    EnvironmentVersion,
    describe_effect,
    parse_environment,
)
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    complete_path,
    json_option,
    print_items,
    print_json,
    print_line,
    print_message,
    print_quote,
    print_table,
    quote_name,
    resolve_project,
    with_cli_context,
)


@click.group("environments", cls=CommandGroup)
def environments_command() -> None:
    """List, show, define and check environments: what the sandboxes of a session may use.

    An environment is a name with network, hosts, programs that must be there, further read-only paths, a setup command,
    limits and variables. It is a file .fidelio/environments/NAME.yaml of the project, or is defined by command. Every
    different content is a version; a session keeps the version that it began with.
    """


@environments_command.command("list")
@click.option(
    "--project",
    metavar="DIR",
    shell_complete=complete_path,
    help="Also list the files of this project (default: the working directory).",
)
@json_option
@with_cli_context
async def list_environments(cli: CliContext, project: str | None, as_json: bool) -> None:
    """List the environments of this home and the files of the project."""
    async with cli.open(create=True) as app:
        environments = (await app.runtime()).environments
        versions, files = await environments.list(), await environments.list_files(resolve_project(project))
    if as_json:
        print_items([_version_json(each) for each in versions], files=[_file_json(cli, file) for file in files])
        return
    rows = [{"name": each.name, "version": _version(each), "what": describe_effect(each.environment)} for each in versions]
    print_table(rows, ["name", "version", "what"])
    for file in files:
        if file.problem:
            print_message(f"{file.source}: {cli.render(file.problem)}")
        else:
            print_line(f"File {quote_name(file.source, 200)} is used for {quote_name(file.name)}")


@environments_command.command("show")
@click.argument("name")
@click.option("--version", type=click.IntRange(0), help="This version instead of the newest; 0 is the built-in one.")
@json_option
@with_cli_context
async def show(cli: CliContext, name: str, version: int | None, as_json: bool) -> None:
    """Show the content of the environment NAME."""
    async with cli.open(create=True) as app:
        found = await (await app.runtime()).environments.load(name, version)
    if as_json:
        print_json(_version_json(found))
        return
    effect = quote_name(describe_effect(found.environment), 400)
    print_line(f"Environment {quote_name(found.name)}, version {_version(found)}: {effect}")
    print_quote(yaml.safe_dump(msgspec.to_builtins(found.environment), sort_keys=False).rstrip(), "  ", max_lines=None)


@environments_command.command("define")
@click.argument("name")
@click.argument("file", metavar="FILE", shell_complete=complete_path)
@json_option
@with_cli_context
async def define(cli: CliContext, name: str, file: str, as_json: bool) -> None:
    """Define the environment NAME by the YAML file FILE.

    `-` reads it from standard input. A content that differs from the newest version is a new version. Sessions that exist
    keep theirs.

    \b
    network: limited
    hosts: [pypi.org, files.pythonhosted.org]
    packages: [python3, git]
    setup: python3 -m venv venv && venv/bin/pip install pytest
    """
    person = require_person()
    environment = parse_environment(read_yaml(file), "The standard input" if file == "-" else f"The file {file}")
    async with cli.open(create=True) as app:
        defined = await (await app.runtime()).environments.define(name, environment, by=person)
    if as_json:
        print_json(_version_json(defined))
    else:
        effect = quote_name(describe_effect(environment), 400)
        print_line(f"Environment {quote_name(name)} has version {defined.version}: {effect}")


@environments_command.command("check")
@click.argument("name")
@click.option(
    "--project",
    metavar="DIR",
    shell_complete=complete_path,
    help="Use the file of this project (default: the working directory).",
)
@json_option
@with_cli_context
async def check(cli: CliContext, name: str, project: str | None, as_json: bool) -> None:
    """Check that the environment NAME works here.

    Its setup is run in a sandbox, and its programs are looked for. The result is kept and used by every session of this
    version. A setup that takes longer than 40 seconds goes on; run the command again to wait for it.
    """
    require_person()
    async with cli.open(create=True) as app:
        service = await app.runtime()
        level = await service.context.sandboxes.level()
        chosen = await service.environments.resolve(name, resolve_project(project))
        if chosen.environment.needs_preparation and not level.runs_commands:
            raise EnvironmentProblem(
                f"The environment {chosen.label} needs commands, and sandboxes here have none: {level.reason}",
                remedy=level.remedy or Hint("See ", Command("doctor"), "."),
            )
        await service.environments.prepare(chosen.name, chosen.version)
    if as_json:
        print_json({**_version_json(chosen), "works": True, "level": level.level})
    else:
        print_line(f"Environment {quote_name(chosen.name)}, version {_version(chosen)}, works at level {level.level}.")


def read_yaml(file: str) -> Any:
    """The content of a YAML file, `-` for standard input. Nothing counts as an empty mapping."""
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageProblem(f"{file} cannot be read: {error.strerror}.", remedy="Name a YAML file, or - for input.") from error
    found = read_bytes(raw, "input.yaml" if file == "-" else f"{file}.yaml").data
    return {} if found is None else found


def _version(found: EnvironmentVersion) -> str:
    return str(found.version) if found.version else "built in"


def _version_json(found: EnvironmentVersion) -> dict[str, Any]:
    return {"name": found.name, "version": found.version, "environment": msgspec.to_builtins(found.environment)}


def _file_json(cli: CliContext, file: EnvironmentFile) -> dict[str, Any]:
    return {"name": file.name, "file": file.source, "used": not file.problem, "problem": cli.render(file.problem) or None}
