"""Runs of deployments: the job that comes at the times of a schedule, and the start of a session.

Each time runs once, however many servers share the ledger: only the holder of the job's lease commits the next time, and the
session and the run of a time have names of their own, so that a worker that goes on after a crash finds what was begun. Times
that were missed are made up for by a single run.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from msgspec.structs import replace

from fidelio.errors import FidelioError, RuntimeProblem, SessionExists, SessionNotFound, UsageProblem
from fidelio.ids import SESSION_PREFIX, new_id
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Completion
from fidelio.retry import TRANSIENT
from fidelio.runtime.agents.entries import load_entry
from fidelio.runtime.deployments.deployments import (
    DEPLOYMENT_JOB,
    MANUAL,
    Deployment,
    DeploymentContent,
    DeploymentRun,
    Deployments,
    RunContent,
    RunProblem,
    compute_next,
    find_due,
)
from fidelio.runtime.objects import ObjectJob, ObjectPlan, find_state
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.sending import Sending
from fidelio.runtime.sessions import NewAgentSession, create_session, session_namespace
from fidelio.runtime.skills.uploaded import show_skills
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.uploads.attaching import FILE, refresh_resource
from fidelio.runtime.uploads.files import StoredFile, StoredFiles
from fidelio.runtime.uploads.sources import resolve_files
from fidelio.sandbox.directory import remove_directory

ACTOR, CHANNEL = "deployment", "api"
REJECTED, UNKNOWN = "session_creation_rejected_error", "unknown_error"
_REJECTING = (UsageProblem, RuntimeProblem)
# With these a schedule stops: the next run would fail like this one, until somebody changes something.
_PAUSING = frozenset(
    {
        "agent_archived_error",
        "environment_archived_error",
        "environment_not_found_error",
        "vault_archived_error",
        "vault_not_found_error",
        "file_not_found_error",
        "memory_store_archived_error",
        "session_resource_not_found_error",
        "skill_not_found_error",
    }
)


class _CannotRun(Exception):
    """Why a deployment cannot begin a session."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.problem = RunProblem(type_, message)


async def run_due(context: RuntimeContext, assignment: Assignment) -> None:
    """The job of a deployment: begin the session that is due, and queue the job of the next time."""
    project = RuntimeRecords().read((await context.ledger.session(assignment.lease.session)).raw).project
    deployments = Deployments(context, project)
    try:
        deployment = await deployments.load(assignment.lease.session)
    except SessionNotFound:
        return
    content, now = deployment.content, context.clock()
    if deployment.archived_at or not content.is_due:
        return
    if (due := find_due(deployment)) > now:
        await _queue(deployments, deployment, assignment, {"next_due": due})
        return
    run = await start_run(context, project, deployment, scheduled_at=due)
    problem = run.content.problem
    changes = {"next_due": compute_next(content, now), "last_run_at": now}
    paused = {"paused": problem.type} if problem is not None and problem.type in _PAUSING else {}
    await _queue(deployments, deployment, assignment, {**changes, **paused})


async def _queue(deployments: Deployments, deployment: Deployment, assignment: Assignment, changes: Mapping[str, Any]) -> None:
    """Commit what a run has changed, with the job of the next time; it fails if another worker has the job meanwhile."""
    due = int(changes["next_due"])

    def apply(found: Deployment) -> DeploymentContent:
        # Somebody has paused it, or changed its schedule, while the run began: that holds.
        is_same = found.content.schedule == deployment.content.schedule and found.content.is_due
        still = {name: value for name, value in changes.items() if is_same or name == "last_run_at"}
        return replace(found.content, **still)

    plan = ObjectPlan(jobs=(ObjectJob(DEPLOYMENT_JOB, due),))
    await deployments.objects.update(deployment.id, apply, by=ACTOR, plan=plan, assignment=assignment, settle=Completion())


async def start_run(
    context: RuntimeContext, project: str, deployment: Deployment, *, scheduled_at: int = 0, key: str = ""
) -> DeploymentRun:
    """Begin a session of a deployment and record it. The run of a time, or of a key, is begun once.

    Errors of the ledger that pass are raised; any other becomes the problem of the run.
    """
    runs = Deployments(context, project).runs
    # A key has any characters.
    named = hashlib.sha256(key.encode()).hexdigest()[:20] if key else new_id("")
    unique = f"{deployment.id}:{scheduled_at or named}"
    if (found := await runs.find(unique)) is not None:
        return found
    content = deployment.content
    run = RunContent(deployment=deployment.id, agent_id=content.agent_id, version=content.version, scheduled_at=scheduled_at)
    try:
        run = replace(run, session=await _begin(context, project, deployment, unique))
    except _CannotRun as error:
        run = replace(run, problem=error.problem)
    except TRANSIENT:
        raise
    except FidelioError as error:
        type_ = REJECTED if isinstance(error, _REJECTING) else UNKNOWN
        run = replace(run, problem=RunProblem(type_, str(error.text)[:2_000]))
    return await runs.create(run, by=ACTOR if scheduled_at else MANUAL, key=unique)


