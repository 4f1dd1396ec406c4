"""Search path of workflows: bundled, of the user, of the project. The last root that has an id wins.

A session stores the root of its definition. Only a library that contains this root can tell that the definition was deleted:
another server of the same home may use other roots.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fidelio.definitions.library import Library, Root
from fidelio.errors import HomeProblem, UsageProblem
from fidelio.home import Home, user_home

# Stored name of the bundled root, independent of where Fidelio is installed.
BUNDLED = "bundled"


def open_library(home: Home, directories: Sequence[str] = (), *, with_bundled: bool = False) -> Library:
    """Open the library. Directories replace the search path; `with_bundled` adds the bundled root before them."""
    if not directories:
        return _open_default_library(home)
    roots = [Root(_require_directory(directory), directory) for directory in directories]
    return Library([bundled_root(), *roots] if with_bundled else roots)


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


def covers_root(library: Library, encoded: str) -> bool:
    """Whether the library contains this root, so that a workflow it does not find is not there either."""
    still_absent = (root for root in library.absent if not _exists(root.path))
    return any(is_same_root(root, encoded) for root in (*library.roots, *still_absent))


def open_library_at(home: Home, encoded: str) -> Library:
    """Open a library with only the root that a session has stored."""
    if encoded == BUNDLED:
        return Library([bundled_root()])
    usual = covers_root(_open_default_library(home), encoded)
    return Library([Root(Path(encoded) if usual else _require_directory(encoded), encoded)])


def is_same_root(root: Root, encoded: str) -> bool:
    if "" in (encoded, encode_root(root)):
        return False
    if BUNDLED in (encoded, encode_root(root)):
        return encoded == encode_root(root)
    # Links are resolved here and not when stored: a link to the current version of a library stays the same root.
    return os.path.realpath(root.path) == os.path.realpath(encoded)


def _open_default_library(home: Home) -> Library:
    candidates = [*_user_roots(), Root(home.workflows, "project")]
    # Without a project home, the user's home is also the project's: use the directory once.
    distinct = {root.path: root for root in candidates}
    existing = {path for path in distinct if _exists(path)}
    absent = [root for path, root in distinct.items() if path not in existing]
    return Library([bundled_root(), *(root for path, root in distinct.items() if path in existing)], absent=absent)


def _user_roots() -> list[Root]:
    try:
        return [Root(user_home().workflows, "user")]
    except HomeProblem:
        # A container may run as a user without an entry in the user database, and so without a home.
        return []


def _exists(path: Path) -> bool:
    try:
        return path.is_dir()
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
