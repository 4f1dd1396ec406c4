"""The arguments of bubblewrap for a sandbox (level a).

They reach it through a descriptor (`--args`): on the command line every user of the machine could read them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping

from fidelio.sandbox.launch.library import GROUP_ID, USER_ID
from fidelio.sandbox.launch.plan import TreeOperation
from fidelio.sandbox.model import Network

# Without a user namespace bubblewrap leaves root all capabilities, and a command can remount a read-only directory.
_ISOLATION = (
    "--unshare-all", "--unshare-user", "--uid", str(USER_ID), "--gid", str(GROUP_ID), "--hostname", "sandbox",
    "--cap-drop", "ALL", "--disable-userns", "--new-session", "--die-with-parent", "--as-pid-1", "--clearenv",
)  # fmt: skip


def find_bubblewrap() -> str | None:
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")


def build_arguments(
    operations: Iterable[TreeOperation],
    *,
    network: Network,
    environment: Mapping[str, str],
    directory: str,
    seccomp: int,
) -> bytes:
    """The arguments, each ended by NUL."""
    variables = (part for name, value in environment.items() for part in ("--setenv", name, value))
    arguments = [
        *_ISOLATION,
        *(("--share-net",) if network == "host" else ()),
        *variables,
        *(part for operation in operations for part in _translate(operation)),
        *("--chdir", directory),
        *("--seccomp", str(seccomp)),
    ]
    return b"".join(argument.encode() + b"\0" for argument in arguments)


def _translate(operation: TreeOperation) -> Iterator[str]:
    path, source = operation.path, operation.source
    if operation.kind == "bind":
        yield from ("--bind", source, path)
    elif operation.kind == "bind_read_only":
        yield from ("--ro-bind", source, path)
    elif operation.kind == "tmpfs":
        yield from ("--perms", "0755", "--size", str(operation.size), "--tmpfs", path)
    elif operation.kind == "directory":
        yield from ("--perms", "0755", "--dir", path)
    elif operation.kind == "link":
        yield from ("--symlink", source, path)
    else:
        yield from ({"proc": "--proc", "dev": "--dev", "make_read_only": "--remount-ro"}[operation.kind], path)
