"""Who does what in a run: kept with the session, so that whoever goes on with it does the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.conductor.segments import triggers_of
from fidelio.definitions.models import Workflow
from fidelio.engine.variables import check_variables
from fidelio.errors import SessionNotFound, UsageProblem
from fidelio.home import Home
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, PutDocument
from fidelio.ledger.paging import all_events
from fidelio.locks import FileLock

WORKER = "workflow-worker"
TRIES = 3


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked for. `tries` is how often a worker may fail to finish an activity.

    `caller` is the session of the agent that asked: the workers are its children, no deeper than it may start any, and end
    with it.
    """

    workflow: str
    project: str
    agent: str = WORKER
    activity_agents: Mapping[str, str] = msgspec.field(default_factory=dict)
    inputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    tries: int = TRIES
    caller: str | None = None

    def agent_for(self, activity: str) -> str:
        return self.activity_agents.get(activity, self.agent)


def check_beginning(workflow: Workflow) -> None:
    """Raises for a workflow that no run can begin with, whether it was asked for or is started by another."""
    if workflow.independent:
        raise UsageProblem(
            f"{workflow.id} is a set of independent activities; it has no beginning to run from.",
            remedy="Run a workflow that names its initialActivity.",
        )
    if workflow.activity(workflow.initial_activity or "") is None:
        raise UsageProblem(
            f"{workflow.id} begins with {workflow.initial_activity!r}, which is no activity of it.",
            remedy=f"See `fidelio lint {workflow.id}`.",
        )


def with_all_it_starts(name: str, find: Callable[[str], Workflow]) -> list[Workflow]:
    """The workflow, and every other that can begin in its course. Raises where one of them is not there."""
    found: dict[str, Workflow] = {}
    names = [name]
    while names:
        name = names.pop()
        if name not in found:
            found[name] = find(name)
            names += [trigger.workflow for activity in found[name].activities for trigger in triggers_of(activity)]
    return list(found.values())


def check_plan(plan: Plan, workflow: Workflow) -> None:
    """Everything that can be wrong with a plan before anything has begun."""
    check_beginning(workflow)
    strange = [name for name in plan.activity_agents if workflow.activity(name) is None]
    if strange:
        known = ", ".join(activity.id for activity in workflow.activities)
        raise UsageProblem(f"{workflow.id} has no activity {strange[0]!r}.", remedy=f"Its activities are: {known}.")
    problems = check_variables(workflow, plan.inputs)
    if problems:
        known = ", ".join(f"{one.name} ({one.type})" for one in workflow.variables) or "none"
        raise UsageProblem(problems[0].sentence, remedy=f"Its variables are: {known}.")


def read_inputs(pairs: Sequence[str], workflow: Workflow) -> dict[str, Any]:
    """NAME=VALUE, with the value read as the type that the workflow declares."""
    types = {variable.name: variable.type for variable in workflow.variables}
    return dict(_read(*_split(pair), types) for pair in pairs)


def _split(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not name or not equals:
        raise UsageProblem(f"{pair!r} is no input.", remedy="Write NAME=VALUE, such as language=English.")
    return name, value


def _read(name: str, text: str, types: Mapping[str, str]) -> tuple[str, Any]:
    if types.get(name, "string") == "string":
        return name, text
    try:
        return name, msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageProblem(
            f"{name} is declared as {types[name]}, and {text!r} is none.",
            remedy='Write it as JSON, such as true, 3 or ["a", "b"].',
        ) from error


SPACE = "conductor"
BEGUN, FAILED = "conductor.begun", "conductor.failed"
# Of the run of a worker: that its report is on record, and that the worker was told what people have answered since.
TAKEN, TOLD = "conductor.taken", "conductor.told"


async def keep(ledger: Ledger, session: str, plan: Plan) -> None:
    """Puts the plan on record, and makes this run the one that the next start of the workflow goes on with."""
    event = NewEvent(type=BEGUN, body={"plan": msgspec.to_builtins(plan)}, actor="conductor")
    newest = PutDocument(space=SPACE, path=_path(plan.project, plan.workflow), text=session, author="conductor")
    await ledger.commit(Change(session=session, events=(event,), documents=(newest,)))


async def plan_of(ledger: Ledger, session: str) -> Plan | None:
    """The newest: whoever goes on with a run may change who does the work."""
    begun = await all_events(ledger, session, types=(BEGUN,))
    return msgspec.convert(begun[-1].body["plan"], Plan) if begun and not begun[-1].redacted else None


async def unfinished(ledger: Ledger, project: str, workflow: str) -> str | None:
    """The newest run of this workflow in this project, when it has not come to its end."""
    found = await ledger.document(SPACE, _path(project, workflow))
    if found is None or not found.text:
        return None
    try:
        session = await ledger.session(found.text)
    except SessionNotFound:
        return None
    return session.id if session.status in ("active", "blocked") else None


async def runs_before_failure(ledger: Ledger, session: str, worker: str) -> int:
    """How many runs of a worker were forgiven: those before the last time that somebody started the failed run again."""
    failed = await all_events(ledger, session, types=(FAILED,))
    return max((int(event.body.get("runs", 0)) for event in failed if event.body.get("worker") == worker), default=0)


async def last_failure(ledger: Ledger, session: str) -> str:
    """Why the run stopped, when nothing has happened in it since; else empty."""
    found = await ledger.session(session)
    newest = await ledger.events(session, after=found.last_seq - 1, types=(FAILED,))
    return str(newest[-1].body.get("reason", "")) if newest else ""


def conducting_lock(home: Home, session: str) -> FileLock:
    """The right to carry out this run; two processes at it would give the same worker two tasks."""
    return FileLock(home.ensure().lock_path(session))


def beginning_lock(home: Home, plan: Plan) -> FileLock:
    """Held between the look for an unfinished run and the beginning of one, so that two do not begin at once."""
    return FileLock(home.ensure().lock_path(_path(plan.project, plan.workflow).replace("/", "-")))


def _path(project: str, workflow: str) -> str:
    return f"{hashlib.sha256(project.encode()).hexdigest()[:32]}/{workflow}"
