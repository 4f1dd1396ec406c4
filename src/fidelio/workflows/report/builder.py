"""Builds the report of a session from its events; each event is evaluated with the record before it.

Differences to the definition are determined when an activity is left, with the values of that time. A redacted event is
evaluated with what `event.redacted` has left of it, and what cannot be checked any more is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.definitions.conditions import Truth
from fidelio.definitions.models import Activity, Checkpoint, Workflow
from fidelio.engine import phrases
from fidelio.engine.checkpoints import demands_person, describe_demand, evaluate_condition, find_checkpoint
from fidelio.engine.iterations import StepReport
from fidelio.engine.record import (
    ANSWERED,
    ARMED,
    CALLED,
    CANCELLED,
    CHILD_FINISHED,
    COMPLETED,
    ENTERED,
    LOOP_ADVANCED,
    RESTORED,
    STARTED,
    STEP_COMPLETED,
    VARIABLES_SET,
    YIELDED,
    FoldableEvent,
    OpenCheckpoint,
    Record,
    fold,
)
from fidelio.engine.triggers import find_unstarted
from fidelio.engine.variables import check_required_variables, find_contradictions
from fidelio.errors.ledger import damaged_value, unreadable_event
from fidelio.ledger.encoding import REDACTED
from fidelio.ledger.marks import Mark
from fidelio.ledger.model import Event
from fidelio.ledger.redaction import view_events
from fidelio.workflows.cancel import END_SESSION
from fidelio.workflows.report.model import RefusedCall, Report, ReportedAnswer, ReportedCancellation, Visit
from fidelio.workflows.report.omissions import (
    VisitState,
    find_unmet_steps,
    find_unopened_checkpoints,
    list_loop_omissions,
    list_unfinished,
)

# Assurances that do not stand for a person.
_WEAK = ("relayed", "timer")
# What reading a body of another form raises; a msgspec error is a ValueError.
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
# Keys of event bodies that the report compares with the definition and that a redaction erases; those of them with values.
_VALUES = frozenset({"variables", "effect", "record", "items", "loop_items"})
_COMPARED = _VALUES | {"snapshot", "manifest", "warnings", "not_taken", "drift"}


def build_report(
    session: str, events: Sequence[Event], definition: Workflow | None, left: Mapping[int, Mark] | None = None
) -> Report:
    """Build the report of a session; without a definition it contains only what happened.

    `left` is what redactions have left of events.
    """
    builder = _Builder(Report(session, started_at=events[0].time if events else 0), definition)
    for event, view in zip(events, view_events(events, left or {}), strict=True):
        try:
            if event.redacted:
                builder.note_redaction(view)
            builder.add(view)
        except _UNREADABLE as error:
            raise unreadable_event(session, event.seq, event.type, error) from error
        builder.is_redacted = False
    report = builder.finish()
    try:
        # Texts that were taken over from bodies are printed later, where another type would be an error without a name.
        msgspec.convert(msgspec.to_builtins(report), Report)
    except msgspec.ValidationError as error:
        raise damaged_value(f"report of session {session}", error) from error
    return report


class _Builder(msgspec.Struct):
    """The report so far, and the record after the last event."""

    report: Report
    definition: Workflow | None
    record: Record = msgspec.field(default_factory=Record)
    visit_states: dict[int, VisitState] = msgspec.field(default_factory=dict)
    initially_due: dict[str, bool] = msgspec.field(default_factory=dict)
    is_redacted: bool = False  # the event that is added now
    has_values: bool = True  # whether no event that set variables was redacted

    def note_redaction(self, event: FoldableEvent) -> None:
        """Note what cannot be checked any more because this event is redacted."""
        self.is_redacted = True
        lost = {key for key in _COMPARED & event.body.keys() if event.body[key] is not None}
        if lost or event.type == REDACTED:
            self.report.unchecked.append(event.seq)
        self.has_values = self.has_values and not lost & _VALUES and event.type != REDACTED

    def add(self, event: FoldableEvent) -> None:
        """Add an event. Its handler runs with the record before the event."""
        handler = _HANDLERS.get(event.type)
        if handler is not None:
            handler(self, event)
        self.record = fold(self.record, [event])

    def finish(self) -> Report:
        """Complete the report after the last event."""
        report = self.report
        report.variables, report.set_by = self.record.variables, self.record.set_by
        for visit in report.visits:
            # Drift is a difference of the session; the warnings of its moves repeat it.
            visit.differences = [text for text in visit.differences if text not in report.drift]
        if self.definition is not None and report.completed:
            entered = {visit.activity for visit in report.visits}
            required = (activity.id for activity in self.definition.activities if activity.required)
            report.never_entered = [name for name in required if name not in entered]
        return report

    @property
    def visit_state(self) -> VisitState:
        return self.visit_states.setdefault(self.record.visit, VisitState())

    def activity(self, name: str) -> Activity | None:
        return self.definition.activity(name) if self.definition is not None else None

    def find_checkpoint(self, waiting: OpenCheckpoint) -> Checkpoint | None:
        activity = self.activity(waiting.activity)
        return find_checkpoint(activity, waiting.checkpoint) if activity is not None else None

    def evaluate(self, checkpoint: Checkpoint) -> Truth:
        """The truth of the condition of a checkpoint. A declared default counts as a value."""
        return evaluate_condition(self.definition, self.record, checkpoint) if self.definition is not None else None

    def add_visit(self, name: str, event: FoldableEvent) -> None:
        activity = self.activity(name)
        visit = Visit(name, activity.name if activity else name, event.time)
        if activity is not None:
            visit.steps = [step.id for step in activity.steps]
            visit.loop_steps = [step.id for loop in activity.loops for step in loop.steps]
        self.report.visits.append(visit)


def _on_started(builder: _Builder, event: FoldableEvent) -> None:
    _add_start(builder, event, event.body)


def _add_start(builder: _Builder, event: FoldableEvent, body: Mapping[str, Any]) -> None:
    report, definition = builder.report, builder.definition
    report.workflow, report.version = body["workflow"], body["version"]
    report.title = definition.title if definition else body["workflow"]
    report.definition, report.found_in = body["definition"], body.get("found_in", "")
    report.fidelity = body.get("fidelity", "advise")
    report.unverified, report.claims_to_continue = bool(body.get("unverified")), body.get("claims_to_continue", "")
    report.parent = (body.get("parent") or {}).get("session", "")
    report.started_at = event.time
    if claimed := body.get("activity"):
        builder.add_visit(claimed, event)


def _on_restored(builder: _Builder, event: FoldableEvent) -> None:
    """Start the report at the restored position: the earlier events are in the ledger of another server."""
    record = event.body["record"]
    parent, here = record.get("parent"), record.get("here", {})
    facts = {key: record[key] for key in ("fidelity", "found_in", "unverified", "claims_to_continue") if key in record}
    _add_start(builder, event, {**event.body, **facts, "parent": parent, "activity": here.get("activity")})
    builder.report.restored = True
    answered = {answer["checkpoint"] for answer in here.get("answers", ())}
    builder.visit_states[here.get("visit", 0)] = VisitState(answered, set(here.get("done", ())))
    builder.record = fold(builder.record, [event])
    for waiting in (record.get("open"), *record.get("armed", ())):
        if waiting is not None:
            _add_request(builder, waiting["yielded_at"], waiting)


def _on_entered(builder: _Builder, event: FoldableEvent) -> None:
    body, visits = event.body, builder.report.visits
    same = bool(visits) and visits[-1].activity == body["activity"] and not body.get("again")
    _finish_visit(builder, event, goes_on=same, inward=body.get("how") == "loop")
    if not same:
        builder.add_visit(body["activity"], event)


def _on_completed(builder: _Builder, event: FoldableEvent) -> None:
    _finish_visit(builder, event)
    builder.report.ended_at = event.time
    # Earlier versions ended sessions in this way after their definition was deleted.
    if ended := event.body.get("without_definition"):
        builder.report.ended_unchecked_by = f"{ended['by']} over {ended['channel']}"
        _withdraw_answers(builder)


def _on_cancelled(builder: _Builder, event: FoldableEvent) -> None:
    """Add the end by a person. Nothing was checked, so the activity is not evaluated."""
    body = event.body
    builder.report.cancelled = ReportedCancellation(
        event.time, body["by"], body["channel"], body["reason"], body.get("with", "")
    )
    for visit in builder.report.visits[-1:]:
        visit.left_at = event.time
    _withdraw_answers(builder)


def _withdraw_answers(builder: _Builder) -> None:
    for answer in _iter_answers(builder):
        answer.state = "withdrawn" if answer.state == "open" else answer.state


def _finish_visit(builder: _Builder, event: FoldableEvent, *, goes_on: bool = False, inward: bool = False) -> None:
    """Evaluate the activity that a move leaves. `goes_on`: the visit continues, `inward`: after an activity of its loop."""
    warnings, visits = event.body.get("warnings", []), builder.report.visits
    if not visits:
        if found := [*warnings, *_list_missing_required(builder)]:
            visits.append(Visit("(start)", "Before the first activity", event.time, event.time, differences=found))
        return
    visit = visits[-1]
    visit.left_at = event.time
    if "manifest" in event.body:
        visit.has_manifest = True
        names = {entry["step_id"] for entry in event.body["manifest"]}
        visit.done = [*(entry for entry in visit.done if entry["step_id"] not in names), *event.body["manifest"]]
        builder.visit_state.done |= names
        builder.visit_state.reports += [_decode_entry(entry) for entry in event.body["manifest"]]
        builder.visit_state.erased |= builder.is_redacted
    _add_differences(visit, [text for text in warnings if not text.startswith(phrases.MISSING_ITERATIONS)])
    omitted = [] if goes_on else _evaluate_visit(builder, visit, inward=inward)
    # Each missing iteration is a difference of its own; the warning, which names them all in one sentence, is not repeated.
    _add_differences(visit, omitted or [text for text in warnings if text.startswith(phrases.MISSING_ITERATIONS)])


def _list_missing_required(builder: _Builder) -> list[str]:
    """The sentence about required variables without a value when the first activity is entered."""
    if builder.definition is None or not builder.has_values:
        return []
    return [problem.sentence for problem in check_required_variables(builder.definition, builder.record)]


def _evaluate_visit(builder: _Builder, visit: Visit, *, inward: bool) -> list[str]:
    """Compare the visit with its activity; return what is missing of its loops. What was redacted accuses nobody."""
    definition, activity, state = builder.definition, builder.activity(visit.activity), builder.visit_state
    if definition is None or activity is None or state.erased or not builder.has_values:
        return []
    if inward:
        return list_unfinished(definition, builder.record, state, activity)
    unmet = find_unmet_steps(definition, builder.record, state, activity)
    _add_differences(visit, [phrases.step_condition_not_met(step.id) for step in unmet])
    # After an answer that forces a transition, the rest of the activity is not required.
    if builder.record.forced:
        return []
    _add_omissions(builder, visit, definition, activity)
    return list_loop_omissions(definition, builder.record, state)


def _decode_entry(entry: Mapping[str, Any]) -> StepReport:
    return StepReport(entry["step_id"], entry["output"], entry.get("iteration"))


def _add_differences(visit: Visit, sentences: Sequence[str]) -> None:
    visit.differences += [sentence for sentence in dict.fromkeys(sentences) if sentence not in visit.differences]


def _add_omissions(builder: _Builder, visit: Visit, definition: Workflow, activity: Activity) -> None:
    """Add the checkpoints and workflows that were due in the visit, but not yielded or started."""
    state = builder.visit_state
    for checkpoint in find_unopened_checkpoints(definition, builder.record, state, activity):
        visit.unopened_checkpoints.append(checkpoint.id)
        reported = {phrases.checkpoint_unanswered(step.id, checkpoint.id) for step in activity.all_steps}
        _add_differences(visit, [] if reported & set(visit.differences) else [phrases.checkpoint_not_presented(checkpoint.id)])
    unstarted = find_unstarted(definition, builder.record, [entry.step_id for entry in state.reports])
    visit.never_started = list(dict.fromkeys(name for name, certain in unstarted if certain))
    texts = [phrases.workflow_never_started(name) for name in visit.never_started]
    # A warning may also say why this server could not start it.
    _add_differences(visit, [text for text in texts if not any(known.startswith(text) for known in visit.differences)])


def _on_step_completed(builder: _Builder, event: FoldableEvent) -> None:
    """Add a step of the navigator dialect, which reports each step by itself instead of a manifest."""
    builder.visit_state.done.add(event.body["step"])
    builder.visit_state.reports.append(StepReport(event.body["step"], "", event.body.get("iteration")))
    for visit in builder.report.visits[-1:]:
        visit.has_manifest = True
        visit.done.append({"step_id": event.body["step"], "output": event.body.get("output", "")})


def _on_yielded(builder: _Builder, event: FoldableEvent) -> None:
    _add_request(builder, event.time, event.body)


def _on_armed(builder: _Builder, event: FoldableEvent) -> None:
    for entry in event.body["checkpoints"]:
        _add_request(builder, event.time, entry)


def _add_request(builder: _Builder, time: int, entry: Mapping[str, Any]) -> None:
    checkpoint, demanded = entry["checkpoint"], describe_demand(entry)
    builder.visit_state.checkpoints.add(checkpoint)
    for visit in builder.report.visits[-1:]:
        question = _find_question(builder, visit, checkpoint)
        visit.answers.append(ReportedAnswer(checkpoint, question, entry["request"], time, demanded=demanded))
        activity = builder.activity(visit.activity)
        known = find_checkpoint(activity, checkpoint) if activity is not None else None
        builder.initially_due[entry["request"]] = known is not None and builder.evaluate(known) is True


def _find_question(builder: _Builder, visit: Visit, checkpoint: str) -> str:
    activity = builder.activity(visit.activity)
    known: Iterator[Checkpoint] = iter(activity.checkpoints if activity is not None else ())
    return next((item.message for item in known if item.id == checkpoint), checkpoint)


def _on_answered(builder: _Builder, event: FoldableEvent) -> None:
    body = event.body
    answer = next((answer for answer in _iter_answers(builder) if answer.request == body["request"]), None)
    if answer is None:
        return
    answer.close(body)
    for visit in builder.report.visits:
        if answer in visit.answers:
            _add_differences(visit, list(_find_weak_answer(builder, answer)))


def _find_weak_answer(builder: _Builder, answer: ReportedAnswer) -> Iterator[str]:
    """Yield how the answer falls short of its checkpoint: dismissed without need, or not from a person who was demanded."""
    waiting = next((entry for entry in builder.record.pending if entry.request == answer.request), None)
    checkpoint = builder.find_checkpoint(waiting) if waiting is not None else None
    if builder.definition is None or waiting is None or checkpoint is None:
        return
    if answer.state == "dismissed":
        # A condition that held when it was asked may have been changed in order to get rid of the question.
        if builder.has_values and (builder.initially_due.get(answer.request) or builder.evaluate(checkpoint) is not False):
            yield phrases.checkpoint_dismissed(checkpoint.id)
    elif (waiting.person or demands_person(builder.definition, checkpoint)) and answer.assurance in _WEAK:
        yield phrases.answer_below_demand(checkpoint.id, answer.assurance)
    elif answer.is_not_proven:
        yield phrases.answer_not_proven(checkpoint.id, answer.assurance)


def _iter_answers(builder: _Builder) -> Iterator[ReportedAnswer]:
    return (answer for visit in builder.report.visits for answer in visit.answers)


def _on_variables_set(builder: _Builder, event: FoldableEvent) -> None:
    """Add a difference for each reported variable that contradicts an answer, whether it was applied or not."""
    if event.body["by"].startswith("agent:") and builder.definition is not None:
        reported = {**event.body["variables"], **event.body.get("not_taken", {})}
        contradictions = find_contradictions(builder.definition, builder.record, reported)
        for visit in builder.report.visits[-1:]:
            _add_differences(visit, [problem.sentence for problem in contradictions])


def _on_child_finished(builder: _Builder, event: FoldableEvent) -> None:
    # Redactions of earlier versions have erased the outcome.
    if event.body["outcome"] not in ("completed", ""):
        child = f"{event.body['workflow']} ({event.body['session']})"
        difference = f"Its child {child} was ended before its workflow ({event.body['outcome']}): its result was not checked."
        for visit in builder.report.visits[-1:]:
            _add_differences(visit, [difference])


def _on_loop_advanced(builder: _Builder, event: FoldableEvent) -> None:
    if event.body["iteration"] == 1 and (left := event.body.get("left_out")):
        for visit in builder.report.visits[-1:]:
            _add_differences(visit, [phrases.items_left_out(event.body["loop"], left)])


def _on_called(builder: _Builder, event: FoldableEvent) -> None:
    body, report = event.body, builder.report
    if body["aid"] and body["aid"] not in report.agents and body["name"] != END_SESSION:
        report.agents.append(body["aid"])
    report.drift += [sentence for sentence in body.get("drift", ()) if sentence not in report.drift]
    report.snapshot_calls += body.get("reads", 1) if body.get("source") == "snapshot" else 0
    if body["s"] == "error":
        report.refused.append(RefusedCall(event.time, body["name"], body["aid"], body.get("err", "")))


_HANDLERS: Mapping[str, Callable[[_Builder, FoldableEvent], None]] = {
    STARTED: _on_started,
    RESTORED: _on_restored,
    STEP_COMPLETED: _on_step_completed,
    ENTERED: _on_entered,
    COMPLETED: _on_completed,
    CANCELLED: _on_cancelled,
    ARMED: _on_armed,
    YIELDED: _on_yielded,
    ANSWERED: _on_answered,
    VARIABLES_SET: _on_variables_set,
    CHILD_FINISHED: _on_child_finished,
    LOOP_ADVANCED: _on_loop_advanced,
    CALLED: _on_called,
}
