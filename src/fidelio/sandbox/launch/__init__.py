"""How a sandbox is started: the command line, the descriptors and the environment of its first process.

`build_launch` prepares the files and describes the command; it starts nothing. The caller starts the command with exactly these
descriptors, from a thread that lives as long as the sandbox may: the kernel ends a sandbox with the thread that started it.
Standard input, output and error are the caller's. They must be pipes or `/dev/null`: commands can open what they refer to.
"""

from __future__ import annotations

import marshal
import os
import re
import resource
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from fidelio.errors import Command, Hint, SandboxUnavailable
from fidelio.sandbox.cgroups import create_group
from fidelio.sandbox.directory import empty_directory, host_uid, may_switch_user
from fidelio.sandbox.launch.bubblewrap import build_arguments, find_bubblewrap
from fidelio.sandbox.launch.library import GROUP_ID, HOME, USER, USER_ID, find_interpreter, prepare_library
from fidelio.sandbox.launch.plan import TreeOperation, check_mounts, plan_tree, prepare_mount_points, refuse_visible_home
from fidelio.sandbox.model import WORKSPACE, Level, LevelReport, SandboxSpec
from fidelio.sandbox.seccomp import build_filter

__all__ = ["BASE_ENVIRONMENT", "LaunchCommand", "build_launch", "python_inside"]

# The environment of the first process inside. Commands get these and what their caller passes.
BASE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108  # of the sandbox
    "USER": USER,
    "SHELL": "/bin/bash",
}
# A directory of the host, and the owner as whom the user of the sandbox acts in it, if it is another one.
_Source = tuple[str, tuple[int, int] | None]
# The launcher binds the sources here, in a mount namespace of its own. Every user can enter it.
SOURCES = "/tmp"  # noqa: S108  # hidden by a mount of its own
_RUN_LAUNCHER = "import sys; sys.path.insert(0, sys.argv[2]); from fidelio.sandbox.inside.launcher import main; main()"
# Limits hold for the processes of the sandbox only if they are set inside of its user namespace. Then the sandbox is what the
# kernel ends first when memory runs out.
_SET_LIMITS = (
    "umask 022; { echo 500 >/proc/self/oom_score_adj; } 2>/dev/null;"
    'ulimit -c 0 -u "$1" -d "$2" -f "$3" -n "$4" || exit 126; shift 4; exec "$@"'
)
_OUR_MODULE = re.compile(r"\bfidelio\.sandbox\.inside\.\w+")


class LaunchCommand(msgspec.Struct):
    """A command that starts a sandbox. `close` releases its own descriptors; call it once the command was started."""

    argv: tuple[str, ...]
    pass_fds: tuple[int, ...]
    environment: dict[str, str]
    close: Callable[[], None]


class _Preparation(msgspec.Struct):
    """Everything that the command of a level is built from.

    `uid` is None if the sandbox runs as the user of this process, `group` if it has no control group.
    """

    spec: SandboxSpec
    library: Path
    operations: tuple[TreeOperation, ...]
    program: tuple[str, ...]
    pass_fds: tuple[int, ...]
    uid: int | None
    group: Path | None
    contents: list[int]


def python_inside(spec: SandboxSpec) -> tuple[str, ...]:  # noqa: ARG001  # a specification may choose another one later
    """The command line prefix that runs our Python files inside of the sandbox."""
    return find_interpreter().argv


def build_launch(
    spec: SandboxSpec, report: LevelReport, program: Sequence[str], *, pass_fds: Sequence[int] = ()
) -> LaunchCommand:
    """The command that runs `program` as process 1 of the sandbox.

    The descriptors in `pass_fds` reach it under the same numbers; no other does. Raises `SandboxUnavailable`.
    """
    if report.level == "none":
        raise SandboxUnavailable(f"No sandbox can be started here: {report.reason}", remedy=report.remedy)
    prepared = _prepare(spec, tuple(program), tuple(pass_fds))
    try:
        return _BUILDERS[report.level](prepared)
    except BaseException:
        _close(prepared.contents)
        raise


def _prepare(spec: SandboxSpec, program: tuple[str, ...], pass_fds: tuple[int, ...]) -> _Preparation:
    directory = Path(spec.directory)
    uid = _find_uid(directory)
    library = prepare_library(directory.parents[1])
    empty_directory(directory / "tmp")
    prepare_mount_points(spec, os.geteuid() if uid is None else uid)
    group = create_group(directory.name, spec.limits)
    return _Preparation(spec, library, plan_tree(spec, library), program, pass_fds, uid, group, [])


def _find_uid(directory: Path) -> int | None:
    """The user to become, if this process is root."""
    try:
        uid = host_uid(directory)
    except OSError as error:
        raise SandboxUnavailable(
            f"The directory of the sandbox cannot be read: {error.strerror}.", remedy="Create the session anew."
        ) from error
    if not may_switch_user():
        return None
    if uid == 0:
        raise SandboxUnavailable(
            "The directory of the sandbox belongs to root, and no sandbox runs as root.", remedy="Create the session anew."
        )
    return uid


