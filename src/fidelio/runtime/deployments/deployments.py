"""Deployments of a project: which agent begins sessions, with what, and when. Also the runs of deployments.

A deployment is an object; the job of its next time is committed with it. A run is an object too, and says which session it has
begun or why it could not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from fidelio.ledger.model import Page
from fidelio.runtime.deployments.cron import find_next, find_times, find_zone, parse_cron
from fidelio.runtime.objects import NOTHING_MORE, ObjectJob, ObjectPlan, Objects, StoredObject
from fidelio.runtime.tools.model import RuntimeContext

DEPLOYMENT_JOB = "deployment"
MAX_EVENTS = 50
UPCOMING = 5
MANUAL = "manual"


class CronSchedule(msgspec.Struct, frozen=True):
    """When a deployment runs by itself."""

    expression: str
    timezone: str


class RunProblem(msgspec.Struct, frozen=True):
    """Why a run has begun no session. `type` is that of the API."""

    type: str
    message: str


class DeploymentContent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The content of a deployment. `agent` and `environment` are internal names, `agent_id` is the store of the agent.

    `resources` are planned like those of a session. `next_due` is 0 until the first run, `last_run_at` too, in milliseconds.
    `paused` says why it is paused: `manual`, or the type of the problem of a run.
    """

    name: str
    agent: str
    agent_id: str
    version: int
    environment: str
    initial_events: tuple[dict[str, Any], ...]
    description: str | None = None
    metadata: dict[str, str] = {}
    resources: tuple[dict[str, Any], ...] = ()
    vault_ids: tuple[str, ...] = ()
    # US cents.
    budget: int | None = None
    schedule: CronSchedule | None = None
    paused: str = ""
    next_due: int = 0
    last_run_at: int = 0
    # When somebody changed it last; its runs do not count.
    changed_at: int = 0

    @property
    def is_due(self) -> bool:
        """Whether a time of its schedule is to come."""
        return self.schedule is not None and not self.paused


class RunContent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run of a deployment: the session that it has begun, or the problem. `scheduled_at` is 0 for a manual run."""

    deployment: str
    agent_id: str
    version: int
    session: str = ""
    problem: RunProblem | None = None
    scheduled_at: int = 0


Deployment = StoredObject[DeploymentContent]
DeploymentRun = StoredObject[RunContent]
Status = Literal["active", "paused"]


class Deployments:
    """The deployments of a project and their runs."""

    def __init__(self, context: RuntimeContext, project: str) -> None:
        self._clock = context.clock
        self.objects = Objects(context, project, "deployment", DeploymentContent)
        self.runs = Objects(context, project, "deployment_run", RunContent)

    async def create(self, content: DeploymentContent, *, by: str, key: str = "") -> Deployment:
        """Store a deployment with the job of its first time. Raises `UsageProblem` for a schedule that never comes."""
        due = compute_next(content, self._clock())
        plan = ObjectPlan(jobs=(ObjectJob(DEPLOYMENT_JOB, due),)) if due else NOTHING_MORE
        return await self.objects.create(content, by=by, key=key, plan=plan)

    async def load(self, id_: str) -> Deployment:
        """The deployment with this id. Raises `SessionNotFound`."""
        return await self.objects.load(id_)

    async def update(self, id_: str, change: Callable[[Deployment], DeploymentContent], *, by: str) -> Deployment:
        """Change a deployment. Another schedule counts from now."""
        now = self._clock()

        def apply(found: Deployment) -> DeploymentContent:
            changed = change(found)
            if changed.schedule != found.content.schedule or changed.is_due != found.content.is_due:
                changed = replace(changed, next_due=compute_next(changed, now))
            return replace(changed, changed_at=now)

        found = await self.load(id_)
        if not found.archived_at and change(found) == found.content:
            return found
        # A job too many finds out that nothing is due.
        return await self.objects.update(id_, apply, by=by, plan=ObjectPlan(jobs=(ObjectJob(DEPLOYMENT_JOB, now),)))

    async def pause(self, id_: str, *, by: str) -> Deployment:
        """Let no more times of the schedule come. Pausing it again changes nothing."""
        return await self.update(id_, lambda found: replace(found.content, paused=found.content.paused or MANUAL), by=by)

    async def unpause(self, id_: str, *, by: str) -> Deployment:
        """Let the times of the schedule come again, from now on."""
        return await self.update(id_, lambda found: replace(found.content, paused=""), by=by)

    async def archive(self, id_: str, *, by: str) -> Deployment:
        return await self.objects.archive(id_, by=by)

    async def list(self, keep: Callable[[Deployment], bool], *, cursor: str | None = None, limit: int = 50) -> Page[Deployment]:
        return await self.objects.select(keep, cursor=cursor, limit=limit)

    async def list_runs(
        self, keep: Callable[[DeploymentRun], bool], *, cursor: str | None = None, limit: int = 50
    ) -> Page[DeploymentRun]:
        return await self.runs.select(keep, cursor=cursor, limit=limit)


def compute_next(content: DeploymentContent, after: int) -> int:
    """The next time of a deployment; 0 if none is to come."""
    schedule = content.schedule
    return find_next(schedule.expression, schedule.timezone, after) if schedule is not None and content.is_due else 0


def find_due(deployment: Deployment) -> int:
    """The time at which a deployment is due; 0 if none is to come. The first counts from its creation."""
    return deployment.content.next_due or compute_next(deployment.content, deployment.created_at)


def list_upcoming(schedule: CronSchedule, after: int) -> list[int]:
    """The next times of a schedule, as if it were not paused."""
    times = find_times(parse_cron(schedule.expression), find_zone(schedule.timezone), after)
    return [time for time, _ in zip(times, range(UPCOMING), strict=False)]
