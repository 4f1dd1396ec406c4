"""Variables: whether a reported value fits its declaration, and what entering and leaving an activity sets.

Only a `set` action with a value can be carried out here; one that merely describes what to set is the agent's work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fidelio.engine import phrases
from fidelio.engine.conditions import holds
from fidelio.engine.verdicts import Problem, Refusal

if TYPE_CHECKING:
    from fidelio.definitions.models import Action, Condition, Workflow

# The record is written with every event, so what agents put into it has to stay small.
LARGEST_VALUE = 16_384
LARGEST_RECORD = 262_144
LONGEST_NAME = 128
MOST_VARIABLES = 500


def variables_in(condition: Condition) -> Iterator[str]:
    """Every variable that the condition looks at, in reading order."""
    if condition.type == "simple":
        yield condition.variable
    elif condition.type == "not":
        yield from variables_in(condition.condition)
    else:
        for part in condition.conditions:
            yield from variables_in(part)


def check_variables(workflow: Workflow, reported: Mapping[str, Any]) -> list[Problem]:
    """Names that the workflow does not declare, and values of another type than it declares."""
    if not reported:
        return []
    declared = {variable.name: variable.type for variable in workflow.variables}
    unknown = [name for name in reported if name not in declared]
    problems = [Problem("undeclared", phrases.undeclared_variables(unknown))] if unknown else []
    for name, value in reported.items():
        if name in declared and value is not None and type_of(value) != declared[name]:
            problems.append(Problem("wrong-type", phrases.wrong_type(name, declared[name], type_of(value))))
    return problems


def too_much(known: Mapping[str, Any], reported: Mapping[str, Any]) -> Refusal | None:
    """Whether the report is larger than a record may take; refused at every level."""
    if len({*known, *reported}) > MOST_VARIABLES:
        return Refusal("variables.too-many", f"A session holds at most {MOST_VARIABLES} variables.")
    for name, value in reported.items():
        if not name or len(name) > LONGEST_NAME:
            return Refusal("variables.bad-name", f"The name of a variable has 1 to {LONGEST_NAME} characters.")
        if len(json.dumps(value)) > LARGEST_VALUE:
            sentence = f"Variable '{name}' is larger than {LARGEST_VALUE} characters."
            return Refusal("variables.too-large", sentence, "Keep it in a file and report where it is.")
    if reported and len(json.dumps({**known, **reported})) > LARGEST_RECORD:
        sentence = f"The variables of a session together have at most {LARGEST_RECORD} characters."
        return Refusal("variables.too-large", sentence, "Keep large values in files and report where they are.")
    return None


def set_by_actions(actions: Iterable[Action], values: Mapping[str, Any]) -> dict[str, Any]:
    """What the `set` actions set, one after the other: a later condition sees what an earlier action set."""
    result: dict[str, Any] = {}
    for action in actions:
        given = action.action == "set" and action.value is not None
        if given and action.target and holds(action.condition, {**values, **result}):
            result[action.target] = action.value
    return result


def type_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object" if isinstance(value, Mapping) else "null"
