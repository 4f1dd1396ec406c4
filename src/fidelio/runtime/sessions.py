"""Sessions of agents: begun from a version of an agent, and described."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import UsageProblem
from fidelio.ids import new_session_id
from fidelio.ledger.model import NewEvent, NewSession
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import SkillReference
from fidelio.runtime.agents.versions import load_agent, load_session_agent
from fidelio.runtime.environments.service import Environments
from fidelio.runtime.environments.versions import EnvironmentVersion
from fidelio.runtime.project import parse_mount
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.skills.uploaded import show_skills
from fidelio.runtime.stores import find_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.uploads.attaching import list_chunks
from fidelio.runtime.vaults import Vaults
from fidelio.runtime.wakes.ending import wake_job
from fidelio.runtime.wakes.rules import find_next, merge_budget
from fidelio.sandbox.directory import create_directory, remove_directory


class NewAgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to begin. `version` None: the newest. `model`, `budget` and `tools` narrow or replace those of the agent.

    `environment_version` None: the version that the name means now. A child takes that of its parent.
    """

    project: str
    agent: str
    name: str | None = None
    version: int | None = None
    # A definition of its own, which `define_variant` has stored.
    variant: str = ""
    model: str = ""
    title: str = ""
    environment: str | None = None
    environment_version: int | None = None
    mount: str | None = None
    vaults: tuple[str, ...] = ()
    budget: Mapping[str, float] = msgspec.field(default_factory=dict)
    tools: tuple[str, ...] = ()
    policies: Mapping[str, str] = msgspec.field(default_factory=dict)
    parent: str | None = None
    depth: int = 0
    root: str = ""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    vault_ids: tuple[str, ...] = ()
    # Each with `id`, `type` and `content`; the caller has checked them.
    resources: tuple[Mapping[str, Any], ...] = ()
    deployment_id: str = ""
    # The digest of the request, which a repetition of it must have too.
    content_digest: str = ""


