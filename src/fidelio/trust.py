"""Trust: the directories whose workflows a person has agreed to use, and the blueprints, each by the hash of its files.

It is kept in the user's data directory, never in a project: a cloned repository must not vouch for itself. A directory is
trusted with all its workflows, now and later; a blueprint can run any command, so it is trusted as it is, and once more when it
has changed. The same entry lifts the ownership rule for a directory of another user, such as a mount in a container.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fidelio.errors import TrustProblem
from fidelio.ownership import STRICT, Allowance, find_allowance, find_path_problem, find_status_problem

FILE = "trust.json"
VARIABLE = "FIDELIO_TRUST"
# The directories of a project that are found by themselves. The second is that of an older orchestrator.
FOUND_DIRECTORIES = (".fidelio", ".agent-orchestrator")
MAX_BYTES = 4_000_000
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class TrustedDirectory(msgspec.Struct, frozen=True, omit_defaults=True):
    """A directory. `owner` and `is_open` are what the ownership rule must accept there.

    `is_home_only`: this user's own Fidelio has made the ledger and the keys in it, and nobody has trusted the rest. `witness`
    is then the name of a second link to that ledger: a later commit can replace the ledger, but does not know this name.
    """

    path: str
    owner: int = -1
    is_open: bool = False
    is_home_only: bool = False
    witness: str = ""

    @property
    def allowance(self) -> Allowance:
        return Allowance(self.owner, self.is_open)


class TrustedBlueprint(msgspec.Struct, frozen=True):
    """The content of a blueprint, and the file or folder that had it."""

    hash: str
    source: str


class Trust(msgspec.Struct, frozen=True):
    """Everything that is trusted. `named` are the directories of the environment, with whatever is in them."""

    directories: tuple[TrustedDirectory, ...] = ()
    blueprints: tuple[TrustedBlueprint, ...] = ()
    version: int = 1
    named: tuple[str, ...] = ()

    def find(self, path: Path) -> TrustedDirectory | None:
        """The entry that covers the directory: its own, or that of the project in which it is found."""
        real = os.path.realpath(path)
        parent, name = os.path.split(real)
        covering = {real, parent} if name in FOUND_DIRECTORIES else {real}
        if covering & set(self.named):
            return TrustedDirectory(real, find_allowance(Path(real)).owner, is_open=True)
        entries = [entry for entry in self.directories if entry.path in covering]
        return min(entries, key=lambda entry: entry.is_home_only, default=None)

    def trusts(self, path: Path) -> bool:
        """Whether the workflows of the directory are used."""
        entry = self.find(path)
        return entry is not None and not entry.is_home_only

    def allowance(self, path: Path) -> Allowance:
        """What the ownership rule accepts for the directory beyond the usual."""
        entry = self.find(path)
        return entry.allowance if entry else STRICT

    def names(self, path: Path) -> bool:
        """Whether the environment names the directory, and so trusts its blueprints without their hashes."""
        return bool(Trust(named=self.named).find(path))

    def accepts(self, digest: str) -> bool:
        return any(entry.hash == digest for entry in self.blueprints)

    def knows(self, source: str) -> bool:
        """Whether an earlier content of this file or folder was trusted."""
        return any(entry.source == source for entry in self.blueprints)

    def with_directory(self, new: TrustedDirectory) -> Trust:
        """This trust with the directory. An entry for the same path is replaced."""
        return msgspec.structs.replace(self, directories=(*(old for old in self.directories if old.path != new.path), new))


def load_trust(directory: Path, environ: Mapping[str, str]) -> Trust:
    """What the file in the user's data directory and the environment say. A file that others control is refused."""
    path = directory / FILE
    named = tuple(os.path.realpath(name) for name in environ.get(VARIABLE, "").split(os.pathsep) if name)
    try:
        raw = _read_own(path)
        stored = msgspec.json.decode(raw, type=Trust) if raw else Trust()
    except msgspec.DecodeError as error:
        remedy = "Delete it, and trust what you need again."
        raise TrustProblem(f"The file {path} is damaged: {error}.", remedy=remedy) from error
    return msgspec.structs.replace(stored, named=named)


def update_trust(directory: Path, change: Callable[[Trust], Trust]) -> None:
    """Replace the stored trust by what `change` makes of it. Other processes wait meanwhile."""
    path = directory / FILE
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _hold_lock(directory):
            trust = msgspec.structs.replace(change(load_trust(directory, {})), named=())
            draft = directory / f".{FILE}.{os.getpid()}"
            draft.unlink(missing_ok=True)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(trust)))
            draft.replace(path)
    except OSError as error:
        raise TrustProblem(
            f"The file {path} cannot be written: {error.strerror}.",
            remedy=f"Make its directory writable, or name the directory in {VARIABLE}.",
        ) from error


def _read_own(path: Path) -> bytes:
    """The content of the file, which only this user may control; empty if there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ABSENT:
            return b""
        raise TrustProblem(f"The file {path} cannot be read: {error.strerror}.", remedy="Check its owner and mode.") from error
    with os.fdopen(handle, "rb") as file:
        problem = find_status_problem(os.fstat(handle))
        if sentence := f"{path} {problem}" if problem else find_path_problem(path.parent):
            raise TrustProblem(f"{sentence}, so what it says is not believed.", remedy="Correct that, or delete the file.")
        return file.read(MAX_BYTES)


@contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    """Of two processes that change the file at the same time, the change of the first would be lost."""
    handle = os.open(directory / f".{FILE}.lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
