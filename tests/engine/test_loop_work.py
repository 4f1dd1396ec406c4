"""Loops are work: which iterations are due when an activity is left, and what of them is missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.definitions.models import Workflow
from fidelio.engine.iterations import MissingIteration, StepReport
from fidelio.engine.loops import assign_iterations, check_loops, find_missing_iterations
from fidelio.engine.manifests import check_step_manifest, encode_manifest
from fidelio.engine.moves import describe_situation
from fidelio.engine.record import VARIABLES_SET, EventDraft, Record, fold_drafts
from fidelio.engine.state import build_refusal, list_warnings
from fidelio.engine.variables import draft_report
from tests.engine.builders import (
    activity,
    advance,
    at,
    done,
    entered,
    go,
    loop,
    made,
    started,
    step,
    steps,
    to,
    told,
    variable,
    when,
    workflow,
)
from tests.support import proves


def looping(kind: str = "forEach", **parts: Any) -> Workflow:
    parts = {"steps": steps("write", "check"), **({"over": "items", "variable": "item"} if kind == "forEach" else {}), **parts}
    return workflow(
        activity("one", loops=[loop("each", kind, **parts)], transitions=[to("two", default=True)]),
        activity("two"),
        variables=[variable("items", "array"), variable("more"), variable("stop")],
    )


LIST = looping()


def knows(*drafts: EventDraft, **variables: Any) -> Record:
    return started(told(**variables), entered("one"), *drafts)


def entry(name: str, iteration: int | None = None, **more: Any) -> StepReport:
    return StepReport(name, "done", iteration, **more)


def full(*iterations: int) -> list[StepReport]:
    return [entry(name, iteration) for iteration in iterations for name in ("write", "check")]


def missing(definition: Workflow, record: Record, manifest: list[StepReport]) -> list[tuple[int, tuple[str, ...]]]:
    return [(found.iteration, found.steps) for found in find_missing_iterations(definition, record, manifest)]


def warned(definition: Workflow, record: Record, manifest: list[StepReport]) -> list[str]:
    return list_warnings(check_step_manifest(definition, record, manifest))


def refused(definition: Workflow, record: Record, manifest: list[StepReport]) -> str:
    refusal = build_refusal(check_step_manifest(definition, record, manifest), "enforce")
    return "" if refusal is None else f"{refusal.sentence} {refusal.remedy}"


@proves("engine.loops-are-work")
def test_an_empty_manifest_does_not_leave_a_loop_over_a_known_list() -> None:
    record = knows(items=["a", "b"])

    (warning,) = warned(LIST, record, [])
    assert warning.startswith("Missing iterations of loop 'each' in manifest: [1-2: write, check].")
    assert "ondition" not in warning
    assert '"iteration": 1}' in refused(LIST, record, [])
    assert check_step_manifest(LIST, record, None) == check_step_manifest(LIST, record, [])


@proves("engine.loops-are-work")
@pytest.mark.parametrize(
    ("manifest", "lacking"),
    [
        (full(1, 2), []),
        (full(2, 1), []),
        ([*full(1), entry("write", 2)], [(2, ("check",))]),
        ([entry(name, item=item) for item in ("a", "b") for name in ("write", "check")], []),
        ([entry("write"), entry("check"), entry("write"), entry("check")], []),
        ([entry("write"), entry("check")], [(2, ("write", "check"))]),
        ([*full(2), entry("write"), entry("check")], []),
    ],
)
def test_each_step_of_each_iteration_has_an_entry(manifest: list[StepReport], lacking: list[Any]) -> None:
    assert missing(LIST, knows(items=["a", "b"]), manifest) == lacking


@proves("engine.loops-are-work")
@pytest.mark.parametrize(
    "items", [["a", "a"], [{"id": 1, "tags": ["x"]}, {"id": 2}], [1, True], [None, "a"], [[1.0], [2]], [float("inf"), "\ud800"]]
)
def test_items_of_every_kind_name_their_iteration(items: list[Any]) -> None:
    manifest = [entry(name, item=item) for item in items for name in ("write", "check")]
    record = knows(items=items)

    assert refused(LIST, record, manifest) == ""
    assert len(encode_manifest(manifest)) == 4
    assert [found.iteration for found in assign_iterations(LIST, record, manifest)] == [1, 1, 2, 2]


@proves("engine.loops-are-work")
@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ([*full(1, 2), entry("write", 3)], "has at most 2 iterations; the manifest reports [3]"),
        ([*full(1, 2), entry("write", 1)], "reported more than once for an iteration: [write in 1]"),
        ([*full(1, 2), entry("write", item="a")], "reported more than once for an iteration: [write in 1]"),
        ([*full(1, 2), entry("write", item="c")], 'does not go over these items: [write: "c"]'),
        ([*full(1), entry("write", 2, item="a"), entry("check", 2)], "whose item is not that of their iteration"),
        ([entry("write", item=1), *full(2)], "does not go over these items"),
    ],
)
def test_entries_that_fit_no_iteration_are_named(manifest: list[StepReport], said: str) -> None:
    record = knows(items=["a", "b"])

    assert said in refused(LIST, record, manifest)
    assert any(said in warning for warning in warned(LIST, record, manifest))


@proves("engine.loops-are-work")
def test_an_iteration_of_a_step_outside_of_loops_is_named() -> None:
    plain = workflow(activity("one", steps=steps("a")))

    assert "outside of loops" in refused(plain, at("one"), [entry("a", 1)])
    assert refused(plain, at("one"), [entry("a")]) == ""


@proves("engine.loops-are-work")
def test_an_empty_list_needs_nothing_and_a_long_one_no_more_than_the_maximum() -> None:
    assert refused(LIST, knows(items=[]), []) == ""
    capped = looping(maxIterations=2)
    assert refused(capped, knows(items=["a", "b", "c"]), full(1, 2)) == ""
    assert "at most 2 iterations" in refused(capped, knows(items=["a", "b", "c"]), full(1, 2, 3))


@proves("engine.loops-are-work")
def test_an_unknown_list_is_asked_for_only_where_it_is_enforced() -> None:
    assert warned(LIST, at("one"), []) == []
    assert "Report items in `variables`." in refused(LIST, at("one"), [])


@proves("engine.loops-are-work")
def test_a_default_list_is_work_but_no_proof_against_an_agent() -> None:
    given_by_default = workflow(
        activity("one", loops=[loop("each", "forEach", over="items", steps=steps("write"))]),
        variables=[variable("items", "array", defaultValue=["a"])],
    )

    assert missing(given_by_default, at("one"), []) == [(1, ("write",))]
    assert warned(given_by_default, at("one"), [entry("write", 1), entry("write", 2)]) == []


@proves("engine.loops-list-stays")
@pytest.mark.parametrize("replaced", [[], ["c"], None, "none"])
def test_a_list_that_the_agent_makes_shorter_stays_due(replaced: Any) -> None:
    record = knows(items=["a", "b"])
    shorter = fold_drafts(record, draft_report(LIST, record, {"items": replaced}, "worker"), 0)
    again = fold_drafts(shorter, draft_report(LIST, shorter, {"items": []}, "worker"), 0)

    assert missing(LIST, shorter, []) == missing(LIST, again, []) == [(1, ("write", "check")), (2, ("write", "check"))]
    assert refused(LIST, again, [entry(name, item=item) for item in ("a", "b") for name in ("write", "check")]) == ""


@proves("engine.loops-list-stays")
def test_a_list_may_grow_and_its_items_may_be_filled_in() -> None:
    record = knows(items=[])
    longer = fold_drafts(record, draft_report(LIST, record, {"items": [{"id": 1}]}, "worker"), 0)
    filled = fold_drafts(longer, draft_report(LIST, longer, {"items": [{"id": 1, "issue": 7}]}, "worker"), 0)

    assert missing(LIST, filled, []) == [(1, ("write", "check"))]
    for item in ({"id": 1}, {"id": 1, "issue": 7}):
        assert refused(LIST, filled, [entry("write", item=item), entry("check", item=item)]) == ""


@proves("engine.loops-list-stays")
def test_a_list_that_an_answer_or_the_definition_sets_counts_as_it_is() -> None:
    record = knows(items=["a", "b"])
    shorter = fold_drafts(record, draft_report(LIST, record, {"items": []}, "worker"), 0)
    answered = EventDraft(VARIABLES_SET, {"variables": {"items": ["a"]}, "by": "checkpoint:one/ask/yes"})

    assert missing(LIST, fold_drafts(shorter, [answered], 0), []) == [(1, ("write", "check"))]


@proves("engine.loops-list-stays")
def test_a_mode_that_the_agent_switches_on_does_not_shorten_a_default_list() -> None:
    short = workflow(
        activity("one", loops=[loop("each", "forEach", over="items", steps=steps("write"))]),
        variables=[variable("items", "array", defaultValue=["a", "b"]), variable("quick")],
        modes=[{"id": "quick", "name": "Quick", "activationVariable": "quick", "defaults": {"items": []}}],
    )
    before = fold_drafts(started(), draft_report(short, started(), {"quick": True}, "worker"), 0)
    inside = fold_drafts(at("one"), draft_report(short, at("one"), {"quick": True}, "worker"), 0)

    assert missing(short, fold_drafts(before, [entered("one")], 0), []) == []
    assert [number for number, _ in missing(short, inside, [])] == [1, 2]


@proves("engine.loops-list-stays")
def test_single_moves_go_over_the_list_that_was_known_too() -> None:
    record = knows(items=["a", "b"])
    shorter = fold_drafts(record, draft_report(LIST, record, {"items": []}, "worker"), 0)

    (required,) = describe_situation(LIST, shorter).required
    assert (required.action, required.target) == ("advance_loop", "each")
    begun = made(LIST, shorter, advance("each"))
    assert begun.here.running is not None
    assert begun.here.running.items == ("a", "b")


@proves("engine.loops-are-work")
def test_a_loop_with_a_condition_is_due_until_a_recorded_variable_ends_it() -> None:
    repeating = looping("while", condition=when("more"))

    assert missing(repeating, knows(more=True), full(1, 2)) == [(3, ("write", "check"))]
    assert refused(repeating, knows(more=False), full(1, 2)) == ""
    assert missing(repeating, knows(more=False), [entry("write", 2)]) == [(1, ("write", "check")), (2, ("check",))]
    assert warned(repeating, at("one"), []) == []
    assert "Report more in `variables`." in refused(repeating, at("one"), full(1))
    assert refused(looping("while", condition=when("more"), maxIterations=2), knows(more=True), full(1, 2)) == ""


@proves("engine.loops-are-work")
def test_the_first_iteration_of_a_do_while_loop_is_always_due() -> None:
    repeating = looping("doWhile", condition=when("more"))

    assert missing(repeating, knows(more=False), []) == [(1, ("write", "check"))]
    assert refused(repeating, knows(more=False), full(1)) == ""
    assert warned(repeating, at("one"), []) == []
    assert "[1: write, check]" in refused(repeating, at("one"), [])


@proves("engine.loops-are-work")
@pytest.mark.parametrize("kind", ["forEach", "while", "doWhile"])
def test_a_recorded_break_ends_a_loop_after_an_iteration_that_was_finished(kind: str) -> None:
    condition = {} if kind == "forEach" else {"condition": when("more")}
    breaking = looping(kind, breakCondition=when("stop"), **condition)
    record = knows(items=["a", "b", "c"], more=True, stop=True)

    assert refused(breaking, record, full(1)) == ""
    assert missing(breaking, record, []) == [(1, ("write", "check"))]
    assert missing(breaking, record, [*full(1), entry("write", 2)]) == [(2, ("check",))]


@proves("engine.loops-are-work")
def test_a_break_and_a_step_may_depend_on_the_item() -> None:
    inner = [step("write"), step("test", condition=when("item.code"))]
    breaking = looping(steps=inner, breakCondition=when("item.last"))
    record = knows(items=[{"code": True}, {"code": False, "last": True}, {}])

    assert missing(breaking, record, [entry("write", 1), entry("write", 2)]) == [(1, ("test",))]
    assert missing(breaking, record, [entry("write", 1), entry("test", 1)]) == [(2, ("write",)), (3, ("write",))]


@proves("engine.loops-are-work")
def test_iterations_of_single_moves_need_not_be_reported_again() -> None:
    record = made(LIST, knows(items=["a", "b"]), advance("each"), done("write"), done("check"), advance("each"), done("write"))

    assert missing(LIST, record, []) == [(2, ("check",))]
    finished = made(LIST, record, done("check"))
    assert check_step_manifest(LIST, finished, None) == []
    assert made(LIST, finished, go("two")).activity == "two"


@proves("engine.loops-are-work")
def test_where_it_is_enforced_single_moves_do_not_leave_an_unknown_loop() -> None:
    situation = describe_situation(LIST, started(entered("one"), fidelity="enforce"))

    assert situation.required == ()
    (blocked,) = (move for move in situation.blocked if move.action == "transition")
    assert "Report items" in str(blocked.reason)


@proves("engine.loops-are-work")
def test_a_huge_loop_gets_a_short_sentence() -> None:
    many = looping(maxIterations=1_000_000_000)
    record = knows(items=list(range(5_000)))
    every_other = [entry("write", number) for number in range(1, 1_000, 2)]

    assert len(refused(many, record, every_other)) < 2_000
    assert len(refused(looping("while", maxIterations=1_000_000_000), at("one"), [entry("write", 2_000_000_000)])) < 2_000


@proves("engine.loops-are-work")
def test_the_event_keeps_the_iteration_and_a_short_item() -> None:
    long = "x" * 1_000
    assigned = assign_iterations(LIST, knows(items=["a", long]), [entry("write", item="a"), entry("write", item=long)])

    assert [{key: row.get(key) for key in ("iteration", "item")} for row in encode_manifest(assigned)] == [
        {"iteration": 1, "item": "a"},
        {"iteration": 2, "item": None},
    ]


@proves("engine.loops-are-work")
def test_an_item_that_is_nested_too_deep_is_only_foreign() -> None:
    nested: Any = []
    for _ in range(50_000):
        nested = [nested]

    manifest = assign_iterations(LIST, knows(items=["a"]), [entry("write", item=nested), *full(1)])

    assert "does not go over these items" in refused(LIST, knows(items=["a"]), manifest)
    assert encode_manifest(manifest)[0].keys() >= {"step_id", "output"}


lists = st.lists(st.sampled_from(["a", "b", 1, True, {"k": "v"}]), max_size=5)
pairs = st.sets(st.tuples(st.integers(1, 5), st.sampled_from(["write", "check"])))


@proves("engine.loops-are-work")
@given(lists, pairs)
def test_nothing_is_missing_if_and_only_if_every_step_of_every_iteration_has_an_entry(
    items: list[Any], reported: set[tuple[int, str]]
) -> None:
    manifest = [entry(name, iteration) for iteration, name in sorted(reported)]
    needed = {(iteration, name) for iteration in range(1, len(items) + 1) for name in ("write", "check")}

    found = {(iteration, name) for iteration, names in missing(LIST, knows(items=items), manifest) for name in names}

    assert found == needed - reported


@proves("engine.loops-are-work")
@given(lists, st.sampled_from(["iteration", "item", "neither"]), st.booleans())
def test_a_walk_that_does_all_the_work_is_never_refused(items: list[Any], tag: str, reported_late: bool) -> None:
    record = at("one") if reported_late else knows(items=items)
    if reported_late:
        record = fold_drafts(record, draft_report(LIST, record, {"items": items}, "worker"), 0)
    manifest = [
        entry(name, number if tag == "iteration" else None, **({"item": item} if tag == "item" else {}))
        for number, item in enumerate(items, start=1)
        for name in ("write", "check")
    ]

    assert check_loops(LIST, record, manifest) == []


@proves("engine.loops-are-work")
@given(lists)
def test_single_moves_and_a_manifest_agree(items: list[Any]) -> None:
    record = knows(items=items)
    for _ in items:
        assert missing(LIST, record, []) != []
        record = made(LIST, record, advance("each"), done("write"), done("check"))

    assert list(find_missing_iterations(LIST, record, ())) == list[MissingIteration]()
