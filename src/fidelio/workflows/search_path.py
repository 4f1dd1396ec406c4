"""Where workflows are looked for: bundled, the user's own, the project's own. The last one that has an id wins."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from fidelio.definitions.library import Library, Root
from fidelio.errors import UsageProblem
from fidelio.home import Home, user_home


def open_library(home: Home, directories: Sequence[str] = (), *, with_bundled: bool = False) -> Library:
    """Given directories replace the search path; `with_bundled` puts the bundled library in front of them."""
    if not directories:
        return Library(_usual_roots(home))
    asked = [Root(_existing(directory), directory) for directory in directories]
    return Library([_bundled(), *asked] if with_bundled else asked)


def _usual_roots(home: Home) -> list[Root]:
    own = [Root(user_home().workflows, "user"), Root(home.workflows, "project")]
    # The user's own home serves as the project's when no project has one: the same directory is read once.
    distinct = {root.path: root for root in own}
    return [_bundled(), *(root for root in distinct.values() if root.path.is_dir())]


def _bundled() -> Root:
    return Root(Path(str(files("fidelio") / "bundled")), "bundled")


def _existing(directory: str) -> Path:
    path = Path(directory).expanduser()
    if not path.is_dir():
        raise UsageProblem(
            f"There is no directory {directory}.", remedy="Give --workflows a directory with workflow definitions."
        )
    return path.absolute()