class InitialEvents(msgspec.Struct, frozen=True):
    """What a session begins with, checked by `Sending.check_initial`."""

    events: tuple[NewEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()


NO_INITIAL_EVENTS = InitialEvents()


def session_namespace(project: str) -> str:
    """Names of runtime sessions are unique in a project, apart from those of other kinds."""
    return f"runtime:{project}"


async def load_agent_policies(context: RuntimeContext, project: str, agent: str) -> dict[str, str]:
    """The policies that a person has set for the sessions of an agent."""
    store = await find_store(context, "substrate", project=project, agent=agent)
    return {} if store is None else (await context.unit.load(store.id)).record.policies


async def create_session(context: RuntimeContext, request: NewAgentSession, initial: InitialEvents = NO_INITIAL_EVENTS) -> str:
    """Begin a session of an agent, with what is sent to it first. Raises `SessionExists` if its name is taken."""
    plan = await plan_session(context, request)
    jobs = wake_job(plan.session) if initial.events else ()
    events = (*plan.events, *initial.events)
    decision = SessionDecision(None, events=events, blobs=initial.blobs, jobs=jobs, create=plan.create)
    try:
        await context.unit.create(plan.session, RuntimeRecord(), decision)
    except BaseException:
        await asyncio.to_thread(remove_directory, plan.directory)
        raise
    return plan.session


async def configure_session(
    context: RuntimeContext, session: str, change: Callable[[RuntimeRecord], Mapping[str, Any]], *, by: str
) -> None:
    """Change what a session is configured with. `change` gives the changed keys from the record; none if nothing changes."""

    def configure(current: LoadedRuntime) -> SessionDecision[None] | None:
        body = change(current.record)
        return SessionDecision(None, events=(NewEvent(type=e.CONFIGURED, body=body, actor=by),)) if body else None

    await context.unit.update(session, configure)


class SessionPlan(msgspec.Struct, frozen=True):
    """A session that was checked and whose directory exists, ready to be committed."""

    session: str
    create: NewSession
    events: tuple[NewEvent, ...]
    directory: Path


async def plan_session(context: RuntimeContext, request: NewAgentSession) -> SessionPlan:
    """Check what a session is to begin with, and create its directory. Raises what is wrong with it."""
    agent = await load_agent(context, request.project, request.agent, request.version, variant=request.variant)
    definition = agent.definition
    check_price(context, request.model or definition.model, merge_budget(definition.limits, dict(request.budget)).usd)
    await Vaults(context).require(request.vaults)
    environment = await _find_environment(context, request, definition.environment)
    mount = parse_mount(request.mount, Path(request.project))
    skills = await _describe_skills(context, request.project, definition.skills.references)
    directory = await asyncio.to_thread(create_directory, context.home.ensure().path)
    body = {
        "agent": request.agent,
        "agent_version": agent.version,
        **({"agent_variant": request.variant} if request.variant else {}),
        "project": request.project,
        "directory": directory.name,
        "environment": environment.name,
        "environment_version": environment.version,
        "vaults": list(request.vaults),
        "policies": {**definition.tools.list_policies(), **await _load_changed_policies(context, request), **request.policies},
        "model": request.model,
        "title": request.title[:200],
        "tools": list(request.tools),
        "budget": dict(request.budget),
        "depth": request.depth,
        "root": request.root,
        **_describe_attachments(request),
        **skills,
        **({"mount_mode": mount.mode, "mount_source": mount.source} if mount is not None else {}),
    }
    create = NewSession(kind="runtime", namespace=session_namespace(request.project), name=request.name, parent=request.parent)
    started = NewEvent(type=e.STARTED, body=body, blobs=list_chunks(request.resources))
    return SessionPlan(new_session_id(), create, (started,), directory)


def _describe_attachments(request: NewAgentSession) -> dict[str, Any]:
    attached = {
        "metadata": dict(request.metadata),
        "vault_ids": list(request.vault_ids),
        "resources": [dict(resource) for resource in request.resources],
        "deployment_id": request.deployment_id,
        "content_digest": request.content_digest,
    }
    return {name: value for name, value in attached.items() if value}


async def _describe_skills(context: RuntimeContext, project: str, uploaded: tuple[SkillReference, ...]) -> dict[str, Any]:
    """The uploaded skills of the agent, whose files the sandbox of the session shows."""
    placed, missing = await show_skills(context, project, uploaded)
    if missing:
        raise UsageProblem(
            f"{len(missing)} of the skills of the agent were deleted.", remedy="Update the agent so that it has others."
        )
    found = [{"name": skill.name, "skill_id": skill.origin.id, "version": skill.origin.version} for skill in placed]
    return {"skills": found} if found else {}


async def _find_environment(context: RuntimeContext, request: NewAgentSession, default: str) -> EnvironmentVersion:
    environments = Environments(context)
    if request.environment is not None and request.environment_version is not None:
        return await environments.load(request.environment, request.environment_version)
    return await environments.resolve(request.environment or default, request.project)


async def _load_changed_policies(context: RuntimeContext, request: NewAgentSession) -> dict[str, str]:
    """What a person has set for the agent. A child has the policies of its parent: newer ones could allow it more."""
    return {} if request.parent is not None else await load_agent_policies(context, request.project, request.agent)


def check_price(context: RuntimeContext, model: str, usd: float | None) -> None:
    """Refuse a limit in money for a model whose price nobody has set: nobody could check it."""
    if usd and context.ports.models.describe(model).price is None:
        raise UsageProblem(
            f"The price of the model {model} is not known, so a limit of {usd:g} US dollars cannot be kept.",
            remedy="Set its price in models.yaml of the home, or limit tokens instead.",
        )


async def describe_session(context: RuntimeContext, session: str) -> dict[str, Any]:
    """What a session is, does, waits for and has used."""
    loaded = await context.unit.load(session)
    record, wakes = loaded.record, loaded.record.wakes
    agent = await load_session_agent(context, record) if record.agent_version else None
    model = record.model or (agent.definition.model if agent else "")
    budget = merge_budget(agent.definition.limits, record.budget) if agent else None
    next_due = find_next(wakes)
    # What a session asked for is dismissed when it ends or is archived; the call stays open on record.
    blocking = () if record.is_archived or record.status == "terminated" else wakes.blocking
    return {
        "sessionId": session,
        "name": loaded.session.name,
        "title": record.title,
        "agent": record.agent,
        "version": record.agent_version,
        "model": model,
        "project": record.project,
        "status": record.status,
        "stopReason": wakes.stop_reason or None,
        "isArchived": record.is_archived,
        "requiresAction": bool(blocking),
        "waiting": [
            {"toolUseId": call.id, "tool": call.name, "kind": _kind_of(call.state), "requestId": call.request or None}
            for call in blocking
        ],
        "pending": wakes.pending,
        "wakes": wakes.count,
        "summary": wakes.summary,
        "lastWakeId": wakes.last or None,
        "nextWakeAt": format_iso(next_due) if next_due is not None else None,
        "queuedWakes": [
            {"id": wake.id, "due": format_iso(wake.due), "reason": wake.reason, "note": wake.note, "priority": wake.priority}
            for wake in wakes.queued
        ],
        "schedules": [
            {"name": s.name, "everySeconds": s.every_seconds, "note": s.note, "next": format_iso(s.next)}
            for s in wakes.schedules
        ],
        "usage": {**msgspec.structs.asdict(wakes.usage), "tokens": wakes.usage.tokens},
        "costUsd": round(wakes.usage.cost_micros / 1_000_000, 6),
        "budget": msgspec.to_builtins(budget) if budget else None,
        "outcomes": [
            {"id": o.id, "title": o.title, "author": o.author, "status": o.latest.status if o.latest else "not_ready"}
            for o in record.outcomes.outcomes
        ],
        "readers": record.readers or None,
        "parent": loaded.session.parent,
        "createdAt": format_iso(loaded.session.created_at),
        "updatedAt": format_iso(loaded.session.updated_at),
    }


def _kind_of(state: str) -> str:
    return {"waiting": "tool_confirmation", "worker": "worker"}.get(state, "custom_tool")
