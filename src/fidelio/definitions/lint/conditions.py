"""Rules about conditions: what they look at exists, and what they ask can be answered both ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fidelio.definitions.lint.expressions import Placed, conditions_of, declared_type, fits, parts_of, scope_of
from fidelio.definitions.lint.rules import Problem, near, rule
from fidelio.definitions.lint.subject import ActivityPart, Subject
from fidelio.definitions.models import Simple
from fidelio.definitions.models.base import Path
from fidelio.definitions.static_conditions import Verdict, comparisons, verdict
from fidelio.definitions.wording import condition_in_words, counted, value_in_words

_ORDERINGS = frozenset({">", "<", ">=", "<="})
_EXISTENCE = frozenset({"exists", "notExists"})


@rule("undeclared-variable", "error", by_workflow=True)
def undeclared_variable(subject: Subject) -> Iterator[Problem]:
    """A condition looks at a variable that the workflow does not declare, or a loop goes over one. It never gets a value, so
    what depends on it cannot be decided. The item of a loop counts as declared in the activity of the loop.
    """
    for part in subject.activities:
        scope = scope_of(subject, part)
        for name, places in _looked_at(part).items():
            if not scope.knows(name):
                yield _undeclared(part, name, places, near(name, scope.names))
        for index, loop in enumerate(part.activity.loops):
            if loop.over and not scope.knows(loop.over):
                sentence = f"Loop {loop.id} goes over {loop.over!r}, which is not declared."
                remedy = near(loop.over, scope.names) or "Declare it among the variables of the workflow, as an array."
                yield Problem(part.source, ("loops", index, "over"), sentence, remedy)


_Places = list[tuple[str, Path]]


def _looked_at(part: ActivityPart) -> dict[str, _Places]:
    """Every variable that a condition of the activity looks at, with whose condition it is and where."""
    found: dict[str, _Places] = defaultdict(list)
    for placed in conditions_of(part.activity):
        for node, path in parts_of(placed):
            if isinstance(node, Simple):
                found[node.variable].append((placed.owner, (*path, "variable")))
    return found


def _undeclared(part: ActivityPart, name: str, places: _Places, hint: str) -> Problem:
    # One declaration mends all of them, so they are one finding, at the first place in the file.
    owner, path = min(places, key=lambda place: part.source.at(place[1]))
    further = f" (and {counted(len(places) - 1, 'further place')} in this activity)" if len(places) > 1 else ""
    sentence = f"The condition of {owner}{further} looks at {name!r}, which is not declared."
    return Problem(part.source, path, sentence, hint or "Declare it among the variables of the workflow.")


@rule("compared-types", "error", by_workflow=True)
def compared_types(subject: Subject) -> Iterator[Problem]:
    """A variable is compared with a value that it can never have: a boolean with text, text with a number, a list with
    anything. Nothing is converted, so the two are never equal. Only numbers can be ordered, and text that looks like one.
    """
    for part in subject.activities:
        scope = scope_of(subject, part)
        for placed in conditions_of(part.activity):
            for node, path in parts_of(placed):
                if isinstance(node, Simple) and (reason := _mismatch(node, declared_type(scope, node.variable))):
                    sentence = f"The condition of {placed.owner} compares {node.variable}, {reason}."
                    remedy = "Compare with a value of the declared type, or declare another type."
                    yield Problem(part.source, (*path, "value"), sentence, remedy)


_ARTICLED = {"string": "text", "number": "a number", "boolean": "true or false", "array": "a list", "object": "a mapping"}


def _mismatch(comparison: Simple, kind: str | None) -> str:
    if kind is None or comparison.operator in _EXISTENCE or comparison.value is None:
        return ""
    if comparison.operator in _ORDERINGS:
        unordered = kind in ("boolean", "array", "object") or isinstance(comparison.value, bool)
        return f"which is {_ARTICLED[kind]}, by order with {value_in_words(comparison.value)}" if unordered else ""
    return "" if fits(comparison.value, kind) else f"which is {_ARTICLED[kind]}, with {value_in_words(comparison.value)}"


@rule("missing-value", "warning")
def missing_value(subject: Subject) -> Iterator[Problem]:
    """A condition compares a variable but does not say with what. It is then compared with null, which is hardly what is meant;
    where it is, `value: null` says so.
    """
    for part in subject.activities:
        for placed in conditions_of(part.activity):
            for node, path in parts_of(placed):
                if isinstance(node, Simple) and node.operator not in _EXISTENCE and "value" not in node.model_fields_set:
                    sentence = f"The condition of {placed.owner} does not say what {node.variable} is compared with."
                    remedy = "Add `value`, or ask with `exists` or `notExists` whether there is one."
                    yield Problem(part.source, (*path, "operator"), sentence, remedy)


@rule("always-true", "warning", by_workflow=True)
def always_true(subject: Subject) -> Iterator[Problem]:
    """A condition, or a part of one, holds whatever value its variables have. It decides nothing; often an `or` stands where an
    `and` was meant.
    """
    yield from _settled(subject, "always", "always holds")


@rule("always-false", "warning", by_workflow=True)
def always_false(subject: Subject) -> Iterator[Problem]:
    """A condition, or a part of one, can never hold, whatever value its variables have: it asks for two different values at
    once, or for something and its opposite. What depends on it never happens.
    """
    yield from _settled(subject, "never", "can never hold")


def _settled(subject: Subject, looked_for: Verdict, words: str) -> Iterator[Problem]:
    for part in subject.activities:
        scope = scope_of(subject, part)
        for placed in conditions_of(part.activity):
            comparable = all(not _mismatch(c, declared_type(scope, c.variable)) for c in comparisons(placed.condition))
            if comparable:
                yield from _settled_parts(part, placed, subject, looked_for, words)


def _settled_parts(part: ActivityPart, placed: Placed, subject: Subject, looked_for: Verdict, words: str) -> Iterator[Problem]:
    decided: list[tuple[str | int, ...]] = []
    for node, path in parts_of(placed):
        if any(path[: len(outer)] == outer for outer in decided):
            continue
        outcome = verdict(node, subject.known)
        if outcome is not None:
            decided.append(path)
        if outcome == looked_for:
            sentence = f"The condition of {placed.owner} {words}: {condition_in_words(node)}."
            yield Problem(part.source, path, sentence, "Correct the condition, or leave it out.")
