"""The report of a session: what the definition asked, what happened, where they differ, and who answered what.

Built from the events and from the definition as it was when the session started, which the session keeps. So a report reads the
same next year, whatever has become of the files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import json

from fidelio.definitions.models import Activity, Workflow
from fidelio.engine.record import (
    ANSWERED,
    ARMED,
    CALLED,
    CHILD_FINISHED,
    COMPLETED,
    ENTERED,
    RESTORED,
    STARTED,
    STEP_COMPLETED,
    VARIABLES_SET,
    YIELDED,
)
from fidelio.ledger import Ledger
from fidelio.ledger.model import Event, Request

PAGE = 1000


@dataclass(slots=True)
class AnswerGiven:
    """One question of the session, and who answered it how."""

    checkpoint: str
    question: str
    request: str
    asked_at: int
    state: str = "open"
    option: str = ""
    by: str = ""
    channel: str = ""
    assurance: str = ""
    after_ms: int = 0


@dataclass(slots=True)
class Visit:
    """One stay in an activity: what its definition asked for and what was reported."""

    activity: str
    name: str
    entered_at: int
    left_at: int | None = None
    asked: list[str] = field(default_factory=list)
    done: list[dict[str, str]] = field(default_factory=list)
    manifest_given: bool = False
    answers: list[AnswerGiven] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Refused:
    """A call that was refused."""

    at: int
    tool: str
    agent: str
    reason: str


@dataclass(slots=True)
class Report:
    """A session from its first event to its last."""

    session: str
    workflow: str = ""
    title: str = ""
    version: str = ""
    definition: str = ""
    fidelity: str = "advise"
    unverified: bool = False
    restored: bool = False
    parent: str = ""
    started_at: int = 0
    ended_at: int | None = None
    agents: list[str] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    never_entered: list[str] = field(default_factory=list)

    @property
    def completed(self) -> bool:
        return self.ended_at is not None

    @property
    def differences(self) -> list[str]:
        return [f"{visit.activity}: {text}" for visit in self.visits for text in visit.differences]


async def report_session(ledger: Ledger, session: str) -> Report:
    events = [event async for event in _all(ledger, session)]
    snapshot = events[0].body.get("snapshot") if events and not events[0].redacted else None
    blob = await ledger.blob(snapshot) if snapshot else None
    definition = Workflow.model_validate(json.decode(blob)) if blob else None
    report = build_report(session, events, definition)
    worded = {one.id: one.question async for one in _requests(ledger, session)}
    for given in (answer for visit in report.visits for answer in visit.answers):
        given.question = worded.get(given.request, given.question)
    return report


def build_report(session: str, events: Sequence[Event], definition: Workflow | None) -> Report:
    report = Report(session)
    for event in events:
        step = _STEPS.get(event.type)
        if step is not None and not event.redacted:
            step(report, event, definition)
    if definition is not None and report.completed:
        been = {visit.activity for visit in report.visits}
        report.never_entered = [one.id for one in definition.activities if one.required and one.id not in been]
    return report


async def _requests(ledger: Ledger, session: str) -> AsyncIterator[Request]:
    """They hold the questions as they were worded when they were asked, with the values of that moment."""
    cursor: str | None = None
    while True:
        page = await ledger.requests(session=session, state=None, cursor=cursor, limit=PAGE)
        for request in page.items:
            yield request
        if (cursor := page.next) is None:
            return


async def _all(ledger: Ledger, session: str) -> AsyncIterator[Event]:
    after = 0
    while events := await ledger.events(session, after=after, limit=PAGE):
        for event in events:
            yield event
        after = events[-1].seq


def _started(report: Report, event: Event, definition: Workflow | None) -> None:
    _start(report, event, definition, event.body)


def _start(report: Report, event: Event, definition: Workflow | None, body: Mapping[str, Any]) -> None:
    report.workflow, report.version = body["workflow"], body["version"]
    report.title = definition.title if definition else body["workflow"]
    report.definition, report.fidelity = body["definition"], body.get("fidelity", "advise")
    report.unverified = bool(body.get("unverified"))
    report.parent = (body.get("parent") or {}).get("session", "")
    report.started_at = event.time
    report.variables |= body.get("variables", {})
    if claimed := body.get("activity"):
        report.visits.append(_visit(claimed, event, definition))


def _restored(report: Report, event: Event, definition: Workflow | None) -> None:
    """What happened before is in the ledger that the session comes from; here it goes on from where it stood."""
    record = event.body["record"]
    parent, here = record.get("parent"), record.get("here", {})
    facts = {key: record[key] for key in ("fidelity", "unverified", "variables") if key in record}
    _start(report, event, definition, {**event.body, **facts, "parent": parent, "activity": here.get("activity")})
    report.restored = True
    for waiting in (record.get("open"), *record.get("armed", ())):
        if waiting is not None:
            _asked(report, waiting["yielded_at"], definition, waiting)


def _entered(report: Report, event: Event, definition: Workflow | None) -> None:
    body = event.body
    _leave(report, event)
    if not report.visits or report.visits[-1].activity != body["activity"] or body.get("again"):
        report.visits.append(_visit(body["activity"], event, definition))


def _visit(name: str, event: Event, definition: Workflow | None) -> Visit:
    activity = definition.activity(name) if definition else None
    return Visit(name, activity.name if activity else name, event.time, asked=_steps(activity))


def _completed(report: Report, event: Event, _: Workflow | None) -> None:
    _leave(report, event)
    report.ended_at = event.time


def _leave(report: Report, event: Event) -> None:
    """What the move says about the activity that is left."""
    if not report.visits:
        said = event.body.get("warnings", [])
        if said:
            report.visits.append(Visit("(start)", "Before the first activity", event.time, event.time, differences=said))
        return
    visit = report.visits[-1]
    visit.left_at = event.time
    visit.differences += event.body.get("warnings", [])
    if "manifest" in event.body:
        visit.manifest_given = True
        said = {entry["step_id"] for entry in event.body["manifest"]}
        visit.done = [*(entry for entry in visit.done if entry["step_id"] not in said), *event.body["manifest"]]


def _step_completed(report: Report, event: Event, _: Workflow | None) -> None:
    """Where the server leads, every step is reported by itself; that is the same as a manifest at the end."""
    if report.visits:
        report.visits[-1].manifest_given = True
        report.visits[-1].done.append({"step_id": event.body["step"], "output": event.body.get("output", "")})


def _yielded(report: Report, event: Event, definition: Workflow | None) -> None:
    _asked(report, event.time, definition, event.body)


def _armed(report: Report, event: Event, definition: Workflow | None) -> None:
    for one in event.body["checkpoints"]:
        _asked(report, event.time, definition, one)


def _asked(report: Report, at: int, definition: Workflow | None, one: Mapping[str, Any]) -> None:
    if not report.visits:
        return
    visit = report.visits[-1]
    activity = definition.activity(visit.activity) if definition else None
    found = next((known for known in activity.checkpoints if known.id == one["checkpoint"]), None) if activity else None
    question = found.message if found else one["checkpoint"]
    visit.answers.append(AnswerGiven(one["checkpoint"], question, one["request"], at))


def _answered(report: Report, event: Event, _: Workflow | None) -> None:
    body = event.body
    report.variables |= (body.get("effect") or {}).get("setVariable", {})
    given = next((one for visit in report.visits for one in visit.answers if one.request == body["request"]), None)
    if given is None:
        return
    given.state = "dismissed" if body.get("mode") == "condition_not_met" else "answered"
    given.option, given.by = body.get("option", ""), body["by"]
    given.channel, given.assurance, given.after_ms = body["channel"], body["assurance"], body["after_ms"]


def _set(report: Report, event: Event, _: Workflow | None) -> None:
    report.variables |= event.body.get("variables", {})


def _called(report: Report, event: Event, _: Workflow | None) -> None:
    body = event.body
    if body["aid"] not in report.agents:
        report.agents.append(body["aid"])
    if body["s"] == "error":
        report.refused.append(Refused(event.time, body["name"], body["aid"], body.get("err", "")))


def _steps(activity: Activity | None) -> list[str]:
    return [step.id for step in activity.steps] if activity else []


_STEPS = {
    STARTED: _started,
    RESTORED: _restored,
    STEP_COMPLETED: _step_completed,
    ENTERED: _entered,
    COMPLETED: _completed,
    ARMED: _armed,
    YIELDED: _yielded,
    ANSWERED: _answered,
    VARIABLES_SET: _set,
    CHILD_FINISHED: _set,
    CALLED: _called,
}
