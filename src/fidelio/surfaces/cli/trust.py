"""`fidelio trust`: show what a project would bring into use, and trust it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fidelio.app.project_trust import ProjectContents, distrust_directory, inspect_directory, trust_contents
from fidelio.errors import UsageProblem
from fidelio.home import load_user_trust
from fidelio.inbox import require_person
from fidelio.orchestrator.blueprints.trust import describe_effect
from fidelio.runtime.agents.definition import describe_effect as agent_effect
from fidelio.runtime.environments.versions import describe_effect as environment_effect
from fidelio.runtime.named_definitions import DefinitionFile
from fidelio.surfaces.cli.context import (
    CliContext,
    escape_line,
    json_option,
    print_items,
    print_json,
    print_sentence,
    with_cli_context,
)
from fidelio.trust import VARIABLE, Trust


@click.command("trust")
@click.argument("directory", required=False, metavar="[DIR]")
@click.option("--remove", is_flag=True, help="Trust DIR no longer.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation, for scripts.")
@json_option
@with_cli_context
def trust_command(cli: CliContext, directory: str | None, remove: bool, yes: bool, as_json: bool) -> None:
    """Trust the workflows, blueprints, environments and agents of the project DIR; without DIR, list what is trusted.

    A project that you clone may bring a .fidelio with it. Its workflows tell your agents what to do, its blueprints run
    commands as you, and its ledger may hold runs that would be carried out. So nothing of it is used until you have seen it
    and trusted it with this command. Bundled workflows and blueprints, your own, what `fidelio init` and `fidelio new` create,
    and what you name with --home or --workflows need no trust.

    Workflows are trusted by directory, also those that are added later. A blueprint, an environment or an agent is trusted as
    it is: if its files change, it is not used until you trust it again. The same command allows a directory that belongs to
    another user, such as a mount in a container.

    What you trust is noted in your data directory, never in the project. An agent cannot trust anything. In a script, use
    --yes, or name directories in FIDELIO_TRUST, separated by colons.
    """
    if directory is None:
        if remove:
            raise UsageProblem("--remove needs a directory.", remedy="Name the one that you trust no longer.")
        _print_trusted(cli, load_user_trust(), as_json=as_json)
        return
    require_person()
    if remove:
        _remove(Path(directory), as_json=as_json)
        return
    contents = inspect_directory(Path(directory))
    if not as_json:
        _print_contents(contents)
    _confirm(contents, yes=yes)
    trust_contents(contents)
    print_json({**_contents_json(contents), "trusted": True}) if as_json else click.echo(
        f"{escape_line(contents.path)} is trusted."
    )


def _confirm(contents: ProjectContents, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem(
            f"Nothing is trusted: there is no terminal to ask whether {contents.path} should be.",
            remedy="Run the command in a terminal, or pass --yes once you have read the list.",
        )
    click.confirm("Trust this?", abort=True)


def _remove(directory: Path, *, as_json: bool) -> None:
    was_trusted = distrust_directory(directory)
    path = os.path.realpath(directory)
    if as_json:
        print_json({"path": path, "trusted": False, "was_trusted": was_trusted})
    else:
        print_sentence(f"{escape_line(path)} {'is trusted no longer' if was_trusted else 'was not trusted'}.")


def _print_contents(contents: ProjectContents) -> None:
    print_sentence(f"{escape_line(contents.path)} would bring into use:")
    if contents.problem:
        print_sentence(f"  Attention: {escape_line(contents.problem)}. Who can write there can change what your agents do.")
    print_sentence(f"  workflows:   {', '.join(map(escape_line, contents.workflows)) or 'none'}")
    for blueprint in contents.blueprints:
        print_sentence(f"  blueprint:   {escape_line(blueprint.name)} runs {escape_line(describe_effect(blueprint))}")
    for kind, file, effect in _describe_files(contents):
        brings = f"is broken: {file.problem!s}" if effect is None else f"has {effect}"
        print_sentence(f"  {kind + ':':<12} {escape_line(file.name)} {escape_line(brings)}")
    for broken in contents.broken:
        print_sentence(f"  broken:      {escape_line(broken.name)}: {escape_line(broken.error)}")
    if contents.has_record:
        print_sentence("  record:      its own ledger or keys, with all sessions, questions and runs that are in it")


def _print_trusted(cli: CliContext, trust: Trust, *, as_json: bool) -> None:
    trusted = [entry for entry in trust.directories if not entry.is_home_only]
    if as_json:
        named = [{"kind": "directory", "path": name, "exists": Path(name).is_dir(), "by": VARIABLE} for name in trust.named]
        directories = [
            {"kind": "directory", "path": entry.path, "exists": Path(entry.path).is_dir(), "by": "command"} for entry in trusted
        ]
        blueprints = [{"kind": "blueprint", "source": entry.source, "hash": entry.hash} for entry in trust.blueprints]
        print_items([*directories, *named, *blueprints])
        return
    for entry in trusted:
        print_sentence(f"directory  {escape_line(entry.path)}{'' if Path(entry.path).is_dir() else ' (missing)'}")
    for blueprint in trust.blueprints:
        print_sentence(f"blueprint  {escape_line(blueprint.source)}  {blueprint.hash[:16]}")
    for name in trust.named:
        click.echo(f"directory  {escape_line(name)} (by {VARIABLE})")
    if not (trusted or trust.blueprints or trust.named):
        print_sentence(f"You have trusted no project. `{cli.program} trust DIR` shows what is in DIR, and trusts it.")


def _describe_files(contents: ProjectContents) -> Iterator[tuple[str, DefinitionFile[Any], str | None]]:
    """The environments and agents, each with what it brings; None for a broken file."""
    for environment in contents.environments:
        yield "environment", environment, None if environment.content is None else environment_effect(environment.content)
    for agent in contents.agents:
        yield "agent", agent, None if agent.content is None else agent_effect(agent.content)


def _files_json(contents: ProjectContents, wanted: str, key: str) -> list[dict[str, str]]:
    found = [(file, effect) for kind, file, effect in _describe_files(contents) if kind == wanted]
    return [
        {"name": file.name, "error": str(file.problem)}
        if effect is None
        else {"name": file.name, key: effect, "hash": file.hash}
        for file, effect in found
    ]


def _contents_json(contents: ProjectContents) -> dict[str, Any]:
    return {
        "path": contents.path,
        "workflows": list(contents.workflows),
        "blueprints": [{"name": item.name, "runs": describe_effect(item), "hash": item.hash} for item in contents.blueprints],
        "environments": _files_json(contents, "environment", "allows"),
        "agents": _files_json(contents, "agent", "has"),
        "broken": [{"name": item.name, "error": item.error} for item in contents.broken],
        "has_record": contents.has_record,
        "problem": contents.problem,
    }
