"""The eleven notes of the runtime. Pure functions of what a wake knows at its beginning.

A note is a hint, never an instruction: it names a fact and the call that shows more. A model that ignores all notes works as
well, with more calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fidelio.runtime.navigation.verdicts import Verdict, find_verdict, parse_verdict
from fidelio.runtime.notes.lines import Note, render
from fidelio.runtime.notes.read_first import find_read_first
from fidelio.runtime.outcomes.rules import read_situation
from fidelio.runtime.outcomes.verdicts import read_grade
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.setup.sections import SkillEntry
from fidelio.runtime.shell.live import LiveShell
from fidelio.runtime.shell.plans import WAIT_MS, Suggestion, find_status, list_read_tools, suggest
from fidelio.runtime.tools.model import LoadedRuntime

# Of each kind.
MAX_SKILLS = 2
MAX_SESSIONS = 2
MAX_HITS = 3
_STALLED = ("stable", "regressing")
_SHOWN_GRADES = ("missing_outcome", "blocked", "sleeping", "done_candidate")
_HISTORY = 6
_SAFE_TOOLS = 5
_REASONS = 3


class NoteSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What notes are built from.

    `message` is the newest text of the user, `verdict` the evaluation as JSON, `setup` the fingerprint of this wake, `recall`
    the result of a search as retrieval_search returns it, `skills` those that fit the message, `sessions` summaries of
    session_list, `pressure` that of `describe_pressure`.
    """

    session: LoadedRuntime
    message: str
    verdict: Mapping[str, Any] | None
    setup: str
    recall: Mapping[str, Any] | None
    skills: tuple[SkillEntry, ...]
    sessions: tuple[Mapping[str, Any], ...]
    pressure: Mapping[str, Any]
    live: LiveShell | None
    tools: frozenset[str]
    now: int

    @property
    def record(self) -> RuntimeRecord:
        return self.session.record

    @property
    def is_busy(self) -> bool:
        """Whether a command runs in the shell."""
        return find_status(self.record.shell, self.live) == "busy"


def build_notes(subject: NoteSubject) -> tuple[str, ...]:
    """The notes of a wake, a line each, in their order."""
    verdict = _find_verdict(subject)
    notes = (
        *_note_grade(subject),
        *_note_gate(verdict),
        *_note_trend(subject, verdict),
        *_note_setup(subject),
        *_note_shell(subject),
        *_note_reading(subject),
        *_note_skills(subject),
        *_note_sessions(subject),
        *_note_plan(subject),
        *_note_hits(subject),
        *_note_pressure(subject),
    )
    return render(notes, subject.tools)


def _find_verdict(subject: NoteSubject) -> Verdict:
    if subject.verdict is not None:
        return parse_verdict(subject.verdict)
    return find_verdict(subject.record, subject.tools, now=subject.now, shell_busy=subject.is_busy)


def _note_grade(subject: NoteSubject) -> Iterator[Note]:
    grade = read_grade(subject.record, shell_busy=subject.is_busy, tools=subject.tools, now=subject.now)
    if grade["status"] in _SHOWN_GRADES:
        matched = f"{grade['matchedCriteria']}/{grade['totalCriteria']}" if grade["totalCriteria"] else ""
        fields = {"grade": grade["status"], "criteria": matched, "summary": grade["summary"]}
        yield Note("outcome-repair", fields, grade["nextSuggestedTool"])


def _note_gate(verdict: Verdict) -> Iterator[Note]:
    if verdict.status != "missing_outcome" and not verdict.promotion_ready:
        fields = {"evaluation": verdict.status, "promotionReady": False, "trend": verdict.trend}
        yield Note("promotion-gate", {**fields, "summary": verdict.json.get("summary")}, verdict.next_step)


def _note_trend(subject: NoteSubject, verdict: Verdict) -> Iterator[Note]:
    outcome = subject.record.outcomes.active
    if outcome is None or not outcome.evaluations or verdict.promotion_ready or verdict.trend not in _STALLED:
        return
    count = len(outcome.evaluations)
    why = "Earlier verdicts show what does not get better."
    step = suggest(subject.tools, "outcome_history", {"limit": min(count, _HISTORY)}, why)
    yield Note("outcome-trend", {"trend": verdict.trend, "iterations": count, "summary": verdict.trend_summary}, step)


def _note_setup(subject: NoteSubject) -> Iterator[Note]:
    before = subject.record.wakes.setup
    if before and subject.setup and before != subject.setup:
        why = "Check what still holds before relying on earlier results."
        step = suggest(subject.tools, "session_get_snapshot", {}, why)
        yield Note("setup-drift", {"previous": before[:12], "current": subject.setup[:12]}, step)


