"""Where checkpoints stand, and which asking of one is meant."""

from __future__ import annotations

from fidelio.engine.checkpoints import (
    describe_last_checkpoint,
    encode_effect,
    find_checkpoints_to_arm,
    find_instance,
    find_unattached_checkpoints,
)
from fidelio.engine.record import ARMED, RESUMED, EventDraft, Record
from tests.engine.builders import (
    NOW,
    activity,
    advance,
    answered,
    at,
    checkpoint,
    done,
    loop,
    made,
    say,
    step,
    steps,
    told,
    when,
    workflow,
    yielded,
)
from tests.support import proves

SCORE = workflow(
    activity(
        "one",
        steps=[step("a", checkpoint="before-a")],
        loops=[loop("l", "forEach", over="tasks", variable="task", steps=[step("x", checkpoint="each"), *steps("y")])],
        checkpoints=[
            checkpoint("free", condition=when("c")),
            checkpoint("before-a"),
            checkpoint("each"),
            checkpoint("hint", required=False),
        ],
    )
)


@proves("engine.questions-first")
def test_those_that_no_step_names_are_unattached() -> None:
    assert [one.id for one in find_unattached_checkpoints(SCORE.activities[0])] == ["free", "hint"]


@proves("engine.armed")
def test_entering_arms_what_is_required_with_the_truth_of_its_condition() -> None:
    assert [(one.id, truth) for one, _, truth in find_checkpoints_to_arm(SCORE, at("one"))] == [
        ("free", None),
        ("before-a", True),
        ("each", True),
    ]
    assert next(find_checkpoints_to_arm(SCORE, at("one", told(c=False))))[2] is False


@proves("engine.armed")
def test_the_session_is_blocked_until_every_armed_question_is_answered() -> None:
    both = [{"checkpoint": "free", "request": "r1"}, {"checkpoint": "before-a", "request": "r2"}]
    first = at("one", EventDraft(ARMED, {"checkpoints": both}))
    one_left = at("one", EventDraft(ARMED, {"checkpoints": both}), answered("no", "r2"))
    none_left = at(
        "one", EventDraft(ARMED, {"checkpoints": both}), answered("no", "r2"), answered("", "r1", mode="condition_not_met")
    )

    assert [record.status for record in (first, one_left, none_left)] == ["blocked", "blocked", "active"]
    assert one_left.waiting is not None
    assert one_left.waiting.checkpoint == "free"


@proves("engine.asked-per-pass")
def test_a_question_outside_loops_is_asked_once_in_a_visit() -> None:
    record = at("one", yielded("before-a"), answered("yes"), EventDraft(RESUMED, {}))

    assert find_instance(SCORE, record, "before-a").key == "one/before-a#1"
    assert record.find_answer_of(find_instance(SCORE, record, "before-a")) is not None


@proves("engine.asked-per-pass")
def test_a_question_of_a_loop_is_asked_again_once_its_answer_was_taken_note_of() -> None:
    first = find_instance(SCORE, at("one"), "each")
    assert first.key == "one/each#1.1"

    answer = (yielded("each", iteration=1), answered("yes"))
    assert find_instance(SCORE, at("one", *answer), "each") == first
    assert find_instance(SCORE, at("one", *answer, EventDraft(RESUMED, {})), "each").iteration == 2


@proves("engine.asked-per-pass")
def test_where_passes_are_reported_they_number_the_question() -> None:
    record = made(SCORE, at("one", told(c=False, tasks=["p", "q"])), say("before-a"), done("a"), advance("l"))
    assert find_instance(SCORE, record, "each").iteration == 1

    record = made(SCORE, record, say("each"), done("x"), done("y"), advance("l"))
    assert find_instance(SCORE, record, "each").iteration == 2
    assert record.find_answer_of(find_instance(SCORE, record, "each")) is None


@proves("engine.last-checkpoint")
def test_the_last_checkpoint_is_the_open_one_or_the_last_answered() -> None:
    ids = {"activity_id": "one", "checkpoint_id": "before-a"}
    waiting = at("one", yielded("before-a"))
    dismissed = at("one", yielded("before-a"), answered("", mode="condition_not_met"))

    assert describe_last_checkpoint(Record()) is None
    assert describe_last_checkpoint(waiting) == {**ids, "state": "open", "option_id": None, "timestamp": NOW}
    assert describe_last_checkpoint(at("one", yielded("before-a"), answered("no"))) == {
        **ids,
        "state": "answered",
        "option_id": "no",
        "timestamp": NOW,
    }
    assert (describe_last_checkpoint(dismissed) or {})["state"] == "dismissed"


@proves("engine.answer-options")
def test_an_option_without_effect_changes_nothing() -> None:
    assert encode_effect(None) == {}
    assert encode_effect(SCORE.activities[0].checkpoints[0].options[0].effect) == {}
