"""What an agent says it did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.engine.manifests import ActivityReport, StepReport, check_activity_manifest, check_step_manifest, encode_manifest
from fidelio.engine.record import Record
from fidelio.engine.state import build_refusal, list_warnings
from tests.engine.builders import (
    activity,
    answered,
    at,
    checkpoint,
    entered,
    loop,
    option,
    started,
    step,
    steps,
    to,
    told,
    variable,
    when,
    workflow,
    yielded,
)
from tests.support import proves

SCORE = workflow(
    activity(
        "one",
        steps=[
            step("a"),
            step("b", condition=when("deep")),
            step("c", required=False),
            step("d", checkpoint="ask"),
            step("e", condition=when("late")),
        ],
        loops=[loop("l", steps=steps("x", "y"))],
        checkpoints=[checkpoint("ask", option("yes", setVariable={"late": True}))],
        transitions=[to("two", when("done"))],
    ),
    activity("two"),
    variables=[variable("deep", defaultValue=True), variable("late", defaultValue=False)],
)


ASKED = (yielded("ask"), answered("no"))


def manifest(*names: str) -> list[StepReport]:
    return [StepReport(name, "done") for name in names]


def said(record: Record, *names: str) -> list[str]:
    return list_warnings(check_step_manifest(SCORE, record, manifest(*names)))


@proves("engine.manifest-honest")
@pytest.mark.parametrize(
    "names", [("a", "d"), ("a", "b", "d"), ("a", "b", "c", "d", "e"), ("a", "d", "x", "y", "x", "y"), ("a", "x", "d")]
)
def test_what_may_be_absent_may_be_absent(names: tuple[str, ...]) -> None:
    assert said(at("one", *ASKED), *names) == []


@proves("engine.manifest-honest")
def test_two_steps_with_one_id_may_both_be_reported() -> None:
    twice = workflow(activity("one", steps=steps("a", "b", "a")))

    assert check_step_manifest(twice, at("one"), manifest("a", "b", "a")) == []


@proves("engine.manifest-honest")
def test_a_step_that_was_certain_to_apply_is_missed() -> None:
    assert said(started(told(deep=True), entered("one"), *ASKED), "a", "d") == ["Missing steps in manifest: [b]"]
    assert said(started(told(deep=False), entered("one"), *ASKED), "a", "d") == []


@proves("engine.manifest-honest")
def test_what_became_known_after_the_turn_of_a_step_is_not_held_against_the_agent() -> None:
    assert said(at("one", told(deep=True), *ASKED), "a", "d") == []
    assert said(at("one", yielded("ask"), answered("yes", late=True, setVariable={"deep": True, "late": True})), "a", "d") == [
        "Missing steps in manifest: [e]"
    ]


@proves("engine.manifest-problems")
@pytest.mark.parametrize(
    ("names", "warning"),
    [
        (("a",), "Missing steps in manifest: [d]"),
        ((), "Missing steps in manifest: [a, d]"),
        (("a", "d", "zzz", "zzz"), "Unexpected steps in manifest: [zzz]"),
        (("d", "a"), "Step order mismatch: [d] not at the place that the definition gives."),
        (("e", "a", "b", "c", "d"), "Step order mismatch: [e] not at the place that the definition gives."),
        (("a", "d", "a"), "Steps reported more than once in manifest: [a]"),
    ],
)
def test_each_real_problem_gets_one_sentence(names: tuple[str, ...], warning: str) -> None:
    assert said(at("one", *ASKED), *names) == [warning]


@proves("engine.manifest-problems")
def test_no_manifest_is_said_only_where_something_had_to_be_done() -> None:
    assert list_warnings(check_step_manifest(SCORE, at("one"), None)) == [
        "No step_manifest provided for previous activity 'one'. Include a manifest to enable step completion validation."
    ]
    assert check_step_manifest(SCORE, at("one"), None, leaving=False) == []
    assert check_step_manifest(SCORE, at("two"), None) == []
    assert check_step_manifest(SCORE, started(), None) == []


@proves("engine.manifest-problems")
def test_blank_outputs_are_one_problem() -> None:
    blank = [StepReport("a", " \n"), StepReport("d", "")]

    assert list_warnings(check_step_manifest(SCORE, at("one", *ASKED), blank)) == [
        "Steps with empty output in manifest: [a, d]"
    ]


@proves("engine.manifest-problems")
def test_a_huge_manifest_gets_short_sentences_and_a_short_event() -> None:
    huge = [StepReport(f"{number}" * 300, "x" * 10_000) for number in range(3_000)]

    assert all(len(sentence) < 10_000 for sentence in list_warnings(check_step_manifest(SCORE, at("one"), huge)))
    assert len(str(encode_manifest(huge))) < 1_000_000


@proves("engine.manifest-problems")
@given(st.permutations(["a", "b", "c", "d", "e"]))
def test_order_is_one_sentence_at_most_and_names_the_fewest(names: list[str]) -> None:
    found = said(at("one", *ASKED), *names)

    assert len(found) == (0 if names == sorted(names) else 1)
    if found:
        astray = found[0].partition("[")[2].partition("]")[0].split(", ")
        kept = [name for name in names if name not in astray]
        assert kept == sorted(kept)


@proves("engine.activity-manifest")
def test_an_activity_manifest_is_checked_and_never_refused() -> None:
    entries = [
        ActivityReport("one", "done", "weird"),
        ActivityReport("nope", " "),
        ActivityReport("one", "done", "done == true"),
    ]
    problems = check_activity_manifest(SCORE, entries)

    assert list_warnings(problems) == [
        "Activity 'one' claims transition condition 'weird' not found in workflow transitions",
        "Activity manifest references unknown activity 'nope'",
        "Activity 'nope' has empty outcome",
    ]
    assert build_refusal(problems, "enforce") is None
    assert check_activity_manifest(SCORE, None) == []
    assert list_warnings(check_activity_manifest(SCORE, [])) == [
        "Empty activity_manifest provided. Omit the parameter if no activities have been completed."
    ]


@proves("engine.enforce")
def test_enforcing_refuses_a_missing_manifest() -> None:
    no = build_refusal(check_step_manifest(SCORE, at("one"), None), "enforce")

    assert no is not None
    assert no.code == "no-manifest"
