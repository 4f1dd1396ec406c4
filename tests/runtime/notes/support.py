"""Subjects of notes."""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.ledger.unit_of_work import blank_session
from fidelio.runtime.notes.notes import NoteSubject
from fidelio.runtime.outcomes.record import Criterion, CriterionResult, Evaluation, Outcome, OutcomesRecord
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord
from fidelio.runtime.tools.definitions import RUNTIME_TOOL_NAMES
from fidelio.runtime.tools.model import LoadedRuntime

NOW = 1_000_000
APPROVAL = ApprovalRecord("req_1", "d", "shell_run", NOW * 2, command="make install", opened_at=1)


class SkillExample(msgspec.Struct, frozen=True):
    """A skill as the catalogue has it."""

    name: str
    description: str = "How to review"
    source: str = "project"
    digest: str = "d"


def subject(record: RuntimeRecord | None = None, **changes: Any) -> NoteSubject:
    given: dict[str, Any] = {
        "session": LoadedRuntime(blank_session("s_own", "runtime"), record or RuntimeRecord(agent="a", project="/p")),
        "message": "",
        "verdict": None,
        "setup": "",
        "recall": None,
        "skills": (),
        "sessions": (),
        "pressure": {"level": "low"},
        "live": None,
        "tools": RUNTIME_TOOL_NAMES | {"retrieval_search"},
        "now": NOW,
    }
    return NoteSubject(**{**given, **changes})


def outcomes(*statuses: Any, trend: Any = "stable") -> OutcomesRecord:
    """An outcome of one criterion with an evaluation for each status."""
    results = {
        "pass": (CriterionResult("met", "check"),),
        "fail": (CriterionResult("not_met", "check", reason="exit code 1"),),
        "not_ready": (CriterionResult("not_met", "grader"),),
    }
    evaluations = tuple(
        Evaluation(f"wake_{index}", 1, index, status, trend if index else "first_iteration", results[status])
        for index, status in enumerate(statuses)
    )
    return OutcomesRecord((Outcome("out_1", "Tests pass", (Criterion("pytest"),), "person", evaluations=evaluations),))
