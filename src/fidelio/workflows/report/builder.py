"""Builds the report of a session: the events of a session one after the other, each with the record as it was when it happened.

What the definition asked for and nobody did, and what was reported out of place, is looked for when an activity is left, with
what was known then. Only what is certain is held against anybody: a question whose condition nobody could know is not called
forgotten, and a step whose condition may have been met when its turn came is not called out of place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fidelio.definitions.conditions import holds
from fidelio.definitions.models import Activity, Checkpoint, Step, Workflow
from fidelio.engine import phrases
from fidelio.engine.manifests import was_settled_before
from fidelio.engine.record import (
    ANSWERED,
    ARMED,
    CALLED,
    CHILD_FINISHED,
    CHILD_STARTED,
    COMPLETED,
    ENTERED,
    LOOP_ADVANCED,
    RESTORED,
    STARTED,
    STEP_COMPLETED,
    VARIABLES_SET,
    YIELDED,
    Record,
    fold,
)
from fidelio.engine.scope import collect_reported_values
from fidelio.engine.variables import find_contradictions
from fidelio.ledger.model import Event
from fidelio.workflows.missing import ENDED_BY_PERSON, ENDED_WITHOUT_DEFINITION
from fidelio.workflows.report.model import AnswerGiven, RefusedCall, Report, Visit


def build_report(session: str, events: Sequence[Event], definition: Workflow | None) -> Report:
    building = _Building(Report(session), definition)
    for event in events:
        if not event.redacted:
            building.take(event)
    return building.finished()


@dataclass(slots=True)
class _Stay:
    """What a visit has come to so far. A loop that goes through other activities comes back to the same one."""

    asked: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    started: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Building:
    report: Report
    definition: Workflow | None
    record: Record = field(default_factory=Record)
    stays: dict[int, _Stay] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """`record` is still the one before the event while its step looks at it."""
        step = _STEPS.get(event.type)
        if step is not None:
            step(self, event)
        self.record = fold(self.record, [event])

    def finished(self) -> Report:
        report = self.report
        report.variables, report.set_by = self.record.variables, self.record.set_by
        if self.definition is not None and report.completed:
            been = {visit.activity for visit in report.visits}
            report.never_entered = [one.id for one in self.definition.activities if one.required and one.id not in been]
        return report

    @property
    def stay(self) -> _Stay:
        return self.stays.setdefault(self.record.visit, _Stay())

    def activity(self, name: str) -> Activity | None:
        return self.definition.activity(name) if self.definition is not None else None

    def visit(self, name: str, event: Event) -> None:
        activity = self.activity(name)
        shown = Visit(name, activity.name if activity else name, event.time)
        if activity is not None:
            shown.asked = [step.id for step in activity.steps]
            shown.asked_in_loops = [step.id for loop in activity.loops for step in loop.steps]
        self.report.visits.append(shown)


def _started(building: _Building, event: Event) -> None:
    _start(building, event, event.body)


def _start(building: _Building, event: Event, body: Mapping[str, Any]) -> None:
    report, definition = building.report, building.definition
    report.workflow, report.version = body["workflow"], body["version"]
    report.title = definition.title if definition else body["workflow"]
    report.definition, report.found_in = body["definition"], body.get("found_in", "")
    report.fidelity = body.get("fidelity", "advise")
    report.unverified, report.claims_to_continue = bool(body.get("unverified")), body.get("claims_to_continue", "")
    report.parent = (body.get("parent") or {}).get("session", "")
    report.started_at = event.time
    if claimed := body.get("activity"):
        building.visit(claimed, event)


def _restored(building: _Building, event: Event) -> None:
    """What happened before is in the ledger that the session comes from; here it goes on from where it stood."""
    record = event.body["record"]
    parent, here = record.get("parent"), record.get("here", {})
    facts = {key: record[key] for key in ("fidelity", "found_in", "unverified", "claims_to_continue") if key in record}
    _start(building, event, {**event.body, **facts, "parent": parent, "activity": here.get("activity")})
    building.report.restored = True
    given = {answer["checkpoint"] for answer in here.get("answers", ())}
    building.stays[here.get("visit", 0)] = _Stay(given, set(here.get("done", ())))
    building.record = fold(building.record, [event])
    for waiting in (record.get("open"), *record.get("armed", ())):
        if waiting is not None:
            _asked(building, waiting["yielded_at"], waiting)


def _entered(building: _Building, event: Event) -> None:
    body, visits = event.body, building.report.visits
    same = bool(visits) and visits[-1].activity == body["activity"] and not body.get("again")
    _leave(building, event, goes_on=same or body.get("how") == "loop")
    if not same:
        building.visit(body["activity"], event)


def _completed(building: _Building, event: Event) -> None:
    _leave(building, event, goes_on=False)
    building.report.ended_at = event.time
    if ended := event.body.get("without_definition"):
        building.report.ended_unchecked_by = f"{ended['by']} over {ended['channel']}"
        for given in _answers(building):
            given.state = "withdrawn" if given.state == "open" else given.state


def _leave(building: _Building, event: Event, *, goes_on: bool) -> None:
    """What the move says about the activity that is left. `goes_on`: it is not at its end yet."""
    said, visits = event.body.get("warnings", []), building.report.visits
    if not visits:
        if said:
            visits.append(Visit("(start)", "Before the first activity", event.time, event.time, differences=list(said)))
        return
    visit = visits[-1]
    visit.left_at = event.time
    if "manifest" in event.body:
        visit.manifest_given = True
        names = {entry["step_id"] for entry in event.body["manifest"]}
        visit.done = [*(entry for entry in visit.done if entry["step_id"] not in names), *event.body["manifest"]]
        building.stay.done |= names
    _differ(visit, said)
    activity = building.activity(visit.activity)
    if goes_on or activity is None:
        return
    _differ(visit, [phrases.step_condition_not_met(step.id) for step in _out_of_place(building, activity)])
    # An answer that leads elsewhere takes what comes after it out of the way.
    if not building.record.forced:
        _forgotten(building, visit, activity)


def _differ(visit: Visit, sentences: Sequence[str]) -> None:
    visit.differences += [sentence for sentence in dict.fromkeys(sentences) if sentence not in visit.differences]


def _out_of_place(building: _Building, activity: Activity) -> Iterator[Step]:
    """The steps that were reported although their condition certainly did not hold when their turn came."""
    definition, record = building.definition, building.record
    # What a loop repeats may have been due in an earlier pass.
    repeated = {step.id for loop in activity.loops for step in loop.steps}
    for number, step in enumerate(activity.steps):
        condition = step.condition if step.id in building.stay.done - repeated else None
        if definition is None or condition is None or not was_settled_before(number, condition, record, activity):
            continue
        if holds(condition, collect_reported_values(definition, record), reported_only=True) is False:
            yield step


def _forgotten(building: _Building, visit: Visit, activity: Activity) -> None:
    """What had to be asked and started here, and was not."""
    stay, steps = building.stay, (*activity.steps, *(step for loop in activity.loops for step in loop.steps))
    due = [step for step in steps if step.id in stay.done or (step in activity.steps and step.required and not step.condition)]
    for checkpoint in activity.checkpoints:
        if checkpoint.required and checkpoint.id not in stay.asked and _applied(building, checkpoint, steps, due):
            visit.never_asked.append(checkpoint.id)
            worded = {phrases.checkpoint_unanswered(step.id, checkpoint.id) for step in steps}
            _differ(visit, [] if worded & set(visit.differences) else [phrases.checkpoint_not_presented(checkpoint.id)])
    named = [trigger.workflow for trigger in (*activity.triggers, *(one for step in due for one in step.triggers))]
    visit.never_started = [name for name in dict.fromkeys(named) if name not in stay.started]
    _differ(visit, [phrases.workflow_never_started(name) for name in visit.never_started])


def _applied(building: _Building, checkpoint: Checkpoint, steps: Sequence[Step], due: Sequence[Step]) -> bool:
    """Whether the question certainly was to be asked: before a step that was due, or in the activity as such."""
    if any(step.checkpoint == checkpoint.id for step in steps) and not any(step.checkpoint == checkpoint.id for step in due):
        return False
    definition = building.definition
    return (
        definition is not None
        and holds(checkpoint.condition, collect_reported_values(definition, building.record), reported_only=True) is True
    )


def _step_completed(building: _Building, event: Event) -> None:
    """Where the server leads, every step is reported by itself; that is the same as a manifest at the end."""
    building.stay.done.add(event.body["step"])
    for visit in building.report.visits[-1:]:
        visit.manifest_given = True
        visit.done.append({"step_id": event.body["step"], "output": event.body.get("output", "")})


def _yielded(building: _Building, event: Event) -> None:
    _asked(building, event.time, event.body)


def _armed(building: _Building, event: Event) -> None:
    for one in event.body["checkpoints"]:
        _asked(building, event.time, one)


def _asked(building: _Building, at: int, one: Mapping[str, Any]) -> None:
    building.stay.asked.add(one["checkpoint"])
    for visit in building.report.visits[-1:]:
        visit.answers.append(AnswerGiven(one["checkpoint"], _question(building, visit, one["checkpoint"]), one["request"], at))


def _question(building: _Building, visit: Visit, checkpoint: str) -> str:
    activity = building.activity(visit.activity)
    known: Iterator[Checkpoint] = iter(activity.checkpoints if activity is not None else ())
    return next((one.message for one in known if one.id == checkpoint), checkpoint)


def _answered(building: _Building, event: Event) -> None:
    body = event.body
    given = next((one for one in _answers(building) if one.request == body["request"]), None)
    if given is None:
        return
    given.state = "dismissed" if body.get("mode") == "condition_not_met" else "answered"
    given.option, given.by = body.get("option", ""), body["by"]
    given.channel, given.assurance, given.after_ms = body["channel"], body["assurance"], body["after_ms"]


def _answers(building: _Building) -> Iterator[AnswerGiven]:
    return (one for visit in building.report.visits for one in visit.answers)


def _set(building: _Building, event: Event) -> None:
    """That an agent reports otherwise than an answer is a difference, taken or not, whichever call it came with."""
    if event.body["by"].startswith("agent:") and building.definition is not None:
        said = {**event.body["variables"], **event.body.get("not_taken", {})}
        against = find_contradictions(building.definition, building.record, said)
        for visit in building.report.visits[-1:]:
            _differ(visit, [problem.sentence for problem in against])


def _child_started(building: _Building, event: Event) -> None:
    building.stay.started.add(event.body["workflow"])


def _child_finished(building: _Building, event: Event) -> None:
    if event.body["outcome"] == ENDED_WITHOUT_DEFINITION:
        child = f"{event.body['workflow']} ({event.body['session']})"
        said = f"Its child {child} was ended without its definition: nobody has checked what came of it."
        for visit in building.report.visits[-1:]:
            _differ(visit, [said])


def _loop_advanced(building: _Building, event: Event) -> None:
    if event.body["iteration"] == 1 and (left := event.body.get("left_out")):
        said = f"Loop '{event.body['loop']}' has taken no more than its maximum: {left} of its items were left out."
        for visit in building.report.visits[-1:]:
            _differ(visit, [said])


def _called(building: _Building, event: Event) -> None:
    body, report = event.body, building.report
    if body["aid"] not in report.agents and body["name"] != ENDED_BY_PERSON:
        report.agents.append(body["aid"])
    if body["s"] == "error":
        report.refused.append(RefusedCall(event.time, body["name"], body["aid"], body.get("err", "")))


_STEPS: Mapping[str, Callable[[_Building, Event], None]] = {
    STARTED: _started,
    RESTORED: _restored,
    STEP_COMPLETED: _step_completed,
    ENTERED: _entered,
    COMPLETED: _completed,
    ARMED: _armed,
    YIELDED: _yielded,
    ANSWERED: _answered,
    VARIABLES_SET: _set,
    CHILD_STARTED: _child_started,
    CHILD_FINISHED: _child_finished,
    LOOP_ADVANCED: _loop_advanced,
    CALLED: _called,
}