def _note_shell(subject: NoteSubject) -> Iterator[Note]:
    if not subject.is_busy:
        return
    shell, live = subject.record.shell, subject.live
    current = live.current_command if live is not None else None
    command = shell.running.command if shell.running is not None else current.command if current is not None else ""
    has_output = current is not None and bool(current.stdout_preview or current.stderr_preview)
    safe = list_read_tools(subject.tools)[:_SAFE_TOOLS]
    yield Note(
        "shell-busy", {"command": command, "cwd": shell.cwd, "safeTools": safe}, _plan_busy(subject, has_output=has_output)
    )


def _plan_busy(subject: NoteSubject, *, has_output: bool) -> Suggestion | None:
    seen = suggest(subject.tools, "shell_read_last_output", {}, "It has printed something: read it while it runs.")
    wait = suggest(subject.tools, "shell_wait", {"timeoutMs": WAIT_MS}, "Wait for it before the next command.")
    return (seen or wait) if has_output else (wait or seen)


def _note_reading(subject: NoteSubject) -> Iterator[Note]:
    if subject.is_busy or read_situation(subject.record, shell_busy=False, now=subject.now).is_blocked:
        return
    found = find_read_first(subject.message, has_last_command=subject.record.shell.last is not None)
    if found is None:
        return
    rule, tool, args = found
    step = suggest(subject.tools, tool, args, "It only reads and needs no approval.")
    if step is not None:
        yield Note("read-first", {"rule": rule}, step)


def _note_skills(subject: NoteSubject) -> Iterator[Note]:
    for skill in subject.skills[:MAX_SKILLS]:
        step = suggest(subject.tools, "skills_read", {"name": skill.name}, "It may describe how to do this.")
        yield Note("skill-candidate", {"name": skill.name, "description": skill.description}, step)


def _note_sessions(subject: NoteSubject) -> Iterator[Note]:
    if subject.recall is not None and subject.recall.get("hits"):
        return
    for summary in subject.sessions[:MAX_SESSIONS]:
        names = ("sessionId", "relationToCurrent", "setupMatchesCurrent", "requiresAction", "outcomeStatus", "outcomeTrend")
        fields = {name: summary.get(name) for name in names}
        yield Note("session-candidate", {**fields, "summary": summary.get("latestSummary")}, _plan_session(subject, summary))


def _plan_session(subject: NoteSubject, summary: Mapping[str, Any]) -> Suggestion | None:
    session = summary["sessionId"]
    is_stalled = summary.get("outcomeTrend") in _STALLED and not summary.get("promotionReady")
    history = {"sessionId": session, "limit": _HISTORY}
    stalled = suggest(subject.tools, "outcome_history", history, "Its outcome does not get better: see why.")
    seen = suggest(subject.tools, "session_get_snapshot", {"sessionId": session}, "See where this session stands.")
    return (stalled or seen) if is_stalled else seen


def _note_plan(subject: NoteSubject) -> Iterator[Note]:
    recall = subject.recall or {}
    plan, backends = recall.get("expansionPlan") or (), recall.get("backendSummary") or ()
    if not plan and not backends:
        return
    found = [f"{backend.get('backend')}:{backend.get('count', 0)}" for backend in backends]
    yield Note("retrieval-plan", {"backends": found, "steps": len(plan)}, _read_step(plan[0]) if plan else None)


def _note_hits(subject: NoteSubject) -> Iterator[Note]:
    for hit in ((subject.recall or {}).get("hits") or ())[:MAX_HITS]:
        fields = {
            "source": hit.get("source") or hit.get("backend"),
            "sessionId": hit.get("sessionId"),
            "learningId": hit.get("learningId"),
            "score": hit.get("score"),
            "reasons": list(hit.get("reasons") or ())[:_REASONS],
            "snippet": hit.get("snippet"),
        }
        yield Note("retrieval-candidate", fields, _read_step(hit.get("nextStep") or hit.get("expansion")))


def _read_step(step: Any) -> Mapping[str, Any] | None:
    """A suggested call as the search returns it, which may have further keys."""
    if not isinstance(step, Mapping) or "tool" not in step:
        return None
    return {
        "tool": step["tool"],
        "args": step.get("args") or {},
        "rationale": step.get("rationale") or "It was found by recall.",
    }


def _note_pressure(subject: NoteSubject) -> Iterator[Note]:
    pressure = subject.pressure
    if pressure.get("level", "low") == "low":
        return
    why = "See what fills the window and how to get back what was left out."
    step = suggest(subject.tools, "session_describe_context", {}, why)
    value = "crowded" if pressure.get("droppedMessages") else "tight"
    fields = {"context": value, "level": pressure["level"], "reasons": pressure.get("reasons")}
    yield Note("context-pressure", {**fields, "tools": pressure.get("recommendedTools")}, step)
