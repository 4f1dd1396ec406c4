"""The copy of the user's project for a session: made once, with a manifest of what was copied.

Of a git repository the copy has what a worktree has: the tracked files as they are now, with uncommitted changes, and new files
that are not ignored. Its `.git` is its own, with the newest commits: a real worktree would name directories of the host and let
the sandbox write what git executes on the host. After the sandbox has had the copy, the host never runs git in it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fidelio.errors import UsageProblem
from fidelio.home import brings_record
from fidelio.runtime.project.host_files import CHUNK, HostDirectory, find_name_problem
from fidelio.sandbox.directory import empty_directory, host_uid, share

COPY = "project"
MANIFEST = "project.json"
MAX_FILES = 100_000
MAX_BYTES = 2 << 30
COMMITS = 50
_GIT_SECONDS = 120
_HOME_DIRECTORY = ".fidelio"
# Not about one file: the copy would lack more than it says.
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM)


class CopiedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was copied. A link has its target instead of a digest."""

    digest: str
    executable: bool = False
    is_link: bool = False


class CopyManifest(msgspec.Struct, frozen=True):
    """What was copied, and what was not, with the reason."""

    source: str
    files: dict[str, CopiedFile]
    skipped: dict[str, str]


def ensure_copy(directory: Path, source: str, home: Path) -> None:
    """Make the copy in the directory of a session if it is not complete. Raises `UsageProblem`."""
    if (directory / MANIFEST).exists():
        return
    with _hold_lock(directory):
        if (directory / MANIFEST).exists():
            return
        copy = directory / COPY
        copy.mkdir(mode=0o755, exist_ok=True)
        # What an interrupted attempt has left.
        empty_directory(copy)
        try:
            manifest = _Copy(source, copy, home).make()
        except OSError as error:
            remedy = "Check the directory, or mount another one."
            raise UsageProblem(f"The mounted project cannot be copied: {error.strerror}.", remedy=remedy) from error
        share(copy, host_uid(directory))
        save_manifest(directory, manifest)


def load_manifest(directory: Path) -> CopyManifest:
    try:
        return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=CopyManifest)
    except (FileNotFoundError, msgspec.MsgspecError) as error:
        remedy = "Start another session with the mount."
        raise UsageProblem("The copy of the project is not complete or was removed.", remedy=remedy) from error


def save_manifest(directory: Path, manifest: CopyManifest) -> None:
    draft = directory / f".{MANIFEST}"
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(manifest))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / MANIFEST)


class _Copy:
    """An attempt to copy a project."""

    def __init__(self, source: str, target: Path, home: Path) -> None:
        self._source, self._target = source, target
        self._home = os.path.realpath(home)
        self._files: dict[str, CopiedFile] = {}
        self._skipped: dict[str, str] = {}
        self._excluded: dict[str, bool] = {}
        self._bytes = 0

    def make(self) -> CopyManifest:
        listed = list_git_files(self._source)
        if listed is not None:
            add_history(self._source, self._target)
        with HostDirectory(self._source) as host, HostDirectory(self._target) as target:
            for path in self._walk() if listed is None else listed:
                self._copy(host, target, path)
        return CopyManifest(self._source, self._files, dict(sorted(self._skipped.items())[:1_000]))

    def _walk(self) -> Iterator[str]:
        for top, directories, files in os.walk(self._source):
            inside = os.path.relpath(top, self._source)
            prefix = "" if inside == "." else f"{inside}/"
            links = [name for name in directories if Path(top, name).is_symlink()]
            directories[:] = sorted(name for name in directories if name not in links and not self._excludes(f"{prefix}{name}"))
            yield from (f"{prefix}{name}" for name in sorted([*files, *links]))

    def _excludes(self, path: str) -> bool:
        if path not in self._excluded:
            self._excluded[path] = self._is_excluded(path)
        return self._excluded[path]

    def _is_excluded(self, path: str) -> bool:
        """Whether a directory is passed over: names that are never copied, and homes with their ledger and keys."""
        real = os.path.realpath(Path(self._source, path))
        is_home = real == self._home or (Path(path).name == _HOME_DIRECTORY and brings_record(Path(real)))
        problem = "it is a home of Fidelio" if is_home else find_name_problem(path)
        if problem:
            self._skip(path, problem)
        return bool(problem)

    def _skip(self, path: str, reason: str) -> None:
        self._skipped[os.fsencode(path).decode(errors="replace")] = reason

    def _copy(self, host: HostDirectory, target: HostDirectory, path: str) -> None:
        if any(self._excludes(str(parent)) for parent in Path(path).parents if parent.name):
            return
        if problem := find_name_problem(path):
            self._skip(path, problem)
            return
        if len(self._files) >= MAX_FILES:
            raise _too_much(f"more than {MAX_FILES} files")
        try:
            self._copy_entry(host, target, path)
        except FileNotFoundError:
            # Deleted but still tracked, or removed meanwhile.
            return
        except OSError as error:
            if error.errno in _FATAL:
                raise
            self._skip(path, f"it cannot be read: {error.strerror}")

    def _copy_entry(self, host: HostDirectory, target: HostDirectory, path: str) -> None:
        with host.parent(path) as (directory, name):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                self._copy_link(target, path, os.readlink(name, dir_fd=directory))
                return
        if not stat.S_ISREG(found.st_mode):
            self._skip(path, "it is a directory of another repository" if stat.S_ISDIR(found.st_mode) else "it is not a file")
            return
        digest = self._copy_content(host, target, path, found)
        self._files[path] = CopiedFile(digest, executable=bool(found.st_mode & 0o100))

    def _copy_link(self, target: HostDirectory, path: str, leads_to: str) -> None:
        inside = os.path.normpath(os.path.join(os.path.dirname(path), leads_to))  # noqa: PTH118, PTH120  # text
        if os.path.isabs(leads_to) or inside == ".." or inside.startswith("../"):  # noqa: PTH117  # text
            self._skip(path, "it is a link that leads out of the project")
            return
        with target.parent(path, creates=True) as (directory, name):
            os.symlink(leads_to, name, dir_fd=directory)
        self._files[path] = CopiedFile(leads_to, is_link=True)

    def _copy_content(self, host: HostDirectory, target: HostDirectory, path: str, found: os.stat_result) -> str:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        digest = hashlib.sha256()
        with host.open(path) as source, target.parent(path, creates=True) as (directory, name):
            handle = os.open(name, flags, 0o755 if found.st_mode & 0o100 else 0o644, dir_fd=directory)
            with os.fdopen(handle, "wb") as file:
                while data := os.read(source, CHUNK):
                    self._bytes += len(data)
                    if self._bytes > MAX_BYTES:
                        raise _too_much(f"more than {MAX_BYTES >> 20} MiB")
                    digest.update(data)
                    file.write(data)
        return digest.hexdigest()


