"""Plan of a run: which agents work on which workflow, with which inputs; stored with the session.

A run that was interrupted is continued with the plan that is stored, possibly by another process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.conductor.segments import list_triggers
from fidelio.definitions.models import Workflow
from fidelio.engine import phrases
from fidelio.engine.record import Record
from fidelio.engine.scope import collect_values
from fidelio.engine.variables import check_variables, find_missing_required
from fidelio.errors import Command, ConductorFailure, Hint, SessionNotFound, UsageProblem
from fidelio.home import Home
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, PutDocument
from fidelio.ledger.paging import all_events
from fidelio.locks import FileLock

DEFAULT_WORKER = "workflow-worker"
DEFAULT_TRIES = 3
LINT_HINT = Hint("See ", Command("lint"), ".")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parameters of a run. `tries` is how often a worker may fail to finish an activity.

    `caller` is the session of the agent that requested the run. The workers are its children: its depth limit applies to
    them, and they are stopped with it. `inputs_by` is the person or agent that has chosen the inputs.
    """

    workflow: str
    project: str
    agent: str = DEFAULT_WORKER
    activity_agents: Mapping[str, str] = msgspec.field(default_factory=dict)
    inputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    tries: int = DEFAULT_TRIES
    caller: str | None = None
    inputs_by: str = ""

    def agent_for(self, activity: str) -> str:
        return self.activity_agents.get(activity, self.agent)


def check_can_start(workflow: Workflow) -> None:
    """Raise for a workflow that cannot be run from a first activity, as the run itself or as a child."""
    if workflow.independent:
        raise UsageProblem(
            f"{workflow.id} is a set of independent activities; it has no first activity.",
            remedy="Run a workflow that names its initialActivity.",
        )
    if workflow.activity(workflow.initial_activity or "") is None:
        raise UsageProblem(
            f"{workflow.id} has the initialActivity {workflow.initial_activity!r}, which is no activity of it.",
            remedy=LINT_HINT,
        )


def list_reachable_workflows(name: str, find: Callable[[str], Workflow]) -> list[Workflow]:
    """The workflow, and every workflow that its triggers can start. Raises if any of them does not exist."""
    workflows: dict[str, Workflow] = {}
    names = [name]
    while names:
        name = names.pop()
        if name not in workflows:
            workflows[name] = find(name)
            names += [trigger.workflow for activity in workflows[name].activities for trigger in list_triggers(activity)]
    return list(workflows.values())


def check_plan(plan: Plan, workflow: Workflow) -> None:
    """Raise for a plan that does not fit the workflow, before a session exists."""
    check_can_start(workflow)
    unknown = [name for name in plan.activity_agents if workflow.activity(name) is None]
    if unknown:
        known = ", ".join(activity.id for activity in workflow.activities)
        raise UsageProblem(f"{workflow.id} has no activity {unknown[0]!r}.", remedy=f"Its activities are: {known}.")
    problems = check_variables(workflow, plan.inputs)
    if problems:
        known = ", ".join(f"{variable.name} ({variable.type})" for variable in workflow.variables) or "none"
        raise UsageProblem(problems[0].sentence, remedy=f"Its variables are: {known}.")


def check_required_inputs(plan: Plan, workflow: Workflow) -> None:
    """Raise for a new run that lacks a required variable. A run that continues has got its inputs already."""
    if missing := find_missing_required(workflow, plan.inputs):
        pairs = " ".join(f"--input {name}=VALUE" for name in missing)
        raise UsageProblem(
            phrases.required_variables(workflow.id, missing), remedy=f"Give them with {pairs} (inputs: {', '.join(missing)})."
        )


def parse_inputs(pairs: Sequence[str], workflow: Workflow) -> dict[str, Any]:
    """Parse NAME=VALUE pairs; the value is parsed as the type that the workflow declares."""
    types = {variable.name: variable.type for variable in workflow.variables}
    return dict(_parse_value(*_split_pair(pair), types) for pair in pairs)


def _encode_value(value: Any) -> str:
    """A value as a person would type it in JSON, cut to a line."""
    return f"{msgspec.json.encode(value).decode():.200}"


