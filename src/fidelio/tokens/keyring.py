"""Key rings: keys in a file that only its owner can read, or keys from the environment.

Old keys are kept to verify tokens. The file is created atomically, so processes that start at the same time use the same key. A
process that receives a token with an unknown key reads the file again, because another process may have rotated the keys.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import KeyRingProblem
from fidelio.home import load_user_trust, sync_directory
from fidelio.ids import ALPHABET, new_id
from fidelio.ownership import find_status_problem

ENVIRONMENT = "FIDELIO_KEY"
KEY_BYTES = 32
KID_LENGTH = 6
_KID = re.compile(rf"[{ALPHABET}]{{{KID_LENGTH}}}")


class Key(msgspec.Struct, frozen=True):
    """A secret and its public id, which tokens contain."""

    kid: str
    secret: bytes


class KeyRing(Protocol):
    """A source of keys for seals."""

    def active(self) -> Key:
        """The key that new tokens are sealed with."""

    def find(self, kid: str) -> Key | None:
        """The key with this id, if tokens may still be verified with it."""


class FixedKeys:
    """Keys from the environment: the first seals, all of them verify."""

    def __init__(self, *secrets_: bytes) -> None:
        self._keys = [Key(_derive_kid(secret), secret) for secret in secrets_]

    def active(self) -> Key:
        return self._keys[0]

    def find(self, kid: str) -> Key | None:
        return next((key for key in self._keys if key.kid == kid), None)


class FileKeys:
    """The key file in the home directory. Nothing is read or created before the first key is needed."""

    def __init__(self, path: Path, *, clock: Clock = now_ms) -> None:
        self.path = path
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._active = ""

    def active(self) -> Key:
        if not self._keys:
            self._load_or_create()
        return self._keys[self._active]

    def find(self, kid: str) -> Key | None:
        if kid not in self._keys:
            self._load_or_create()
        return self._keys.get(kid)

    def all(self) -> tuple[Key, ...]:
        """Every key of the file."""
        self._load_or_create()
        return tuple(self._keys.values())

    def rotate(self) -> Key:
        """Create a new key for sealing; the old keys still verify, so existing tokens stay valid."""
        self._load_or_create()
        with _hold_lock(self.path):
            ring = _read(self.path)
            kid = _add_key(ring, self._clock())
            _replace(self.path, ring)
        self._load_or_create()
        return self._keys[kid]

    def _load_or_create(self) -> None:
        if not _exists(self.path):
            ring: dict[str, Any] = {"version": 1, "active": "", "keys": {}}
            _add_key(ring, self._clock())
            _create(self.path, ring)
        ring = _read(self.path)
        self._keys = {kid: Key(kid, _secret(self.path, entry)) for kid, entry in ring["keys"].items()}
        self._active = ring["active"]


def open_keys(path: Path, *, environ: Mapping[str, str] | None = None, clock: Clock = now_ms) -> KeyRing:
    """The keys of the environment if it has any (comma-separated, the first seals), else those of the file."""
    value = (os.environ if environ is None else environ).get(ENVIRONMENT, "")
    return FixedKeys(*map(_decode_secret, value.split(","))) if value.strip() else FileKeys(path, clock=clock)


def _decode_secret(text: str) -> bytes:
    try:
        secret = base64.b64decode(text.strip(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) < KEY_BYTES:
        raise KeyRingProblem(
            f"{ENVIRONMENT} does not hold {KEY_BYTES} bytes or more in base64.",
            remedy=f"Make one with `head -c {KEY_BYTES} /dev/urandom | base64`.",
        )
    return secret


def _derive_kid(secret: bytes) -> str:
    digest = hashlib.sha256(b"fidelio.kid.v1:" + secret).digest()
    return "".join(ALPHABET[byte & 31] for byte in digest[:KID_LENGTH])


def _add_key(ring: dict[str, Any], now: int) -> str:
    kid = new_id("", KID_LENGTH)
    while kid in ring["keys"]:
        kid = new_id("", KID_LENGTH)
    secret = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    ring["keys"][kid] = {"secret": secret, "created": now}
    ring["active"] = kid
    return kid


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise _make_unreadable_error(path, error) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            _check_access(path, os.fstat(file.fileno()))
            ring = json.loads(file.read())
    except OSError as error:
        raise _make_unreadable_error(path, error) from error
    except ValueError as error:
        raise _make_damaged_error(path) from error
    if not _is_valid(ring):
        raise _make_damaged_error(path)
    return dict(ring)


def _is_valid(ring: object) -> bool:
    if not isinstance(ring, dict) or ring.get("version") != 1 or not isinstance(ring.get("keys"), dict):
        return False
    keys = ring["keys"]
    return ring.get("active") in keys and all(_KID.fullmatch(kid) and isinstance(entry, dict) for kid, entry in keys.items())


def _secret(path: Path, entry: Mapping[str, Any]) -> bytes:
    try:
        secret = base64.b64decode(entry["secret"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise _make_damaged_error(path) from error
    if len(secret) < KEY_BYTES:
        raise _make_damaged_error(path)
    return secret


def _check_access(path: Path, status: os.stat_result) -> None:
    # The list of what is trusted is read only for a file of another user.
    if find_status_problem(status) and (problem := find_status_problem(status, load_user_trust().allowance(path.parent))):
        raise KeyRingProblem(f"The key file {path} {problem}.", remedy="Correct its owner, or choose another home with --home.")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise KeyRingProblem(f"The key file {path} can be read by other users.", remedy=f"Close it with `chmod 600 {path}`.")


def _make_unreadable_error(path: Path, error: OSError) -> KeyRingProblem:
    return KeyRingProblem(f"The key file {path} cannot be read: {error.strerror}.", remedy="Check its owner and mode.")


def _make_damaged_error(path: Path) -> KeyRingProblem:
    return KeyRingProblem(
        f"The key file {path} is damaged.",
        remedy="Restore it from a backup. If there is none, move it away: a new key is made, and old tokens stop working.",
    )


def _create(path: Path, ring: Mapping[str, Any]) -> None:
    """Create the file with a link: the first process wins, and the others use its file."""
    draft = _write_draft(path, ring)
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError as error:
        raise _make_unwritable_error(path, error) from error
    finally:
        draft.unlink()
    sync_directory(path.parent)


def _replace(path: Path, ring: Mapping[str, Any]) -> None:
    draft = _write_draft(path, ring)
    try:
        draft.replace(path)
    except OSError as error:
        draft.unlink()
        raise _make_unwritable_error(path, error) from error
    sync_directory(path.parent)


def _write_draft(path: Path, ring: Mapping[str, Any]) -> Path:
    draft = path.with_name(f".{path.name}.{new_id('')}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump(ring, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise _make_unwritable_error(path, error) from error
    return draft


def _make_unwritable_error(path: Path, error: OSError) -> KeyRingProblem:
    return KeyRingProblem(
        f"The key file {path} cannot be written: {error.strerror}.",
        remedy=f"Make the directory writable, choose another one with --home, or set {ENVIRONMENT}.",
    )


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a rotation: of two rotations at the same time, the key of the first would be lost."""
    try:
        handle = os.open(path.with_name(f".{path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise _make_unwritable_error(path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
