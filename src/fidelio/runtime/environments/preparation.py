"""Preparation of a version of an environment: its setup command runs once, and its programs must be there.

The setup runs in a sandbox of its own, with the network of the environment, and writes into /environment. The result is kept
under a random name and is mounted read-only at the same path in every sandbox of that version. A setup may take longer than a
call waits: the sandbox and the id of the command are on record, so the next call, of whichever process, waits for the same
command. What a crash interrupts is started again in an empty directory.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
from contextlib import suppress
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
# How often a call looks again after another one changed the record. Each time that other call got on.
_ATTEMPTS = 8
_SCRIPT = f"{WORKSPACE}/setup.sh"
_MISSING = "fidelio: missing programs:"


class Setup(msgspec.Struct, frozen=True):
    """A preparation on record. `directory` names that of its sandbox and that of the result."""

    directory: str
    session: str = ""
    command: str = ""
    started_at: int = 0
    is_ready: bool = False


class _Overtaken(Exception):
    """The setup that a call waited for was ended by another call."""


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
    for _ in range(_ATTEMPTS):
        stored = await _load(context, store, chosen)
        if stored.setup is not None and stored.setup.is_ready and (result := _Stages(context, stored.setup).result).is_dir():
            return result
        try:
            return await _prepare(context, store, chosen, stored)
        except (DocumentConflict, _Overtaken):
            # Another call has finished, forgotten or replaced this setup meanwhile: the record says which.
            continue
    raise _make_unready_error(chosen)


async def _prepare(context: RuntimeContext, store: Store, chosen: EnvironmentVersion, stored: _StoredSetup) -> Path:
    if stored.setup is None or await _must_restart(context, stored.setup):
        stored = await _claim(context, store, chosen, stored.number)
    setup = stored.setup
    assert setup is not None
    if not _Stages(context, setup).is_finished:
        result = await _run_or_overtaken(context, store, chosen, stored)
        if result["status"] != "completed":
            raise _make_unready_error(chosen)
        if problem := _find_failure(result):
            await _forget(context, store, chosen, stored)
            await _discard(context, setup)
            raise EnvironmentProblem(f"The environment {chosen.label} cannot be set up: {problem}")
    return await _keep(context, store, chosen, stored)


async def _must_restart(context: RuntimeContext, setup: Setup) -> bool:
    """Whether a setup must begin anew; what is left of it is removed."""
    stages = _Stages(context, setup)
    if setup.is_ready:
        return True
    is_overdue = context.clock() - setup.started_at > MAX_MINUTES * 60_000
    # In this order: a result only moves forward, so that a setup whose result is in no place has lost it.
    if not (stages.source.is_dir() and not is_overdue) and not stages.is_finished:
        await _discard(context, setup)
        return True
    return False


async def _claim(context: RuntimeContext, store: Store, chosen: EnvironmentVersion, number: int) -> _StoredSetup:
    """Put a new preparation on record. Only the first of several calls does; for the others the record has changed."""
    directory = await asyncio.to_thread(create_directory, context.home.ensure().path)
    await asyncio.to_thread(_create_result, directory)
    setup = Setup(directory.name, new_id("environment-"), new_id("cmd_"), context.clock())
    try:
        await _save(context, store, chosen, setup, number)
    except DocumentConflict:
        await asyncio.to_thread(remove_directory, directory)
        raise
    return _StoredSetup(setup, number + 1)


def _create_result(directory: Path) -> None:
    result = directory / "environment"
    result.mkdir(mode=0o755)
    share(result, host_uid(directory))


async def _run_or_overtaken(
    context: RuntimeContext, store: Store, chosen: EnvironmentVersion, stored: _StoredSetup
) -> dict[str, Any]:
    """Run the command, or wait for it. Raises `_Overtaken` if its sandbox is missing because another call saw its end."""
    setup = stored.setup
    assert setup is not None
    try:
        return await _run(context, _build_spec(context, chosen, setup), chosen.environment, setup)
    except (SandboxError, EnvironmentProblem) as error:
        source = _Stages(context, setup).source
        if source.is_dir() and (await _load(context, store, chosen)).number == stored.number:
            raise
        raise _Overtaken from error


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
    """Keep the result and end the sandbox that made it. Several calls may do this at once, and continue what a crash left.

    The result is taken away before its sandbox ends: a call that still wants to run the command then finds no directory to
    mount, and cannot run it a second time in the result.
    """
    setup = stored.setup
    assert setup is not None
    stages = _Stages(context, setup)
    await asyncio.to_thread(_move_result, stages)
    await context.sandboxes.stop(setup.session)
    await asyncio.to_thread(_publish_result, stages)
    await _save(context, store, chosen, Setup(setup.directory, is_ready=True), stored.number)
    await asyncio.to_thread(remove_directory, stages.source.parent)
    return stages.result


class _Stages:
    """Where a result is: in its sandbox, taken from it, and readable for all. It only moves forward."""

    def __init__(self, context: RuntimeContext, setup: Setup) -> None:
        sandboxes = context.home.path / "sandboxes"
        self.source = sandboxes / setup.directory / "environment"
        self.taken = sandboxes / AREA / f"{setup.directory}.new"
        self.result = sandboxes / AREA / setup.directory

    @property
    def is_finished(self) -> bool:
        return self.taken.is_dir() or self.result.is_dir()


def _move_result(stages: _Stages) -> None:
    stages.taken.parent.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        stages.source.rename(stages.taken)


def _publish_result(stages: _Stages) -> None:
    """Let every sandbox read the result. Nothing of it is followed: a setup may have made any link."""
    with suppress(FileNotFoundError):
        for _, directories, files, top in os.fwalk(stages.taken, follow_symlinks=False):
            os.fchmod(top, stat.S_IMODE(os.fstat(top).st_mode) | 0o555)
            for name in (*directories, *files):
                found = os.stat(name, dir_fd=top, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    readable = 0o555 if found.st_mode & 0o100 else 0o444
                    os.chmod(name, stat.S_IMODE(found.st_mode) | readable, dir_fd=top)
        stages.taken.rename(stages.result)


async def _discard(context: RuntimeContext, setup: Setup) -> None:
    await context.sandboxes.stop(setup.session)
    await asyncio.to_thread(remove_directory, context.home.path / "sandboxes" / setup.directory)


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
