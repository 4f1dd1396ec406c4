"""The token of the HTTP server: from the environment, or from a file of the home that only its owner can read.

Every user of a machine can connect to a port on loopback, so the address alone must not let anybody in. The file is created
atomically: servers of one home that start at the same time use the same token. It is opened before it is checked, so that the
file that was checked is the file that is read.
"""

from __future__ import annotations

import os
import secrets
import shlex
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from fidelio.errors import HomeProblem
from fidelio.home import Home, load_user_trust, sync_directory
from fidelio.ids import new_id
from fidelio.ownership import find_status_problem
from fidelio.surfaces.http.guard import validate_token

VARIABLE = "FIDELIO_TOKEN"
TOKEN_BYTES = 32
MAX_BYTES = 4096


class ServerToken(msgspec.Struct, frozen=True):
    """The token that clients must send, and how a shell spells it without showing it. Both are empty without a token."""

    value: str = ""
    shell: str = ""

    def __repr__(self) -> str:
        # The value must not get into a log or a traceback.
        return f"ServerToken({self.shell!r})"

    @property
    def header(self) -> str:
        """The header as a shell expands it."""
        return f"Authorization: Bearer {self.shell}"


def load_token(home: Home, option: str | None = None) -> ServerToken:
    """The token of the option, of the environment, or of the home, where it is created if it is missing."""
    if option:
        return ServerToken(validate_token(option), "TOKEN")
    if named := os.environ.get(VARIABLE):
        return ServerToken(validate_token(named), f"${VARIABLE}")
    path = home.ensure().http_token
    with suppress(FileNotFoundError):
        return ServerToken(_read(path), _spell(path))
    _create(path)
    return ServerToken(_read(path), _spell(path))


def _spell(path: Path) -> str:
    return f"$(cat {shlex.quote(str(path))})"


def _read(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _make_error(path, f"cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        if problem := _find_problem(path, os.fstat(handle)):
            raise _make_error(path, problem)
        token = file.read(MAX_BYTES).decode("latin-1").strip()
    if not token:
        raise _make_error(path, "is empty")
    return validate_token(token)


def _find_problem(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if stat.S_IMODE(status.st_mode) & 0o077:
        return "can be read or written by other users"
    return find_status_problem(status) and find_status_problem(status, load_user_trust().allowance(path.parent))


def _create(path: Path) -> None:
    """Create the file with a link: the first process wins, and the others use its token."""
    draft = path.with_name(f".{path.name}.{new_id('')}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(f"{secrets.token_urlsafe(TOKEN_BYTES)}\n")
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
    except OSError as error:
        raise _make_error(path, f"cannot be written: {error.strerror}") from error
    sync_directory(path.parent)


def _make_error(path: Path, problem: str) -> HomeProblem:
    return HomeProblem(
        f"The file {path} with the token for HTTP {problem}.",
        remedy=f"Delete it, and the next start makes a new one; or set {VARIABLE}.",
    )
