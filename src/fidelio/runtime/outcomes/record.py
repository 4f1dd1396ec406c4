"""The part of a session's record that holds its outcomes and the verdicts about them. Pure: no clock, no I/O.

A criterion is a text, and may carry a check that the runtime carries out itself. Verdicts are read from here: lists and
snapshots never evaluate anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

# Verdicts about an outcome, from worst to best.
VerdictStatus = Literal["missing_outcome", "fail", "blocked", "not_ready", "uncertain", "pass"]
Trend = Literal["first_iteration", "improving", "stable", "regressing"]
CriterionVerdict = Literal["met", "not_met", "unverified"]
# Verdicts that are kept in the record; older ones are read from the events.
HISTORY = 12
# Tools that may change what a check or a grader looks at: files, commands, and what is shared.
EFFECTFUL = frozenset(
    {
        *("write", "edit", "sandbox_execute", "shell_run", "shell_exec", "shell_open", "shell_restart", "shell_close"),
        *("shell_interrupt", "shell_send_input", "shell_set_cwd", "shell_set_env", "shell_unset_env"),
        *("resources_stage_from_substrate", "resources_promote_to_substrate", "resources_restore_version"),
        "memory_promote_note",
    }
)


class Criterion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an outcome. `check` is empty, or a mapping with `type` and what that type needs."""

    text: str
    check: dict[str, Any] = {}


class CriterionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found out about a criterion. `by`: `check` or `grader`. `citations` are ids of events and digests of files."""

    verdict: CriterionVerdict = "unverified"
    by: str = ""
    reason: str = ""
    citations: tuple[str, ...] = ()


class Evaluation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verdict about an outcome at the end of a wake. Without `results` nothing was checked or graded in it.

    `is_void`: a call has ended since then that may have changed what was looked at.
    """

    wake: str
    time: int
    iteration: int
    status: VerdictStatus
    trend: Trend
    results: tuple[CriterionResult, ...] = ()
    summary: str = ""
    is_void: bool = False


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must become true. `author` is `person` or `agent`. The same title replaces, another title adds."""

    id: str
    title: str
    criteria: tuple[Criterion, ...]
    author: Literal["person", "agent"]
    detail: str = ""
    defined_seq: int = 0
    max_iterations: int = 3
    evaluations: tuple[Evaluation, ...] = ()
    # A person's decision about the whole outcome, which overrides the checks.
    decided: Literal["", "pass", "fail"] = ""
    decided_by: str = ""

    @property
    def latest(self) -> Evaluation | None:
        return self.evaluations[-1] if self.evaluations else None


class OutcomesRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcomes of a session, oldest first. `overridden_by`: who has switched the gate off for the next shared write."""

    outcomes: tuple[Outcome, ...] = ()
    overridden_by: str = ""

    @property
    def active(self) -> Outcome | None:
        """The newest outcome."""
        return max(self.outcomes, key=lambda outcome: outcome.defined_seq, default=None)

    def find(self, outcome: str) -> Outcome | None:
        return next((known for known in self.outcomes if known.id == outcome), None)

    def find_title(self, title: str) -> Outcome | None:
        """The outcome with this title. A redacted title is empty and equals no other."""
        wanted = normalize_title(title)
        return next((known for known in self.outcomes if wanted and normalize_title(known.title) == wanted), None)


def normalize_title(title: str) -> str:
    """A title as it is compared: neither case nor spaces make another outcome."""
    return " ".join(title.casefold().split())


OutcomeFold: TypeAlias = Callable[[OutcomesRecord, RecordEvent], OutcomesRecord]


def _define(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    body = event.body
    outcome = Outcome(
        id=body["outcome_id"],
        title=body["title"],
        criteria=tuple(Criterion(item["text"], dict(item.get("check", {}))) for item in body.get("criteria", ())),
        author=body.get("author", "agent"),
        detail=body.get("detail", ""),
        defined_seq=event.seq,
        max_iterations=body.get("max_iterations", 3),
    )
    known = record.find_title(outcome.title)
    # Decided here too: the call of an agent may have been checked before a person defined the same title.
    if known is not None and known.author == "person" and outcome.author == "agent":
        return record
    return replace(record, outcomes=(*(other for other in record.outcomes if other is not known), outcome))


def _evaluate(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    body = event.body
    evaluation = Evaluation(
        wake=body.get("wake_id", ""),
        time=event.time,
        iteration=body["iteration"],
        status=body["status"],
        trend=body["trend"],
        results=tuple(_read_result(item) for item in body.get("results", ())),
        summary=body.get("summary", ""),
    )
    return _change(record, body["outcome_id"], lambda outcome: _append(outcome, evaluation))


def _read_result(item: Mapping[str, Any]) -> CriterionResult:
    """A result. It is not verified if its verdict was redacted."""
    verdict = item.get("verdict")
    known: CriterionVerdict = verdict if verdict in ("met", "not_met") else "unverified"
    return CriterionResult(known, item.get("by", ""), item.get("reason", ""), tuple(item.get("citations", ())))


def _append(outcome: Outcome, evaluation: Evaluation) -> Outcome:
    """Add an evaluation. It replaces another of the same wake."""
    others = tuple(known for known in outcome.evaluations if known.wake != evaluation.wake or not evaluation.wake)
    return replace(outcome, evaluations=(*others, evaluation)[-HISTORY:])


def _use_effect(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    """A call has ended: what was evaluated before it may no longer be so. A call that failed or was refused changed nothing."""
    if event.body.get("name") not in EFFECTFUL or event.body.get("is_error"):
        return record
    return _run_command(record, event)


def _run_command(record: OutcomesRecord, _: RecordEvent) -> OutcomesRecord:
    """A command has begun or ended. It may have changed something however it ended."""
    if all(_is_settled(outcome) for outcome in record.outcomes):
        return record
    return replace(record, outcomes=tuple(map(_void, record.outcomes)))


def _is_settled(outcome: Outcome) -> bool:
    """Whether a change makes no difference: there is no evaluation, or it is void already."""
    return outcome.latest is None or outcome.latest.is_void or not outcome.latest.results


def _void(outcome: Outcome) -> Outcome:
    latest = outcome.latest
    if latest is None or _is_settled(outcome):
        return outcome
    return replace(outcome, evaluations=(*outcome.evaluations[:-1], replace(latest, is_void=True)))


def _decide(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    body = event.body
    return _change(
        record, body["outcome_id"], lambda outcome: replace(outcome, decided=body["decision"], decided_by=body.get("by", ""))
    )


def _change(record: OutcomesRecord, name: str, change: Callable[[Outcome], Outcome]) -> OutcomesRecord:
    changed = tuple(change(outcome) if outcome.id == name else outcome for outcome in record.outcomes)
    return replace(record, outcomes=changed)


def _override(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    return replace(record, overridden_by=event.body.get("by", ""))


def _end_override(record: OutcomesRecord, _: RecordEvent) -> OutcomesRecord:
    """An override is for a single write."""
    return replace(record, overridden_by="") if record.overridden_by else record


OUTCOME_FOLDS: Mapping[str, OutcomeFold] = {
    e.OUTCOME_DEFINED: _define,
    e.EVALUATION_ENDED: _evaluate,
    e.OUTCOME_DECIDED: _decide,
    e.GATE_OVERRIDDEN: _override,
    e.PROMOTED: _end_override,
    e.TOOL_RESULT: _use_effect,
    e.COMMAND_STARTED: _run_command,
    e.COMMAND_ENDED: _run_command,
}
