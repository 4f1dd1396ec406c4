"""In a loop through activities a person is asked in each iteration, before its activities are entered."""

from __future__ import annotations

from typing import Any

from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerChoice, AnswerContext, resolve_answer
from fidelio.engine.checkpoints import find_checkpoints_to_arm, find_instance
from fidelio.engine.moves import describe_situation
from fidelio.engine.person_checkpoints import refuse_unanswered
from fidelio.engine.record import EventDraft, Record, fold_drafts
from fidelio.engine.state import Refusal
from tests.engine.builders import (
    NOW,
    activity,
    advance,
    answered,
    at,
    checkpoint,
    done,
    entered,
    go,
    loop,
    made,
    make,
    say,
    started,
    step,
    told,
    when,
    workflow,
    yielded,
)
from tests.engine.test_person_checkpoints import asked, asking, missing
from tests.support import proves


def running(name: str = "l", iteration: int = 1, items: Any = (), **body: Any) -> EventDraft:
    whole = {"activity": "one", "loop": name, "iteration": iteration, "items": list(items) or None, "at": 0, **body}
    return EventDraft("loop.advanced", whole)


def through(*names: str, kind: str = "forEach", **parts: Any) -> Workflow:
    """A loop with a question before its activity, and further loops through activities."""
    how = {"over": "files", "variable": "file"} if kind == "forEach" else {"condition": when("more")}
    first = loop("l", kind, steps=[step("x", required=False, checkpoint="ask")], activities=["inner"], **how)
    others = [loop(name, "forEach", over="files", activities=[name]) for name in names]
    asks = checkpoint("ask", **{"answered_by": "person", **parts})
    outer = activity("one", loops=[first, *others], checkpoints=[asks])
    return workflow(outer, activity("inner"), *(activity(name) for name in names), activity("two"))


def armed(definition: Workflow, record: Record) -> list[int]:
    return [instance.iteration for _, instance, _ in find_checkpoints_to_arm(definition, record)]


@proves("engine.person-iterations")
def test_gates_do_not_ask_for_an_iteration_again_that_was_answered() -> None:
    definition, known = through("other"), (told(files=["a", "b", "c"]), entered("one"))
    inside = [running(items=["a", "b", "c"]), entered("inner", how="loop", reached=1), entered("one", how="return")]
    later = running("other", items=["a", "b", "c"])

    assert armed(definition, started(*known, *asked(1, 2, 3, of=3), *inside)) == []
    assert armed(definition, started(*known, *asked(1, of=3), *inside)) == [2, 3]
    assert armed(definition, started(*known, *asked(1, 2, 3, of=3), *inside, later)) == []


INWARD = entered("inner", how="loop", reached=1, at=1)
BACK = entered("one", how="return")


@proves("engine.person-iterations")
def test_an_activity_of_a_loop_is_not_entered_before_the_question_of_its_iteration_was_answered() -> None:
    definition, files = through(), ["a", "b"]
    known = (told(files=files), entered("one"))
    first, second = running(items=files), running(iteration=2, items=files)
    returned = started(*known, *asked(1, of=2), first, INWARD, BACK)

    assert refuse_unanswered(definition, started(*known), [first, INWARD]) is not None
    assert refuse_unanswered(definition, started(*known, *asked(1, of=2)), [first, INWARD]) is None
    assert refuse_unanswered(definition, returned, [second, INWARD]) is not None
    assert find_instance(definition, returned, "ask").iteration == 2
    again = fold_drafts(returned, asked(2, of=2), NOW)
    assert refuse_unanswered(definition, again, [second, INWARD]) is None
    assert find_instance(definition, again, "ask").iteration == 2


