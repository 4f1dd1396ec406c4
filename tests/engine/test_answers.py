"""What becomes of an answer to a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerChoice, AnswerContext, Resolution, resolve_answer
from fidelio.engine.record import (
    ANSWERED,
    ARMED,
    RESUMED,
    CheckpointAnswer,
    CheckpointInstance,
    EventDraft,
    Record,
    fold_drafts,
)
from fidelio.engine.state import AnswerMode, Refusal
from tests.engine.builders import (
    NOW,
    activity,
    answered,
    at,
    checkpoint,
    entered,
    option,
    told,
    variable,
    when,
    workflow,
    yielded,
)
from tests.support import proves

LATER = NOW + 60_000
WAITING = at("one", yielded("ask"))


def definition(*, workflow_wants: str | None = None, **parts: Any) -> Workflow:
    ask = checkpoint("ask", option("yes", setVariable={"x": 1}, skipActivities=["two"]), "no", **parts)
    return workflow(
        activity("one", checkpoints=[ask]),
        activity("two"),
        variables=[variable("deep", defaultValue=True)],
        **({"answered_by": workflow_wants} if workflow_wants else {}),
    )


PLAIN = definition()
TIMED = definition(blocking=False, defaultOption="no", autoAdvanceMs=30_000)
CONDITIONAL = definition(condition=when("deep"))


def refused(
    workflow: Workflow, record: Record, choice: AnswerChoice, *, now: int = LATER, relayed: bool = True, server: bool = False
) -> Refusal:
    found = resolve_answer(workflow, record, choice, AnswerContext(now, relayed, server))
    assert isinstance(found, Refusal)
    return found


def taken(workflow: Workflow, record: Record, choice: AnswerChoice, *, now: int = LATER, relayed: bool = True) -> Resolution:
    found = resolve_answer(workflow, record, choice, AnswerContext(now, relayed))
    assert isinstance(found, Resolution), found
    return found


@proves("engine.answer-modes")
@pytest.mark.parametrize(
    "choice",
    [
        AnswerChoice(),
        AnswerChoice(auto_advance=False),
        AnswerChoice(condition_not_met=False),
        AnswerChoice("yes", auto_advance=True),
        AnswerChoice("yes", condition_not_met=True),
        AnswerChoice(auto_advance=True, condition_not_met=True),
    ],
)
def test_exactly_one_mode_has_to_be_chosen(choice: AnswerChoice) -> None:
    assert "Exactly one" in refused(PLAIN, WAITING, choice).sentence


@proves("engine.answer-modes", "engine.answer-options")
def test_false_beside_an_option_counts_as_absent() -> None:
    found = taken(PLAIN, WAITING, AnswerChoice("yes", auto_advance=False, condition_not_met=False))

    assert (found.option, found.mode, found.request) == ("yes", "option", "r")
    assert found.effect == {"setVariable": {"x": 1}, "skipActivities": ["two"]}


@proves("engine.answer-options")
@pytest.mark.parametrize("wrong", ["maybe", ""])
def test_an_option_that_is_not_offered_is_refused_with_those_that_are(wrong: str) -> None:
    assert "Valid options: [yes, no]" in refused(PLAIN, WAITING, AnswerChoice(wrong)).sentence
    assert refused(PLAIN, WAITING, AnswerChoice(wrong)).sentence.startswith("Invalid option")


@proves("engine.answer-options")
def test_an_answer_without_a_question_is_refused() -> None:
    assert "does not have an active checkpoint" in refused(PLAIN, at("one"), AnswerChoice("yes")).sentence


@proves("engine.answer-time")
def test_a_relayed_answer_may_not_come_too_soon_and_a_persons_own_may() -> None:
    early, in_time = NOW + 2_999, NOW + 3_000

    assert "2999 ms < 3000 ms" in refused(PLAIN, WAITING, AnswerChoice("yes"), now=early).sentence
    assert taken(PLAIN, WAITING, AnswerChoice("yes"), now=in_time).after_ms == 3_000
    assert taken(PLAIN, WAITING, AnswerChoice("yes"), now=NOW, relayed=False).after_ms == 0


@proves("engine.answer-time")
def test_the_minimum_can_be_switched_off() -> None:
    how = AnswerContext(NOW, min_response_ms=0)

    assert isinstance(resolve_answer(PLAIN, WAITING, AnswerChoice("yes"), how), Resolution)


@proves("engine.auto-advance", "engine.answer-time")
def test_the_default_is_taken_when_its_time_has_run_from_the_yield() -> None:
    assert "29999 ms of 30000 ms" in refused(TIMED, WAITING, AnswerChoice(auto_advance=True), now=NOW + 29_999).sentence
    found = taken(TIMED, WAITING, AnswerChoice(auto_advance=True), now=NOW + 30_000)
    assert (found.option, found.mode) == ("no", "auto_advance")


@proves("engine.auto-advance")
@pytest.mark.parametrize(
    ("parts", "reasons"),
    [
        ({}, ("blocking", "missing defaultOption or autoAdvanceMs")),
        ({"blocking": False}, ("missing defaultOption or autoAdvanceMs",)),
        ({"blocking": False, "defaultOption": "no"}, ("missing defaultOption or autoAdvanceMs",)),
        ({"blocking": False, "autoAdvanceMs": 5}, ("missing defaultOption or autoAdvanceMs",)),
        ({"defaultOption": "no", "autoAdvanceMs": 5}, ("blocking",)),
        ({"blocking": False, "defaultOption": "maybe", "autoAdvanceMs": 5}, ("Invalid option",)),
    ],
)
def test_what_cannot_advance_by_itself_says_why(parts: dict[str, Any], reasons: tuple[str, ...]) -> None:
    sentence = refused(definition(**parts), WAITING, AnswerChoice(auto_advance=True)).sentence

    assert all(reason in sentence for reason in reasons)


@proves("engine.dismissal")
def test_a_question_is_dismissed_unless_the_record_knows_that_it_applies() -> None:
    assert "no condition field" in refused(PLAIN, WAITING, AnswerChoice(condition_not_met=True)).sentence
    assert taken(CONDITIONAL, WAITING, AnswerChoice(condition_not_met=True)).dismissed
    assert taken(CONDITIONAL, at("one", told(deep=False), yielded("ask")), AnswerChoice(condition_not_met=True)).option == ""
    known = at("one", told(deep=True), yielded("ask"))
    assert "'deep == true' holds" in refused(CONDITIONAL, known, AnswerChoice(condition_not_met=True)).sentence


@proves("engine.dismissal")
def test_a_question_is_never_refused_an_answer_because_of_its_condition() -> None:
    assert taken(CONDITIONAL, at("one", told(deep=False), yielded("ask")), AnswerChoice("yes")).option == "yes"


@proves("engine.answered-once")
def test_the_same_answer_again_is_confirmed_and_another_refused() -> None:
    record = at("one", yielded("ask"), answered("yes", setVariable={"x": 1}))
    asked = CheckpointInstance("ask", "one", 1)

    again = resolve_answer(PLAIN, record, AnswerChoice("yes"), AnswerContext(NOW), instance=asked)
    assert isinstance(again, Resolution)
    assert (again.repeated, again.effect) == (True, {"setVariable": {"x": 1}})
    other = resolve_answer(PLAIN, record, AnswerChoice("no"), AnswerContext(NOW), instance=asked)
    assert isinstance(other, Refusal)
    assert "answered already, with 'yes'" in other.sentence


@proves("engine.answered-once")
@pytest.mark.parametrize(
    ("mode", "chosen", "choice", "same"),
    [
        ("auto_advance", "no", AnswerChoice(auto_advance=True), True),
        ("auto_advance", "no", AnswerChoice("no"), True),
        ("auto_advance", "no", AnswerChoice("yes"), False),
        ("condition_not_met", "", AnswerChoice(condition_not_met=True), True),
        ("condition_not_met", "", AnswerChoice("yes"), False),
        ("option", "yes", AnswerChoice(condition_not_met=True), False),
    ],
)
def test_what_counts_as_the_same_answer(mode: str, chosen: str, choice: AnswerChoice, same: bool) -> None:
    record = at("one", yielded("ask"), answered(chosen, mode=mode))
    found = resolve_answer(TIMED, record, choice, AnswerContext(LATER), instance=CheckpointInstance("ask", "one", 1))

    assert isinstance(found, Resolution) is same


@proves("engine.answered-once")
def test_an_old_asking_never_touches_the_one_that_is_open_now() -> None:
    record = at("one", yielded("ask"), answered("yes"), entered("two"), entered("one"), yielded("ask", "r2"))
    old = CheckpointInstance("ask", "one", 1)

    found = resolve_answer(PLAIN, record, AnswerChoice("no"), AnswerContext(LATER), instance=old)
    assert isinstance(found, Refusal)
    current = resolve_answer(
        PLAIN, record, AnswerChoice("no"), AnswerContext(LATER), instance=CheckpointInstance("ask", "one", 3)
    )
    assert isinstance(current, Resolution)
    assert current.request == "r2"


@proves("engine.answered-once")
def test_an_answer_that_left_the_record_still_counts_when_the_caller_brings_it() -> None:
    earlier = at("one", yielded("ask"), answered("yes")).last
    found = resolve_answer(
        PLAIN,
        at("one"),
        AnswerChoice("no"),
        AnswerContext(LATER),
        instance=CheckpointInstance("ask", "one", 1),
        earlier=earlier,
    )

    assert isinstance(found, Refusal)
    assert found.code == "checkpoint.answered"


@proves("engine.person")
@pytest.mark.parametrize(
    ("wanting", "server"),
    [
        (definition(answered_by="person"), False),
        (definition(workflow_wants="person"), False),
        (PLAIN, True),
    ],
)
def test_a_relayed_answer_is_not_taken_where_a_person_is_demanded(wanting: Workflow, server: bool) -> None:
    assert refused(wanting, WAITING, AnswerChoice("yes"), server=server).code == "checkpoint.person"
    how = AnswerContext(LATER, relayed=False, demands_person=server)
    assert isinstance(resolve_answer(wanting, WAITING, AnswerChoice("yes"), how), Resolution)


@proves("engine.person")
def test_neither_a_timer_nor_a_relayed_dismissal_gets_around_the_person() -> None:
    timed = definition(blocking=False, defaultOption="no", autoAdvanceMs=5, answered_by="person")
    conditional = definition(condition=when("deep"), answered_by="person")

    assert refused(timed, WAITING, AnswerChoice(auto_advance=True), relayed=False).code == "checkpoint.person"
    assert refused(conditional, WAITING, AnswerChoice(condition_not_met=True)).code == "checkpoint.person"
    known = at("one", told(deep=False), yielded("ask"))
    assert taken(conditional, known, AnswerChoice(condition_not_met=True)).dismissed


@proves("engine.answered-once", "engine.replay")
def test_the_body_of_a_resolution_puts_the_answer_on_record() -> None:
    found = taken(PLAIN, WAITING, AnswerChoice("yes"))
    body = found.body(by="agent:o", channel="relayed", assurance="relayed")
    record = fold_drafts(WAITING, [EventDraft(ANSWERED, body), EventDraft(RESUMED, {})], LATER)

    assert record.last is not None
    assert (record.last.option, record.last.by, record.last.answered_at, record.last.resumed) == ("yes", "agent:o", LATER, True)
    assert (record.variables, record.status) == ({"x": 1}, "active")


@proves("engine.armed", "engine.answer-time")
def test_an_armed_question_is_answered_like_a_yielded_one_with_its_own_clock() -> None:
    armed = [{"checkpoint": "ask", "request": "r9"}]
    record = at("one", EventDraft(ARMED, {"checkpoints": armed}))

    found = taken(PLAIN, record, AnswerChoice("yes"))
    assert found.request == "r9"
    assert refused(PLAIN, record, AnswerChoice("yes"), now=NOW + 10).code == "checkpoint.too-fast"


@proves("engine.answered-once")
@pytest.mark.parametrize("choice", [AnswerChoice("yes"), AnswerChoice("")])
@pytest.mark.parametrize("mode", ["option", "condition_not_met"])
def test_no_option_is_the_same_as_none(choice: AnswerChoice, mode: AnswerMode) -> None:
    none = CheckpointAnswer("ask", "one", 1, "", {}, "agent:x", "relayed", "relayed", NOW, mode=mode)
    found = resolve_answer(PLAIN, at("one"), choice, AnswerContext(LATER), instance=none.instance, earlier=none)

    assert isinstance(found, Refusal)
    assert found.code == "checkpoint.answered"