def _too_much(what: str) -> UsageProblem:
    # An agent reads it too, so it names no directory of the host.
    return UsageProblem(
        f"The mounted project has {what}, so it is not copied.", remedy="Mount a smaller directory, or the whole with :ro."
    )


def list_git_files(source: str) -> list[str] | None:
    """Tracked files and new files that are not ignored, relative to the directory; None if it is not in a repository."""
    arguments = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    raw = _git(source, *arguments) if shutil.which("git") else None
    return None if raw is None else sorted(os.fsdecode(name) for name in raw.split(b"\0") if name)


def add_history(source: str, target: Path) -> None:
    """Create the own `.git` of the copy with the newest commits, without any path of the host in it."""
    top = _git(source, "rev-parse", "--show-toplevel")
    if top is None or os.path.realpath(os.fsdecode(top.rstrip(b"\n"))) != source:
        # A directory inside of a repository: its files alone.
        return
    branch = _git(source, "symbolic-ref", "--quiet", "--short", "HEAD")
    name = "main" if branch is None else os.fsdecode(branch.rstrip(b"\n"))
    copy = str(target)
    if _git(copy, "init", "--quiet", "--template=", f"--initial-branch={name}") is None:
        return
    fetched = _git(copy, "fetch", "--quiet", "--no-tags", f"--depth={COMMITS}", "--", source, "HEAD")
    if fetched is not None and _git(copy, "update-ref", "HEAD", "FETCH_HEAD") is not None:
        _git(copy, "read-tree", "HEAD")
    (target / ".git" / "FETCH_HEAD").unlink(missing_ok=True)


def _git(directory: str, *arguments: str) -> bytes | None:
    """The output of git; None if it fails. Neither the user's nor the repository's configuration executes anything."""
    fixed = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.logAllRefUpdates=false", "gc.auto=0")
    options: Iterable[str] = (word for setting in fixed for word in ("-c", setting))
    with tempfile.NamedTemporaryFile("w", prefix="fidelio-git-") as configuration:
        # A repository of another user is fine here: a person named the directory. Only this file may say so.
        configuration.write('[safe]\n\tdirectory = *\n[protocol "file"]\n\tallow = always\n')
        configuration.flush()
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": configuration.name,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
        }
        command = ["git", *options, "-C", directory, *arguments]
        try:
            done = subprocess.run(  # noqa: S603  # fixed commands
                command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=_GIT_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return done.stdout if done.returncode == 0 else None


@contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    """Two calls of a new session must not copy at the same time."""
    handle = os.open(directory / f".{MANIFEST}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
