"""Where workflows are looked for: bundled, the user's own, the project's own. The last one that has an id wins.

A session notes the place that its definition came from. Only who looks there can say that it is gone: another server of the
same home may look elsewhere and not find it either.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fidelio.definitions.library import Library, Root
from fidelio.errors import HomeProblem, UsageProblem
from fidelio.home import Home, user_home

# The place of the workflows that come with Fidelio, wherever that is installed.
BUNDLED = "bundled"


def open_library(home: Home, directories: Sequence[str] = (), *, with_bundled: bool = False) -> Library:
    """Given directories replace the search path; `with_bundled` puts the bundled library in front of them."""
    if not directories:
        return _usual_library(home)
    asked = [Root(_existing(directory), directory) for directory in directories]
    return Library([bundled_root(), *asked] if with_bundled else asked)


@cache
def bundled_root() -> Root:
    """The workflows that come with Fidelio."""
    # Not through importlib.resources: the package is always a directory, and that import is a tenth of what an agent waits for.
    return Root(Path(__file__).resolve().parents[2] / "bundled", BUNDLED)


def place_of(root: Root) -> str:
    """The root as a session notes it: a text that names it for anybody on this machine, empty where no text can."""
    if root.path == bundled_root().path:
        return BUNDLED
    path = os.path.abspath(root.path)  # noqa: PTH100  # Path.absolute leaves the dots in
    return path if path.isprintable() else ""


def looks_in(library: Library, place: str) -> bool:
    """Whether what this library does not find is not in that place either."""
    still_absent = (root for root in library.absent if not _is_there(root.path))
    return any(is_at(root, place) for root in (*library.roots, *still_absent))


def library_at(home: Home, place: str) -> Library:
    """Only what is in the place that a session came from."""
    if place == BUNDLED:
        return Library([bundled_root()])
    usual = looks_in(_usual_library(home), place)
    return Library([Root(Path(place) if usual else _existing(place), place)])


def is_at(root: Root, place: str) -> bool:
    if "" in (place, place_of(root)):
        return False
    if BUNDLED in (place, place_of(root)):
        return place == place_of(root)
    # Followed only now: a link that stands for the current version of a library stays the same place.
    return os.path.realpath(root.path) == os.path.realpath(place)


def _usual_library(home: Home) -> Library:
    own = [*_user_roots(), Root(home.workflows, "project")]
    # The user's own home serves as the project's when no project has one: the same directory is read once.
    distinct = {root.path: root for root in own}
    there = {path for path in distinct if _is_there(path)}
    absent = [root for path, root in distinct.items() if path not in there]
    return Library([bundled_root(), *(root for path, root in distinct.items() if path in there)], absent=absent)


def _user_roots() -> list[Root]:
    try:
        return [Root(user_home().workflows, "user")]
    except HomeProblem:
        # A container may run as a user whom the system does not know: such a user has no workflows of their own.
        return []


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise HomeProblem(
            f"The home directory {path.parent} cannot be read: {error.strerror}.",
            remedy="Check its owner and mode, or choose another one with --home DIR or FIDELIO_HOME.",
        ) from error


def _existing(directory: str) -> Path:
    try:
        path = Path(directory).expanduser().absolute()
        found = path.is_dir()
    except (OSError, RuntimeError):
        found = False
    if not found:
        raise UsageProblem(
            f"There is no directory {directory}.", remedy="Give --workflows a directory with workflow definitions."
        )
    return path
