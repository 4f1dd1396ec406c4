"""Files of environments: `.fidelio/environments/NAME.yaml` of a project, `environments/NAME.yaml` of the home.

A file decides what a sandbox may reach, and its setup command runs, so the trust in it is that of `named_definitions`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from fidelio.home import Home, load_user_trust
from fidelio.ownership import Allowance
from fidelio.runtime import named_definitions
from fidelio.runtime.environments.versions import Environment, check_name, parse_environment
from fidelio.runtime.named_definitions import DefinitionFile, DefinitionFiles, DefinitionKind
from fidelio.trust import Trust

DIRECTORY = "environments"
EnvironmentFile: TypeAlias = DefinitionFile[Environment]


def describe_effect(environment: Environment) -> str:
    """What an environment allows, in words for the person who decides whether to trust it."""
    network = f"network {environment.network}" + (f" ({', '.join(environment.hosts)})" if environment.hosts else "")
    paths = f", reads {', '.join(environment.read_only)}" if environment.read_only else ""
    setup = f", runs once: {environment.setup!r:.300}" if environment.setup else ""
    return f"{network}{paths}{setup}"


KIND = DefinitionKind(
    noun="environment",
    directory=DIRECTORY,
    domain=b"fidelio.environment.v1",
    verb="allow",
    parse=parse_environment,
    describe=describe_effect,
    check_name=check_name,
)


class EnvironmentFiles(DefinitionFiles[Environment]):
    """Finds the files of environments and the trust in them."""

    def __init__(self, home: Home, load: Callable[[], Trust] = load_user_trust) -> None:
        super().__init__(KIND, home, load)


def read_directory(directory: Path, allowed: Allowance | None = None) -> tuple[EnvironmentFile, ...]:
    """Every file of a directory with its hash, whether trusted or not."""
    return named_definitions.read_directory(KIND, directory, allowed)
