"""Runs of workflows: which transitions hold now and why, the steps with what was reported, the workers, and the report.

What holds is decided by the engine, which answers agents with the same; this module only puts it into rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from fidelio.app.records import Records
from fidelio.definitions.models import Activity
from fidelio.engine.moves import PossibleMove
from fidelio.errors import ChainBroken, FidelioError, UsageProblem
from fidelio.ledger.model import Event, Session
from fidelio.surfaces.cli.runtime_report import load_runtime_report
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result
from fidelio.surfaces.web.timeline import TimelineEntry, list_entries
from fidelio.workflows.service import CurrentState

# Workers whose activity is shown, their events that are read, and how many of them are shown.
_WORKERS, _READ, _SHOWN = 3, 30, 6


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
    is_open: bool
    condition: str
    is_default: bool
    reason: str
    via: tuple[str, ...]


class WorkerView(msgspec.Struct, frozen=True):
    """An agent that carries out an activity, with what it did last."""

    session: Session
    entries: list[TimelineEntry]


class RunView(msgspec.Struct, frozen=True):
    """Where a run is. `loops` says in which iterations."""

    activity: str
    steps: tuple[StepView, ...]
    transitions: tuple[TransitionView, ...]
    loops: tuple[str, ...]
    fidelity: str


async def load_run(request: PageRequest, session: Session, events: Sequence[Event]) -> RunView | None:
    """The state of a run; None if it is over, or if its definition cannot be read, which must not hide the rest of the page."""
    with suppress(FidelioError):
        state = await (await request.services.application.workflows()).describe(session.id)
        return None if state.record.ended else _view_run(state, events)
    return None


def _view_run(state: CurrentState, events: Sequence[Event]) -> RunView:
    record, position = state.record, state.situation.position
    activity = state.workflow.activity(record.activity) if record.activity else None
    done = frozenset(record.here.done)
    outputs = _find_outputs(events, record.activity)
    loops = tuple(
        f"{loop.name or loop.id}: {loop.iteration}" + (f" of {loop.total}" if loop.total else "") for loop in position.loops
    )
    steps = tuple(_view_steps(activity, done, position.step, outputs)) if activity is not None else ()
    return RunView(record.activity, steps, tuple(_view_transitions(state)), loops, record.fidelity)


def _view_steps(activity: Activity, done: frozenset[str], next_step: str, outputs: Mapping[str, str]) -> Iterator[StepView]:
    for step in activity.steps:
        yield StepView(step.id, step.name, step.id in done, step.id == next_step, outputs.get(step.id, ""))


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
    """The transitions as the engine offers them: open, or closed with the reason."""
    candidates = {candidate.to: candidate for candidate in reversed(state.transitions)}
    for move in _list_transition_moves(state):
        found = candidates.get(move.target)
        yield TransitionView(
            to=move.target,
            is_open=not move.reason,
            condition=found.condition if found else "",
            is_default=found.default if found else False,
            reason=str(move.reason),
            via=found.via if found else (),
        )


def _list_transition_moves(state: CurrentState) -> list[PossibleMove]:
    situation = state.situation
    moves = (*situation.required, *situation.optional, *situation.blocked)
    return [move for move in moves if move.action == "transition"]


async def load_workers(records: Records, children: Sequence[Session]) -> list[WorkerView]:
    """What the newest agents of a run did last."""
    workers = [child for child in children if child.kind != "workflow"][:_WORKERS]
    return [WorkerView(worker, await _load_entries(records, worker)) for worker in workers]


async def _load_entries(records: Records, worker: Session) -> list[TimelineEntry]:
    events = await records.events(worker.id, after=max(0, worker.last_seq - _READ), limit=_READ)
    return [entry for entry in reversed(list_entries(events)) if not entry.is_minor][:_SHOWN]


async def _show_report(request: PageRequest) -> Result:
    """What the definition asks for, compared with what happened."""
    records = await request.services.records()
    session = await records.find(request.path("session"))
    if session.kind == "agent":
        raise UsageProblem(f"Session {session.id} follows no workflow.", remedy="Its page has everything that happened.")
    try:
        verdict = await records.verify(session.id)
    except ChainBroken as error:
        return PageContent("proof.html", {"session": session, "verdict": None, "broken": error})
    values = {"session": session, "verdict": verdict}
    if session.kind == "runtime":
        keys = await records.signing_keys(session.id)
        return PageContent(
            "runtime_report.html", {**values, "report": await load_runtime_report(records, session), "keys": keys}
        )
    report = await records.report(session.id, verdict)
    keys = await records.signing_keys(session.id, *(child.session for child in report.iter_children()))
    return PageContent("report.html", {**values, "report": report, "keys": keys})


ROUTES = (PageRoute(path="/sessions/{session}/report", show=_show_report),)
