"""Failures of actions inside of the sandbox, and the checks of their arguments.

A failure has a stable code and a sentence that says what is wrong with the value and what to do. The caller validates arguments
against `fidelio.sandbox.actions` first; the checks here are for whatever else reaches pid 1.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

# What the kernel says: code, sentence about `{path}`, and whether the same call may work later.
_ERRORS = {
    errno.ENOTDIR: ("not_a_directory", "{path} is not a directory, or a name before its last one is a file.", False),
    errno.EISDIR: ("is_directory", "{path} is a directory. List it with list_dir or glob, or name a file in it.", False),
    errno.ENOTEMPTY: ("not_empty", "{path} is a directory that is not empty. Pass recursive: true to remove all of it.", False),
    errno.EEXIST: ("exists", "{path} exists already. Choose another name, or remove it first.", False),
    errno.EACCES: (
        "permission_denied",
        "{path} may not be used this way inside of the sandbox. Use a path below /workspace.",
        False,
    ),
    errno.EPERM: (
        "permission_denied",
        "{path} may not be used this way inside of the sandbox. Use a path below /workspace.",
        False,
    ),
    errno.ENOSPC: ("no_space", "The disk is full; {path} was not changed. Remove files that are no longer needed.", False),
    errno.EDQUOT: ("no_space", "The quota of the disk is used up; {path} was not changed. Remove files.", False),
    errno.EFBIG: ("no_space", "{path} would become larger than one file may be; it was not changed. Write less.", False),
    errno.ELOOP: ("too_many_links", "{path} is a link that leads to itself or through too many links. Name its target.", False),
    errno.ENAMETOOLONG: ("invalid_path", "{path} is longer than a path may be. Use a shorter one.", False),
    errno.EXDEV: ("outside", "{path} leads out of the mounts of this session. Use a path below /workspace.", False),
    errno.EBUSY: ("permission_denied", "{path} is the top of a mount and stays as it is. Use a path below it.", False),
    errno.ENXIO: ("not_a_file", "{path} is a socket or a device, not a file.", False),
    errno.ENODEV: ("not_a_file", "{path} is a socket or a device, not a file.", False),
    errno.EMFILE: ("busy", "Too many files are open inside of the sandbox. Try again.", True),
    errno.ENFILE: ("busy", "Too many files are open on the machine. Try again.", True),
    errno.ENOMEM: ("busy", "Memory is short inside of the sandbox. Try again, or ask for less.", True),
}


class Failure(Exception):
    """An action that was not carried out. `code` is stable; the sentence may improve."""

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.retryable = code, message, retryable

    def as_error(self) -> dict[str, Any]:
        """The `error` of a reply."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable}


def failure_of(error: OSError, path: str) -> Failure:
    """Explain what the kernel said about a path. Missing files and read-only mounts are explained by the tree."""
    known = _ERRORS.get(error.errno or 0)
    if known is not None:
        code, sentence, retryable = known
        return Failure(code, sentence.format(path=display(path)), retryable)
    return Failure("io_error", f"{display(path)} cannot be used: {error.strerror or error}.")


def display(name: str) -> str:
    """Return a name as valid text: bytes that are not UTF-8 become U+FFFD, because JSON cannot carry them."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "replace")


def text_argument(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name)
    value = default if value is None else value
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return value


def number_argument(arguments: Mapping[str, Any], name: str, default: int, *, low: int = 1, high: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _wrong(name, value, f"a whole number from {low} to {high}")
    return value


def optional_number(arguments: Mapping[str, Any], name: str, *, high: int) -> int | None:
    return None if arguments.get(name) is None else number_argument(arguments, name, 1, high=high)


def flag_argument(arguments: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = arguments.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def _wrong(name: str, value: object, wanted: str) -> Failure:
    found = "missing" if value is None else f"{repr(value)[:60]}"
    return Failure("invalid_arguments", f"{name} is {found}. Pass {wanted}.")
