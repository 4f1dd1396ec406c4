"""The home directory: how it is found, and the paths in it.

The first of these is used: the directory given by the caller, FIDELIO_HOME, the nearest `.fidelio` above the working directory,
the user's data directory. A `.fidelio` that another user could have written, or that no person has trusted, is passed over: its
ledger, keys, workflows and blueprints may be anybody's. A directory that was named is refused in the first case. A `.fidelio`
that is not trusted and brings neither ledger nor keys is used for new ones, but not its workflows and blueprints.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from fidelio.errors import Command, ForeignHome, Hint, HomeNotFound, HomeProblem, Text
from fidelio.ownership import STRICT, Allowance, find_parent_problem, find_path_problem
from fidelio.trust import FOUND_DIRECTORIES, Trust, TrustedDirectory, load_trust, update_trust

DIRECTORY = FOUND_DIRECTORIES[0]
# What a project shares with whoever clones it.
_SHARED = ("workflows", "agents", "environments")


class Home(NamedTuple):
    """A home directory and the paths of the files in it.

    `is_trusted`: it was named, is the user's own, or a person has trusted it. Else its workflows and blueprints are not used.
    """

    path: Path
    is_trusted: bool = True

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
    def http_address(self) -> Path:
        """Where the page was served last."""
        return self.path / "http-address"

    @property
    def ended_visits(self) -> Path:
        """Which browsers have signed out of the page."""
        return self.path / "ended-visits"

    @property
    def used_links(self) -> Path:
        """Which links to the page have signed somebody in: a directory with an empty file for each."""
        return self.path / "used-links"

    @property
    def http_token(self) -> Path:
        """The token that HTTP clients must send."""
        return self.path / "http-token"

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
        was_absent = self._is_absent()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HomeProblem(
                f"The home directory {self.path} cannot be created: {error.strerror}.",
                remedy="Choose another one with --home DIR or FIDELIO_HOME.",
            ) from error
        # Another user may have created it a moment ago, to learn the keys that are written into it.
        if was_absent and (problem := self.find_problem()):
            raise _make_foreign_error(self, problem)
        if not self.is_trusted:
            _remember_home(self.path)
        return self

    def note_ledger(self) -> None:
        """Note that this user's Fidelio has made the ledger, if nobody has trusted the directory. Called once it is open."""
        entry = None if self.is_trusted else load_user_trust().find(self.path)
        if entry is None or not entry.is_home_only or not self.ledger.exists() or _is_witnessed(self, entry):
            return
        name = f".ledger-{secrets.token_hex(16)}"
        os.link(self.ledger, self.path / name)
        noted = msgspec.structs.replace(entry, path=os.path.realpath(self.path), witness=name)
        update_trust(user_home().path, lambda trust: trust.with_directory(noted))
        if entry.witness:
            # The former ledger was removed on purpose; its content must not stay.
            (self.path / entry.witness).unlink(missing_ok=True)

    def find_problem(self, allowed: Allowance = STRICT) -> str:
        """A sentence about what another user controls in this home; empty if there is nothing."""
        return next(filter(None, (find_path_problem(path, allowed) for path in self.checked_paths)), "")

    @property
    def checked_paths(self) -> tuple[Path, ...]:
        """The paths that no other user may control."""
        return (self.path, self.keys, self.http_token, self.ledger, self.agents, self.workflows)

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
            return self.path == user_home().path
        except HomeProblem:
            return False


class PassedOver(msgspec.Struct, frozen=True):
    """A `.fidelio` above the working directory that is not used. `problem`: who controls it; empty: not trusted."""

    path: Path
    problem: str = ""


class HomeSearch(msgspec.Struct, frozen=True):
    """The home that is used, and the nearer ones that are not."""

    home: Home
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def untrusted(self) -> tuple[Path, ...]:
        """The directories whose workflows and blueprints would be used if a person trusted them."""
        own = () if self.home.is_trusted else (self.home.path,)
        return (*(found.path for found in self.passed_over if not found.problem), *own)

    def warnings(self) -> Iterator[Text]:
        """What a person should know about the directories that are not used, or not wholly."""
        for found in self.passed_over:
            reason = found.problem or f"nobody has trusted {found.path}, which brings its own ledger or keys"
            yield Hint(f"{_capitalize(reason)}, so it is not used. ", _trust_hint(found.path))
        if not self.home.is_trusted and (names := [name for name in _SHARED if has_entries(self.home.path / name)]):
            what = " and ".join(names)
            yield Hint(
                f"Nobody has trusted the {what} of {self.home.path}, so they are not used. ", _trust_hint(self.home.path)
            )