@proves("engine.person-iterations")
def test_a_loop_is_not_left_for_another_one_before_its_questions_were_answered() -> None:
    definition, files = through("other"), ["a", "b"]
    known, other = (told(files=files), entered("one")), [running("other", items=files), entered("other", how="loop", reached=1)]
    inside = started(*known, *asked(1, of=2), running(items=files), INWARD, BACK)
    unasked = started(*known, running(items=files), INWARD, BACK)

    for record in (inside, unasked):
        assert refuse_unanswered(definition, record, other) is not None
    assert refuse_unanswered(definition, fold_drafts(inside, asked(2, of=2), NOW), other) is None
    # A loop that was never begun is demanded when its activity is left.
    skipped = fold_drafts(started(*known), [*other, BACK], NOW)
    assert missing(definition, skipped) == [("ask", (1, 2))]


@proves("engine.person-iterations")
def test_the_next_iteration_is_asked_only_where_it_is_certain() -> None:
    definition = through(kind="while")
    returned = at("one", told(more=True), *asked(1), running(), INWARD, BACK)

    assert find_instance(definition, returned, "ask").iteration == 2
    assert find_instance(definition, fold_drafts(returned, [told(more=False)], NOW), "ask").iteration == 1
    assert find_instance(definition, at("one", told(more=True), *asked(1), running()), "ask").iteration == 1


@proves("engine.person-iterations")
def test_the_navigator_asks_before_it_offers_the_activities_of_a_loop() -> None:
    definition = through("other")
    begun = made(definition, started(told(files=["a"]), entered("one")), advance("l"))

    assert describe_situation(definition, begun).checkpoint == "ask"
    assert isinstance(make(definition, begun, go("inner")), Refusal)
    assert made(definition, begun, say("ask"), go("inner")).activity == "inner"


@proves("engine.person-iterations")
def test_gates_do_not_ask_about_a_list_that_is_known_to_be_empty() -> None:
    steps = [step("x", checkpoint="ask")]
    definition = asking(loops=[loop("l", "forEach", over="files", steps=steps)])
    often = asking(loops=[loop("l", "while", condition=when("more"), steps=steps)])

    assert armed(definition, started(told(files=[]), entered("one"))) == []
    assert armed(definition, at("one")) == [1]
    assert armed(often, at("one", told(more=False))) == []
    assert armed(often, at("one", told(more=True))) == [1]


def child(**variables: Any) -> EventDraft:
    return EventDraft("child.finished", {"session": "s", "variables": variables})


def by_step(**variables: Any) -> EventDraft:
    return EventDraft("variables.set", {"variables": variables, "by": "step:one/reset"})


def of_results(*more: Any) -> Workflow:
    each = loop("l", "forEach", over="files", variable="file", steps=[step("x", checkpoint="ask"), *more])
    return asking(loops=[each], condition=when("outcome", "bad"))


LEAVE = [entered("two")]
FILES = (told(files=["a", "b", "c"]), entered("one"))


@proves("engine.person-asked-before")
def test_the_result_of_a_child_in_each_iteration_decides_about_its_question() -> None:
    definition, asked_ = of_results(), asked(1, of=3)
    bad = started(*FILES, child(outcome="bad"))
    once = fold_drafts(bad, asked_, NOW)

    assert missing(definition, bad) == [("ask", (1,))]
    for repeated in ([], [told(outcome="bad")]):
        # The iterations that follow have no result yet; the agent may repeat the one that there is.
        assert missing(definition, fold_drafts(once, repeated, NOW)) == []
    good = fold_drafts(once, [child(outcome="good")], NOW)
    assert missing(definition, good) == []
    assert missing(definition, fold_drafts(good, [child(outcome="bad")], NOW)) == [("ask", (2,))]
    both = fold_drafts(good, [child(outcome="bad"), *asked(2, of=3)], NOW)
    assert missing(definition, both) == []


@proves("engine.person-asked-before")
def test_a_report_in_place_of_the_result_of_a_child_decides_nothing() -> None:
    definition = of_results()
    once = started(*FILES, child(outcome="bad"), *asked(1, of=3))
    claimed = fold_drafts(once, [told(outcome="good")], NOW)

    assert missing(definition, claimed) == [("ask", (2, 3))]
    assert missing(definition, fold_drafts(claimed, [child(outcome="good")], NOW)) == []


