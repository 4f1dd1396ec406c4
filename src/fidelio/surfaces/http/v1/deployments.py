"""Deployments of the API, their runs, and the pages of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.errors import SessionNotFound
from fidelio.runtime.agents.entries import load_named
from fidelio.runtime.deployments.cron import find_next
from fidelio.runtime.deployments.deployments import (
    MANUAL,
    MAX_EVENTS,
    CronSchedule,
    Deployment,
    DeploymentContent,
    DeploymentRun,
    Deployments,
    list_upcoming,
)
from fidelio.runtime.deployments.running import start_run
from fidelio.surfaces.http.v1.agent_references import AgentReference
from fidelio.surfaces.http.v1.agents import choose_agent
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.environments import choose_environment, environment_id
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.initial_events import check_initial_events
from fidelio.surfaces.http.v1.session_resources import plan_resources, render_configuration
from fidelio.surfaces.http.v1.values import CostLimit, keep, patch_metadata
from fidelio.surfaces.http.v1.vaults import check_vaults

MAX_RUNS = 1_000
MAX_VAULTS = 50


class _Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["cron"]
    expression: Annotated[str, Meta(max_length=200)]
    timezone: Annotated[str, Meta(max_length=64)]


Name = Annotated[str, Meta(min_length=1, max_length=256)]
Events = Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=MAX_EVENTS)]


class UpdateDeployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of an update."""

    agent: str | AgentReference | UnsetType = UNSET
    environment_id: str | UnsetType = UNSET
    initial_events: Events | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=2_048)] | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET
    resources: tuple[dict[str, Any], ...] | UnsetType | None = UNSET
    schedule: _Schedule | UnsetType | None = UNSET
    vault_ids: Annotated[tuple[str, ...], Meta(max_length=MAX_VAULTS)] | UnsetType | None = UNSET
    budget: CostLimit | UnsetType | None = UNSET


