"""Specification of the sandbox of a session: its mounts, its network, its limits, its variables.

It is built from the record for every call: what the call asks a person for and what the sandbox is started with are the same.
No tool returns the directories of the host that it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fidelio.runtime.environments.versions import EnvironmentVersion, load_environment
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.resources.projection import update_projection
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.model import (
    LEARNINGS,
    PROJECT,
    RUNTIME,
    RUNTIME_LINK,
    SUBSTRATE,
    WORKSPACE,
    Access,
    Mount,
    SandboxLimits,
    SandboxSpec,
)

# The directory that holds the copy of the user's project, in the directory of the session.
PROJECT_COPY = "project"


async def build_spec(context: RuntimeContext, session: LoadedRuntime) -> SandboxSpec:
    """Everything that the sandbox of the session is built from. Raises `EnvironmentProblem`."""
    record = session.record
    chosen = await load_environment(context, record.environment, record.environment_version)
    substrate = await update_projection(await Substrate.open(context, record.project, record.agent))
    directory = session_directory(context, record)
    return _build(session.id, directory, chosen, (*_session_mounts(directory, substrate), *_project_mounts(directory, record)))


def session_directory(context: RuntimeContext, record: RuntimeRecord) -> Path:
    """The private directory of a session on the host."""
    return context.home.path / "sandboxes" / record.directory


def _build(session: str, directory: Path, chosen: EnvironmentVersion, mounts: tuple[Mount, ...]) -> SandboxSpec:
    environment = chosen.environment
    limits = environment.limits
    return SandboxSpec(
        session=session,
        directory=str(directory),
        mounts=mounts,
        network=environment.network,
        hosts=environment.hosts,
        limits=SandboxLimits(
            processes=limits.processes,
            memory_bytes=limits.memory_bytes,
            file_bytes=limits.file_bytes,
            disk_bytes=limits.disk_bytes,
            open_files=limits.open_files,
        ),
        toolchains=environment.read_only,
        environment=dict(environment.variables),
    )


def _session_mounts(directory: Path, substrate: Path) -> Iterator[Mount]:
    """The mounts that every session has."""
    runtime = str(directory / "runtime")
    yield Mount(WORKSPACE, str(directory / "workspace"), "read_write", "session_workspace")
    yield Mount(SUBSTRATE, str(substrate), "read_only", "agent_workspace_substrate")
    yield Mount(RUNTIME, runtime, "read_only", "session_runtime_memory")
    yield Mount(RUNTIME_LINK, runtime, "read_only", "session_runtime_memory")
    yield Mount(LEARNINGS, str(directory / "learnings"), "read_only", "learnings_memory_store")


def _project_mounts(directory: Path, record: RuntimeRecord) -> Iterator[Mount]:
    if record.mount_mode == "copy":
        yield Mount(PROJECT, str(directory / PROJECT_COPY), "read_write", "project")
    elif record.mount_mode:
        access: Access = "read_write" if record.mount_mode == "rw" else "read_only"
        yield Mount(PROJECT, record.mount_source, access, "project")
