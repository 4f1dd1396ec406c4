"""Search path of workflows: bundled, of the user, of the project. The last root that has an id wins.

A session stores the root of its definition, which its report shows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fidelio.definitions.library import Library, Root
from fidelio.errors import HomeProblem, UsageProblem
from fidelio.home import Home, has_entries, user_home

# Stored name of the bundled root, independent of where Fidelio is installed.
BUNDLED = "bundled"


def open_library(
    home: Home, directories: Sequence[str] = (), *, with_bundled: bool = False, untrusted: Sequence[Path] = ()
) -> Library:
    """Open the library. Directories replace the search path; `with_bundled` adds the bundled root before them.

    `untrusted`: homes on the search path whose workflows nobody has trusted. An error names them.
    """
    if not directories:
        return _open_default_library(home, untrusted)
    roots = [_make_root(directory) for directory in directories]
    return Library([bundled_root(), *roots] if with_bundled else roots)


def _make_root(directory: str) -> Root:
    """The root of a named directory. That of Fidelio keeps its name, which says more than where it is installed."""
    path = _require_directory(directory)
    return bundled_root() if path == bundled_root().path else Root(path, directory)


@cache
def bundled_root() -> Root:
    """The root of the workflows that are installed with Fidelio."""
    # Without importlib.resources: the package is always a directory, and the import takes a tenth of the start-up time.
    return Root(Path(__file__).resolve().parents[2] / "bundled", BUNDLED)


def encode_root(root: Root) -> str:
    """The root as a session stores it: its absolute path or `bundled`; empty if the path is not printable."""
    if root.path == bundled_root().path:
        return BUNDLED
    path = os.path.abspath(root.path)  # noqa: PTH100  # Path.absolute leaves the dots in
    return path if path.isprintable() else ""


def _open_default_library(home: Home, untrusted: Sequence[Path]) -> Library:
    candidates = [*_user_roots(), *([Root(home.workflows, "project")] if home.is_trusted else [])]
    # Without a project home, the user's home is also the project's: use the directory once.
    distinct = {root.path: root for root in candidates}
    unused = [Root(Home(path).workflows, "untrusted") for path in untrusted if has_entries(Home(path).workflows)]
    for path in distinct:
        _check_access(path)
    # A directory that is missing now may be made while a server runs.
    return Library([bundled_root(), *distinct.values()], untrusted=unused)


def _user_roots() -> list[Root]:
    try:
        return [Root(user_home().workflows, "user")]
    except HomeProblem:
        # A container may run as a user without an entry in the user database, and so without a home.
        return []


def _check_access(path: Path) -> None:
    try:
        path.is_dir()
    except OSError as error:
        raise HomeProblem(
            f"The home directory {path.parent} cannot be read: {error.strerror}.",
            remedy="Check its owner and mode, or choose another one with --home DIR or FIDELIO_HOME.",
        ) from error


def _require_directory(directory: str) -> Path:
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
