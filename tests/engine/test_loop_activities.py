"""Loops through activities: moving into them begins an iteration, and they are not left halfway."""

from __future__ import annotations

from msgspec.structs import replace

from fidelio.engine.iterations import MissingIteration, StepReport
from fidelio.engine.loops import check_loops, draft_loop_entry, find_missing_iterations
from fidelio.engine.manifests import check_step_manifest
from fidelio.engine.record import Record, fold_drafts
from fidelio.engine.transition_events import draft_transition
from fidelio.engine.transitions import list_transitions
from tests.engine.builders import activity, at, loop, step, steps, to, variable, when, workflow
from tests.engine.test_loop_work import entry, knows
from tests.support import proves

ROUNDS_VARIABLES = [variable("items", "array")]
ROUNDS = workflow(
    activity(
        "one",
        loops=[loop("each", "forEach", over="items", steps=steps("write"), activities=["two", "three"])],
        transitions=[to("four", default=True)],
    ),
    activity("two"),
    activity("three"),
    activity("four"),
    variables=ROUNDS_VARIABLES,
)


def enter(record: Record, target: str, *manifest: StepReport) -> Record:
    drafts = draft_loop_entry(ROUNDS, record, target, manifest)
    informed = fold_drafts(record, drafts, 0)
    assert check_step_manifest(ROUNDS, informed, manifest, inward=target != "one") == []
    return fold_drafts(informed, draft_transition(ROUNDS, informed, target), 0)


@proves("engine.loops-are-work")
def test_a_loop_through_activities_is_walked_in_every_iteration() -> None:
    record = knows(items=["a", "b"])
    assert [found.names for found in find_missing_iterations(ROUNDS, record, ())] == [("write", "two", "three")] * 2

    for _ in range(2):
        record = enter(record, "two", entry("write"))
        assert [candidate.to for candidate in list_transitions(ROUNDS, record)] == ["three"]
        record = enter(record, "three")
        record = enter(record, "one")

    assert check_loops(ROUNDS, record, ()) == []
    assert list(find_missing_iterations(ROUNDS, record, ())) == list[MissingIteration]()


@proves("engine.loops-are-work")
def test_a_loop_through_activities_is_not_left_halfway() -> None:
    record = knows(items=["a", "b"])
    informed = fold_drafts(record, draft_loop_entry(ROUNDS, record, "two"), 0)

    (problem,) = check_loops(ROUNDS, informed, (), inward=True)
    assert "[1: write]" in problem.sentence
    assert draft_loop_entry(ROUNDS, record, "three") == []
    back = enter(enter(enter(record, "two", entry("write")), "three"), "one")
    (problem,) = check_loops(ROUNDS, back, ())
    assert "[2: write, two, three]" in problem.sentence
    assert draft_loop_entry(ROUNDS, knows(items=[]), "two") == draft_loop_entry(ROUNDS, at("one"), "two") == []


@proves("engine.loops-are-work")
def test_activities_that_are_skipped_or_cannot_be_read_are_not_missing() -> None:
    record = replace(knows(items=["a"]), skipped=("two",))
    unknown = loop("each", "forEach", over="items", activities=["two", "three", "lost"])
    definition = workflow(activity("one", loops=[unknown]), activity("two"), activity("three"), variables=ROUNDS_VARIABLES)

    assert [found.activities for found in find_missing_iterations(definition, record, ())] == [("three",)]


@proves("engine.loops-are-work")
def test_a_step_of_a_loop_that_depends_on_an_unset_variable_is_a_doubt() -> None:
    each = loop("each", "forEach", over="items", steps=[step("write", condition=when("long"))])
    definition = workflow(activity("one", loops=[each]), variables=[*ROUNDS_VARIABLES, variable("long")])

    (problem,) = check_loops(definition, knows(items=["a"]), ())

    assert (problem.code, problem.doubt) == ("not-known", True)
    assert "long" in problem.remedy
