"""Variables that are reported, set by actions, and handed to children."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fidelio.engine.record import ChildSession, Record, fold_drafts
from fidelio.engine.state import build_refusal, list_warnings
from fidelio.engine.transition_events import draft_transition
from fidelio.engine.triggers import (
    build_initial_variables,
    collect_passed_variables,
    collect_returned_variables,
    draft_child_finished,
    draft_child_started,
    find_trigger,
)
from fidelio.engine.variables import check_size, check_variables
from tests.engine.builders import (
    NOW,
    activity,
    advance,
    at,
    done,
    entered,
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

TYPED = workflow(
    activity("one"), variables=[variable(kind[0], kind) for kind in ("string", "number", "boolean", "array", "object")]
)


@proves("engine.variables")
@pytest.mark.parametrize(
    ("name", "good", "bad"), [("s", "x", 1), ("n", 1.5, "1"), ("b", True, 1), ("a", [1], {}), ("o", {"k": 1}, [])]
)
def test_a_value_of_another_type_is_named(name: str, good: Any, bad: Any) -> None:
    assert check_variables(TYPED, {name: good}) == []
    assert check_variables(TYPED, {name: None}) == []
    assert f"Variable '{name}' is declared as" in list_warnings(check_variables(TYPED, {name: bad}))[0]


@proves("engine.variables", "engine.enforce")
def test_undeclared_names_are_one_warning_and_refused_when_enforcing() -> None:
    problems = check_variables(TYPED, {"p": 1, "q": 2, "s": "x"})

    assert list_warnings(problems) == ["Variables not declared by the workflow: [p, q]"]
    assert build_refusal(problems, "enforce") is not None


@proves("engine.variables")
@pytest.mark.parametrize(
    ("known", "reported"),
    [
        ({}, {"x": "y" * 20_000}),
        ({}, {"": 1}),
        ({}, {"x" * 200: 1}),
        (dict.fromkeys(map(str, range(500)), 0), {"x": 1}),
    ],
)
def test_a_report_that_is_too_large_for_a_record_is_refused(known: dict[str, Any], reported: dict[str, Any]) -> None:
    assert check_size(known, reported) is not None
    assert check_size({}, {"x": "y" * 1_000}) is None


def setting(target: str, value: Any = None, **parts: Any) -> dict[str, Any]:
    return {"action": "set", "target": target, "value": value, **parts}


@proves("engine.actions", "engine.authors")
def test_entering_and_leaving_set_what_their_actions_say() -> None:
    entry = [setting("begun", True), setting("described"), setting("more", 1, condition=when("begun"))]
    definition = workflow(
        activity("one", exitActions=[setting("left", "one"), {"action": "log", "message": "x"}], transitions=[to("two")]),
        activity("two", entryActions=[*entry, setting("unknown", 1, condition=when("nobody-knows"))]),
    )
    record = _after(at("one"), draft_transition(definition, at("one"), "two"))

    assert record.variables == {"left": "one", "begun": True, "more": 1}
    assert record.set_by == {"left": "exit:one", "begun": "entry:two", "more": "entry:two"}


@proves("engine.actions")
def test_staying_in_an_activity_repeats_no_action() -> None:
    definition = workflow(activity("one", entryActions=[setting("count", 1)], exitActions=[setting("left", True)]))

    assert [draft.type for draft in draft_transition(definition, at("one"), "one")] == ["activity.entered"]


@proves("engine.actions", "engine.authors")
def test_completing_a_step_sets_what_its_actions_say() -> None:
    definition = workflow(activity("one", steps=[step("a", actions=[setting("x", 2)])]))
    record = made(definition, at("one"), done("a"))

    assert (record.variables, record.set_by) == ({"x": 2}, {"x": "step:one/a"})


@proves("engine.authors")
def test_the_record_says_who_set_what() -> None:
    record = started(told(x=1), entered("one"), variables={"y": 2}, variables_by="parent:s_1")

    assert record.set_by == {"y": "parent:s_1", "x": "agent:worker"}


@proves("engine.done-anew", "engine.visits")
def test_staying_is_the_same_visit_unless_a_declared_way_leads_back() -> None:
    definition = workflow(activity("one", transitions=[to("one", when("again")), to("two", default=True)]), activity("two"))

    assert _after(at("one"), draft_transition(definition, at("one"), "one")).visit == 1
    assert _after(at("one"), draft_transition(definition, at("one"), "one", condition="again == true")).visit == 2
    told_so = at("one", told(again=True))
    assert _after(told_so, draft_transition(definition, told_so, "one")).visit == 2
    denied = at("one", told(again=False))
    assert _after(denied, draft_transition(definition, denied, "one", condition="again == true")).visit == 1


@proves("engine.left-out")
def test_what_is_passed_through_is_on_record() -> None:
    definition = workflow(
        activity("one", transitions=[to("two")]),
        activity("two", transitions=[to("three")]),
        activity("three"),
        modes=[{"id": "m", "name": "m", "activationVariable": "quick", "skipActivities": ["two"]}],
    )
    quick = at("one", told(quick=True))

    assert _after(quick, draft_transition(definition, quick, "three")).passed == ("two",)


PARENT = workflow(
    activity(
        "one",
        steps=steps("a"),
        loops=[
            loop(
                "l",
                "forEach",
                over="packages",
                variable="package",
                steps=[step("x", triggers=[{"workflow": "child", "passContext": ["package", "goal", "unset"]}])],
            )
        ],
        triggers=[{"workflow": "other"}],
    )
)


@proves("engine.triggers")
def test_a_trigger_of_the_activity_or_of_a_step_suspends_and_any_other_child_does_not() -> None:
    record = at("one")
    own = find_trigger(PARENT, record, "child")

    assert own is not None
    assert (own.step, find_trigger(PARENT, record, "stranger")) == ("x", None)
    assert find_trigger(PARENT, started(), "child") is None
    assert _after(record, [draft_child_started("s_1", "child", own)]).suspended_by == "s_1"
    assert _after(record, [draft_child_started("s_2", "stranger", None)]).suspended_by == ""


@proves("engine.triggers")
def test_the_variables_of_the_context_go_down_and_come_back() -> None:
    record = made(PARENT, at("one", told(packages=["p"], goal="g")), done("a"), advance("l"))
    own = find_trigger(PARENT, record, "child")
    assert own is not None
    assert collect_passed_variables(PARENT, record, own) == {"package": "p", "goal": "g"}

    waiting = _after(record, [draft_child_started("s_1", "child", own)])
    child = waiting.children[0]
    assert child == ChildSession("s_1", "child", "x", ("package", "goal", "unset"))
    back = _after(waiting, [draft_child_finished(child, {"goal": "reached", "secret": 1})])
    assert (back.suspended_by, back.variables["goal"], back.set_by["goal"]) == ("", "reached", "child:s_1")
    assert "secret" not in back.variables


@proves("engine.triggers")
def test_a_value_that_the_child_was_only_given_does_not_come_back() -> None:
    parent = made(PARENT, at("one", told(packages=["p"], goal="g")), done("a"), advance("l"))
    own = find_trigger(PARENT, parent, "child")
    assert own is not None
    child = started(entered("one"), **build_initial_variables(PARENT, parent, own))
    worked = _after(child, [told(goal="reached")])

    assert child.variables == {"package": "p", "goal": "g"}
    assert collect_returned_variables(PARENT, parent, child) == {}
    assert collect_returned_variables(PARENT, parent, worked) == {"goal": "reached"}
    # Only `parent` is the parent; other authors may begin alike.
    named_alike = replace(worked, set_by={**worked.set_by, "goal": "parental"})
    assert collect_returned_variables(PARENT, parent, named_alike) == {"goal": "reached"}


def _after(record: Record, drafts: Any) -> Record:
    return fold_drafts(record, drafts, NOW)
