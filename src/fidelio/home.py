"""The home directory: how it is found, and the paths in it.

The first of these is used: the directory given by the caller, FIDELIO_HOME, the nearest `.fidelio` above the working directory,
the user's data directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fidelio.errors import HomeNotFound, HomeProblem

DIRECTORY = ".fidelio"


class Home(NamedTuple):
    """A home directory and the paths of the files in it."""

    path: Path

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.db"

    @property
    def keys(self) -> Path:
        return self.path / "keys.json"

    @property
    def anchor_keys(self) -> Path:
        """The private keys that sign anchors."""
        return self.path / "anchor-keys.json"

    @property
    def anchor_state(self) -> Path:
        """The number and the digest of the last anchor."""
        return self.path / "anchors.json"

    @property
    def workflows(self) -> Path:
        return self.path / "workflows"

    @property
    def agents(self) -> Path:
        """Blueprints that agents are started from."""
        return self.path / "agents"

    @property
    def agents_lock(self) -> Path:
        """Lock of the agent host of this home."""
        return self.path / "agents.lock"

    @property
    def runs(self) -> Path:
        """Spools of agent processes, by session and run."""
        return self.path / "runs"

    @property
    def agent_homes(self) -> Path:
        """Home directories of agents, by session; deleted with the session."""
        return self.path / "agent-homes"

    @property
    def worktrees(self) -> Path:
        return self.path / "worktrees"

    @property
    def worker_lock(self) -> Path:
        """Lock of the process that waits to become the agent host."""
        return self.path / "worker.lock"

    @property
    def worker_log(self) -> Path:
        return self.path / "worker.log"

    def lock_path(self, name: str) -> Path:
        """The lock file of an operation that only a single process may run at a time."""
        locks = self.path / "locks"
        locks.mkdir(mode=0o700, exist_ok=True)
        return locks / f"{name}.lock"

    def ensure(self) -> Home:
        """Create the directory with access for this user only, because it contains the keys and the ledger."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HomeProblem(
                f"The home directory {self.path} cannot be created: {error.strerror}.",
                remedy="Choose another one with --home DIR or FIDELIO_HOME.",
            ) from error
        return self

    def require_existing(self) -> Home:
        """The home, for commands that only read: it is an error if it does not exist, unless it is the user's default home.

        The default home is created, because no option has named it.
        """
        if self._is_absent() and not self._is_default():
            raise HomeNotFound(f"There is no home at {self.path}.", remedy="Check --home or FIDELIO_HOME.")
        return self.ensure()

    def _is_absent(self) -> bool:
        try:
            self.path.lstat()
        except FileNotFoundError:
            return True
        except OSError:
            # Creating the home reports the error.
            return False
        return False

    def _is_default(self) -> bool:
        try:
            return self == user_home()
        except HomeProblem:
            return False


def find_home(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Home:
    environ = os.environ if environ is None else environ
    chosen = path or environ.get("FIDELIO_HOME")
    if chosen:
        return Home(_make_absolute(chosen))
    return Home(_find_nearest(cwd or _make_absolute(".")) or _find_user_directory(environ))


def sync_directory(directory: Path) -> None:
    """Sync a directory, which makes the names of new files durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def user_home(environ: Mapping[str, str] | None = None) -> Home:
    """The home of the user, independent of the project."""
    return Home(_find_user_directory(os.environ if environ is None else environ))


def _make_absolute(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except OSError as error:
        raise HomeProblem(
            f"The working directory cannot be found: {error.strerror}.",
            remedy="Change to one that exists, or name the home with --home DIR, where DIR begins with /.",
        ) from error
    except RuntimeError as error:
        raise HomeProblem(f"{path} names no home: there is no such user.", remedy="Write the whole path.") from error


def _find_nearest(start: Path) -> Path | None:
    """The nearest home above the directory; inaccessible directories are skipped."""
    return next((parent / DIRECTORY for parent in (start, *start.parents) if os.path.isdir(parent / DIRECTORY)), None)  # noqa: PTH112  # Path.is_dir raises


def _find_user_directory(environ: Mapping[str, str]) -> Path:
    data = environ.get("XDG_DATA_HOME")
    # XDG: a relative value is ignored, because it would depend on the working directory.
    base = Path(data) if data and Path(data).is_absolute() else _find_user_home() / ".local" / "share"
    return base / "fidelio"


def _find_user_home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise HomeProblem(
            "This user has no home directory: HOME is not set, and the system does not know the user.",
            remedy="Choose a home with --home DIR or FIDELIO_HOME.",
        ) from error
