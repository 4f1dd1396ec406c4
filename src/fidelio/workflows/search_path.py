"""Where workflows are looked for: bundled, the user's own, the project's own. The last one that has an id wins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fidelio.definitions.library import Library, Root
from fidelio.errors import HomeProblem, UsageProblem
from fidelio.home import Home, user_home


def open_library(home: Home, directories: Sequence[str] = (), *, with_bundled: bool = False) -> Library:
    """Given directories replace the search path; `with_bundled` puts the bundled library in front of them."""
    if not directories:
        return Library(_usual_roots(home))
    asked = [Root(_existing(directory), directory) for directory in directories]
    return Library([bundled_root(), *asked] if with_bundled else asked)


def bundled_root() -> Root:
    """The workflows that come with Fidelio."""
    # Not through importlib.resources: the package is always a directory, and that import is a tenth of what an agent waits for.
    return Root(Path(__file__).resolve().parents[1] / "bundled", "bundled")


def _usual_roots(home: Home) -> list[Root]:
    own = [*_user_roots(), Root(home.workflows, "project")]
    # The user's own home serves as the project's when no project has one: the same directory is read once.
    distinct = {root.path: root for root in own}
    return [bundled_root(), *(root for root in distinct.values() if _is_there(root.path))]


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
