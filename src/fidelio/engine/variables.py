"""Variables: whether a reported value fits its declaration, and what entering and leaving an activity sets.

Only a `set` action with a value can be carried out here; one that merely describes what to set is the agent's work.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fidelio.definitions.conditions import MISSING, holds, look_up, same
from fidelio.engine import phrases
from fidelio.engine.checkpoints import demands_person, find_checkpoint
from fidelio.engine.problems import Problem, Refusal
from fidelio.engine.record import BY_ANSWER, VARIABLES_SET, Draft
from fidelio.engine.scope import known, told
from fidelio.engine.state import Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Action, Condition, Step, Workflow

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


def without_value(conditions: Iterable[Condition], workflow: Workflow, record: Record) -> list[str]:
    """The variables that the conditions look at and that nobody has set."""
    said = told(workflow, record)
    asked = (name for condition in conditions for name in variables_in(condition))
    return [name for name in dict.fromkeys(asked) if look_up(name, said) is MISSING]


def report_these(workflow: Workflow, names: Iterable[str]) -> str:
    """How to make them known: by the names that the workflow declares, where a condition looks at a part of one."""
    declared = {variable.name for variable in workflow.variables}
    wholes = dict.fromkeys(name if name in declared else name.partition(".")[0] for name in names)
    return f"Report {' and '.join(wholes)} in `variables`."


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


def check_report(workflow: Workflow, record: Record, reported: Mapping[str, Any], *, person: bool = False) -> list[Problem]:
    """What is wrong with what an agent reports: beside the declarations, that an answer has said otherwise.

    `person`: the server wants people to answer everything.
    """
    return [*check_variables(workflow, reported), *contradicted(workflow, record, reported, person=person)] if reported else []


def contradicted(workflow: Workflow, record: Record, reported: Mapping[str, Any], *, person: bool = False) -> list[Problem]:
    """The variables that an answer has set to something else."""
    return [
        Problem("answered-variable", phrases.set_by_answer(name, checkpoint), "Leave it out, or have the question asked anew.")
        for name, value in reported.items()
        if (checkpoint := _contradicting(workflow, record, name, value, person=person))
    ]


def telling(
    workflow: Workflow, record: Record, reported: Mapping[str, Any], agent: str, *, person: bool = False
) -> list[Draft]:
    """What puts an agent's report on record, nothing when it reported nothing. What an answer has settled stays as it is."""
    if not reported:
        return []
    body: dict[str, Any] = {"variables": {}, "by": f"agent:{agent}"}
    for name, value in reported.items():
        part = "not_taken" if _contradicting(workflow, record, name, value, person=person) else "variables"
        body.setdefault(part, {})[name] = value
    return [Draft(VARIABLES_SET, body)]


def _contradicting(workflow: Workflow, record: Record, name: str, value: Any, *, person: bool) -> str:
    """The checkpoint whose answer has set the variable to something else; empty where none has."""
    checkpoint = settled_by(workflow, record, name, person=person)
    return "" if not checkpoint or same(look_up(name, record.variables), value) else checkpoint


def settled_by(workflow: Workflow | None, record: Record, name: str, *, person: bool = False) -> str:
    """The checkpoint whose answer has settled the variable, or the whole that it is a part of; empty when none has.

    What only a person may answer is settled for good: otherwise a model could answer for the person after all. Any other answer
    settles it for the visit in which it was given. Later work may come to something else, such as that what had to be mended is
    mended; and a model that may pass on answers could have passed on another.
    """
    while name and name not in record.set_by:
        name = name.rpartition(".")[0]
    author = record.set_by.get(name, "")
    if not author.startswith(BY_ANSWER):
        return ""
    place, _, rest = author.removeprefix(BY_ANSWER).partition("/")
    checkpoint = rest.rpartition("/")[0]
    here = place == record.activity and record.answer_to(checkpoint) is not None
    return checkpoint if here or person or _demanded(workflow, place, checkpoint) else ""


def _demanded(workflow: Workflow | None, place: str, checkpoint: str) -> bool:
    """Whether a person was demanded; what the definition has lost may have demanded one."""
    activity = workflow.activity(place) if workflow is not None else None
    found = find_checkpoint(activity, checkpoint) if activity is not None else None
    return workflow is None or found is None or demands_person(workflow, found)


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


def set_by_step(workflow: Workflow, record: Record, step: Step, *, but_not: Collection[str] = ()) -> list[Draft]:
    """What puts the `set` actions of a step that is done on record; `but_not` are variables that it leaves alone."""
    found = set_by_actions(step.actions, known(workflow, record)) if step.actions else {}
    changed = {name: value for name, value in found.items() if name not in but_not}
    author = f"step:{record.activity}/{step.id}"
    return [Draft(VARIABLES_SET, {"variables": changed, "by": author})] if changed else []


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
