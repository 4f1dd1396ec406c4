"""The home that `fidelio init` and `fidelio new` write into: chosen, checked and created.

It is the `.fidelio` of a project, or the directory that --home or FIDELIO_HOME names. What was in it before is somebody else's
until a person has looked at it: only a home that was empty is trusted by writing into it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec

from fidelio.app.project_trust import is_untouched, trust_new_directory
from fidelio.errors import HomeProblem
from fidelio.home import DIRECTORY, Home, check_project, find_home, load_user_trust
from fidelio.surfaces.cli.contained_files import find_outside_link, write_inside
from fidelio.surfaces.commands import add_home_option, find_program

# Ledger and keys must not be committed; workflows, blueprints and the schemas for editors are meant to be shared.
IGNORE = "*\n!.gitignore\n!workflows/\n!workflows/**\n!agents/\n!agents/**\n!schemas/\n!schemas/**\n"


class ProjectHome(msgspec.Struct, frozen=True):
    """The home for the sessions of a project. `before`: the home that was in use until now, if a new home hides it."""

    home: Home
    is_named: bool
    is_new: bool
    before: Home | None = None

    def is_trusted(self) -> bool:
        """Whether the workflows in it are used now."""
        return find_home(self.home.path).is_trusted if self.is_named else load_user_trust().trusts(self.home.path)


def choose_home(project: Path, named: str | None) -> ProjectHome:
    """The home that `named` or FIDELIO_HOME names, else that of the project."""
    own, named = Home(project / DIRECTORY), named or os.environ.get("FIDELIO_HOME")
    home = Home(Path(os.path.abspath(find_home(named).path))) if named else own  # noqa: PTH100  # Path.absolute leaves the dots in
    is_new = not os.path.lexists(home.path)
    before = _find_home_in_use(project) if is_new and not named else None
    return ProjectHome(home, is_named=home.path != own.path, is_new=is_new, before=before)


def _find_home_in_use(project: Path) -> Home | None:
    """The home that commands in the project use now, if it has a ledger."""
    try:
        home = find_home(cwd=project)
    except HomeProblem:
        return None
    return home if os.path.lexists(home.ledger) else None


def check_home(project: Path, chosen: ProjectHome) -> None:
    """Refuse a home that a link puts somewhere else, or that another user controls."""
    if chosen.is_named:
        return
    check_project(chosen.home)
    if link := find_outside_link(project, DIRECTORY):
        raise HomeProblem(
            f"{link}, and nothing is written outside of the project.",
            remedy="Remove the link, or name the directory that it leads to with --home DIR.",
        )


def refuse_nested_home(project: Path, chosen: ProjectHome) -> None:
    """Refuse a new home inside of a project with a home: its sessions and questions would no longer be found there."""
    if chosen.is_named or not chosen.is_new:
        return
    outer = next((above for above in project.parents if _is_project(above)), None)
    if outer is not None:
        raise HomeProblem(
            f"{project} is inside of the project {outer}, which has a home. A second one would hide its sessions.",
            remedy=f"Set up the project with --project {shlex.quote(str(outer))}, or make a second home with --nested.",
        )


def _is_project(directory: Path) -> bool:
    """Whether commands in the directory use its `.fidelio`. The directory of the user is not a project."""
    home = Home(directory / DIRECTORY)
    return directory != Path.home() and home.path.is_dir() and not home.find_problem()


def create_home(chosen: ProjectHome) -> None:
    """Create the home. That of a project also gets its folder of workflows, and is trusted if nothing was in it."""
    if chosen.is_named:
        chosen.home.ensure()
        return
    home, is_own = chosen.home, is_untouched(chosen.home)
    home.ensure()
    try:
        write_inside(home.path, ".gitignore", IGNORE.encode(), replace=False)
        home.workflows.mkdir(mode=0o755, exist_ok=True)
    except OSError as error:
        raise HomeProblem(
            f"The home directory {home.path} cannot be written: {error.strerror}.", remedy="Check its owner and mode."
        ) from error
    if is_own:
        trust_new_directory(home.path)


def describe_former_home(before: Home) -> str:
    """A sentence about the home that a new home hides."""
    program = add_home_option(find_program(), str(before.path))
    return f"Earlier sessions stay in {before.path}. List them with: {program} sessions"
