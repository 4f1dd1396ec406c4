"""No way leads out of an activity past a question that only a person answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerChoice, AnswerContext, Resolution, resolve_answer
from fidelio.engine.apply_move import MoveRequest
from fidelio.engine.checkpoints import find_checkpoints_to_arm, find_instance
from fidelio.engine.moves import describe_situation
from fidelio.engine.person_checkpoints import find_missing_answers, refuse_unanswered
from fidelio.engine.record import ANSWERED, COMPLETED, EventDraft, Record, fold_drafts
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
    option,
    say,
    started,
    step,
    to,
    told,
    variable,
    when,
    workflow,
    yielded,
)
from tests.support import proves

LATER = NOW + 10_000
NEXT = [entered("two")]
END = [EventDraft(COMPLETED, {})]


def asking(*steps_: Any, loops: Any = (), variables: Any = (), **parts: Any) -> Workflow:
    whole = {"answered_by": "person", **parts}
    first = activity("one", steps=list(steps_), loops=list(loops), checkpoints=[checkpoint("ask", **whole)])
    return workflow(first, activity("two"), variables=list(variables))


def missing(definition: Workflow, record: Record, *reported: str) -> list[tuple[str, tuple[int, ...]]]:
    found = find_missing_answers(definition, record, reported=Counter(reported))
    return [(one.checkpoint, one.iterations) for one in found]


def relayed(chosen: str, request: str = "r", **effect: Any) -> EventDraft:
    who = {"by": "agent:worker", "channel": "relayed", "assurance": "relayed"}
    return EventDraft(ANSWERED, {"request": request, "option": chosen, "mode": "option", "effect": effect, **who})


@proves("engine.person-leaves")
@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("out", [NEXT, END, [entered("one", again=True)]])
def test_no_way_out_leads_past_a_question_for_a_person(attached: bool, out: list[EventDraft]) -> None:
    definition = asking(step("a", checkpoint="ask") if attached else step("a"))
    before, after = at("one"), at("one", yielded("ask", person=True), answered("yes"))

    refusal = refuse_unanswered(definition, before, out, reported=["a"])

    assert isinstance(refusal, Refusal)
    assert "only a person answers its checkpoint 'ask'" in refusal.sentence
    assert refuse_unanswered(definition, after, out, reported=["a"]) is None


@proves("engine.person-leaves")
def test_looking_at_the_same_activity_again_is_no_way_out() -> None:
    assert refuse_unanswered(asking(step("a")), at("one"), [entered("one")]) is None


@proves("engine.person-leaves")
@pytest.mark.parametrize(
    ("default", "reported", "is_missing"),
    [
        (None, None, True),
        ("high", None, True),
        ("low", None, False),
        (None, "high", True),
        (None, "low", False),
        ("high", "low", True),
    ],
)
def test_a_default_is_a_value_and_unknown_has_to_be_asked(default: str | None, reported: str | None, is_missing: bool) -> None:
    known = variable("risk", "string", **({"defaultValue": default} if default else {}))
    definition = asking(step("a"), condition=when("risk", "high"), variables=[known])
    record = at("one", told(risk=reported)) if reported else at("one")

    assert bool(missing(definition, record)) is is_missing


@proves("engine.person-leaves")
def test_what_applied_on_entry_is_not_reported_away_if_no_step_says_when_it_is_asked() -> None:
    free = asking(step("a"), condition=when("risk", "high"))
    later = asking(step("a"), step("b", checkpoint="ask"), condition=when("risk", "high"))
    record = started(told(risk="high"), entered("one"), told(risk="low"))

    assert missing(free, record) == [("ask", ())]
    assert missing(later, record) == []


@proves("engine.person-leaves")
def test_the_condition_of_a_step_is_a_part_of_the_condition_of_its_question() -> None:
    definition = asking(step("a", checkpoint="ask", condition=when("deploy")))

    assert missing(definition, at("one", told(deploy=False))) == []
    assert missing(definition, at("one", told(deploy=False)), "a") == [("ask", ())]
    assert missing(definition, at("one")) == [("ask", ())]


@proves("engine.person-leaves")
def test_only_the_answer_of_a_person_leads_away_from_a_question() -> None:
    leave = option("leave", transitionTo="two")
    definition = workflow(
        activity("one", checkpoints=[checkpoint("other", leave), checkpoint("ask", answered_by="person")]), activity("two")
    )
    by_agent = at("one", yielded("other"), relayed("leave", transitionTo="two"))
    by_person = at("one", yielded("other"), answered("leave", transitionTo="two"))

    assert missing(definition, by_agent) == [("ask", ())]
    assert missing(definition, by_person) == []
    assert refuse_unanswered(definition, by_person, NEXT) is None
    assert refuse_unanswered(definition, by_person, [entered("three")]) is not None
    assert describe_situation(definition, by_agent).checkpoint == "ask"
    assert isinstance(make(definition, by_agent, go("two")), Refusal)


@proves("engine.person-iterations")
def test_every_item_of_a_known_list_has_its_own_answer() -> None:
    each = loop("l", "forEach", over="files", variable="file", steps=[step("x", checkpoint="ask")])
    definition = asking(loops=[each])
    known = started(told(files=["a", "b"]), entered("one"))
    first = (yielded("ask", "r1", iteration=1, of=2), answered("yes", "r1"))
    shortened = started(told(files=["a", "b"]), entered("one"), *first, told(files=["a"]))
    removed = started(told(files=["a", "b"]), entered("one"), *first, told(files=None))
    both = (*first, yielded("ask", "r2", iteration=2, of=2), answered("yes", "r2"))

    assert missing(definition, known) == [("ask", (1, 2))]
    assert missing(definition, shortened) == missing(definition, removed) == [("ask", (2,))]
    assert missing(definition, started(told(files=["a", "b"]), entered("one"), *both)) == []
    assert missing(definition, started(told(files=[]), entered("one"))) == []


@proves("engine.person-iterations")
def test_where_the_items_are_not_known_a_loop_that_ran_was_asked_at_least_once() -> None:
    each = asking(loops=[loop("l", "forEach", over="files", steps=[step("x", checkpoint="ask")])])
    often = asking(loops=[loop("l", "while", condition=when("more"), steps=[step("x", checkpoint="ask")])])
    once = (yielded("ask", "r1", iteration=1), answered("yes", "r1"))

    assert missing(each, at("one")) == []
    assert missing(each, at("one"), "x") == [("ask", (1,))]
    assert missing(each, at("one", *once), "x") == []
    assert missing(often, at("one", *once), "x", "x") == [("ask", (2,))]
    assert missing(often, at("one", told(more=True))) == [("ask", (1,))]


@proves("engine.person-iterations")
def test_a_question_about_some_items_is_asked_for_those() -> None:
    risky = when("file.risky")
    each = loop("l", "forEach", over="files", variable="file", steps=[step("x", checkpoint="ask")])
    definition = asking(loops=[each], condition=risky)
    files = [{"risky": False}, {"risky": True}, {}]
    record = started(told(files=files), entered("one"))

    assert missing(definition, record) == [("ask", (2, 3))]
    assert find_instance(definition, record, "ask").iteration == 2


@proves("engine.person-iterations")
def test_a_question_about_the_result_of_an_iteration_is_asked_for_the_newest_result() -> None:
    each = loop("l", "forEach", over="files", variable="file", steps=[step("x", checkpoint="ask")])
    definition = asking(loops=[each], condition=when("outcome", "bad"))
    known, asked_ = told(files=["a", "b"]), (yielded("ask", "r1", iteration=1, of=2), answered("yes", "r1"))

    assert missing(definition, started(known, entered("one"), told(outcome="bad"))) == [("ask", (1,))]
    assert missing(definition, started(known, entered("one"), told(outcome="good"))) == []
    assert missing(definition, started(known, entered("one"), told(outcome="bad"), *asked_)) == []
    assert missing(definition, started(known, entered("one"), told(outcome="bad"), *asked_, told(outcome="bad"))) == [
        ("ask", (2,))
    ]


@proves("engine.person-iterations")
def test_gates_open_a_question_for_a_person_for_each_item() -> None:
    steps = [step("x", checkpoint="ask")]
    definition = asking(loops=[loop("l", "forEach", over="files", steps=steps)])
    plain = workflow(activity("one", loops=[loop("l", "forEach", over="files", steps=steps)], checkpoints=[checkpoint("ask")]))
    record = started(told(files=["a", "b", "c"]), entered("one"))

    assert [instance.iteration for _, instance, _ in find_checkpoints_to_arm(definition, record)] == [1, 2, 3]
    assert [instance.iteration for _, instance, _ in find_checkpoints_to_arm(plain, record)] == [1]


@proves("engine.person-asked")
@pytest.mark.parametrize(
    "later",
    [told(risk="low"), EventDraft("child.finished", {"session": "s", "variables": {"risk": "low"}})],
    ids=["reported", "child"],
)
def test_a_question_that_waits_is_not_reported_away(later: EventDraft) -> None:
    definition = asking(step("a"), condition=when("risk", "high"))
    asked = (told(risk="high"), yielded("ask", person=True))

    found = resolve_answer(definition, at("one", *asked, later), AnswerChoice(condition_not_met=True), AnswerContext(LATER))

    assert isinstance(found, Refusal)
    assert found.code == "checkpoint.person"


@proves("engine.person-asked")
def test_the_values_from_before_the_question_and_the_answers_of_people_count() -> None:
    definition = asking(step("a"), condition=when("risk", "high"))
    dismissal, context = AnswerChoice(condition_not_met=True), AnswerContext(LATER)
    before = at("one", told(risk="low"), yielded("ask", person=True), told(risk="low"))
    by_person = at("one", told(risk="high"), yielded("ask", person=True))
    assert isinstance(resolve_answer(definition, before, dismissal, context), Resolution)
    assert isinstance(resolve_answer(definition, by_person, dismissal, context), Refusal)

    arm = EventDraft(
        "checkpoint.armed",
        {"checkpoints": [{"checkpoint": name, "request": name, "person": True} for name in ("other", "ask")]},
    )
    settled = at("one", told(risk="high"), arm, answered("yes", "other", setVariable={"risk": "low"}))
    guessed = at("one", told(risk="high"), arm, relayed("yes", "other", setVariable={"risk": "low"}))
    assert isinstance(resolve_answer(definition, settled, dismissal, context), Resolution)
    assert isinstance(resolve_answer(definition, guessed, dismissal, context), Refusal)


@proves("engine.person-leaves")
def test_the_navigator_asks_what_was_passed_before_it_offers_a_way_out() -> None:
    definition = workflow(
        activity(
            "one",
            steps=[step("maybe", required=False, checkpoint="ask"), step("b")],
            checkpoints=[checkpoint("ask", answered_by="person")],
            transitions=[to("two")],
        ),
        activity("two"),
    )
    passed = made(definition, at("one"), done("b"))

    situation = describe_situation(definition, passed)

    assert situation.checkpoint == "ask"
    assert [move.action for move in situation.offered] == ["respond_to_checkpoint"]
    assert isinstance(make(definition, passed, go("two")), Refusal)
    assert made(definition, passed, say("ask"), go("two")).activity == "two"


@proves("engine.person-iterations")
def test_an_iteration_is_not_left_before_its_question_was_answered() -> None:
    inner = [step("x", required=False, checkpoint="ask"), step("y")]
    definition = asking(loops=[loop("l", "forEach", over="files", steps=inner)])
    begun = made(definition, started(told(files=["a", "b"]), entered("one")), advance("l"), done("y"))

    assert describe_situation(definition, begun).checkpoint == "ask"
    assert isinstance(make(definition, begun, advance("l")), Refusal)
    second = made(definition, begun, say("ask"), advance("l"), done("y"))
    assert missing(definition, second) == [("ask", (2,))]
    assert isinstance(make(definition, second, MoveRequest("transition", "two")), Refusal)


@proves("engine.person-leaves")
def test_leaving_a_loop_through_activities_leaves_the_activity_of_the_loop_too() -> None:
    outer = activity(
        "one",
        loops=[loop("l", "forEach", over="files", activities=["inner"])],
        checkpoints=[checkpoint("ask", answered_by="person")],
    )
    definition = workflow(outer, activity("inner"), activity("two"))
    inside = started(
        told(files=["a"]),
        entered("one"),
        EventDraft("loop.advanced", {"activity": "one", "loop": "l", "iteration": 1, "items": ["a"], "at": 0}),
        entered("inner", how="loop", reached=1),
    )

    assert refuse_unanswered(definition, inside, [entered("one", how="return")]) is None
    assert refuse_unanswered(definition, inside, NEXT) is not None
    assert refuse_unanswered(definition, fold_drafts(inside, [], NOW), END) is not None


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


def asked(*iterations: int, of: int = 0) -> list[EventDraft]:
    found = list[EventDraft]()
    for number in iterations:
        found += [yielded("ask", f"r{number}", iteration=number, person=True, of=of), answered("yes", f"r{number}")]
    return found


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