@proves("engine.person-asked-before")
def test_every_earlier_question_counts_and_not_only_the_first_or_the_newest() -> None:
    definition = of_results()
    first_low = (told(outcome="good"), *asked(1, of=3), told(outcome="bad"), *asked(2, of=3), told(outcome="good"))
    newest_low = (told(outcome="bad"), *asked(1, of=3), told(outcome="good"), *asked(2, of=3))

    for later in (first_low, newest_low):
        assert missing(definition, started(*FILES, *later)) == [("ask", (3,))]
        assert missing(definition, started(*FILES, *later, by_step(outcome="good"))) == []
        assert missing(definition, started(*FILES, *later, child(outcome="good"))) == []


@proves("engine.person-asked-before")
def test_an_action_of_the_loop_sets_a_value_for_the_next_iteration() -> None:
    reset = step("reset", actions=[{"action": "set", "target": "outcome", "value": "good"}])
    definition, done_ = of_results(reset), ("x", "reset") * 3
    asked_ = (told(outcome="bad"), *asked(1, of=3))
    silent, honest = started(*FILES, *asked_), started(*FILES, *asked_, told(outcome="good"))

    for record in (silent, honest):
        assert missing(definition, record, *done_) == []
        assert missing(definition, record, "x", "x", "x") == [("ask", (2, 3))]
        assert refuse_unanswered(definition, honest, LEAVE, reported=done_, earlier=record) is None
    again = fold_drafts(silent, [told(outcome="bad")], NOW)
    assert missing(definition, again, *done_) == [("ask", (2, 3))]


@proves("engine.person-asked-before")
def test_a_question_of_a_later_iteration_is_not_dismissed_by_a_report_since_an_earlier_one() -> None:
    definition, dismissal = of_results(), AnswerChoice(condition_not_met=True)
    second = yielded("ask", "r2", iteration=2, person=True, of=3)
    asked_ = (told(outcome="bad"), *asked(1, of=3))

    for between, is_refused in ((told(outcome="good"), True), (child(outcome="good"), False), (by_step(outcome="good"), False)):
        record = started(*FILES, *asked_, between, second)
        found = resolve_answer(definition, record, dismissal, AnswerContext(NOW + 10_000))
        assert isinstance(found, Refusal) is is_refused


@proves("engine.person-asked-before")
def test_single_moves_ask_again_in_an_iteration_whose_question_was_only_reported_away() -> None:
    definition = of_results()
    record = started(told(files=["a", "b"]), told(outcome="bad"), entered("one"))
    second = made(definition, record, advance("l"), say("ask"), done("x"), advance("l"))
    claimed = made(definition, fold_drafts(second, [told(outcome="good")], NOW), done("x"))

    assert describe_situation(definition, claimed).checkpoint == "ask"
    assert [move.action for move in describe_situation(definition, claimed).offered] == ["respond_to_checkpoint"]
    assert isinstance(make(definition, claimed, go("two")), Refusal)
    assert made(definition, claimed, say("ask"), go("two")).activity == "two"
    assert made(definition, fold_drafts(second, [child(outcome="good")], NOW), done("x"), go("two")).activity == "two"


@proves("engine.person-iterations")
def test_a_recorded_break_ends_the_questions_of_a_loop() -> None:
    each = loop("l", "forEach", over="files", steps=[step("x", checkpoint="ask")], breakCondition=when("stop"))
    definition, first = asking(loops=[each]), yielded("ask", "r1", iteration=1, person=True, of=3)

    assert missing(definition, started(*FILES, first, answered("yes", "r1"))) == [("ask", (2, 3))]
    assert missing(definition, started(*FILES, first, answered("yes", "r1", setVariable={"stop": True}))) == []
    # Iterations that were reported before the break were asked about.
    assert missing(definition, started(*FILES, told(stop=True))) == [("ask", (1,))]
    assert missing(definition, started(*FILES, told(stop=True)), "x", "x") == [("ask", (1, 2))]
