"""Lint rules for variables: declarations and types of values that are set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fidelio.definitions.flow import list_triggers
from fidelio.definitions.lint.expressions import (
    Scope,
    build_scope,
    build_workflow_scope,
    find_declared_type,
    fits_type,
    list_actions,
)
from fidelio.definitions.lint.rules import LintProblem, rule, suggest_name
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject
from fidelio.definitions.models.base import Path
from fidelio.definitions.wording import describe_value

_PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)\}(?!\})")
_DECLARE = "Declare it among the variables of the workflow."

_Assignment = tuple[str, Any, Path]


def _list_effects(entry: ActivitySubject) -> Iterator[_Assignment]:
    for at, checkpoint in enumerate(entry.activity.checkpoints):
        for index, option in enumerate(checkpoint.options):
            for name, value in (option.effect.set_variable if option.effect else {}).items():
                yield name, value, ("checkpoints", at, "options", index, "effect", "setVariable", name)


def _list_set_actions(entry: ActivitySubject) -> Iterator[_Assignment]:
    for action, path in list_actions(entry.activity):
        if action.action == "set" and action.target:
            yield action.target, action.value, (*path, "target")


@rule("undeclared-effect", "warning", by_workflow=True)
def check_undeclared_effect(subject: LintSubject) -> Iterator[LintProblem]:
    """An answer or a `set` action sets a variable that the workflow does not declare. Usually the name is misspelt, and the
    intended variable keeps its old value.
    """
    for entry in subject.activities:
        scope = build_scope(subject, entry)
        for name, _, path in (*_list_effects(entry), *_list_set_actions(entry)):
            if not scope.declares(name):
                sentence = f"{entry.activity.id} sets {name!r}, which is not declared."
                yield LintProblem(entry.source, path, sentence, suggest_name(name, scope.names) or _DECLARE)


@rule("wrong-type", "error", by_workflow=True)
def check_wrong_type(subject: LintSubject) -> Iterator[LintProblem]:
    """A variable gets a value of another type than it was declared with: by its default, by an answer, by a `set` action or by
    a mode. Conditions that compare it then do not hold, although they look correct.
    """
    for index, variable in enumerate(subject.workflow.variables):
        if not fits_type(variable.default_value, variable.type):
            sentence = _describe_misfit(variable.name, variable.default_value, variable.type)
            yield LintProblem(subject.manifest, ("variables", index, "defaultValue"), sentence, _USE_DECLARED_TYPE)
    for entry in subject.activities:
        scope = build_scope(subject, entry)
        for name, value, path in (*_list_effects(entry), *_list_set_actions(entry)):
            yield from (
                LintProblem(entry.source, path, sentence, _USE_DECLARED_TYPE) for sentence in _find_misfit(scope, name, value)
            )
    declared = build_workflow_scope(subject)
    for index, mode in enumerate(subject.workflow.modes):
        for name, value in mode.defaults.items():
            for sentence in _find_misfit(declared, name, value):
                yield LintProblem(subject.manifest, ("modes", index, "defaults", name), sentence, _USE_DECLARED_TYPE)


_USE_DECLARED_TYPE = "Write a value of the declared type, or declare another type."


def _find_misfit(scope: Scope, name: str, value: Any) -> Iterator[str]:
    kind = find_declared_type(scope, name)
    # Text with a placeholder can become a value of any type.
    if kind is not None and not fits_type(value, kind) and not (isinstance(value, str) and "{" in value):
        yield _describe_misfit(name, value, kind)


def _describe_misfit(name: str, value: Any, kind: str) -> str:
    return f"{name} is declared as {kind}, but is set to {describe_value(value)}."


@rule("undeclared-mode", "error")
def check_undeclared_mode(subject: LintSubject) -> Iterator[LintProblem]:
    """A mode is activated by a variable that the workflow does not declare, so it is never active; or it sets the default of a
    variable that does not exist.
    """
    names = [variable.name for variable in subject.workflow.variables]
    for index, mode in enumerate(subject.workflow.modes):
        if mode.activation_variable not in names:
            sentence = f"Mode {mode.id!r} is activated by {mode.activation_variable!r}, which is not declared."
            remedy = suggest_name(mode.activation_variable, names) or _DECLARE
            yield LintProblem(subject.manifest, ("modes", index, "activationVariable"), sentence, remedy)
        for name in mode.defaults:
            if name not in names:
                sentence = f"Mode {mode.id!r} sets the default of {name!r}, which is not declared."
                yield LintProblem(
                    subject.manifest, ("modes", index, "defaults", name), sentence, suggest_name(name, names) or _DECLARE
                )


@rule("undeclared-context", "warning", by_workflow=True)
def check_undeclared_context(subject: LintSubject) -> Iterator[LintProblem]:
    """The `passContext` of a trigger names a variable that the workflow does not declare, so it has no value."""
    for entry in subject.activities:
        scope = build_scope(subject, entry)
        for trigger, path in list_triggers(entry.activity):
            for index, name in enumerate(trigger.pass_context):
                if not scope.declares(name):
                    sentence = f"{entry.activity.id} passes on {name!r}, which is not declared."
                    yield LintProblem(
                        entry.source, (*path, "passContext", index), sentence, suggest_name(name, scope.names) or _DECLARE
                    )


@rule("undeclared-placeholder", "warning", by_workflow=True)
def check_undeclared_placeholder(subject: LintSubject) -> Iterator[LintProblem]:
    """A checkpoint message, an action message, the name of an artifact or an artifact location contains `{name}`, but no such
    variable is declared. The braces will be shown unchanged.
    """
    locations = build_workflow_scope(subject)
    for key, location in subject.workflow.artifact_locations.items():
        for name in _find_unknown(location.path, locations):
            yield LintProblem(
                subject.manifest, ("artifactLocations", key, "path"), _describe_unknown(f"location {key}", name), _DECLARE
            )
    for entry in subject.activities:
        scope = build_scope(subject, entry)
        for owner, text, path in _list_texts(entry):
            for name in _find_unknown(text, scope):
                yield LintProblem(
                    entry.source, path, _describe_unknown(owner, name), suggest_name(name, scope.names) or _DECLARE
                )


def _describe_unknown(owner: str, name: str) -> str:
    return f"The text of {owner} names {{{name}}}, which is not declared."


def _find_unknown(text: str, scope: Scope) -> list[str]:
    return [name for name in dict.fromkeys(_PLACEHOLDER.findall(text)) if not scope.declares(name)]


def _list_texts(entry: ActivitySubject) -> Iterator[tuple[str, str, Path]]:
    for index, checkpoint in enumerate(entry.activity.checkpoints):
        yield f"checkpoint {checkpoint.id}", checkpoint.message, ("checkpoints", index, "message")
    for index, artifact in enumerate(entry.activity.artifacts):
        yield f"artifact {artifact.id}", artifact.name, ("artifacts", index, "name")
    for action, path in list_actions(entry.activity):
        if action.message:
            yield f"the action {action.action}", action.message, (*path, "message")
