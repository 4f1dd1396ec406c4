"""Definitions of outcomes: two forms, limits, and errors that name the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.runtime.outcomes.checks import TYPES, read_check, validate_rules
from fidelio.runtime.outcomes.parsing import MAX_CRITERIA, MAX_OUTCOMES, check_definition, parse_outcome, split_rubric
from fidelio.runtime.outcomes.record import Criterion, Outcome, OutcomesRecord
from tests.support import proves

WORDS = st.text("abcdefgh ", min_size=1, max_size=20).map(str.strip).filter(bool)
CHECKS: dict[str, dict[str, Any]] = {
    "command": {"command": "make test"},
    "file_exists": {"path": "out.txt"},
    "file_matches": {"path": "/workspace/out.txt", "pattern": "^ok", "min": 1, "max": 3},
    "json_schema": {"path": "out.json", "schema": {"type": "object"}},
    "diff_paths": {"paths": ["src/**", "*.md"]},
    "workflow_activity": {"workflow": "release"},
}


def criteria_of(body: dict[str, Any]) -> list[str]:
    return [item["text"] for item in parse_outcome(body, author="person").body["criteria"]]


@proves("outcomes.definition")
@given(st.lists(WORDS, min_size=1, max_size=MAX_CRITERIA, unique=True), st.sampled_from(["-", "*", "+", "1.", "12)", "- [ ]"]))
def test_every_list_item_of_a_rubric_is_a_criterion_whatever_its_bullet(items: list[str], bullet: str) -> None:
    text = "# Rubric\n\n" + "".join(f"{bullet} {item}\n" for item in items) + "\nThe end of the text.\n"

    assert split_rubric(text) == tuple(items)
    assert criteria_of({"description": "Do it", "rubric": {"type": "text", "content": text}}) == items


@proves("outcomes.definition")
def test_a_line_below_an_item_belongs_to_it_and_a_text_without_a_list_is_one_criterion() -> None:
    assert split_rubric("- one\n  goes on\n\nNot an item.\n- two") == ("one goes on", "two")
    assert split_rubric("All tests\npass.") == ("All tests pass.",)
    assert split_rubric(" \n") == ()


@proves("outcomes.definition")
@given(st.lists(WORDS, max_size=MAX_CRITERIA), WORDS)
def test_criteria_are_trimmed_without_repetitions_and_never_empty(texts: list[str], title: str) -> None:
    found = criteria_of({"title": title, "successCriteria": [f" {text} " for text in texts]})

    # An outcome without criteria could only pass by having none: its title is the criterion then.
    assert found == (list(dict.fromkeys(texts)) or [" ".join(title.split())])


@proves("outcomes.definition")
def test_the_vendors_form_keeps_the_description_and_the_number_of_evaluations() -> None:
    body = {"description": "Write the report.\nIn English.", "rubric": "- It is short", "max_iterations": 7}
    event = parse_outcome(body, author="person", by="anna")

    assert (event.body["title"], event.body["max_iterations"], event.actor) == ("Write the report. In English.", 7, "anna")
    assert event.body["detail"] == "Write the report.\nIn English."
    assert parse_outcome({"title": "t"}, author="agent").body["max_iterations"] == 3


@proves("outcomes.definition")
@pytest.mark.parametrize("kind", TYPES)
def test_a_check_of_every_type_is_stored_as_it_was_written(kind: str) -> None:
    check = {"type": kind, **CHECKS[kind]}
    event = parse_outcome({"title": "t", "successCriteria": [{"text": "c", "check": check}]}, author="agent")

    assert event.body["criteria"] == [{"text": "c", "check": check}]


@proves("outcomes.definition")
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "title"),
        ({"title": " "}, "title"),
        ({"title": "t" * 201}, "title"),
        ({"title": "t", "successCriteria": "x"}, "successCriteria"),
        ({"title": "t", "successCriteria": [{"check": {}}]}, "criterion 1 has no text"),
        ({"title": "t", "successCriteria": ["a", {"text": "b", "chek": {}}]}, "'chek'"),
        ({"title": "t", "successCriteria": [str(n) for n in range(MAX_CRITERIA + 1)]}, "successCriteria"),
        ({"description": "t", "rubric": "- x\n" * (MAX_CRITERIA + 1)}, f"at most {MAX_CRITERIA}"),
        ({"title": "t", "max_iterations": 0}, "max_iterations"),
        ({"title": "t", "max_iterations": 21}, "max_iterations"),
        ({"title": "t", "detail": 5}, "detail"),
        ({"title": "t", "successCriteria": ["x" * 4_001]}, "4001 characters"),
    ],
)
def test_a_wrong_definition_is_refused_with_the_name_of_the_field(body: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageProblem, match=named):
        parse_outcome(body, author="person")


@proves("outcomes.definition")
@pytest.mark.parametrize(
    ("check", "named"),
    [
        ({}, "type"),
        ({"type": "shell"}, "shell"),
        ({"type": "command"}, "command"),
        ({"type": "command", "command": "x", "timeoutMs": 60_001}, "timeoutMs"),
        ({"type": "command", "command": "x", "expectExit": 256}, "expectExit"),
        ({"type": "command", "command": "x", "cmd": "y"}, "cmd"),
        ({"type": "file_exists", "path": "../x"}, r"\.\."),
        ({"type": "file_exists", "path": "/etc/passwd"}, "/etc/passwd"),
        ({"type": "file_exists", "path": "/workspace/"}, "path"),
        ({"type": "file_matches", "path": "a", "pattern": "a\nb"}, "line break"),
        ({"type": "file_matches", "path": "a", "pattern": "a", "min": 3, "max": 2}, "max"),
        ({"type": "json_schema", "path": "a"}, "schema"),
        ({"type": "json_schema", "path": "a", "schema": {"x": "y" * 20_000}}, "bytes"),
        ({"type": "diff_paths", "paths": []}, "paths"),
        ({"type": "diff_paths", "paths": ["../x"]}, r"\.\./x"),
        ({"type": "workflow_activity", "activity": "a"}, "workflow or session"),
    ],
)
def test_a_wrong_check_is_refused_with_what_is_wrong(check: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageProblem, match=named):
        read_check(check, "criterion 1")


@proves("outcomes.definition")
async def test_a_pattern_or_schema_that_cannot_be_used_is_refused_before_it_is_stored() -> None:
    for check in (
        {"type": "file_matches", "path": "a", "pattern": "("},
        {"type": "json_schema", "path": "a", "schema": {"type": "no such type"}},
    ):
        with pytest.raises(UsageProblem, match="criterion 2"):
            await validate_rules([{}, check])
    await validate_rules({"type": kind, **fields} for kind, fields in CHECKS.items())


def _outcome(title: str, author: Any) -> Outcome:
    return Outcome(title, title, (Criterion("c"),), author)


@proves("outcomes.authors")
@given(WORDS, st.sampled_from(["person", "agent"]), st.sampled_from(["person", "agent"]))
def test_an_agent_replaces_its_own_outcomes_and_no_outcome_of_a_person(title: str, before: Any, after: Any) -> None:
    record = OutcomesRecord((_outcome(title, before),))
    event = parse_outcome({"title": f"  {title.upper()} "}, author=after)

    if (before, after) == ("person", "agent"):
        with pytest.raises(UsageProblem, match="a person"):
            check_definition(record, event)
    else:
        assert check_definition(record, event) is record.outcomes[0]


@proves("outcomes.authors")
def test_an_agent_cannot_use_up_the_outcomes_of_a_person() -> None:
    record = OutcomesRecord(tuple(_outcome(f"o{number}", "agent") for number in range(MAX_OUTCOMES)))

    with pytest.raises(UsageProblem, match="outcomes of this author"):
        check_definition(record, parse_outcome({"title": "more"}, author="agent"))
    assert check_definition(record, parse_outcome({"title": "more"}, author="person")) is None
