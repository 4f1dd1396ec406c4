"""Lint rules for conditions: undeclared variables, types and constant results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fidelio.definitions.conditions import list_comparisons
from fidelio.definitions.lint.expressions import (
    LocatedCondition,
    build_scope,
    find_declared_type,
    fits_type,
    list_comparisons_in,
    list_conditions,
    list_subconditions,
)
from fidelio.definitions.lint.rules import LintProblem, rule, suggest_name
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject
from fidelio.definitions.models import Simple
from fidelio.definitions.models.base import Path
from fidelio.definitions.short_conditions import render_short_condition
from fidelio.definitions.static_conditions import EXISTENCE, ORDERINGS, ConstantTruth, find_constant_truth
from fidelio.definitions.wording import describe_count, describe_value


@rule("undeclared-variable", "error", by_workflow=True)
def check_undeclared_variable(subject: LintSubject) -> Iterator[LintProblem]:
    """A condition or the `over` of a loop uses a variable that the workflow does not declare. The variable never has a value,
    so the condition cannot be evaluated. The item of a loop counts as declared in the activity of the loop.
    """
    for entry in subject.activities:
        scope = build_scope(subject, entry)
        for name, locations in _find_used_variables(entry).items():
            if not scope.declares(name):
                yield _report_undeclared(entry, name, locations, suggest_name(name, scope.names))
        for index, loop in enumerate(entry.activity.loops):
            if loop.over and not scope.declares(loop.over):
                sentence = f"Loop {loop.id} goes over {loop.over!r}, which is not declared."
                remedy = suggest_name(loop.over, scope.names) or "Declare it among the variables of the workflow, as an array."
                yield LintProblem(entry.source, ("loops", index, "over"), sentence, remedy)


_Locations = list[tuple[str, Path]]


def _find_used_variables(entry: ActivitySubject) -> dict[str, _Locations]:
    """Every variable that a condition of the activity uses, with the owner and the path of each use."""
    found: dict[str, _Locations] = defaultdict(list)
    for comparison, path, owner in list_comparisons_in(entry.activity):
        found[comparison.variable].append((owner, (*path, "variable")))
    return found


def _report_undeclared(entry: ActivitySubject, name: str, locations: _Locations, hint: str) -> LintProblem:
    # A declaration fixes all uses, so they are a single finding, at the first use in the file.
    owner, path = min(locations, key=lambda location: entry.source.at(location[1]))
    further = f" (and {describe_count(len(locations) - 1, 'further place')} in this activity)" if len(locations) > 1 else ""
    sentence = f"The condition of {owner}{further} looks at {name!r}, which is not declared."
    return LintProblem(entry.source, path, sentence, hint or "Declare it among the variables of the workflow.")


@rule("compared-types", "error", by_workflow=True)
def check_compared_types(subject: LintSubject) -> Iterator[LintProblem]:
    """A variable is compared with a value that it can never have: a boolean with text, text with a number, a list with any
    value. Values are not converted, so the two are never equal. Only numbers, and text that contains a number, can be ordered.
    """
    for entry in subject.activities:
        scope = build_scope(subject, entry)
        for comparison, path, owner in list_comparisons_in(entry.activity):
            if reason := _explain_mismatch(comparison, find_declared_type(scope, comparison.variable)):
                sentence = f"The condition of {owner} compares {comparison.variable}, {reason}."
                remedy = "Compare with a value of the declared type, or declare another type."
                yield LintProblem(entry.source, (*path, "value"), sentence, remedy)


_TYPE_NAMES = {"string": "text", "number": "a number", "boolean": "true or false", "array": "a list", "object": "a mapping"}


def _explain_mismatch(comparison: Simple, kind: str | None) -> str:
    if kind is None or comparison.operator in EXISTENCE or comparison.value is None:
        return ""
    if comparison.operator in ORDERINGS:
        unordered = kind in ("boolean", "array", "object") or isinstance(comparison.value, bool)
        return f"which is {_TYPE_NAMES[kind]}, by order with {describe_value(comparison.value)}" if unordered else ""
    return "" if fits_type(comparison.value, kind) else f"which is {_TYPE_NAMES[kind]}, with {describe_value(comparison.value)}"


@rule("missing-value", "warning")
def check_missing_value(subject: LintSubject) -> Iterator[LintProblem]:
    """A condition compares a variable but has no `value`. The variable is then compared with null, which is probably not
    intended. If it is, write `value: null`.
    """
    for entry in subject.activities:
        for comparison, path, owner in list_comparisons_in(entry.activity):
            if comparison.operator not in EXISTENCE and "value" not in comparison.model_fields_set:
                sentence = f"The condition of {owner} does not say what {comparison.variable} is compared with."
                remedy = "Add `value`, or ask with `exists` or `notExists` whether there is one."
                yield LintProblem(entry.source, (*path, "operator"), sentence, remedy)


@rule("always-true", "warning", by_workflow=True)
def check_always_true(subject: LintSubject) -> Iterator[LintProblem]:
    """A condition, or a part of it, holds for all values of its variables, so it decides nothing. Often an `or` should be an
    `and`.
    """
    yield from _find_constant(subject, "always", "always holds")


@rule("always-false", "warning", by_workflow=True)
def check_always_false(subject: LintSubject) -> Iterator[LintProblem]:
    """A condition, or a part of it, holds for no value of its variables: it requires two different values at once, or a
    comparison and its opposite. What depends on it never happens.
    """
    yield from _find_constant(subject, "never", "can never hold")


def _find_constant(subject: LintSubject, expected: ConstantTruth, words: str) -> Iterator[LintProblem]:
    for entry in subject.activities:
        scope = build_scope(subject, entry)
        for located in list_conditions(entry.activity):
            comparable = all(
                not _explain_mismatch(c, find_declared_type(scope, c.variable)) for c in list_comparisons(located.condition)
            )
            if comparable:
                yield from _find_constant_subconditions(entry, located, subject, expected, words)


def _find_constant_subconditions(
    entry: ActivitySubject, located: LocatedCondition, subject: LintSubject, expected: ConstantTruth, words: str
) -> Iterator[LintProblem]:
    decided: list[tuple[str | int, ...]] = []
    for node, path in list_subconditions(located.condition, located.path):
        if any(path[: len(outer)] == outer for outer in decided):
            continue
        outcome = find_constant_truth(node, subject.variable_domains)
        if outcome is not None:
            decided.append(path)
        if outcome == expected:
            sentence = f"The condition of {located.owner} {words}: {render_short_condition(node)}."
            yield LintProblem(entry.source, path, sentence, "Correct the condition, or leave it out.")