async def _begin(context: RuntimeContext, project: str, deployment: Deployment, unique: str) -> str:
    content = deployment.content
    await _check_references(context, project, content)
    resources = [await _refresh(context, project, resource) for resource in content.resources]
    files = StoredFiles(context, project)

    async def find(id_: str) -> StoredFile:
        try:
            return await files.load(f"{SESSION_PREFIX}{id_.removeprefix('file_')}")
        except SessionNotFound as error:
            raise _CannotRun("file_not_found_error", f"The file {id_} does not exist any more.") from error

    events = await resolve_files(files, find, content.initial_events)
    request = NewAgentSession(
        project=project,
        agent=content.agent,
        version=content.version,
        name=f"run-{unique.removeprefix(SESSION_PREFIX).replace(':', '-')}",
        title=content.name[:200],
        environment=content.environment,
        budget={} if content.budget is None else {"usd": content.budget / 100},
        vault_ids=content.vault_ids,
        resources=tuple(resources),
        deployment_id=deployment.id,
    )
    session = await _create_or_find(context, request)
    await _send(context, session, events)
    return session


async def _create_or_find(context: RuntimeContext, request: NewAgentSession) -> str:
    try:
        return await create_session(context, request)
    except SessionExists:
        # An earlier attempt has created it.
        found = await context.ledger.session_by_name(request.name or "", namespace=session_namespace(request.project))
        return found.id


async def _send(context: RuntimeContext, session: str, events: list[dict[str, Any]]) -> None:
    """Send the initial events, unless an earlier attempt has. A session that refuses them is removed."""
    loaded = await context.unit.load(session)
    if loaded.session.last_seq > 1:
        return
    try:
        await Sending(context).send(session, events, by=ACTOR, channel=CHANNEL)
    except TRANSIENT:
        raise
    except FidelioError:
        await context.ledger.erase([session], actor=ACTOR, reason="Its initial events were refused.")
        directory = context.home.path / "sandboxes" / loaded.record.directory
        await asyncio.to_thread(remove_directory, directory)
        raise


async def _refresh(context: RuntimeContext, project: str, resource: Mapping[str, Any]) -> dict[str, Any]:
    if resource["type"] != FILE:
        return {**resource, "id": new_id("sesrsc_")}
    try:
        return await refresh_resource(context, project, resource)
    except SessionNotFound as error:
        raise _CannotRun("file_not_found_error", str(error.text)) from error


async def _check_references(context: RuntimeContext, project: str, content: DeploymentContent) -> None:
    """Raise `_CannotRun` if something that the deployment refers to is archived or does not exist any more."""
    await _check_agent(context, project, content)
    if content.environment.startswith("env_"):
        await _check_object(context, project, "environment", f"{SESSION_PREFIX}{content.environment.removeprefix('env_')}")
    for vault in content.vault_ids:
        await _check_object(context, project, "vault", vault)
    for resource in content.resources:
        if resource["type"] == "memory_store":
            await _check_object(context, project, "memory_store", _find_store(resource["content"]))


def _find_store(content: Mapping[str, Any]) -> str:
    return f"{SESSION_PREFIX}{str(content.get('memory_store_id', '')).rpartition('_')[2]}"


async def _check_agent(context: RuntimeContext, project: str, content: DeploymentContent) -> None:
    try:
        entry = await load_entry(context, project, content.agent_id, content.version)
    except SessionNotFound as error:
        raise _CannotRun("agent_archived_error", "The agent does not exist any more.") from error
    if entry.archived_at:
        raise _CannotRun("agent_archived_error", "The agent is archived.")
    _, missing = await show_skills(context, project, entry.definition.skills.references)
    if missing:
        raise _CannotRun("skill_not_found_error", "A skill of the agent was deleted.")


async def _check_object(
    context: RuntimeContext, project: str, kind: Literal["environment", "vault", "memory_store"], id_: str
) -> None:
    state = await find_state(context, project, kind, id_)
    noun = kind.replace("_", " ")
    if state == "archived":
        raise _CannotRun(f"{kind}_archived_error", f"The {noun} is archived.")
    if state == DELETED:
        type_ = "session_resource_not_found_error" if kind == "memory_store" else f"{kind}_not_found_error"
        raise _CannotRun(type_, f"The {noun} does not exist any more.")
