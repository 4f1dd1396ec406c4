"""What the record holds of each kind of event, and what it lets go."""

from __future__ import annotations

import json
import subprocess
import sys

from fidelio.engine.record import (
    ARMED,
    COMPLETED,
    LOOP_ADVANCED,
    RESUMED,
    SKILL_LOADED,
    STEP_COMPLETED,
    CheckpointInstance,
    EventDraft,
    ParentSession,
    Record,
    encode_record,
    fold_drafts,
)
from tests.engine.builders import NOW, answered, at, entered, started, told, yielded
from tests.support import proves


def size(record: Record) -> int:
    return len(json.dumps(encode_record(record)))


@proves("engine.replay")
def test_the_start_brings_parent_level_variables_and_doubts_about_the_origin() -> None:
    parent = {"session": "s_1", "workflow": "w", "activity": "a", "version": "1.0.0"}
    record = started(parent=parent, fidelity="enforce", unverified=True, claims_to_continue="s_2", activity="one")

    assert record.parent == ParentSession("s_1", "w", "a", "1.0.0")
    assert (record.fidelity, record.unverified, record.claims_to_continue) == ("enforce", True, "s_2")
    assert (record.activity, record.visit) == ("one", 1)


@proves("engine.replay")
def test_skill_condition_and_manifest_are_kept_as_they_were_last() -> None:
    manifest = [{"step_id": "a", "output": "x"}]
    record = at(
        "one",
        EventDraft(SKILL_LOADED, {"skill": "sing", "owner": "meta"}),
        entered("two", condition="x == 1", manifest=manifest, warnings=["w"]),
    )

    assert (record.skill, record.skill_owner, record.condition) == ("sing", "meta", "x == 1")
    assert (record.reported["one"].steps, record.reported["one"].warnings, record.reported["one"].visit) == (1, 1, 1)
    ended = fold_drafts(record, [EventDraft(COMPLETED, {"from": "two", "manifest": [], "passed": ["three"]})], NOW)
    assert (ended.status, ended.completed, ended.passed) == ("completed", ("one", "two"), ("three",))


@proves("engine.small-records")
def test_answers_of_an_earlier_visit_are_gone_except_the_last() -> None:
    record = at("one", yielded("a", "r1"), answered("yes", "r1"), yielded("b", "r2"), answered("no", "r2"), entered("two"))

    assert record.answers == ()
    assert record.find_answer_of(CheckpointInstance("a", "one", 1)) is None
    assert record.find_answer_of(CheckpointInstance("b", "one", 1)) is not None


@proves("engine.small-records")
def test_a_thousand_rounds_leave_a_record_as_small_as_one() -> None:
    def round_(number: int) -> list[EventDraft]:
        return [
            entered("one"),
            EventDraft(STEP_COMPLETED, {"activity": "one", "step": "s", "at": 1, "loop": ""}),
            *[
                EventDraft(LOOP_ADVANCED, {"activity": "one", "loop": "l", "iteration": n, "items": None, "at": 1})
                for n in (1, 2)
            ],
            told(x=number),
            yielded("ask", f"r{number}", iteration=2),
            answered("yes", f"r{number}", skipActivities=["three"]),
            EventDraft(RESUMED, {}),
            entered("two", manifest=[{"step_id": "s", "output": "x"}]),
        ]

    after_one = fold_drafts(started(), round_(1), NOW)
    after_many = after_one
    for number in range(2, 1_001):
        after_many = fold_drafts(after_many, round_(number), NOW)

    assert size(after_many) < size(after_one) + 40


@proves("engine.small-records", "engine.asked-per-pass")
def test_a_loop_keeps_the_newest_answer_to_its_question() -> None:
    rounds = [
        draft
        for number in range(1, 50)
        for draft in (yielded("each", f"r{number}", iteration=number), answered("yes", f"r{number}"))
    ]
    record = at("one", *rounds)

    assert [answer.iteration for answer in record.answers] == [49]


@proves("engine.replay")
def test_events_about_another_place_change_nothing() -> None:
    before = at("one")
    elsewhere = [
        EventDraft(STEP_COMPLETED, {"activity": "two", "step": "s", "at": 1, "loop": ""}),
        EventDraft(STEP_COMPLETED, {"activity": "one", "step": "s", "at": 1, "loop": "l"}),
        EventDraft(LOOP_ADVANCED, {"activity": "two", "loop": "l", "iteration": 1, "at": 1}),
        answered("yes", "unknown"),
        EventDraft(RESUMED, {}),
    ]
    after = fold_drafts(before, elsewhere, NOW)

    assert encode_record(after) == {**encode_record(before), "seq": after.seq}


@proves("engine.armed", "engine.replay")
def test_the_end_closes_whatever_was_open() -> None:
    armed = EventDraft(ARMED, {"checkpoints": [{"checkpoint": "a", "request": "r"}]})
    record = at("one", armed, EventDraft(COMPLETED, {"from": "one"}))

    assert (record.status, record.armed, record.waiting) == ("completed", (), None)
    assert fold_drafts(record, [answered("yes", "r", setVariable={"x": 1})], NOW).variables == {}


@proves("engine.light")
def test_the_rules_load_neither_pydantic_nor_what_reads_files() -> None:
    modules = "answers, apply_move, manifests, moves, transition_events, transitions, triggers"
    program = f"import sys; from fidelio.engine import {modules}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)

    assert not {"pydantic", "yaml", "asyncio", "fidelio.definitions.models"} & set(run.stdout.split())
