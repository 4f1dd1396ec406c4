"""Preparation of a version of an environment: its setup command runs once, and its programs must be there.

The setup runs in a sandbox of its own, with the network of the environment, and writes into /environment. The result is kept
under a random name and is mounted read-only at the same path in every sandbox of that version. A setup may take longer than a
call waits: the sandbox and the id of the command are on record, so the next call, of whichever process, waits for the same
command. What a crash interrupts is started again in an empty directory.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import stat
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import DocumentConflict, EnvironmentProblem, SandboxError
from fidelio.ids import new_id
from fidelio.ledger.model import NewEvent, PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.environments.versions import Environment, EnvironmentVersion
from fidelio.runtime.stores import Store, open_store
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.sandbox.directory import create_directory, host_uid, remove_directory, share
from fidelio.sandbox.model import WORKSPACE, Mount, SandboxLimits, SandboxSpec

MOUNT = "/environment"
AREA = "environments"
WAIT_MS = 40_000
MAX_MINUTES = 30
_SCRIPT = f"{WORKSPACE}/setup.sh"
_MISSING = "fidelio: missing programs:"


class Setup(msgspec.Struct, frozen=True):
    """A preparation on record. `directory` is that of its sandbox while it runs, then that of the result."""

    directory: str
    session: str = ""
    command: str = ""
    started_at: int = 0
    is_ready: bool = False


class _StoredSetup(msgspec.Struct, frozen=True):
    setup: Setup | None
    number: int


async def find_prepared(context: RuntimeContext, chosen: EnvironmentVersion) -> Path | None:
    """The directory that a version needs at /environment, prepared now if it is not; None if it needs none.

    Raises `EnvironmentProblem` if the preparation fails or takes longer than a call waits.
    """
    if not chosen.environment.needs_preparation:
        return None
    store = await open_store(context, "environments")
    stored = await _load(context, store, chosen)
    if stored.setup is not None and stored.setup.is_ready:
        result = context.home.path / "sandboxes" / AREA / stored.setup.directory
        if result.is_dir():
            return result
    return await _prepare(context, store, chosen, stored)


async def _prepare(context: RuntimeContext, store: Store, chosen: EnvironmentVersion, stored: _StoredSetup) -> Path:
    setup = stored.setup
    if setup is not None and not setup.is_ready and _is_overdue(context, setup):
        await _discard(context, setup)
        setup = None
    if setup is None or setup.is_ready:
        stored = await _claim(context, store, chosen, stored.number)
        setup = stored.setup
    assert setup is not None
    spec = _build_spec(context, chosen, setup)
    try:
        result = await _run(context, spec, chosen.environment, setup)
    except SandboxError:
        # Another process has finished this setup meanwhile and removed its directory.
        if (await _load(context, store, chosen)).number == stored.number:
            raise
        return await _find_result(context, store, chosen)
    if result["status"] != "completed":
        raise _make_unready_error(chosen)
    if problem := _find_failure(result):
        await _forget(context, store, chosen, stored)
        await _discard(context, setup)
        raise EnvironmentProblem(f"The environment {chosen.label} cannot be set up: {problem}")
    return await _keep(context, store, chosen, stored)


async def _claim(context: RuntimeContext, store: Store, chosen: EnvironmentVersion, number: int) -> _StoredSetup:
    """Put a new preparation on record. Only the first of several processes does; the others use its sandbox."""
    directory = await asyncio.to_thread(create_directory, context.home.ensure().path)
    await asyncio.to_thread(_create_result, directory)
    setup = Setup(directory.name, new_id("environment-"), new_id("cmd_"), context.clock())
    try:
        await _save(context, store, chosen, setup, number)
    except DocumentConflict:
        await asyncio.to_thread(remove_directory, directory)
        return await _load_running(context, store, chosen)
    return _StoredSetup(setup, number + 1)


async def _load_running(context: RuntimeContext, store: Store, chosen: EnvironmentVersion) -> _StoredSetup:
    stored = await _load(context, store, chosen)
    if stored.setup is None or stored.setup.is_ready:
        raise EnvironmentProblem(f"The environment {chosen.label} was just set up or failed.", remedy="Call again.")
    return stored


def _create_result(directory: Path) -> None:
    result = directory / "environment"
    result.mkdir(mode=0o755)
    share(result, host_uid(directory))


async def _run(context: RuntimeContext, spec: SandboxSpec, environment: Environment, setup: Setup) -> dict[str, Any]:
    """Start the command, or wait for it: the same id is never run twice in a sandbox."""
    await _act(context, spec, "write_text", {"path": _SCRIPT, "content": _build_script(environment)})
    arguments = {
        "command": f"bash -e {_SCRIPT}",
        "commandId": setup.command,
        "waitMs": WAIT_MS,
        "maxOutputChars": 4_000,
        "setCwd": MOUNT,
        "setEnvironment": dict(environment.variables),
    }
    return await _act(context, spec, "exec_persistent_shell", arguments)


async def _act(context: RuntimeContext, spec: SandboxSpec, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result = await context.sandboxes.call(spec, action, arguments, timeout=WAIT_MS / 1000 + 15)
    if result.error is not None:
        raise EnvironmentProblem(f"The environment cannot be set up: {result.error.message}")
    return dict(result.output)


def _build_script(environment: Environment) -> str:
    """The setup in an empty directory, then the check of the programs."""
    check = f"""
missing=
for program in {shlex.join(environment.packages)}; do
  command -v -- "$program" >/dev/null || missing="$missing $program"
