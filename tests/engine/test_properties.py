"""What is true of every workflow, however it is written, and of every way through it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.definitions import TERMINAL
from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveRequest, apply_move
from fidelio.engine.moves import describe_situation
from fidelio.engine.record import (
    STARTED,
    VARIABLES_SET,
    EventDraft,
    ProvisionalEvent,
    Record,
    decode_record,
    fold,
    number_drafts,
)
from fidelio.engine.state import Refusal, list_warnings
from fidelio.engine.transition_events import check_transition
from fidelio.ledger.encoding import encode_record
from tests.engine.builders import NOW, PERSON, activity, checkpoint, loop, option, step, to, variable, when, workflow
from tests.support import proves
from tests.support.walker import Robot, possible_acts

NAMES = ("one", "two", "three")
TARGETS = (*NAMES, TERMINAL, "workflow-end", "nowhere")
flags = st.booleans()
simple = st.builds(when, st.sampled_from("pq"), st.sampled_from([True, False, "x"]), st.sampled_from(["==", "!=", "exists"]))
conditions = simple | st.builds(
    lambda kind, parts: {"type": kind, "conditions": parts},
    st.sampled_from(["and", "or"]),
    st.lists(simple, min_size=2, max_size=2),
)
maybe_condition = st.fixed_dictionaries({}, optional={"condition": conditions})
# Whose question it is, and whether it answers itself in time: at once, or not while a test runs.
manners = st.fixed_dictionaries({}, optional={"answered_by": st.just("person")}) | st.fixed_dictionaries(
    {
        "blocking": st.just(False),
        "defaultOption": st.sampled_from(["yes", "gone"]),
        "autoAdvanceMs": st.sampled_from([1, 3_600_000]),
    }
)
effects = st.fixed_dictionaries(
    {},
    optional={
        "setVariable": st.fixed_dictionaries({}, optional={"p": flags, "q": flags | st.just("x")}),
        "transitionTo": st.sampled_from(TARGETS),
        "skipActivities": st.lists(st.sampled_from(NAMES), max_size=2),
    },
)


@st.composite
def activities(draw: st.DrawFn, name: str) -> dict[str, Any]:
    asks = [f"c{number}" for number in range(draw(st.integers(0, 2)))]
    named = st.none() | st.sampled_from(asks) if asks else st.none()
    return activity(
        name,
        steps=[
            step(f"s{n}", required=draw(flags), checkpoint=draw(named), **draw(maybe_condition))
            for n in range(draw(st.integers(0, 3)))
        ],
        checkpoints=[
            checkpoint(
                ask,
                option("yes", **draw(effects)),
                option("no", **draw(effects)),
                required=draw(flags),
                **draw(maybe_condition),
                **draw(manners),
            )
            for ask in asks
        ],
        loops=[
            loop(
                f"l{n}",
                draw(st.sampled_from(["forEach", "while", "doWhile"])),
                over="items",
                maxIterations=draw(st.integers(1, 3)),
                steps=[step(f"x{n}", required=draw(flags), checkpoint=draw(named), **draw(maybe_condition))],
                activities=draw(st.lists(st.sampled_from(NAMES), max_size=2)),
                **draw(maybe_condition),
            )
            for n in range(draw(st.integers(0, 2)))
        ],
        transitions=[
            to(draw(st.sampled_from(TARGETS)), draw(st.none() | conditions), default=draw(flags))
            for _ in range(draw(st.integers(0, 3)))
        ],
    )


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    mode = {
        "id": "m",
        "name": "m",
        "activationVariable": "p",
        "skipActivities": draw(st.lists(st.sampled_from(NAMES), max_size=1)),
    }
    return workflow(
        *[draw(activities(name)) for name in NAMES],
        initial=draw(st.sampled_from(["one", None])),
        modes=[mode] if draw(flags) else [],
        variables=[variable("p", "boolean", **draw(st.fixed_dictionaries({}, optional={"defaultValue": flags})))],
    )


# Lists that hypothesis draws are short; a seed makes every walk long enough to come to loops and back.
walks = st.builds(
    lambda seed, length: [Random(seed + n).randrange(31) for n in range(length)], st.integers(0, 9999), st.integers(0, 25)
)
START = EventDraft(STARTED, {"workflow": "wf", "version": "1.0.0", "definition": "d"})


def walked(definition: Workflow, choices: list[int]) -> tuple[list[ProvisionalEvent], list[Record]]:
    """A session that takes what the numbers point at; a high number reports a variable instead."""
    events = number_drafts(Record(), [START], NOW)
    records = [fold(Record(), events)]
    for choice in choices:
        record = records[-1]
        acts = list(possible_acts(describe_situation(definition, record)))
        if record.status == "completed":
            break
        drafts = _drafts(definition, record, acts, choice)
        written = number_drafts(record, drafts, NOW + len(events))
        events += written
        records.append(fold(record, written))
    return events, records


def _drafts(definition: Workflow, record: Record, acts: list[MoveRequest], choice: int) -> list[EventDraft]:
    if choice > 26:
        return [EventDraft(VARIABLES_SET, {"variables": {"p": choice % 2 == 0, "q": "x"}, "by": "agent:a"})]
    drafts = apply_move(definition, record, acts[choice % len(acts)], AnswerContext(NOW, relayed=False), PERSON)
    assert not isinstance(drafts, Refusal), drafts
    return drafts


@proves("engine.no-dead-end", "engine.moves")
@settings(max_examples=80, deadline=None)
@given(workflows(), walks)
def test_every_state_has_a_legal_move_or_is_an_end_and_all_that_is_offered_is_accepted(
    definition: Workflow, choices: list[int]
) -> None:
    for record in walked(definition, choices)[1]:
        acts = list(possible_acts(describe_situation(definition, record)))
        assert acts or record.status == "completed"
        for act in acts:
            found = apply_move(definition, record, act, AnswerContext(NOW, relayed=False), PERSON)
            assert not isinstance(found, Refusal), (act, found)


@proves("engine.moves")
@settings(max_examples=40, deadline=None)
@given(workflows(), walks)
def test_what_is_not_offered_is_refused_with_a_reason(definition: Workflow, choices: list[int]) -> None:
    record = walked(definition, choices)[1][-1]
    offered = {(move.action, move.target) for move in describe_situation(definition, record).offered}
    asked = [MoveRequest("transition", target) for target in TARGETS]
    for name in ("s0", "s1", "x0", "l0", "c0", "c1", "zzz"):
        asked += [
            MoveRequest("complete_step", name),
            MoveRequest("respond_to_checkpoint", name, "yes"),
            MoveRequest("advance_loop", name, items=("i",)),
        ]
    for act in asked:
        if (act.action, act.target) not in offered:
            found = apply_move(definition, record, act, AnswerContext(NOW, relayed=False), PERSON)
            assert isinstance(found, Refusal)
            assert found.sentence
            assert found.code


@proves("engine.replay")
@settings(max_examples=60, deadline=None)
@given(workflows(), walks, st.integers(0, 40))
def test_replaying_the_events_gives_the_same_record_through_json_too(
    definition: Workflow, choices: list[int], cut: int
) -> None:
    events, records = walked(definition, choices)
    through_json = [ProvisionalEvent(e.seq, e.type, e.time, json.loads(json.dumps(e.body))) for e in events]
    stored = decode_record(encode_record(fold(Record(), events[:cut])))

    assert fold(Record(), through_json) == records[-1]
    assert fold(stored, through_json[cut:]) == records[-1]


@proves("engine.transition-warnings", "engine.claims", "engine.truth-of-claims")
@settings(max_examples=60, deadline=None)
@given(workflows(), walks)
def test_going_a_way_that_is_offered_is_never_warned_about(definition: Workflow, choices: list[int]) -> None:
    for record in walked(definition, choices)[1]:
        for move in describe_situation(definition, record).required:
            if move.action == "transition":
                assert list_warnings(check_transition(definition, record, move.target)) == []


@proves("engine.robot", "engine.no-dead-end")
@settings(max_examples=60, deadline=None)
@given(workflows(), st.sampled_from(["first", "last", 1, 2]))
def test_no_walk_of_the_robot_gets_stuck_and_each_repeats_itself(definition: Workflow, choice: Any) -> None:
    walk, again = (Robot(Random(choice) if isinstance(choice, int) else choice).walk(definition, bound=150) for _ in range(2))

    assert walk.problem == "" or walk.problem.startswith("no end after 15")
    assert walk.events == again.events
