"""Where blueprints are looked for: the project's own, the user's own, bundled. The nearest that has a name wins."""

from __future__ import annotations

from pathlib import Path

from fidelio.errors import HomeProblem
from fidelio.home import DIRECTORY, Home, user_home
from fidelio.orchestrator.blueprints.catalogue import BlueprintRoot, Blueprints

# Relative: each lies in the project that is asked about. The second is where an older orchestrator kept them.
_PROJECT = (Path(DIRECTORY) / "agents", Path(".agent-orchestrator") / "agents")


def open_blueprints(home: Home) -> Blueprints:
    own = [BlueprintRoot(path, "project") for path in _PROJECT]
    return Blueprints([*own, BlueprintRoot(home.agents, "home"), *_user_roots(), bundled_root()])


def bundled_root() -> BlueprintRoot:
    """The blueprints that come with Fidelio."""
    return BlueprintRoot(Path(__file__).resolve().parents[2] / "bundled" / "blueprints", "bundled")


def _user_roots() -> list[BlueprintRoot]:
    try:
        return [BlueprintRoot(user_home().agents, "user")]
    except HomeProblem:
        # A container may run as a user whom the system does not know: such a user has no blueprints of their own.
        return []
