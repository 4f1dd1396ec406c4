"""What a directory would bring into use, and the decision of a person to trust it.

A person trusts what was shown: the hashes that are stored are those of the blueprints, environments and agents in the list,
not of files that may have changed while the person was reading.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fidelio.definitions.library import Library, Root
from fidelio.errors import UsageProblem
from fidelio.home import Home, brings_record, has_entries, load_user_trust, user_home
from fidelio.inbox import require_person
from fidelio.orchestrator.blueprints.catalogue import BlueprintCatalogue, UnusableBlueprint
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.ownership import find_allowance, find_path_problem
from fidelio.runtime.agents.files import KIND as AGENTS
from fidelio.runtime.agents.files import AgentFile
from fidelio.runtime.environments.versions import KIND as ENVIRONMENTS
from fidelio.runtime.environments.versions import EnvironmentFile
from fidelio.runtime.named_definitions import DefinitionFile, read_directory
from fidelio.trust import FOUND_DIRECTORIES, Trust, TrustedBlueprint, TrustedDirectory, update_trust


class ProjectContents(msgspec.Struct, frozen=True):
    """What is in a directory: workflows, blueprints, environments, agents, a ledger.

    `problem` says why another user controls it.
    """

    path: str
    workflows: tuple[str, ...]
    blueprints: tuple[Blueprint, ...]
    broken: tuple[UnusableBlueprint, ...]
    has_record: bool
    problem: str
    entries: tuple[TrustedDirectory, ...]
    environments: tuple[EnvironmentFile, ...] = ()
    agents: tuple[AgentFile, ...] = ()


def inspect_directory(directory: Path) -> ProjectContents:
    """Look at a project, or at a home. Nothing in it is used."""
    base = _find_base(directory)
    homes = _find_homes(base)
    workflows = [entry.id for home in homes for entry in Library([Root(home.workflows, "")]).list()]
    listings = [BlueprintCatalogue([home.agents]).list(base) for home in homes]
    return ProjectContents(
        path=str(base),
        workflows=tuple(sorted(set(workflows))),
        blueprints=tuple(blueprint for listing in listings for blueprint in listing.agents),
        broken=tuple(broken for listing in listings for broken in listing.broken),
        has_record=any(brings_record(home.path) for home in homes),
        problem=next(filter(None, (find_path_problem(path) for path in (base, *(home.path for home in homes)))), ""),
        entries=tuple(_make_entries(base, homes)),
        environments=tuple(file for home in homes for file in read_directory(ENVIRONMENTS, home.path / ENVIRONMENTS.directory)),
        agents=tuple(file for home in homes for file in read_directory(AGENTS, home.path / AGENTS.directory)),
    )


def trust_contents(contents: ProjectContents) -> None:
    """Trust the directory, and the blueprints, environments and agents as they were shown."""

    def add(trust: Trust) -> Trust:
        blueprints = [TrustedBlueprint(blueprint.hash, blueprint.source) for blueprint in contents.blueprints]
        files: tuple[DefinitionFile[Any], ...] = (*contents.environments, *contents.agents)
        definitions = [TrustedBlueprint(file.hash, file.source) for file in files if file.hash]
        trust = _remove(trust, contents)
        for entry in contents.entries:
            trust = trust.with_directory(entry)
        return msgspec.structs.replace(trust, blueprints=(*trust.blueprints, *blueprints, *definitions))

    update_trust(user_home().path, add)


def is_untouched(home: Home) -> bool:
    """Whether there is nothing in the home yet that somebody else could have put there. Call it before writing into it."""
    if not os.path.lexists(home.path):
        return True
    return not (has_entries(home.workflows) or has_entries(home.agents) or brings_record(home.path))


def trust_new_directory(directory: Path) -> None:
    """Trust a directory that this user has just created, without the blueprints in it. Below an agent nothing is trusted."""
    with suppress(UsageProblem):
        require_person()
        _trust_directory(directory)


def _trust_directory(directory: Path) -> None:
    entry = TrustedDirectory(os.path.realpath(directory))
    update_trust(user_home().path, lambda trust: trust.with_directory(entry))


def distrust_directory(directory: Path) -> bool:
    """Remove a directory and its blueprints from what is trusted. False if it was not trusted; it need not exist any more."""
    base = Path(os.path.realpath(directory))
    base = base.parent if base.name in FOUND_DIRECTORIES else base
    contents = ProjectContents(str(base), (), (), (), False, "", tuple(_make_entries(base, _find_homes(base))))
    before = load_user_trust()
    is_known = any(entry.path in _covered_paths(contents) for entry in before.directories)
    update_trust(user_home().path, lambda trust: _remove(trust, contents))
    return is_known


def _find_base(directory: Path) -> Path:
    base = Path(os.path.realpath(directory))
    if not base.is_dir():
        raise UsageProblem(f"There is no directory {directory}.", remedy="Name a project, or a home.")
    return base.parent if base.name in FOUND_DIRECTORIES else base


def _find_homes(base: Path) -> list[Home]:
    """The directories in the project that Fidelio finds, or the directory itself if it has none of them."""
    found = [Home(base / name) for name in FOUND_DIRECTORIES if (base / name).is_dir()]
    return found or [Home(base)]


def _make_entries(base: Path, homes: list[Home]) -> Iterator[TrustedDirectory]:
    allowed = find_allowance(base, *(path for home in homes for path in home.checked_paths))
    yield TrustedDirectory(str(base), allowed.owner, allowed.is_open)
    for home in homes:
        real = os.path.realpath(home.path)
        # A link leads elsewhere. What it leads to now is trusted, not whatever it leads to later.
        if base not in (Path(real), Path(real).parent):
            yield TrustedDirectory(real, allowed.owner, allowed.is_open)


def _covered_paths(contents: ProjectContents) -> set[str]:
    named = {entry.path for entry in contents.entries}
    return named | {str(Path(path) / name) for path in named for name in FOUND_DIRECTORIES}


def _remove(trust: Trust, contents: ProjectContents) -> Trust:
    covered = _covered_paths(contents)
    below = tuple(f"{path}{os.sep}" for path in covered)
    return msgspec.structs.replace(
        trust,
        directories=tuple(entry for entry in trust.directories if entry.path not in covered),
        blueprints=tuple(entry for entry in trust.blueprints if not entry.source.startswith(below)),
    )
