"""The file tree of a sandbox as a list of operations, the same for bubblewrap and for our own helper.

Nothing of the machine is visible but `/usr`, a few files of `/etc`, the mounts of the session and the toolchains of its
environment. The home with ledger, keys and other sessions is never visible, also not through a project or a toolchain that
contains it. Nothing is mounted here; `prepare_mount_points` only creates the directories to mount on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from fidelio.errors import Command, Hint, SandboxUnavailable
from fidelio.sandbox.directory import PROXY_SOCKET
from fidelio.sandbox.launch.library import HOME, LIBRARY, NETWORK_FILES, OWN_PYTHON, find_interpreter, find_system_files
from fidelio.sandbox.model import RUNTIME, RUNTIME_LINK, WORKSPACE, Mount, SandboxSpec

Kind = Literal["bind", "bind_read_only", "tmpfs", "directory", "link", "proc", "dev", "make_read_only"]
PROXY = "/.fidelio/proxy.sock"
SHARED_MEMORY_BYTES = 64 << 20
_PAGE = 4096
# Directories below `<home>/sandboxes` that several sandboxes show: the shared files of agents, prepared environments, skills.
SHARED_AREAS = ("substrates", "environments", "skills")
# Paths that a toolchain must not cover or lie in.
_RESERVED = (
    WORKSPACE, RUNTIME, "/memory", "/mnt", "/vaults", "/.fidelio", "/proc", "/dev", "/sys", "/etc", "/tmp", HOME,  # noqa: S108  # of the sandbox
)  # fmt: skip
_TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Files of the kernel that tell about the machine or other users, as Docker and Podman hide them. Most are for root only.
_HIDDEN_FILES = ("interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats", "sched_debug", "timer_list")
_HIDDEN_DIRECTORIES = ("/proc/acpi", "/proc/asound", "/proc/scsi")


class TreeOperation(msgspec.Struct, frozen=True):
    """A step that builds the file tree. `source` is the directory of the host, or the target of a link."""

    kind: Kind
    path: str
    source: str = ""
    size: int = 0


def plan_tree(spec: SandboxSpec, library: Path) -> tuple[TreeOperation, ...]:
    """All operations, in order. Raises `SandboxUnavailable` for a mount that cannot be made or must not be."""
    mounts = check_mounts(spec)
    return (
        *_plan_system(library, spec.network == "host"),
        *_plan_devices(),
        *_plan_own(spec, library),
        *(TreeOperation("bind_read_only", path, os.path.realpath(path)) for path in _toolchains(spec)),
        *(_plan_mount(mount) for mount in mounts),
        *_hide_home(spec, mounts),
        # Last: from here on no directory can be created in these file systems, and none of them takes memory.
        TreeOperation("make_read_only", "/dev"),
        TreeOperation("make_read_only", "/"),
    )


def check_mounts(spec: SandboxSpec) -> tuple[Mount, ...]:
    """The mounts with their real sources, outer ones first, and the runtime files at both of their paths."""
    mounts = {mount.path: msgspec.structs.replace(mount, source=_check_source(spec, mount)) for mount in spec.mounts}
    if RUNTIME in mounts and RUNTIME_LINK not in mounts:
        mounts[RUNTIME_LINK] = msgspec.structs.replace(mounts[RUNTIME], path=RUNTIME_LINK)
    return tuple(sorted(mounts.values(), key=lambda mount: PurePosixPath(mount.path).parts))


def _check_source(spec: SandboxSpec, mount: Mount) -> str:
    path = PurePosixPath(mount.path)
    if not path.is_absolute() or ".." in path.parts or str(path) != mount.path or len(path.parts) < 2:
        raise SandboxUnavailable(f"'{mount.path}' cannot be a mount. Use an absolute path without '.' and '..'.")
    source = os.path.realpath(mount.source)
    if not os.path.isdir(source):  # noqa: PTH112  # text in, text out
        raise SandboxUnavailable(
            f"The directory for {mount.path} does not exist.", remedy="Check the mounts of the session and its environment."
        )
    home = _home(spec)
    if _contains(home, source) and not any(_contains(allowed, source) for allowed in _allowed(spec, mount, home)):
        raise SandboxUnavailable(
            f"The directory for {mount.path} lies in the home of Fidelio, which no sandbox sees.",
            remedy="Mount a directory outside of the home.",
        )
    if mount.kind != "project" and os.path.islink(mount.source):  # noqa: PTH114  # text in
        raise SandboxUnavailable(f"The directory for {mount.path} is a link.", remedy="Replace it by a directory.")
    return source


def _allowed(spec: SandboxSpec, mount: Mount, home: str) -> tuple[str, ...]:
    """What this mount may show of the home: the directory of the session, and worktrees or what sessions share."""
    own = os.path.realpath(spec.directory)
    if mount.kind == "project":
        return own, f"{home}/worktrees"
    return (own, *(f"{home}/sandboxes/{area}" for area in SHARED_AREAS))


def _home(spec: SandboxSpec) -> str:
    """The home that the directory of the sandbox lies in."""
    return os.path.realpath(Path(spec.directory).parents[1])


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _plan_system(library: Path, has_network: bool) -> Iterator[TreeOperation]:
    yield TreeOperation("bind_read_only", "/usr", "/usr")
    for name in _TOP_LEVEL:
        path = f"/{name}"
        if os.path.islink(path):  # noqa: PTH114  # a fixed path
            yield TreeOperation("link", path, os.readlink(path))  # noqa: PTH115  # a fixed path
        elif os.path.isdir(path):  # noqa: PTH112  # a fixed path
            yield TreeOperation("bind_read_only", path, path)
    yield TreeOperation("bind_read_only", "/etc", str(library / "etc"))
    for name in (*find_system_files(), *(NETWORK_FILES if has_network else ())):
        if os.path.exists(f"/etc/{name}"):  # noqa: PTH110  # Path.exists raises
            yield TreeOperation("bind_read_only", f"/etc/{name}", os.path.realpath(f"/etc/{name}"))


def _plan_devices() -> Iterator[TreeOperation]:
    yield TreeOperation("proc", "/proc")
    for path in filter(_is_readable_for_all, (f"/proc/{name}" for name in _HIDDEN_FILES)):
        yield TreeOperation("bind_read_only", path, "/dev/null")
    for path in filter(os.path.isdir, _HIDDEN_DIRECTORIES):
        yield TreeOperation("tmpfs", path, size=_PAGE)
        yield TreeOperation("make_read_only", path)
    yield TreeOperation("dev", "/dev")
    yield TreeOperation("tmpfs", "/dev/shm", size=SHARED_MEMORY_BYTES)  # noqa: S108  # the path of the standard


def _is_readable_for_all(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)  # noqa: PTH116  # text in
    except OSError:
        return False


def _plan_own(spec: SandboxSpec, library: Path) -> Iterator[TreeOperation]:
    directory = os.path.realpath(spec.directory)
    yield TreeOperation("bind", "/tmp", f"{directory}/tmp")  # noqa: S108  # of the sandbox
    # Created by themselves they would be closed to others than the agent under one level only.
    for path in ("/.fidelio", "/home", "/memory", *_attached(spec), "/var", "/vaults"):
        yield TreeOperation("directory", path)
    yield TreeOperation("link", "/var/tmp", "/tmp")  # noqa: S108  # of the sandbox
    yield TreeOperation("directory", "/run")
    yield TreeOperation("bind", HOME, f"{directory}/home")
    yield TreeOperation("bind_read_only", LIBRARY, str(library / "lib"))
    if source := find_interpreter().source:
        yield TreeOperation("bind_read_only", OWN_PYTHON, os.path.realpath(source))
    if spec.network in ("limited", "unrestricted"):
        yield TreeOperation("bind_read_only", PROXY, f"{directory}/{PROXY_SOCKET}")


def _attached(spec: SandboxSpec) -> list[str]:
    """The directories above what programs attach to the session. Without anything attached there is no `/mnt`."""
    above = {str(parent) for mount in spec.mounts for parent in PurePosixPath(mount.path).parents}
    return sorted(path for path in above if _contains("/mnt", path))


def _toolchains(spec: SandboxSpec) -> Iterator[str]:
    home = _home(spec)
    for path in sorted(spec.toolchains):
        source = os.path.realpath(path)
        if not os.path.isabs(path) or path != os.path.normpath(path) or not os.path.exists(source):  # noqa: PTH110, PTH117  # text
            raise SandboxUnavailable(f"The toolchain '{path}' is no absolute path of an existing directory or file.")
        if any(_contains(reserved, path) or _contains(path, reserved) for reserved in _RESERVED):
            raise SandboxUnavailable(f"The toolchain '{path}' would cover a directory of the sandbox. Name a path below it.")
        if _contains(home, source) or _contains(source, home):
            raise SandboxUnavailable(
                f"The toolchain '{path}' contains the home of Fidelio or lies in it.", remedy="Name a directory that does not."
            )
        yield path


def _plan_mount(mount: Mount) -> TreeOperation:
    return TreeOperation("bind" if mount.access == "read_write" else "bind_read_only", mount.path, mount.source)


def _hide_home(spec: SandboxSpec, mounts: tuple[Mount, ...]) -> Iterator[TreeOperation]:
    """Cover the home where a mount contains it: a project often has it as `.fidelio`, with the ledger and the keys."""
    home = _home(spec)
    for mount in mounts:
        if _contains(mount.source, home) and mount.source != home:
            path = mount.path + home[len(mount.source.rstrip("/")) :]
            yield TreeOperation("tmpfs", path, size=_PAGE)
            yield TreeOperation("make_read_only", path)


def refuse_visible_home(spec: SandboxSpec) -> None:
    """Raise `SandboxUnavailable` if a mount contains the home, for a level that cannot cover it."""
    home = _home(spec)
    found = next((mount for mount in check_mounts(spec) if _contains(mount.source, home)), None)
    if found:
        raise SandboxUnavailable(
            f"The directory for {found.path} contains the home of Fidelio, and the isolation level 'landlock' cannot hide it.",
            remedy=Hint("Mount a copy; ", Command("doctor"), " says how to get a better level."),
        )


def prepare_mount_points(spec: SandboxSpec, uid: int) -> None:
    """Create the directories of mounts inside of other mounts, such as `/workspace/agent` in the workspace.

    An earlier sandbox of the session may have left a link there, which would lead the mount elsewhere: it is removed.
    """
    mounts = check_mounts(spec)
    for mount in mounts:
        for outer in mounts:
            if outer is not mount and _contains(outer.path, mount.path):
                _prepare_mount_point(outer, mount.path[len(outer.path) + 1 :], uid)


def _prepare_mount_point(outer: Mount, relative: str, uid: int) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    parent = os.open(outer.source, flags)
    try:
        for name in relative.split("/"):
            _ensure_directory(parent, name, uid)
            inner = os.open(name, flags, dir_fd=parent)
            os.close(parent)
            parent = inner
    except OSError as error:
        raise SandboxUnavailable(f"'{relative}' in {outer.path} cannot be mounted on: {error.strerror}.") from error
    finally:
        os.close(parent)


def _ensure_directory(parent: int, name: str, uid: int) -> None:
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        mode = 0
    if mode and not stat.S_ISDIR(mode):
        os.unlink(name, dir_fd=parent)
    if not stat.S_ISDIR(mode):
        os.mkdir(name, 0o755, dir_fd=parent)
        os.chown(name, uid, uid if os.geteuid() == 0 else -1, dir_fd=parent, follow_symlinks=False)
