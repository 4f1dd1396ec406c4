"""Where skills are looked for: the project, the user's own, and those that come with Fidelio. The nearest wins.

A skill tells an agent what to do, as a workflow does. So those of a project are used only after a person has trusted the
project, and only if no other user of this machine controls their directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fidelio.errors import HomeProblem
from fidelio.home import Home, load_user_trust, user_home
from fidelio.ownership import find_parent_problem, find_path_problem
from fidelio.runtime.ports import SkillRoot
from fidelio.trust import Trust

DIRECTORY = "skills"
# The second is where other agents look for skills in a project.
PROJECT_DIRECTORIES = (".fidelio", ".claude")
_BUNDLED = Path(__file__).resolve().parents[2] / "bundled" / DIRECTORY


def list_default_roots(home: Home, project: str, load: Callable[[], Trust] = load_user_trust) -> tuple[SkillRoot, ...]:
    """The directories with skills for a project, nearest first. They need not exist."""
    roots = [*_list_project_roots(Path(project), load()), *_list_user_roots(home), SkillRoot(_BUNDLED, "bundled")]
    nearest: dict[Path, SkillRoot] = {}
    for root in roots:
        # A home inside of the project is found twice.
        nearest.setdefault(root.path, root)
    return tuple(nearest.values())


def _list_project_roots(project: Path, trust: Trust) -> Iterator[SkillRoot]:
    own = project / PROJECT_DIRECTORIES[0]
    if not (trust.trusts(project) or trust.trusts(own)):
        return
    allowed = trust.allowance(own)
    for directory in (project / name for name in PROJECT_DIRECTORIES):
        paths = (directory, directory / DIRECTORY)
        if not find_parent_problem(project, allowed) and not any(find_path_problem(path, allowed) for path in paths):
            yield SkillRoot(directory / DIRECTORY, "project")


def _list_user_roots(home: Home) -> Iterator[SkillRoot]:
    if home.is_trusted:
        yield SkillRoot(home.path / DIRECTORY, "user")
    try:
        yield SkillRoot(user_home().path / DIRECTORY, "user")
    except HomeProblem:
        # A user without a data directory has no skills of his own.
        return
