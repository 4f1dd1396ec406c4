"""Specification of the sandbox of a session: its mounts, its network, its limits, its variables.

It is built from the record for every call: what the call asks a person for and what the sandbox is started with are the same.
No tool returns the directories of the host that it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import asdict

from fidelio.runtime.agents.definition import SkillReference
from fidelio.runtime.environments.preparation import MOUNT, find_prepared
from fidelio.runtime.environments.versions import EnvironmentVersion, load_environment
from fidelio.runtime.memory_stores.mounting import list_store_mounts, prepare_stores
from fidelio.runtime.project.copying import COPY, ensure_copy
from fidelio.runtime.project.mounting import adopt_owner
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.resources.projection import update_projection
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.skills.uploaded import show_skills
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.uploads.projection import list_file_mounts, project_files
from fidelio.runtime.vaults import Vault, list_visible
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


async def build_spec(context: RuntimeContext, session: LoadedRuntime) -> SandboxSpec:
    """Everything that the sandbox of the session is built from.

    What is missing on the host is made: the copy of the project, the shared files, the preparation of the environment. Raises
    `EnvironmentProblem` and `UsageProblem` where that is not possible.
    """
    record = session.record
    directory = session_directory(context, record)
    chosen = await load_environment(context, record.environment, record.environment_version)
    prepared = await find_prepared(context, chosen)
    substrate = await update_projection(await Substrate.open(context, record.project, record.agent))
    vaults = await list_visible(context, record)
    if vaults or record.mount_mode or record.resources:
        await asyncio.to_thread(_prepare_directory, context, record, directory, vaults)
    await project_files(context.ledger, record, directory)
    # A skill that was deleted meanwhile is not mounted any more.
    references = tuple(SkillReference(id=skill.skill_id, version=skill.version) for skill in record.skills)
    skills, _ = await show_skills(context, record.project, references)
    mounts = (
        *_session_mounts(directory, substrate),
        *_project_mounts(directory, record),
        *(Mount(vault.mount_path, f"{directory}/vaults/{vault.name}", "read_only", "vault") for vault in vaults),
        *list_store_mounts(record, directory),
        *list_file_mounts(record, directory),
        *(skill.mount() for skill in skills),
        *([Mount(MOUNT, str(prepared), "read_only", "toolchain")] if prepared else []),
    )
    return _build(session.id, directory, chosen, mounts)


def session_directory(context: RuntimeContext, record: RuntimeRecord) -> Path:
    """The private directory of a session on the host."""
    return context.home.path.joinpath("sandboxes", record.directory)


def _prepare_directory(context: RuntimeContext, record: RuntimeRecord, directory: Path, vaults: tuple[Vault, ...]) -> None:
    """Make what the mounts of the record need in the directory of the session."""
    for vault in vaults:
        empty = directory / "vaults" / vault.name
        empty.mkdir(exist_ok=True)
        # The user of the sandbox lists it, whatever the umask says.
        empty.chmod(0o755)
    prepare_stores(record, directory)
    if record.mount_mode == "copy":
        ensure_copy(directory, record.mount_source, context.home.path)
    elif record.mount_mode == "rw":
        adopt_owner(directory, record.mount_source)


def _build(session: str, directory: Path, chosen: EnvironmentVersion, mounts: tuple[Mount, ...]) -> SandboxSpec:
    environment = chosen.environment
    return SandboxSpec(
        session=session,
        directory=str(directory),
        mounts=mounts,
        network=environment.network,
        hosts=environment.hosts,
        limits=SandboxLimits(**asdict(environment.limits)),
        toolchains=environment.read_only,
        environment=dict(environment.variables),
    )


def _session_mounts(directory: Path, substrate: Path) -> Iterator[Mount]:
    """The mounts that every session has."""
    # Texts, because every call builds them: a `Path` for each takes longer than all other work here.
    runtime = f"{directory}/runtime"
    yield Mount(WORKSPACE, f"{directory}/workspace", "read_write", "session_workspace")
    yield Mount(SUBSTRATE, str(substrate), "read_only", "agent_workspace_substrate")
    yield Mount(RUNTIME, runtime, "read_only", "session_runtime_memory")
    yield Mount(RUNTIME_LINK, runtime, "read_only", "session_runtime_memory")
    yield Mount(LEARNINGS, f"{directory}/learnings", "read_only", "learnings_memory_store")


def _project_mounts(directory: Path, record: RuntimeRecord) -> Iterator[Mount]:
    if record.mount_mode == "copy":
        yield Mount(PROJECT, str(directory / COPY), "read_write", "project")
    elif record.mount_mode:
        access: Access = "read_write" if record.mount_mode == "rw" else "read_only"
        yield Mount(PROJECT, record.mount_source, access, "project")
