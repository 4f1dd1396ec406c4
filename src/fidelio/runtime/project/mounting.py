"""The option `--mount HOST[:ro|rw|copy]`: which directory of the host a session sees at /workspace/project, and how.

`copy` is the default: the agent changes a copy, and a person brings changes back after a look. `ro` and `rw` mount the
directory itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

import msgspec

from fidelio.errors import UsageProblem
from fidelio.sandbox.directory import READ_ONLY, WRITABLE, host_uid, may_switch_user, share

Mode = Literal["ro", "rw", "copy"]
_MODES: tuple[Mode, ...] = get_args(Mode)
_USAGE = "Write HOST, HOST:ro, HOST:rw or HOST:copy, where HOST is a directory."


class ProjectMount(msgspec.Struct, frozen=True):
    """A directory of the host without links in its path, and how it is mounted."""

    source: str
    mode: Mode = "copy"


def parse_mount(text: str | None, project: Path) -> ProjectMount | None:
    """Parse the option; None if it is absent. A relative HOST is relative to the project. Raises `UsageProblem`."""
    if text is None:
        return None
    host, mode = _split(text)
    source = os.path.realpath(project / Path(host).expanduser()) if host else ""
    if not source or not Path(source).is_dir():
        raise UsageProblem(f"{text!r:.200} cannot be mounted: there is no directory {host!r:.200}.", remedy=_USAGE)
    if source == os.sep:
        raise UsageProblem("The root directory cannot be mounted.", remedy="Name the directory of the project.")
    if mode == "rw":
        check_writable(source)
    return ProjectMount(source, mode)


def check_writable(source: str) -> None:
    """Raise `UsageProblem` if no sandbox could write into the directory.

    As root, sandboxes run as an unprivileged user: that of the directory. A directory of root has none.
    """
    if may_switch_user() and Path(source).stat().st_uid == 0:
        raise UsageProblem(
            f"{source} belongs to root, and sandboxes do not run as root, so it cannot be mounted with rw.",
            remedy=f"Use {source}:copy, or give the directory to an ordinary user.",
        )


def adopt_owner(directory: Path, source: str) -> None:
    """Let the sandbox of a session run as the owner of a project that it writes to. The sandbox must not be live yet."""
    if not may_switch_user():
        return
    owner = Path(source).stat().st_uid
    if owner not in (0, host_uid(directory)):
        for name in (*READ_ONLY, *WRITABLE):
            share(directory / name, owner)


def _split(text: str) -> tuple[str, Mode]:
    host, colon, last = text.rpartition(":")
    if not colon:
        return text, "copy"
    for mode in _MODES:
        if last == mode:
            return host, mode
    # A colon may also be part of the name of a directory.
    if os.sep in last or Path(text).is_dir():
        return text, "copy"
    raise UsageProblem(f"{last!r:.40} is not a way to mount a directory.", remedy=_USAGE)
