"""Files of environments: `.fidelio/environments/NAME.yaml` of a project, `environments/NAME.yaml` of the home.

A file decides what a sandbox may reach, and its setup command runs. So the file of a project is used as a blueprint is: only if
a person has trusted the project, and only with the content that the person has seen. No other user may be able to write it. A
file that cannot be used hides no other.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fidelio.definitions.library.files import Files, join_path
from fidelio.definitions.library.memo import Memo
from fidelio.errors import Command, FidelioError, Hint, HomeProblem, Text, UntrustedProject
from fidelio.home import Home, load_user_trust, user_home
from fidelio.ownership import Allowance, find_parent_problem, find_path_problem
from fidelio.runtime.environments.versions import Environment, check_name, parse_environment
from fidelio.trust import FOUND_DIRECTORIES, Trust

DIRECTORY = "environments"
SUFFIX = ".yaml"


class EnvironmentFile(msgspec.Struct, frozen=True):
    """The file of an environment. `hash` is what a person trusts; `problem` says why it is not used, with the remedy."""

    name: str
    source: str
    hash: str = ""
    environment: Environment | None = None
    problem: str = ""


class _Root(msgspec.Struct, frozen=True):
    """A directory with files of environments. `level`: all are used, only those trusted by hash, or none."""

    path: Path
    level: str
    trust: Trust
    allowed: Allowance
    problem: str = ""

    @property
    def remedy(self) -> Text:
        project = str(self.path.parent.parent)
        return Hint(Command("trust", project), " shows what would be used, and trusts it. An agent cannot do that.")


class EnvironmentFiles:
    """Finds the files of environments and the trust in them."""

    def __init__(self, home: Home, load: Callable[[], Trust] = load_user_trust) -> None:
        self._home = home
        self._load = load

    def find(self, name: str, project: str) -> EnvironmentFile | None:
        """The nearest file with this name that may be used; None if there is none.

        Raises `UntrustedProject` for a file of a trusted project that a person has not seen as it is.
        """
        check_name(name)
        for root in self._roots(project):
            path = root.path / f"{name}{SUFFIX}"
            if root.level == "none" or not os.path.lexists(path):
                continue
            file = _read(root, path)
            if root.level == "by-hash" and not root.trust.accepts(file.hash):
                raise UntrustedProject(_describe_distrust(root, file), remedy=root.remedy)
            return file
        return None

    def describe_untrusted(self, name: str, project: str) -> UntrustedProject | None:
        """Why a file with this name is not used, if that is because nobody has trusted its project."""
        for root in self._roots(project):
            if root.level == "none" and os.path.lexists(root.path / f"{name}{SUFFIX}"):
                reason = root.problem or f"Nobody has trusted the project {root.path.parent.parent}"
                return UntrustedProject(f"The environment {name} is not used. {reason}.", remedy=root.remedy)
        return None

    def list(self, project: str) -> tuple[EnvironmentFile, ...]:
        """Every file, also those that are not used, with the reason."""
        found: dict[str, EnvironmentFile] = {}
        for root in self._roots(project):
            for file in read_directory(root.path, root.allowed):
                found.setdefault(file.name, file if file.problem else _note_distrust(root, file))
        return tuple(found[name] for name in sorted(found))

    def _roots(self, project: str) -> Iterator[_Root]:
        user = _user_root()
        own = [*([self._home.path / DIRECTORY] if self._home.is_trusted else []), *user]
        projects = [Path(project) / name / DIRECTORY for name in FOUND_DIRECTORIES]
        for path in dict.fromkeys([*projects, self._home.path / DIRECTORY, *user]):
            yield self._find_trust(path, is_own=path in own)

    def _find_trust(self, path: Path, *, is_own: bool) -> _Root:
        trust, directory = self._load(), path.parent
        allowed = trust.allowance(directory)
        parent = find_parent_problem(directory.parent, allowed) if directory.name.startswith(".") else ""
        if problem := parent or find_path_problem(directory, allowed) or find_path_problem(path, allowed):
            return _Root(path, "none", trust, allowed, problem)
        if trust.names(directory) or (is_own and trust.find(directory) is None):
            return _Root(path, "whole", trust, allowed)
        return _Root(path, "by-hash" if trust.trusts(directory) else "none", trust, allowed)


def read_directory(directory: Path, allowed: Allowance | None = None) -> tuple[EnvironmentFile, ...]:
    """Every file of a directory with its hash, whether trusted or not; `fidelio trust` shows and stores them."""
    root = _Root(directory, "whole", Trust(), allowed or Allowance())
    files = Files(str(directory), Memo(), root.allowed)
    try:
        names = [name for name in files.files(files.root) if name.endswith(SUFFIX) and not name.startswith(".")]
    except FidelioError as error:
        return (EnvironmentFile(directory.name, str(directory), problem=str(error)),)
    return tuple(_read_or_describe(root, directory / name) for name in sorted(names))


def describe_effect(environment: Environment) -> str:
    """What an environment allows, in words for the person who decides whether to trust it."""
    network = f"network {environment.network}" + (f" ({', '.join(environment.hosts)})" if environment.hosts else "")
    paths = f", reads {', '.join(environment.read_only)}" if environment.read_only else ""
    setup = f", runs once: {environment.setup!r:.300}" if environment.setup else ""
    return f"{network}{paths}{setup}"


def _read(root: _Root, path: Path) -> EnvironmentFile:
    """Read a file; what is hashed is what is parsed."""
    name = path.name.removesuffix(SUFFIX)
    file = Files(str(root.path), Memo(), root.allowed).read(join_path(str(root.path), path.name))
    data = file.document().data
    environment = parse_environment({} if data is None else data, f"The file {path}")
    digest = hashlib.sha256(b"fidelio.environment.v1:" + name.encode() + b"\0" + file.raw).hexdigest()
    return EnvironmentFile(name, str(path), digest, environment)


def _read_or_describe(root: _Root, path: Path) -> EnvironmentFile:
    name = path.name.removesuffix(SUFFIX)
    try:
        check_name(name)
        return _read(root, path)
    except FidelioError as error:
        return EnvironmentFile(name, str(path), problem=str(error))


def _note_distrust(root: _Root, file: EnvironmentFile) -> EnvironmentFile:
    if root.level == "whole" or (root.level == "by-hash" and root.trust.accepts(file.hash)):
        return file
    return msgspec.structs.replace(file, problem=f"{_describe_distrust(root, file)} {root.remedy}")


def _describe_distrust(root: _Root, file: EnvironmentFile) -> str:
    if root.level == "none":
        return f"{root.problem or f'Nobody has trusted the project {root.path.parent.parent}'}."
    reason = "has changed since a person trusted it" if root.trust.knows(os.path.realpath(file.source)) else "was not trusted"
    effect = describe_effect(file.environment) if file.environment else "unknown"
    return f"The environment {file.name} of {root.path.parent.parent} {reason}. It would allow: {effect}."


def _user_root() -> list[Path]:
    try:
        return [user_home().path / DIRECTORY]
    except HomeProblem:
        return []