def find_home(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Home:
    return search_home(path, environ=environ, cwd=cwd).home


def search_home(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> HomeSearch:
    """Find the home. Raises `ForeignHome` if it was named and another user controls it."""
    environ = os.environ if environ is None else environ
    chosen = path or environ.get("FIDELIO_HOME")
    if chosen:
        return HomeSearch(_check_named(Home(_make_absolute(chosen)), environ))
    found, passed_over = _find_nearest(cwd or _make_absolute("."), environ)
    if found:
        return HomeSearch(found, passed_over)
    return HomeSearch(_check_named(Home(_find_user_directory(environ)), environ), passed_over)


def load_user_trust(environ: Mapping[str, str] | None = None) -> Trust:
    """What this user trusts. A user without a data directory has only the environment."""
    environ = os.environ if environ is None else environ
    try:
        return load_trust(_find_user_directory(environ), environ)
    except HomeProblem:
        return load_trust(Path(os.devnull), environ)


def check_project(home: Home) -> None:
    """Raise `ForeignHome` if another user controls the home of a project, or could exchange it."""
    if problem := _find_project_problem(home, load_user_trust().allowance(home.path)):
        raise _make_foreign_error(home, problem)


def _check_named(home: Home, environ: Mapping[str, str]) -> Home:
    # The list of what is trusted is read only where it is needed: nearly every home has no problem.
    if home.find_problem() and (problem := home.find_problem(load_user_trust(environ).allowance(home.path))):
        raise _make_foreign_error(home, problem)
    # Agents and workers are given a home by name that was found without being trusted. Naming it so must not trust it.
    if os.path.basename(home.path) == DIRECTORY and (entry := load_user_trust(environ).find(home.path)):  # noqa: PTH119  # as text
        if not _has_own_ledger(home, entry):
            raise _make_foreign_error(home, "its ledger is not the one that your Fidelio has made there")
        return home._replace(is_trusted=not entry.is_home_only)
    return home


def _make_foreign_error(home: Home, problem: str) -> ForeignHome:
    trust = Command("trust", str(home.path))
    return ForeignHome(
        f"The home {home.path} is not used, because {problem}.",
        remedy=Hint("Correct its owner and mode, choose another with --home DIR, or, if you know its owner, run ", trust, "."),
    )


def sync_directory(directory: Path) -> None:
    """Sync a directory, which makes the names of new files durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def has_entries(path: Path) -> bool:
    """Whether there is anything in the directory; False if it is missing or inaccessible."""
    try:
        return bool(os.listdir(path))  # noqa: PTH208  # names as text
    except OSError:
        return False


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


def _find_nearest(start: Path, environ: Mapping[str, str]) -> tuple[Home | None, tuple[PassedOver, ...]]:
    """The nearest home above the directory that may be used, and those before it; inaccessible directories are skipped."""
    passed_over: tuple[PassedOver, ...] = ()
    for parent in (start, *start.parents):
        if not os.path.isdir(parent / DIRECTORY):  # noqa: PTH112  # Path.is_dir raises
            continue
        home = Home(parent / DIRECTORY)
        entry = load_user_trust(environ).find(home.path)
        problem = _find_project_problem(home, entry.allowance if entry else STRICT)
        if not problem and (_has_own_ledger(home, entry) if entry else not brings_record(home.path)):
            return home._replace(is_trusted=entry is not None and not entry.is_home_only), passed_over
        passed_over = (*passed_over, PassedOver(home.path, problem))
    return None, passed_over


def _find_project_problem(home: Home, allowed: Allowance) -> str:
    return find_parent_problem(home.path.parent, allowed) or home.find_problem(allowed)


def brings_record(path: Path) -> bool:
    """Whether there may be a ledger or keys that somebody else has made: a ledger can hold runs that would be carried out."""
    try:
        return any(name not in (*_SHARED, ".gitignore") and not name.endswith(".md") for name in os.listdir(path))  # noqa: PTH208  # names as text
    except OSError:
        return True


def _has_own_ledger(home: Home, entry: TrustedDirectory) -> bool:
    """Whether this user's Fidelio has made the ledger; True where a person has trusted the directory.

    A later commit of a clone can replace it, also by a write-ahead log, from which SQLite would restore any content.
    """
    if not entry.is_home_only:
        return True
    log = _read_mode(home.ledger.with_name(f"{home.ledger.name}-wal"))
    if _read_mode(home.ledger) is None:
        return log is None
    # SQLite gives the log the mode of the ledger, which is open to its user alone. Programs that unpack files do not.
    return (log is None or not log & 0o077) and _is_witnessed(home, entry)


def _is_witnessed(home: Home, entry: TrustedDirectory) -> bool:
    try:
        return bool(entry.witness) and os.path.samestat(home.ledger.lstat(), (home.path / entry.witness).lstat())
    except OSError:
        return False


def _read_mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except OSError:
        return None


def _remember_home(path: Path) -> None:
    """Note that the ledger and the keys in a directory that nobody has trusted are made by this user."""
    real = os.path.realpath(path)
    if load_user_trust().find(path) is None:
        update_trust(user_home().path, lambda trust: trust.with_directory(TrustedDirectory(real, is_home_only=True)))


def _trust_hint(path: Path) -> Text:
    return Hint(Command("trust", str(path.parent)), " shows what is in it, and trusts it.")


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


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
