"""What is offered where moves are enforced, where people are wanted, and to loops that know what they go over."""

from __future__ import annotations

import pytest

from fidelio.definitions.models import Workflow
from fidelio.engine import apply_move as apply_move_module
from fidelio.engine import moves, transition_events
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.moves import PossibleMove, Situation, describe_situation
from fidelio.engine.record import LOOP_ADVANCED, Record
from fidelio.engine.state import Refusal
from fidelio.engine.transitions import CandidateTransition, list_transitions
from tests.engine.builders import (
    NOW,
    activity,
    advance,
    at,
    checkpoint,
    done,
    entered,
    go,
    loop,
    made,
    make,
    started,
    step,
    steps,
    to,
    told,
    when,
    workflow,
    yielded,
)
from tests.support import proves

FORK = workflow(
    activity("one", steps=steps("s"), transitions=[to("two", when("p")), to("three", default=True)]),
    activity("two"),
    activity("three"),
)


def blocked(found: Situation, target: str) -> PossibleMove:
    (move,) = [move for move in found.blocked if move.target == target]
    return move


@proves("navigator.enforced")
def test_only_where_moves_are_enforced_an_unknown_way_is_blocked() -> None:
    advised = made(FORK, started(entered("one")), done("s"))
    assert [move.target for move in describe_situation(FORK, advised).required] == ["two", "three"]

    strict = made(FORK, started(entered("one"), fidelity="enforce"), MoveRequest("complete_step", "s", output="o"))
    found = describe_situation(FORK, strict)
    assert found.required == ()
    assert "[p] without a value. Report p in `variables`." in str(blocked(found, "three").reason)
    refused = make(FORK, strict, go("two"))
    assert isinstance(refused, Refusal)
    assert refused.code == "not-known"


@proves("engine.ways-once")
@pytest.mark.parametrize("fidelity", ["advise", "enforce"])
def test_the_transitions_are_computed_once_for_a_situation_and_the_move_from_it(
    monkeypatch: pytest.MonkeyPatch, fidelity: str
) -> None:
    computed = list[Record]()

    def counting(definition: Workflow, record: Record, *, reported_only: bool = False) -> list[CandidateTransition]:
        computed.append(record)
        return list_transitions(definition, record, reported_only=reported_only)

    definition = workflow(activity("one", transitions=[to("two"), to("three")]), activity("two"), activity("three"))
    for module in (apply_move_module, moves, transition_events):
        monkeypatch.setattr(module, "list_transitions", counting)
    record = started(entered("one"), fidelity=fidelity)

    made(definition, record, go("two"))
    assert len(computed) == 1


@proves("navigator.enforced")
@pytest.mark.parametrize(("value", "leads"), [(True, "two"), (False, "three")])
def test_what_is_known_leads_on_where_moves_are_enforced(value: bool, leads: str) -> None:
    strict = started(entered("one"), told(p=value), fidelity="enforce")
    after = made(FORK, strict, MoveRequest("complete_step", "s", output="o"))

    assert [move.target for move in describe_situation(FORK, after).required] == [leads]
    made(FORK, after, go(leads))


@proves("navigator.enforced")
def test_a_step_needs_an_output_only_where_moves_are_enforced() -> None:
    (advised,) = describe_situation(FORK, at("one")).required
    (strict,) = describe_situation(FORK, started(entered("one"), fidelity="enforce")).required

    assert (advised.needs, strict.needs) == ("", "output")
    assert isinstance(make(FORK, started(entered("one"), fidelity="enforce"), done("s")), Refusal)


@proves("navigator.person")
def test_a_server_that_wants_people_offers_neither_default_nor_dismissal() -> None:
    timed = {"blocking": False, "defaultOption": "yes", "autoAdvanceMs": 10}
    definition = workflow(activity("one", checkpoints=[checkpoint("c", condition=when("p"), **timed)]))
    record = at("one", yielded("c"))
    free, held = (describe_situation(definition, record, now=NOW + 10, person=person) for person in (False, True))

    assert [move.action for move in free.optional] == ["dismiss_checkpoint", "take_default"]
    assert held.optional == ()
    assert {move.action for move in held.blocked if "by a person" in str(move.reason)} == {"dismiss_checkpoint", "take_default"}
    assert (free.required[0].person, held.required[0].person) == (False, True)
    how = AnswerContext(NOW + 10, demands_person=True, min_response_ms=0)
    for action in ("dismiss_checkpoint", "take_default"):
        assert isinstance(apply_move(definition, record, MoveRequest(action, "c"), how, MoveActor("agent:a")), Refusal)


@proves("navigator.offers")
def test_a_default_that_is_no_option_is_not_offered() -> None:
    lost = checkpoint("c", blocking=False, defaultOption="gone", autoAdvanceMs=10)
    found = describe_situation(workflow(activity("one", checkpoints=[lost])), at("one", yielded("c")), now=NOW + 10)

    assert found.optional == ()
    assert "Invalid option 'gone'" in str(found.blocked[0].reason)


@proves("navigator.loop-items")
def test_what_the_record_knows_is_what_a_loop_goes_over() -> None:
    definition = workflow(activity("one", loops=[loop("l", "forEach", over="xs", maxIterations=2, steps=[step("x")])]))
    record = at("one", told(xs=["a", "b", "c"]))
    (offer,) = describe_situation(definition, record).required
    other = make(definition, record, advance("l", "z"))
    drafts = apply_move(
        definition, record, advance("l", "a", "b", "c"), AnswerContext(NOW, relayed=False), MoveActor("agent:a")
    )

    assert offer.needs == ""
    assert isinstance(other, Refusal)
    assert other.code == "LOOP_ITEMS_KNOWN"
    assert not isinstance(drafts, Refusal)
    (draft,) = drafts
    assert draft.type == LOOP_ADVANCED
    assert (draft.body["items"], draft.body["left_out"]) == (["a", "b"], 1)


@proves("navigator.loop-items")
def test_items_are_asked_for_only_where_nobody_knows_them() -> None:
    definition = workflow(activity("one", loops=[loop("l", "forEach", over="xs", steps=[step("x", required=False)])]))
    first = describe_situation(definition, at("one")).optional[0]
    second = describe_situation(definition, made(definition, at("one"), advance("l", "a", "b"))).optional[-1]

    assert (first.target, first.needs) == ("l", "loop_items")
    assert second.needs == ""


@proves("navigator.refusals")
def test_the_start_has_a_name_in_refusals() -> None:
    refused = make(FORK, started(), go("three"))

    assert isinstance(refused, Refusal)
    assert refused.sentence == "No valid transition from 'the start' to 'three'."