class CreateDeployment(UpdateDeployment, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of a creation."""

    agent: str | AgentReference
    environment_id: str
    initial_events: Events
    name: Name


async def _open(request: ApiRequest) -> Deployments:
    return Deployments((await request.services.runtime()).context, request.project)


async def _find(request: ApiRequest) -> Deployment:
    id_ = request.path("deployment_id")
    try:
        return await (await _open(request)).load(to_session("depl", id_))
    except SessionNotFound:
        raise not_found("Deployment", id_) from None


async def _create(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(CreateDeployment)
    blank = DeploymentContent(name="", agent="", agent_id="", version=0, environment="", initial_events=())
    changes = await _read_changes(request, body)
    content = _apply(blank, body, changes)
    return await _render(request, await (await _open(request)).create(content, by=API_ACTOR, key=request.idempotency_key))


async def _update(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(UpdateDeployment)
    deployment = await _find(request)
    changes = await _read_changes(request, body)
    updated = await (await _open(request)).update(
        deployment.id, lambda found: _apply(found.content, body, changes), by=API_ACTOR
    )
    return await _render(request, updated)


async def _read_changes(request: ApiRequest, body: UpdateDeployment) -> dict[str, Any]:
    """The fields whose values refer to something, checked. Raises 400 and 404."""
    changes: dict[str, Any] = {}
    if not isinstance(body.agent, UnsetType):
        chosen = await choose_agent(request, body.agent)
        context = (await request.services.runtime()).context
        entry = await load_named(context, request.project, chosen.name, chosen.version)
        changes |= {"agent": chosen.name, "agent_id": entry.id, "version": chosen.version}
    if not isinstance(body.environment_id, UnsetType):
        changes["environment"] = await choose_environment(request, body.environment_id)
    if not isinstance(body.initial_events, UnsetType):
        changes["initial_events"] = await check_initial_events(request, body.initial_events)
    if not isinstance(body.resources, UnsetType):
        changes["resources"] = tuple([_forget_id(item) for item in await plan_resources(request, body.resources)])
    if not isinstance(body.vault_ids, UnsetType):
        changes["vault_ids"] = await check_vaults(request, body.vault_ids or ())
    return changes


def _forget_id(planned: Mapping[str, Any]) -> dict[str, Any]:
    """A resource without the id that it would have in a session: each session of the deployment has its own."""
    return {key: value for key, value in planned.items() if key != "id"}


def _apply(former: DeploymentContent, body: UpdateDeployment, changes: Mapping[str, Any]) -> DeploymentContent:
    return replace(
        former,
        name=former.name if isinstance(body.name, UnsetType) else body.name,
        description=keep(body.description, former.description, None) or None,
        metadata=patch_metadata(former.metadata, body.metadata),
        schedule=former.schedule if isinstance(body.schedule, UnsetType) else _read_schedule(body.schedule),
        budget=former.budget if isinstance(body.budget, UnsetType) else _read_budget(body.budget),
        **changes,
    )


def _read_schedule(schedule: _Schedule | None) -> CronSchedule | None:
    if schedule is None:
        return None
    # Raises what is wrong with it.
    find_next(schedule.expression, schedule.timezone, 0)
    return CronSchedule(schedule.expression, schedule.timezone)


def _read_budget(budget: CostLimit | None) -> int | None:
    if budget is None:
        return None
    return budget.require_cents()


async def _retrieve(request: ApiRequest) -> dict[str, Any]:
    return await _render(request, await _find(request))


async def _archive(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    return await _render(request, await (await _open(request)).archive((await _find(request)).id, by=API_ACTOR))


async def _pause(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    return await _render(request, await (await _open(request)).pause((await _find(request)).id, by=API_ACTOR))


async def _unpause(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    return await _render(request, await (await _open(request)).unpause((await _find(request)).id, by=API_ACTOR))


async def _run(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    deployment = await _find(request)
    if deployment.archived_at:
        raise ApiProblem("The deployment is archived. Create another one.")
    context = (await request.services.runtime()).context
    return _render_run(request, await start_run(context, request.project, deployment, key=request.idempotency_key))


async def _list(request: ApiRequest) -> dict[str, Any]:
    status, archived, created = request.query("status"), request.flag("include_archived"), request.times("created_at")
    if status not in ("", "active", "paused"):
        raise ApiProblem(f"status: {status!r:.60} is neither active nor paused.")
    if status and archived:
        raise ApiProblem("status: it cannot be combined with include_archived.")
    agent = to_session("agent", request.query("agent_id")) if request.query("agent_id") else ""

    def keeps(deployment: Deployment) -> bool:
        return (
            (archived or not deployment.archived_at)
            and (not status or (status == "paused") == bool(deployment.content.paused))
            and (not agent or deployment.content.agent_id == agent)
            and deployment.created_at in created
        )

    list_ = f"deployments:{status}:{archived}:{agent}:{created.first}:{created.last}"
    page = await (await _open(request)).list(keeps, cursor=request.cursor(list_), limit=request.limit())
    return request.page(list_, [await _render(request, deployment) for deployment in page.items], page.next)


async def _list_runs(request: ApiRequest) -> dict[str, Any]:
    trigger, created = request.query("trigger_type"), request.times("created_at")
    if trigger not in ("", "schedule", "manual"):
        raise ApiProblem(f"trigger_type: {trigger!r:.60} is neither schedule nor manual.")
    deployment, with_error = request.query("deployment_id"), request.query("has_error")
    failed = request.flag("has_error")
    try:
        wanted = to_session("depl", deployment) if deployment else ""
    except ApiProblem:
        return request.page("deployment_runs:none", (), None)

    def keeps(run: DeploymentRun) -> bool:
        content = run.content
        return (
            (not wanted or content.deployment == wanted)
            and (not with_error or failed == (content.problem is not None))
            and (not trigger or (trigger == "schedule") == bool(content.scheduled_at))
            and run.created_at in created
        )

    list_ = f"deployment_runs:{wanted}:{with_error}:{trigger}:{created.first}:{created.last}"
    limit = request.limit(most=MAX_RUNS)
    page = await (await _open(request)).list_runs(keeps, cursor=request.cursor(list_), limit=limit)
    return request.page(list_, [_render_run(request, run) for run in page.items], page.next)


async def _retrieve_run(request: ApiRequest) -> dict[str, Any]:
    id_ = request.path("run_id")
    try:
        return _render_run(request, await (await _open(request)).runs.load(to_session("drun", id_)))
    except SessionNotFound:
        raise not_found("Deployment run", id_) from None


async def _render(request: ApiRequest, deployment: Deployment) -> dict[str, Any]:
    content = deployment.content
    now = (await request.services.runtime()).context.clock()
    is_archived = bool(deployment.archived_at)
    paused = content.paused if not is_archived else ""
    return {
        "id": to_wire("depl", deployment.id),
        "type": "deployment",
        "name": content.name,
        "description": content.description,
        "agent": _render_agent(content.agent_id, content.version),
        "environment_id": environment_id(content.environment),
        "initial_events": [dict(event) for event in content.initial_events],
        "resources": [render_configuration(resource) for resource in content.resources],
        "vault_ids": [to_wire("vlt", vault) for vault in content.vault_ids],
        "metadata": content.metadata,
        "schedule": _render_schedule(content, 0 if is_archived else now),
        "status": "paused" if paused else "active",
        "paused_reason": _render_pause(paused),
        "created_at": format_iso(deployment.created_at),
        "updated_at": format_iso(max(content.changed_at, deployment.created_at)),
        "archived_at": format_iso(deployment.archived_at) if is_archived else None,
        **({} if content.budget is None else {"budget": _render_budget(content.budget)}),
    }


def _render_agent(agent: str, version: int) -> dict[str, Any]:
    return {"type": "agent", "id": to_wire("agent", agent), "version": version}


def _render_budget(cents: int) -> dict[str, Any]:
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}


def _render_pause(paused: str) -> dict[str, Any] | None:
    if not paused:
        return None
    return {"type": "manual"} if paused == MANUAL else {"type": "error", "error": {"type": paused}}


def _render_schedule(content: DeploymentContent, now: int) -> dict[str, Any] | None:
    """The schedule with its next times. `now` is 0 for an archived deployment, which has none."""
    schedule = content.schedule
    if schedule is None:
        return None
    return {
        "type": "cron",
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "last_run_at": format_iso(content.last_run_at) if content.last_run_at else None,
        "upcoming_runs_at": [format_iso(time) for time in list_upcoming(schedule, now)] if now else [],
    }


def _render_run(request: ApiRequest, run: DeploymentRun) -> dict[str, Any]:
    content, problem = run.content, run.content.problem
    scheduled = {"type": "schedule", "scheduled_at": format_iso(content.scheduled_at)}
    return {
        "id": to_wire("drun", run.id),
        "type": "deployment_run",
        "deployment_id": to_wire("depl", content.deployment),
        "agent": _render_agent(content.agent_id, content.version),
        "session_id": to_wire("sesn", content.session) if content.session else None,
        "error": None if problem is None else {"type": problem.type, "message": request.services.hide(problem.message)},
        "trigger_context": scheduled if content.scheduled_at else {"type": "manual"},
        "created_at": format_iso(run.created_at),
    }


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("/v1/deployments", {"POST": _create, "GET": _list}),
    ApiRoute("/v1/deployments/{deployment_id}", {"GET": _retrieve, "POST": _update}),
    ApiRoute("/v1/deployments/{deployment_id}/archive", {"POST": _archive}),
    ApiRoute("/v1/deployments/{deployment_id}/pause", {"POST": _pause}),
    ApiRoute("/v1/deployments/{deployment_id}/unpause", {"POST": _unpause}),
    ApiRoute("/v1/deployments/{deployment_id}/run", {"POST": _run}),
    ApiRoute("/v1/deployment_runs", {"GET": _list_runs}),
    ApiRoute("/v1/deployment_runs/{run_id}", {"GET": _retrieve_run}),
)
