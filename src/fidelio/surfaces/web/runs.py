"""Runs of workflows: which transitions hold now and why, the steps with what was reported, the workers, and the report.

What holds is decided by the engine, which answers agents with the same; this module only puts it into rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec.structs import replace

from fidelio.app.records import Records
from fidelio.app.runtime_reports import load_report
from fidelio.conductor.plan import RUN_FAILED, RUN_INTERRUPTED, RUN_STARTED
from fidelio.definitions import TERMINAL_NAMES
from fidelio.definitions.models.activity import Loop, Step
from fidelio.engine.moves import LoopPosition, PossibleMove
from fidelio.engine.record import ENTERED
from fidelio.engine.transitions import CandidateTransition
from fidelio.errors import ChainBroken, FidelioError, UsageProblem
from fidelio.ledger.model import Event, Session
from fidelio.orchestrator.record.record import RUN_QUEUED
from fidelio.surfaces.text import escape_text
from fidelio.surfaces.timeline import TimelineEntry, list_entries
from fidelio.surfaces.web.charts import describe_duration
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result
from fidelio.surfaces.web.session_views import SessionView
from fidelio.surfaces.web.workflows import draw_session
from fidelio.workflows.service import CurrentState

# Workers whose activity is shown, their events that are read, and how many of them are shown.
_WORKERS, _READ, _SHOWN = 3, 30, 6
# Characters of a text of a worker on the page of its run.
_LONGEST = 400
# Visits that are told, agents of a project among which workers are looked for, and events of a run that is compared at once.
_VISITS, _NEWEST_AGENTS, _COMPARED = 200, 50, 200
_OVER = ("completed", "cancelled")


class StepView(msgspec.Struct, frozen=True):
    """A step of the current activity. `output` is what was reported for it, if that was among the newest events."""

    id: str
    name: str
    is_done: bool
    is_next: bool
    output: str


class TransitionView(msgspec.Struct, frozen=True):
    """A transition from the current activity. `reason` says why it is closed."""

    to: str
    name: str
    is_open: bool
    condition: str
    is_default: bool
    reason: str
    via: tuple[str, ...]


class WorkerView(msgspec.Struct, frozen=True):
    """An agent that carries out an activity, with what it did last."""

    view: SessionView
    entries: list[TimelineEntry]


class LoopView(msgspec.Struct, frozen=True):
    """A loop of the current activity. `words` says how far it is."""

    name: str
    words: str
    steps: tuple[StepView, ...]


class RunView(msgspec.Struct, frozen=True):
    """Where a run is. `around` are the iterations of the loops that the activity is inside of."""

    activity: str
    steps: tuple[StepView, ...]
    loops: tuple[LoopView, ...]
    transitions: tuple[TransitionView, ...]
    around: tuple[str, ...]


class VisitView(msgspec.Struct, frozen=True):
    """A visit of an activity in the story of a run. While it lasts, `ended_at` is None and `duration` empty."""

    name: str
    entered_at: int
    ended_at: int | None
    duration: str


class Story(msgspec.Struct, frozen=True):
    """A run from its beginning: how long it took, its visits, and how often it differs from its definition.

    `duration` is empty while the run goes on. `differences` is None where nobody has counted, because the run goes on or is
    long; its report has them.
    """

    duration: str
    visits: tuple[VisitView, ...]
    differences: int | None


class RunPage(msgspec.Struct, frozen=True):
    """What the page of a session shows of a run. A part that cannot be read is empty, and hides no other part.

    `defaults` are the values of variables that nobody has set. `failure` says why its agents do not go on; `is_elsewhere`:
    another process carries it out, or did until it ended.
    """

    run: RunView | None = None
    story: Story | None = None
    drawing: Markup = Markup("")
    workers: Sequence[WorkerView] = ()
    defaults: Mapping[str, Any] = msgspec.field(default_factory=dict)
    failure: str = ""
    is_elsewhere: bool = False


async def load_run_page(
    request: PageRequest, session: Session, events: Sequence[Event], children: Sequence[Session]
) -> RunPage:
    """Everything about a run, of which each part may be missing."""
    records = await request.services.records()
    visits = await records.events(session.id, types=(ENTERED,), limit=_VISITS)
    state = await _load_state(request, session)
    run = None if state is None or state.record.ended else _view_run(state, events)
    return RunPage(
        run,
        await _build_story(records, session, visits, state),
        await _draw_run(request, session, state, run, [_name_activity(visit) for visit in visits]),
        await _load_workers(request, session, children),
        {} if state is None else _find_defaults(state),
        failure := await _load_failure(records, session),
        not failure and await _is_elsewhere(request, session),
    )


def _find_defaults(state: CurrentState) -> dict[str, Any]:
    declared = state.workflow.variables
    return {each.name: each.default_value for each in declared if each.default_value is not None}


async def _load_failure(records: Records, session: Session) -> str:
    """Why agents that carry out a run do not go on, if that is the last that happened."""
    found = await records.events(session.id, after=session.last_seq - 1, types=(RUN_FAILED, RUN_INTERRUPTED), limit=1)
    if not found or found[0].redacted or session.status in _OVER:
        return ""
    return str(found[0].body.get("reason") or "They were stopped.")


async def _is_elsewhere(request: PageRequest, session: Session) -> bool:
    """Whether agents of another process carry out a run. A process that was killed has not said so."""
    actions = request.services.actions
    if session.status in _OVER or actions.is_running(session.id):
        return False
    return await actions.is_run_of_agents(session)


async def _load_state(request: PageRequest, session: Session) -> CurrentState | None:
    """Where a run is; None if its definition cannot be read."""
    with suppress(FidelioError):
        return await (await request.services.application.workflows()).describe(session.id)
    return None


async def _draw_run(
    request: PageRequest, session: Session, state: CurrentState | None, run: RunView | None, taken: Sequence[str]
) -> Markup:
    """The workflow with the transitions that the run has taken; empty if the workflow cannot be read any more."""
    states = {
        target: "open" if found.is_open else "closed"
        for found in (run.transitions if run else ())
        for target in (*found.via[:1], found.to)
    }
    with suppress(FidelioError):
        library, name = await request.services.application.library(), escape_text(str(session.record.get("workflow") or ""))
        return draw_session(library.workflow(name) if state is None else state.workflow, session.record, taken, states)
    return Markup("")


def _name_activity(visit: Event) -> str:
    return "" if visit.redacted else str(visit.body.get("activity", ""))


async def _build_story(records: Records, session: Session, visits: Sequence[Event], state: CurrentState | None) -> Story | None:
    if not visits:
        return None
    is_over = session.status in _OVER
    end = session.updated_at if is_over else None
    ends = [*(visit.time for visit in visits[1:]), end]
    visited = tuple(_view_visit(visit, ended, state) for visit, ended in zip(visits, ends, strict=True))
    duration = "" if end is None else describe_duration(end - session.created_at)
    return Story(duration, visited, await _count_differences(records, session) if is_over else None)


def _view_visit(visit: Event, ended: int | None, state: CurrentState | None) -> VisitView:
    name = _name_activity(visit)
    found = None if state is None else state.workflow.activity(name)
    lasted = "" if ended is None else describe_duration(ended - visit.time)
    return VisitView(found.name if found is not None else name or "an activity", visit.time, ended, lasted)


async def _count_differences(records: Records, session: Session) -> int | None:
    """The differences of a run that is short enough to be compared whenever its page is shown."""
    if session.last_seq > _COMPARED:
        return None
    with suppress(FidelioError):
        return len((await records.report(session.id, await records.verify(session.id))).differences)
    return None


def _view_run(state: CurrentState, events: Sequence[Event]) -> RunView:
    record, position = state.record, state.situation.position
    activity = state.workflow.activity(record.activity) if record.activity else None
    done = frozenset(record.here.done)
    outputs = _find_outputs(events, record.activity)
    steps = tuple(_view_steps(activity.steps, done, position.step, outputs)) if activity is not None else ()
    loops = tuple(_view_loop(loop, state, outputs) for loop in activity.loops) if activity is not None else ()
    own = {loop.id for loop in activity.loops} if activity is not None else set()
    around = tuple(f"{loop.name or loop.id}: {_describe_iteration(loop)}" for loop in position.loops if loop.id not in own)
    name = activity.name if activity is not None else record.activity
    return RunView(name, steps, loops, tuple(_view_transitions(state)), around)


def _view_steps(steps: Sequence[Step], done: frozenset[str], next_step: str, outputs: Mapping[str, str]) -> Iterator[StepView]:
    for step in steps:
        is_done = step.id in done
        yield StepView(step.id, step.name, is_done, step.id == next_step, outputs.get(step.id, "") if is_done else "")


def _view_loop(loop: Loop, state: CurrentState, outputs: Mapping[str, str]) -> LoopView:
    here, position = state.record.here, state.situation.position
    running = next((each for each in position.loops if each.id == loop.id), None)
    if running is not None and here.running is not None:
        words, done = _describe_iteration(running), frozenset(here.running.done)
    elif loop.id in here.loops_over:
        words, done = "done", frozenset(step.id for step in loop.steps)
    else:
        words, done = f"for each of {loop.over}" if loop.over else "not begun", frozenset()
    return LoopView(loop.name, words, tuple(_view_steps(loop.steps, done, position.step, outputs)))


def _describe_iteration(loop: LoopPosition) -> str:
    total = f" of {loop.total}" if loop.total else ""
    item = f", {loop.item}" if isinstance(loop.item, str | int | float) else ""
    return f"iteration {loop.iteration}{total}{item}"


def _find_outputs(events: Sequence[Event], activity: str) -> dict[str, str]:
    """What was reported for the steps of the current visit."""
    outputs = dict[str, str]()
    for event in events:
        if event.redacted:
            continue
        if event.type == "activity.entered" and event.body.get("activity") == activity:
            outputs.clear()
        elif event.type == "step.completed":
            outputs[str(event.body.get("step", ""))] = str(event.body.get("output") or "")
    return outputs


def _view_transitions(state: CurrentState) -> Iterator[TransitionView]:
    """Every transition from the current activity: open or closed as the engine offers it, with the reason."""
    moves = {move.target: move for move in reversed(_list_transition_moves(state))}
    # Of several conditions for one target that which is open counts.
    found_first = [*reversed(state.transitions), *(each for each in reversed(state.transitions) if each.open)]
    candidates = {each.to: each for each in found_first}
    for target in dict.fromkeys((*(each.to for each in state.transitions), *moves)):
        move, found = moves.get(target), candidates.get(target)
        activity = state.workflow.activity(target)
        yield TransitionView(
            to=target,
            name=activity.name if activity is not None else "the end" if target in TERMINAL_NAMES else target,
            is_open=move is not None and not move.reason,
            condition=found.condition if found else "",
            is_default=found.default if found else False,
            reason=str(move.reason) if move is not None else _explain(found),
            via=found.via if found else (),
        )


def _explain(candidate: CandidateTransition | None) -> str:
    """Why the engine does not even name a transition as closed."""
    if candidate is not None and candidate.holds is False and not candidate.default:
        return "Its condition does not hold."
    return "Another way comes first."


def _list_transition_moves(state: CurrentState) -> list[PossibleMove]:
    situation = state.situation
    moves = (*situation.required, *situation.optional, *situation.blocked)
    return [move for move in moves if move.action == "transition"]


async def _load_workers(request: PageRequest, session: Session, children: Sequence[Session]) -> list[WorkerView]:
    """What the newest agents of a run did last: those that it has started, and those that the conductor has."""
    records = await request.services.records()
    with suppress(FidelioError):
        workers = [*await _find_conducted(request, session), *(child for child in children if child.kind != "workflow")]
        return [WorkerView(SessionView(worker), await _load_entries(records, worker)) for worker in workers[:_WORKERS]]
    return []


async def _find_conducted(request: PageRequest, session: Session) -> list[Session]:
    """The workers of a conducted run among the newest agents of its project: their names begin with the id of the run."""
    records = await request.services.records()
    begun = await records.events(session.id, types=(RUN_STARTED,), limit=1)
    plan = {} if not begun or begun[0].redacted else begun[0].body.get("plan") or {}
    if not plan.get("project"):
        return []
    service = await request.services.application.agents(host=False)
    found = (await service.list(str(plan["project"]), limit=_NEWEST_AGENTS)).items
    names = [agent.id for agent in found if agent.name.startswith(f"{session.id}-")]
    return [await records.find(name) for name in names[:_WORKERS]]


async def _load_entries(records: Records, worker: Session) -> list[TimelineEntry]:
    events = await records.events(worker.id, after=max(0, worker.last_seq - _READ), limit=_READ)
    # What it was told is on its own page; here is what it does.
    entries = reversed(list_entries(events))
    wanted = [entry for entry in entries if not entry.is_minor and entry.type != RUN_QUEUED][:_SHOWN]
    return [_shorten(entry) for entry in wanted]


def _shorten(entry: TimelineEntry) -> TimelineEntry:
    """An entry with the beginning of a long text: the page of the worker has more of it."""
    is_long = len(entry.detail) > _LONGEST
    return replace(entry, detail=entry.detail[:_LONGEST], is_cut=True) if is_long else entry


async def _show_report(request: PageRequest) -> Result:
    """What the definition asks for, compared with what happened."""
    records = await request.services.records()
    session = await records.find(request.path("session"))
    if session.kind == "agent":
        raise UsageProblem(f"Session {session.id} follows no workflow.", remedy="Its page has everything that happened.")
    view = SessionView(session)
    try:
        proven = await load_report(records, session)
    except ChainBroken as error:
        return PageContent("proof.html", {"view": view, "verdict": None, "broken": error})
    values = {"view": view, "verdict": proven.verdict, "report": proven.report, "keys": proven.keys}
    if session.kind == "runtime":
        return PageContent("runtime_report.html", values)
    return PageContent("report.html", {**values, "names": await _load_step_names(request, session)})


async def _load_step_names(request: PageRequest, session: Session) -> dict[tuple[str, str], str]:
    """How the definition calls the steps, by the ids of activity and step."""
    state = await _load_state(request, session)
    activities = () if state is None else state.workflow.activities
    return {(activity.id, step.id): step.name for activity in activities for step in activity.steps}


ROUTES = (PageRoute(path="/sessions/{session}/report", show=_show_report),)