done
if [ -n "$missing" ]; then echo "{_MISSING}$missing" >&2; exit 1; fi
"""
    start = f"cd {MOUNT}\nfind . -mindepth 1 -delete\n"
    # In a subshell, so that an `exit 0` of the setup does not skip the check.
    setup = f"(\n{environment.setup}\n)\n" if environment.setup else ""
    return start + setup + (check if environment.packages else "")


def _find_failure(result: dict[str, Any]) -> str:
    if result.get("exitCode") == 0:
        return ""
    errors = str(result.get("stderr", "")).strip()
    if _MISSING in errors:
        names = ", ".join(errors.rpartition(_MISSING)[2].split())
        return f"these programs are missing inside of the sandbox: {names}. Install them below /usr, or add read_only paths."
    return f"its setup command ended with exit code {result.get('exitCode')}: {errors[-1_000:] or 'it printed no error'}"


async def _keep(context: RuntimeContext, store: Store, chosen: EnvironmentVersion, stored: _StoredSetup) -> Path:
    """Keep the result under a name of its own and end the sandbox that made it."""
    assert stored.setup is not None
    sandboxes = context.home.path / "sandboxes"
    directory = sandboxes / stored.setup.directory
    await context.sandboxes.stop(stored.setup.session)
    name = secrets.token_hex(8)
    try:
        await asyncio.to_thread(_move_result, directory / "environment", sandboxes / AREA / name)
    except FileNotFoundError:
        # Another process waited for the same command and was faster.
        return await _find_result(context, store, chosen)
    await _save(context, store, chosen, Setup(name, is_ready=True), stored.number)
    await asyncio.to_thread(remove_directory, directory)
    return sandboxes / AREA / name


async def _find_result(context: RuntimeContext, store: Store, chosen: EnvironmentVersion) -> Path:
    stored = await _load(context, store, chosen)
    if stored.setup is None or not stored.setup.is_ready:
        raise _make_unready_error(chosen)
    return context.home.path / "sandboxes" / AREA / stored.setup.directory


def _move_result(source: Path, target: Path) -> None:
    """Move the result and let every sandbox read it. Nothing of it is followed: a setup may have made any link."""
    target.parent.mkdir(mode=0o700, exist_ok=True)
    source.rename(target)
    for _, directories, files, top in os.fwalk(target, follow_symlinks=False):
        os.fchmod(top, stat.S_IMODE(os.fstat(top).st_mode) | 0o555)
        for name in (*directories, *files):
            found = os.stat(name, dir_fd=top, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                readable = 0o555 if found.st_mode & 0o100 else 0o444
                os.chmod(name, stat.S_IMODE(found.st_mode) | readable, dir_fd=top)


async def _discard(context: RuntimeContext, setup: Setup) -> None:
    await context.sandboxes.stop(setup.session)
    await asyncio.to_thread(remove_directory, context.home.path / "sandboxes" / setup.directory)


def _is_overdue(context: RuntimeContext, setup: Setup) -> bool:
    # Without the directory of the result, the result was moved by a process that was killed before it could say so.
    result = context.home.path / "sandboxes" / setup.directory / "environment"
    return not result.is_dir() or context.clock() - setup.started_at > MAX_MINUTES * 60_000


def _build_spec(context: RuntimeContext, chosen: EnvironmentVersion, setup: Setup) -> SandboxSpec:
    environment, directory = chosen.environment, context.home.path / "sandboxes" / setup.directory
    return SandboxSpec(
        session=setup.session,
        directory=str(directory),
        mounts=(
            Mount(WORKSPACE, str(directory / "workspace"), "read_write", "session_workspace"),
            Mount(MOUNT, str(directory / "environment"), "read_write", "toolchain"),
        ),
        network=environment.network,
        hosts=environment.hosts,
        limits=msgspec.convert(msgspec.to_builtins(environment.limits), SandboxLimits),
        toolchains=environment.read_only,
        environment=dict(environment.variables),
    )


def _space(store: Store) -> str:
    return f"environment-setups:{store.id}"


def _path(chosen: EnvironmentVersion) -> str:
    return f"{chosen.name}/{chosen.version}"


async def _load(context: RuntimeContext, store: Store, chosen: EnvironmentVersion) -> _StoredSetup:
    document = await context.ledger.document(_space(store), _path(chosen))
    if document is None:
        return _StoredSetup(None, 0)
    setup = None if document.text is None else msgspec.json.decode(document.text, type=Setup)
    return _StoredSetup(setup, document.version)


async def _save(context: RuntimeContext, store: Store, chosen: EnvironmentVersion, setup: Setup | None, expect: int) -> None:
    text = None if setup is None else msgspec.json.encode(setup).decode()
    document = PutDocument(space=_space(store), path=_path(chosen), text=text, expect=expect)
    # Without an event of its own a stored document does not verify.
    event = NewEvent(type=_event_type(setup), body={"name": chosen.name, "version": chosen.version})
    await context.ledger.commit(store.change(event, documents=(document,)))


def _event_type(setup: Setup | None) -> str:
    if setup is None:
        return e.ENVIRONMENT_FAILED
    return e.ENVIRONMENT_PREPARED if setup.is_ready else e.ENVIRONMENT_PREPARING


async def _forget(context: RuntimeContext, store: Store, chosen: EnvironmentVersion, stored: _StoredSetup) -> None:
    try:
        await _save(context, store, chosen, None, stored.number)
    except DocumentConflict:
        # Another process has seen the same failure.
        return


def _make_unready_error(chosen: EnvironmentVersion) -> EnvironmentProblem:
    sentence = f"The environment {chosen.label} is still being set up."
    return EnvironmentProblem(sentence, remedy="Call again in a moment.", retryable=True)