def _build_bubblewrap(prepared: _Preparation) -> LaunchCommand:
    program = find_bubblewrap()
    if program is None:
        raise SandboxUnavailable("bubblewrap is not installed.", remedy="Install it: sudo apt-get install bubblewrap.")
    sources, operations = _relocate(prepared)
    arguments = build_arguments(
        operations,
        network=prepared.spec.network,
        environment=BASE_ENVIRONMENT,
        directory=WORKSPACE,
        seccomp=_open_content(build_filter(), prepared),
    )
    argv = (program, "--args", str(_open_content(arguments, prepared)), "--", *_with_limits(prepared))
    if prepared.uid is None and prepared.group is None:
        return _finish(argv, prepared)
    return _build_launcher("bubblewrap", {"argv": argv, "sources": sources}, prepared)


def _build_namespaces(prepared: _Preparation) -> LaunchCommand:
    sources, operations = _relocate(prepared)
    task = {
        "argv": _with_limits(prepared),
        "sources": sources,
        "operations": operations,
        "shares_network": prepared.spec.network == "host",
        "environment": BASE_ENVIRONMENT,
        "directory": WORKSPACE,
        "filter": _open_content(build_filter(), prepared),
        "inner_user": USER_ID,
        "inner_group": GROUP_ID,
    }
    return _build_launcher("namespaces", task, prepared)


def _relocate(prepared: _Preparation) -> tuple[list[_Source], list[TreeOperation]]:
    """The sources, and the operations with the paths at which they are found: as root the launcher binds them elsewhere."""
    if prepared.uid is None:
        return [], list(prepared.operations)
    sources = sorted({operation.source for operation in prepared.operations if operation.kind.startswith("bind")})
    projects = {mount.source for mount in check_mounts(prepared.spec) if mount.kind == "project"}
    staged = {source: f"{SOURCES}/{number}" for number, source in enumerate(sources)}
    return [(source, _find_owner(source, prepared.uid) if source in projects else None) for source in sources], [
        msgspec.structs.replace(operation, source=staged.get(operation.source, operation.source))
        if operation.kind.startswith("bind")
        else operation
        for operation in prepared.operations
    ]


def _find_owner(source: str, uid: int) -> tuple[int, int] | None:
    """The person whose project this is, unless it is a copy that belongs to the sandbox."""
    found = Path(source).stat()
    return None if found.st_uid == uid else (found.st_uid, found.st_gid)


def _build_landlock(prepared: _Preparation) -> LaunchCommand:
    spec, program = prepared.spec, prepared.program
    if spec.network != "none":
        raise SandboxUnavailable(
            f"Network '{spec.network}' is not available at the isolation level 'landlock'.",
            remedy=Hint("Use network 'none'; ", Command("doctor"), " says how to get a better level."),
        )
    if "-c" not in program:
        raise SandboxUnavailable(
            "The isolation level 'landlock' runs no programs.",
            remedy=Hint(Command("doctor"), " says how to get a better level."),
        )
    refuse_visible_home(spec)
    code = program.index("-c") + 1
    limits = spec.limits
    task = {
        "mounts": [(mount.path, mount.source, mount.access == "read_write") for mount in check_mounts(spec)],
        "filter": _open_content(build_filter(files_only=True), prepared),
        "modules": sorted(set(_OUR_MODULE.findall(program[code]))),
        "limits": {
            "RLIMIT_CORE": 0,
            "RLIMIT_DATA": limits.memory_bytes,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": limits.open_files,
            # Without a user namespace the other processes of a person would count as well.
            **({} if prepared.uid is None else {"RLIMIT_NPROC": limits.processes}),
        },
        "code": program[code],
        "arguments": program[code + 1 :],
    }
    return _build_launcher("landlock", task, prepared)


def _build_launcher(level: Level, task: Mapping[str, object], prepared: _Preparation) -> LaunchCommand:
    """The command of our own launcher, which gets its task through a descriptor."""
    common = {
        "level": level,
        "parent": os.getpid(),
        "uid": prepared.uid,
        "group": None if prepared.group is None else str(prepared.group),
        "root": SOURCES,
        "keep": prepared.pass_fds,
    }
    descriptor = _open_content(marshal.dumps(msgspec.to_builtins({**common, **task}), 4), prepared)
    argv = (*find_interpreter().host_argv, "-c", _RUN_LAUNCHER, str(descriptor), str(prepared.library / "lib"))
    return _finish(argv, prepared)


def _finish(argv: tuple[str, ...], prepared: _Preparation) -> LaunchCommand:
    return LaunchCommand(argv, (*prepared.pass_fds, *prepared.contents), {}, partial(_close, prepared.contents))


def _with_limits(prepared: _Preparation) -> tuple[str, ...]:
    limits = prepared.spec.limits
    values = (
        _cap(limits.processes, resource.RLIMIT_NPROC),
        _cap(limits.memory_bytes, resource.RLIMIT_DATA) // 1024,
        _cap(limits.file_bytes, resource.RLIMIT_FSIZE) // 1024,
        _cap(limits.open_files, resource.RLIMIT_NOFILE),
    )
    return ("/bin/bash", "-c", _SET_LIMITS, "sandbox", *map(str, values), *prepared.program)


def _cap(value: int, limit: int) -> int:
    """No process can raise its own hard limit."""
    hard = resource.getrlimit(limit)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _open_content(content: bytes, prepared: _Preparation) -> int:
    """A descriptor from which the content can be read. A pipe could be too small for it."""
    descriptor = os.memfd_create("fidelio")
    prepared.contents.append(descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


_BUILDERS: Mapping[Level, Callable[[_Preparation], LaunchCommand]] = {
    "bubblewrap": _build_bubblewrap,
    "namespaces": _build_namespaces,
    "landlock": _build_landlock,
}