def _split_pair(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not name or not equals:
        raise UsageProblem(f"{pair!r} is not an input.", remedy="Write NAME=VALUE, such as language=English.")
    return name, value


def _parse_value(name: str, text: str, types: Mapping[str, str]) -> tuple[str, Any]:
    if types.get(name, "string") == "string":
        return name, text
    try:
        return name, msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageProblem(
            f"{name} is declared as {types[name]}, and {text!r} is not one.",
            remedy='Write it as JSON, such as true, 3 or ["a", "b"].',
        ) from error


DOCUMENT_SPACE = "conductor"
RUN_STARTED, RUN_FAILED, RUN_INTERRUPTED = "conductor.begun", "conductor.failed", "conductor.interrupted"
# Both name a worker and its run: its report is recorded; the answers of people since then are sent to the worker.
REPORT_RECORDED, ANSWERS_DELIVERED = "conductor.taken", "conductor.told"


async def save_plan(ledger: Ledger, session: str, plan: Plan) -> None:
    """Store the plan, and make the next start of the workflow continue this run."""
    event = NewEvent(type=RUN_STARTED, body={"plan": msgspec.to_builtins(plan)}, actor="conductor")
    newest = PutDocument(
        space=DOCUMENT_SPACE, path=_document_path(plan.project, plan.workflow), text=session, author="conductor"
    )
    await ledger.commit(Change(session=session, events=(event,), documents=(newest,)))


async def update_plan(ledger: Ledger, session: str, requested: Plan, workflow: Workflow, record: Record) -> None:
    """Apply the options of a later start to a run. Options left at their default keep the stored value; the caller changes."""
    stored = await load_plan(ledger, session)
    if stored is None:
        return
    # The inputs of a run that has not entered its first activity are not in its record yet.
    known = {**collect_values(workflow, record), **stored.inputs, **record.variables}
    for name, value in requested.inputs.items():
        # The same command goes on, also if an answer has changed the value since.
        is_repeated = name in stored.inputs and value == stored.inputs[name]
        if not is_repeated and (name not in known or value != known[name]):
            has = f"{name} has the value {_encode_value(known[name])}" if name in known else f"{name} has no value"
            raise UsageProblem(
                f"{requested.workflow} has started already, and inputs can only be given at its start. In this run {has}.",
                remedy="Leave the input out to continue the run, or start another run with --new (new: true).",
            )
    updated = replace(
        stored,
        agent=stored.agent if requested.agent == DEFAULT_WORKER else requested.agent,
        activity_agents={**stored.activity_agents, **requested.activity_agents},
        tries=stored.tries if requested.tries == DEFAULT_TRIES else requested.tries,
        caller=requested.caller,
    )
    if updated != stored:
        await save_plan(ledger, session, updated)


async def load_plan(ledger: Ledger, session: str) -> Plan | None:
    """The newest plan of the run; a later start may have changed the agents."""
    starts = await all_events(ledger, session, types=(RUN_STARTED,))
    return msgspec.convert(starts[-1].body["plan"], Plan) if starts and not starts[-1].redacted else None


async def find_unfinished_run(ledger: Ledger, project: str, workflow: str) -> str | None:
    """The newest run of this workflow in this project, if it has not ended."""
    document = await ledger.document(DOCUMENT_SPACE, _document_path(project, workflow))
    if document is None or not document.text:
        return None
    try:
        session = await ledger.session(document.text)
    except SessionNotFound:
        return None
    return session.id if session.status in ("active", "blocked") else None


async def count_forgiven_runs(ledger: Ledger, session: str, worker: str) -> int:
    """How many runs of a worker no longer count as tries: those before the run failed or was interrupted, and was continued."""
    failures = await all_events(ledger, session, types=(RUN_FAILED, RUN_INTERRUPTED))
    return max((int(event.body.get("runs", 0)) for event in failures if event.body.get("worker") == worker), default=0)


async def load_last_failure(ledger: Ledger, session: str) -> str:
    """Why the run failed, if that is its last event; else empty."""
    current = await ledger.session(session)
    newest = await ledger.events(session, after=current.last_seq - 1, types=(RUN_FAILED,))
    return str(newest[-1].body.get("reason", "")) if newest else ""


def acquire_run_lock(home: Home, session: str) -> FileLock:
    """Acquire what a process holds while it conducts a run: two processes would send the same worker two tasks."""
    lock = FileLock(home.ensure().lock_path(session))
    if not lock.acquire():
        raise ConductorFailure(
            f"Session {session} is being carried out by another process.",
            remedy=Hint("Watch it with ", Command("events", session, "--follow"), ", or start another run with --new."),
        )
    return lock


def start_lock(home: Home, plan: Plan) -> FileLock:
    """Held from the lookup of an unfinished run to the start of a new run, so that two processes do not both start a run."""
    return FileLock(home.ensure().lock_path(_document_path(plan.project, plan.workflow).replace("/", "-")))


def _document_path(project: str, workflow: str) -> str:
    return f"{hashlib.sha256(project.encode()).hexdigest()[:32]}/{workflow}"
