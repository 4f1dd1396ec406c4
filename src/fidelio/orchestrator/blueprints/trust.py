"""Trust in blueprints: which directories may provide them, and which of them a person has seen as they are.

A blueprint names a command that runs with the rights of this user. Those that are bundled, of the user and of a home that was
named are used. Those of a project are used if a person has trusted the project, and each of them only with the content that the
person has seen. Other users of the machine must not be able to write any of them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from fidelio.definitions.library.identifiers import escape_name
from fidelio.errors import Command, Hint, Text, UntrustedProject
from fidelio.home import load_user_trust
from fidelio.orchestrator.blueprints.model import Blueprint, effective_mode
from fidelio.ownership import Allowance, find_parent_problem, find_path_problem
from fidelio.trust import Trust

MAX_SHOWN = 300

# Of a root, whole: every blueprint in it is used; by-hash: those that were trusted as they are; none: no blueprint is used.
TrustLevel = Literal["whole", "by-hash", "none"]


class RootTrust(msgspec.Struct, frozen=True):
    """How far a root is trusted. `problem` says why another user controls it."""

    root: Path
    level: TrustLevel = "whole"
    problem: str = ""
    allowed: Allowance | None = None
    trust: Trust = Trust()

    @property
    def project(self) -> str:
        return str(self.root.parent.parent)

    @property
    def remedy(self) -> Text:
        return Hint(Command("trust", self.project), " shows what would run, and trusts it. An agent cannot do that.")

    def accepts(self, blueprint: Blueprint) -> bool:
        return self.level == "whole" or (self.level == "by-hash" and self.trust.accepts(blueprint.hash))

    def describe_root(self) -> str:
        """Why no blueprint of this root is used."""
        return f"{escape_name(self.problem or f'Nobody has trusted the project {self.project}')}."

    def describe(self, blueprint: Blueprint) -> str:
        """Why the blueprint is not used, and what would run."""
        has_changed = self.trust.knows(os.path.realpath(blueprint.source))
        reason = "has changed since a person trusted it" if has_changed else "was not trusted by a person"
        return f"The blueprint {blueprint.name} of {self.project} {reason}. It would run {describe_effect(blueprint)}."

    def error(self, name: str, blueprint: Blueprint | None) -> UntrustedProject:
        if blueprint is not None:
            return UntrustedProject(self.describe(blueprint), remedy=self.remedy)
        return UntrustedProject(f"Agent not found: {name} is not used. {self.describe_root()}", remedy=self.remedy)


class BlueprintTrust:
    """Finds the trust in roots. `own` roots are used as a whole; `bundled` is part of the program."""

    def __init__(self, own: Sequence[Path], bundled: Path, load: Callable[[], Trust] = load_user_trust) -> None:
        self._own = frozenset(own)
        self._bundled = bundled
        self._load = load

    def find(self, root: Path) -> RootTrust:
        """The trust in a root now: a person may have changed it since the last call."""
        if root == self._bundled:
            return RootTrust(root)
        trust, directory = self._load(), root.parent
        allowed = trust.allowance(directory)
        if problem := _find_problem(root, allowed):
            return RootTrust(root, "none", problem)
        return RootTrust(root, self._find_level(root, trust), allowed=allowed, trust=trust)

    def _find_level(self, root: Path, trust: Trust) -> TrustLevel:
        directory = root.parent
        if trust.names(directory) or (root in self._own and trust.find(directory) is None):
            return "whole"
        return "by-hash" if trust.trusts(directory) else "none"


def describe_effect(blueprint: Blueprint) -> str:
    """What a blueprint runs, in words: its executor, its mode and its commands."""
    commands = [blueprint.options.get(name) for name in ("command", "resume_command")]
    lines = [shlex.join(map(str, command)) for command in commands if isinstance(command, list | tuple)]
    lines += [shlex.join([server.command, *server.args]) for server in blueprint.mcp_servers.values() if server.command]
    shown = "; ".join(escape_name(line)[:MAX_SHOWN] for line in lines)
    executor = escape_name(blueprint.executor or "default")
    return f"the executor {executor} in mode {effective_mode(blueprint)}{f': {shown}' if shown else ''}"


def _find_problem(root: Path, allowed: Allowance) -> str:
    directory = root.parent
    parent = find_parent_problem(directory.parent, allowed) if directory.name.startswith(".") else ""
    return parent or find_path_problem(directory, allowed) or find_path_problem(root, allowed)
