"""`fidelio runtime define` and `agents`: definitions of agents and their versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from fidelio.clock import format_iso, format_local
from fidelio.errors import Command, Hint, UsageProblem
from fidelio.inbox import require_person
from fidelio.runtime.agents.definition import AgentVersion, check_agent_name, describe_effect, parse_agent
from fidelio.runtime.agents.files import KIND, AgentFile, resolve_agent
from fidelio.runtime.agents.versions import VersionEntry, define_agent, list_agents, list_versions, load_agent
from fidelio.runtime.named_definitions import DefinitionFiles
from fidelio.surfaces.cli.context import (
    CliContext,
    complete_path,
    json_option,
    print_items,
    print_json,
    print_line,
    print_message,
    print_quote,
    print_table,
    quote_name,
    with_cli_context,
)
from fidelio.surfaces.cli.environments import read_yaml
from fidelio.surfaces.cli.runtime.targets import RUNTIME_AGENT, project_option
from fidelio.surfaces.cli.sandbox import real_project

_SUFFIXES = (".yaml", ".yml")


@click.command("define", short_help="Define an agent.")
@click.argument("source", metavar="FILE|NAME", shell_complete=complete_path)
@click.option("--name", help="The name of the agent (default: that of FILE).")
@project_option
@json_option
@with_cli_context
async def define_command(cli: CliContext, source: str, name: str | None, project: str | None, as_json: bool) -> None:
    """Define an agent by the YAML file FILE, or store NAME as its file in the project says.

    `-` reads the definition from standard input. A content that differs from the newest version is a new version. Sessions
    that exist keep theirs.

    \b
    model: claude-sonnet-4-5
    system: You review changes of this project.
    tools:
      policies: {shell_run: auto}
    limits: {usd: 2}
    """
    person, directory = require_person(), real_project(project)
    is_file = source == "-" or source.endswith(_SUFFIXES)
    if source == "-" and name is None:
        raise UsageProblem("A definition from standard input needs a name.", remedy="Pass --name NAME.")
    agent = check_agent_name(name or (Path(source).stem if is_file else source))
    async with cli.open(create=True) as app:
        context = (await app.runtime()).context
        if is_file:
            where = "The standard input" if source == "-" else f"The file {source}"
            defined = await define_agent(context, directory, agent, parse_agent(read_yaml(source), where), by=person)
        else:
            defined = await resolve_agent(context, directory, agent)
    if as_json:
        print_json(_version_json(defined))
    else:
        effect = quote_name(describe_effect(defined.definition), 400)
        print_line(f"Agent {quote_name(agent)} has version {defined.version}: {effect}")


@click.command("agents", short_help="List agents, or show one.")
@click.argument("name", required=False, type=RUNTIME_AGENT)
@click.option("--version", type=click.IntRange(1), help="With NAME: this version instead of the newest.")
@project_option
@json_option
@with_cli_context
async def list_agents_command(
    cli: CliContext, name: str | None, version: int | None, project: str | None, as_json: bool
) -> None:
    """List the agents of the project, or show the definition and the versions of NAME."""
    directory = real_project(project)
    async with cli.open(create=True) as app:
        context = (await app.runtime()).context
        if name is not None:
            found = await load_agent(context, directory, name, version)
            _print_agent(found, await list_versions(context, directory, name), as_json=as_json)
            return
        agents, files = await list_agents(context, directory), DefinitionFiles(KIND, context.home).list(directory)
    if as_json:
        print_items([_version_json(agent) for agent in agents], files=[_file_json(cli, file) for file in files])
        return
    _print_agents(cli, agents, files)


def _print_agents(cli: CliContext, agents: tuple[AgentVersion, ...], files: tuple[AgentFile, ...]) -> None:
    rows = [
        {
            "name": agent.name,
            "version": str(agent.version),
            "model": agent.definition.model,
            "description": agent.definition.description,
        }
        for agent in agents
    ]
    if rows:
        print_table(rows, ["name", "version", "model", "description"])
    else:
        begin = cli.render(Hint(Command("chat"), " begins a session of the agent default."))
        print_line(f"No agent is defined in this project yet. {begin}")
    for file in files:
        if file.problem:
            print_message(f"{file.source}: {cli.render(file.problem)}")
        elif file.name not in {agent.name for agent in agents}:
            print_line(f"File {quote_name(file.source, 200)} is used for {quote_name(file.name)} by its next session.")


def _print_agent(found: AgentVersion, versions: tuple[VersionEntry, ...], *, as_json: bool) -> None:
    if as_json:
        listed = [{**msgspec.to_builtins(entry), "time": format_iso(entry.time)} for entry in versions]
        print_json({**_version_json(found), "versions": listed})
        return
    print_line(f"Agent {quote_name(found.name)}, version {found.version}")
    print_quote(yaml.safe_dump(msgspec.to_builtins(found.definition), sort_keys=False).rstrip(), "  ", max_lines=None)
    rows = [
        {"version": str(entry.version), "by": entry.by, "defined": format_local(entry.time), "model": entry.model}
        for entry in versions
    ]
    print_table(rows, ["version", "by", "defined", "model"])


def _version_json(found: AgentVersion) -> dict[str, Any]:
    return {"name": found.name, "version": found.version, "agent": msgspec.to_builtins(found.definition)}


def _file_json(cli: CliContext, file: AgentFile) -> dict[str, Any]:
    return {"name": file.name, "file": file.source, "used": not file.problem, "problem": cli.render(file.problem) or None}
