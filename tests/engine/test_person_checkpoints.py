"""No way leads out of an activity past a question that only a person answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerChoice, AnswerContext, Resolution, resolve_answer
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
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
    first = activity(
        "one", steps=list(steps_), loops=list(loops), checkpoints=[checkpoint("ask", **whole)], transitions=[to("two")]
    )
    return workflow(first, activity("two"), variables=list(variables))


def missing(definition: Workflow, record: Record, *reported: str) -> list[tuple[str, tuple[int, ...]]]:
    found = find_missing_answers(definition, record, reported=Counter(reported))
    return [(one.checkpoint, one.iterations) for one in found]


def relayed(chosen: str, request: str = "r", **effect: Any) -> EventDraft:
    who = {"by": "agent:worker", "channel": "relayed", "assurance": "relayed"}
    return EventDraft(ANSWERED, {"request": request, "option": chosen, "mode": "option", "effect": effect, **who})


def asked(*iterations: int, of: int = 0) -> list[EventDraft]:
    found = list[EventDraft]()
    for number in iterations:
        found += [yielded("ask", f"r{number}", iteration=number, person=True, of=of), answered("yes", f"r{number}")]
    return found


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


@proves("engine.person-leaves")
def test_an_answer_that_leads_to_an_unknown_activity_settles_nothing() -> None:
    leave = option("leave", transitionTo="nowhere")
    asks = [checkpoint("other", leave), checkpoint("ask", answered_by="person")]
    definition = workflow(activity("one", checkpoints=asks, transitions=[to("two")]), activity("two"))
    record = at("one", yielded("other"), answered("leave", transitionTo="nowhere"))

    assert missing(definition, record) == [("ask", ())]
    assert describe_situation(definition, record).checkpoint == "ask"
    assert made(definition, record, say("ask"), go("two")).activity == "two"


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
def test_a_loop_that_is_not_known_to_be_empty_was_asked_at_least_once() -> None:
    each = asking(loops=[loop("l", "forEach", over="files", steps=[step("x", checkpoint="ask")])])
    often = asking(loops=[loop("l", "while", condition=when("more"), steps=[step("x", checkpoint="ask")])])
    once = (yielded("ask", "r1", iteration=1), answered("yes", "r1"))

    for unknown in (each, often):
        assert missing(unknown, at("one")) == [("ask", (1,))]
    assert missing(each, started(told(files=None), entered("one"))) == [("ask", (1,))]
    assert missing(each, at("one", told(files=[]))) == missing(often, at("one", told(more=False))) == []
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


@proves("engine.person-asked-before")
def test_what_agents_report_after_the_first_question_does_not_settle_later_iterations() -> None:
    each = loop("l", "forEach", over="files", variable="file", steps=[step("x", checkpoint="ask")])
    definition = asking(loops=[each], condition=when("outcome", "bad"))
    known, asked_ = told(files=["a", "b"]), (yielded("ask", "r1", iteration=1, of=2), answered("yes", "r1"))

    assert missing(definition, started(known, entered("one"), told(outcome="bad"))) == [("ask", (1,))]
    assert missing(definition, started(known, entered("one"), told(outcome="good"))) == []
    assert missing(definition, started(known, entered("one"), told(outcome="bad"), *asked_)) == [("ask", (2,))]
    for outcome in ("bad", "good"):
        later = started(known, entered("one"), told(outcome="bad"), *asked_, told(outcome=outcome))
        assert missing(definition, later) == [("ask", (2,))]
    dismissed = (yielded("ask", "r1", iteration=1, of=2), answered("", "r1", mode="condition_not_met"))
    fine = started(known, entered("one"), told(outcome="good"), *dismissed)
    assert missing(definition, fine) == []
    assert missing(definition, fold_drafts(fine, [told(outcome="bad")], NOW)) == [("ask", (2,))]
    by_person = (yielded("ask", "r1", iteration=1, of=2), answered("yes", "r1", setVariable={"outcome": "good"}))
    assert missing(definition, started(known, entered("one"), told(outcome="bad"), *by_person)) == []


@proves("engine.person-asked-before")
def test_items_that_are_rewritten_after_the_first_question_count_as_they_were() -> None:
    each = loop("l", "forEach", over="files", variable="file", steps=[step("x", checkpoint="ask")])
    definition = asking(loops=[each], condition=when("file.risky"))
    risky, safe = {"risky": True}, {"risky": False}
    known = (told(files=[risky, risky]), entered("one"), *asked(1, of=2))

    assert missing(definition, started(*known, told(files=[safe, safe]))) == [("ask", (2,))]
    assert missing(definition, started(*known, told(files=[safe, safe, safe]))) == [("ask", (2,))]
    assert missing(definition, started(*known, told(files=[safe, safe, risky]))) == [("ask", (2, 3))]


@proves("engine.person-leaving-call")
@pytest.mark.parametrize(
    ("before", "reported", "is_refused"),
    [("high", "low", True), (None, "low", False), ("low", "high", True), ("low", "low", False)],
)
def test_the_call_that_leaves_does_not_report_a_question_away(before: str | None, reported: str, is_refused: bool) -> None:
    each = loop("l", "forEach", over="files", steps=[step("x", checkpoint="ask")])
    more = loop("l", "while", condition=when("risk", "high"), steps=[step("x", checkpoint="ask")])
    risky = when("risk", "high")
    known = [told(files=["a"]), *([told(risk=before)] if before else [])]
    for definition in (
        asking(step("a", checkpoint="ask"), condition=risky),
        asking(loops=[each], condition=risky),
        asking(loops=[more]),
    ):
        earlier = started(*known, entered("one"))
        record = fold_drafts(earlier, [told(risk=reported)], NOW)
        assert (refuse_unanswered(definition, record, NEXT, earlier=earlier) is not None) is is_refused


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


def setting(name: str, value: Any) -> dict[str, Any]:
    return {"actions": [{"action": "set", "target": name, "value": value}]}


@proves("engine.person-leaving-call")
@pytest.mark.parametrize("inside", [False, True], ids=["step", "loop"])
def test_the_actions_of_reported_steps_count_from_their_place_on(inside: bool) -> None:
    each = loop("l", "forEach", over="files", steps=[step("x", checkpoint="ask")])
    naming = [] if inside else [step("x", checkpoint="ask")]
    known = (told(files=["a", "b"]), told(risk="high"), entered("one"))
    lower = step("lower", **setting("risk", "low"))
    before, after = (
        asking(*steps_, loops=[each] if inside else [], condition=when("risk", "high"))
        for steps_ in ([lower, *naming], [*naming, lower])
    )
    earlier = started(*known)
    record = fold_drafts(earlier, [EventDraft("variables.set", {"variables": {"risk": "low"}, "by": "step:one/lower"})], NOW)

    for definition, is_refused in ((before, False), (after, not inside)):
        left = refuse_unanswered(definition, record, NEXT, reported=["lower", "x", "x"], earlier=earlier)
        assert (left is not None) is is_refused


@proves("engine.person-leaving-call")
@pytest.mark.parametrize("where", ["step", "way"])
def test_a_single_move_does_not_report_its_own_question_away(where: str) -> None:
    steps_ = [step("a", checkpoint="ask", required=where == "step")]
    definition = asking(*steps_, condition=when("risk", "high"))
    earlier = started(told(risk="high"), entered("one"))
    record = fold_drafts(earlier, [told(risk="low")], NOW)
    move = MoveRequest("complete_step", "a") if where == "step" else go("two")
    context, actor = AnswerContext(LATER), MoveActor("agent:w")

    refused = apply_move(definition, record, move, context, actor, earlier=earlier)
    unknown = apply_move(definition, record, move, context, actor, earlier=at("one"))
    reported_before = apply_move(definition, record, move, context, actor, earlier=record)

    assert isinstance(refused, Refusal)
    assert not isinstance(unknown, Refusal)
    assert not isinstance(reported_before, Refusal)
