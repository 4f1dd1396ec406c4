"""Sandboxes for checks: a read-only view of the workspace, and a copy of it for a single command.

Both are sandboxes of their own without a network, started for one evaluation and ended after it, beside that of the session.
Every byte goes through them, so a link that an agent has planted leads nowhere. The copy is made inside of the sandbox that
uses it: its command gets a home and a /tmp of its own, sees the real workspace only read-only, and whatever it changes is
removed with the copy.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from fidelio.errors import SandboxUnavailable
from fidelio.runtime.shell.live import CommandAnswer, read_answer
from fidelio.runtime.specs import build_spec, session_directory
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.directory import host_uid, remove_directory, share
from fidelio.sandbox.launch.library import HOME
from fidelio.sandbox.model import PROJECT, RUNTIME_LINK, SUBSTRATE, WORKSPACE, ActionResult, Mount, SandboxSpec

AREA = "checks"
SOURCE = "/source"
MAX_COPY_BYTES = 1 << 30
MAX_OUTPUT = 4_000
_COPY_MS = 60_000
# What the sandbox itself may take in addition to a command.
_MARGIN_SECONDS = 15.0
# A copy that a killed process has left; an evaluation takes minutes.
_STALE_MS = 30 * 60_000
_TOO_LARGE = 77


class WorkspaceView:
    """The workspace, read-only, in a sandbox that is started by the first action and ended on exit."""

    def __init__(self, context: RuntimeContext, session: LoadedRuntime) -> None:
        self._context, self._session = context, session
        self._spec: SandboxSpec | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spec is not None:
            await self._context.sandboxes.stop(self._spec.session)

    async def act(self, action: str, arguments: Mapping[str, Any]) -> ActionResult:
        """Run an action that only reads. Raises what starting a sandbox raises."""
        if self._spec is None:
            self._spec = _make_view(await build_spec(self._context, self._session))
        return await self._context.sandboxes.call(self._spec, action, arguments)


async def run_in_copy(context: RuntimeContext, session: LoadedRuntime, command: str, *, timeout_ms: int) -> CommandAnswer:
    """Run a command in a fresh copy of the workspace. Raises `SandboxError` if it cannot be run at all."""
    report = await context.sandboxes.level()
    if not report.runs_commands:
        raise SandboxUnavailable(f"Commands cannot run here: {report.reason}", remedy=report.remedy)
    async with _open_copy(context, session) as spec:
        limit = min(MAX_COPY_BYTES, spec.limits.disk_bytes // 4)
        copied = await _run(context, spec, _write_copy_script(spec, limit), _COPY_MS)
        if copied.exit_code == _TOO_LARGE:
            raise SandboxUnavailable(f"The workspace has more than {limit >> 20} MiB, so no copy of it is checked.")
        if copied.exit_code != 0 or copied.timed_out:
            raise SandboxUnavailable(f"The workspace could not be copied: {copied.stderr.strip()[-300:] or 'no reason given'}")
        return await _run(context, spec, command, timeout_ms)


async def _run(context: RuntimeContext, spec: SandboxSpec, command: str, timeout_ms: int) -> CommandAnswer:
    arguments = {"command": command, "cwd": WORKSPACE, "timeoutMs": timeout_ms, "maxOutputChars": MAX_OUTPUT}
    result = await context.sandboxes.call(spec, "run_shell", arguments, timeout=timeout_ms / 1000 + _MARGIN_SECONDS)
    if result.error is not None:
        raise SandboxUnavailable(f"The command could not be started: {result.error.message}")
    return read_answer(result.output)


@asynccontextmanager
async def _open_copy(context: RuntimeContext, session: LoadedRuntime) -> AsyncIterator[SandboxSpec]:
    base = await build_spec(context, session)
    top = session_directory(context, session.record)
    try:
        directory = await asyncio.to_thread(_create, top, context.clock())
    except OSError as error:
        raise SandboxUnavailable(f"No copy of the workspace can be made: {error.strerror}.") from error
    spec = _make_copy(base, directory)
    try:
        yield spec
    finally:
        await asyncio.shield(_discard(context, spec, directory))


async def _discard(context: RuntimeContext, spec: SandboxSpec, directory: Path) -> None:
    await context.sandboxes.stop(spec.session)
    await asyncio.to_thread(remove_directory, directory)


def _create(top: Path, now: int) -> Path:
    """Create the directories of a copy, for the user of the session's sandbox, who can read the workspace."""
    area = top / AREA
    area.mkdir(mode=0o700, exist_ok=True)
    for old in list(area.iterdir()):
        if now - old.lstat().st_mtime * 1000 > _STALE_MS:
            remove_directory(old)
    directory = area / secrets.token_hex(8)
    directory.mkdir(mode=0o700)
    for name in ("workspace", "project", "home", "tmp"):
        (directory / name).mkdir(mode=0o700)
        share(directory / name, host_uid(top))
    return directory


def _make_view(base: SandboxSpec) -> SandboxSpec:
    mounts = tuple(replace(mount, access="read_only") for mount in base.mounts if mount.kind != "vault")
    return _isolate(base, mounts)


def _make_copy(base: SandboxSpec, directory: Path) -> SandboxSpec:
    own = (
        Mount("/tmp", str(directory / "tmp"), "read_write", "session_workspace"),  # noqa: S108  # of the sandbox
        Mount(HOME, str(directory / "home"), "read_write", "session_workspace"),
    )
    mounts = (each for mount in base.mounts if mount.kind != "vault" for each in _mount_copy(mount, directory))
    return _isolate(base, (*mounts, *own))


def _mount_copy(mount: Mount, directory: Path) -> Iterator[Mount]:
    """What stands for a mount: a copy if it is writable, and its source read-only."""
    if mount.access == "read_only":
        yield mount
        return
    name = "project" if mount.path == PROJECT else "workspace"
    yield replace(mount, source=str(directory / name), kind="session_workspace")
    yield replace(mount, path=f"{SOURCE}/{name}", access="read_only")


def _isolate(base: SandboxSpec, mounts: tuple[Mount, ...]) -> SandboxSpec:
    """Another sandbox than that of the session, without a network."""
    return replace(base, session=f"{base.session}:check:{secrets.token_hex(6)}", mounts=mounts, network="none", hosts=())


def _write_copy_script(spec: SandboxSpec, limit: int) -> str:
    """Copy without following a link. Mount points are left out: what is mounted there is mounted here, too."""
    skipped = " ".join(f"! -name {path.removeprefix(f'{WORKSPACE}/')}" for path in (SUBSTRATE, RUNTIME_LINK, PROJECT))
    has_project = any(mount.path == f"{SOURCE}/project" for mount in spec.mounts)
    project = f"cp -a -- {SOURCE}/project/. {PROJECT}/" if has_project else ":"
    return f"""set -eu
size=$(du -s --block-size=1 -- {SOURCE} | cut -f1)
[ "$size" -le {limit} ] || exit {_TOO_LARGE}
cd {SOURCE}/workspace
find . -mindepth 1 -maxdepth 1 {skipped} -exec cp -a -t {WORKSPACE} -- {{}} +
{project}
"""
