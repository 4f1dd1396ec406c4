"""Variables of a session: check reported values, and evaluate the `set` actions of the definition.

Only a `set` action with a value is carried out here; one that merely describes the value is left to the agent.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fidelio.definitions.conditions import MISSING, holds, is_equal, list_variables, look_up, name_type
from fidelio.engine import phrases
from fidelio.engine.checkpoints import demands_person, find_checkpoint
from fidelio.engine.record import BY_ANSWER, VARIABLES_SET, EventDraft
from fidelio.engine.scope import add_defaults, collect_reported_values, collect_values, find_loop_items
from fidelio.engine.state import Problem, Record, Refusal

if TYPE_CHECKING:
    from fidelio.definitions.models import Action, Activity, Condition, Step, Workflow

# The record is stored with every event, so values from agents are bounded.
MAX_VALUE_LENGTH = 16_384
MAX_VARIABLES_LENGTH = 262_144
MAX_NAME_LENGTH = 128
MAX_VARIABLES = 500


def find_unset_variables(conditions: Iterable[Condition], workflow: Workflow, record: Record) -> list[str]:
    """The variables of the conditions that are not set."""
    reported_values = collect_reported_values(workflow, record)
    names = (name for condition in conditions for name in list_variables(condition))
    return [name for name in dict.fromkeys(names) if look_up(name, reported_values) is MISSING]


def suggest_report(workflow: Workflow, names: Iterable[str]) -> str:
    """A remedy that names the declared variables to report; a dotted name is reported as its whole object."""
    declared = {variable.name for variable in workflow.variables}
    wholes = dict.fromkeys(name if name in declared else name.partition(".")[0] for name in names)
    return f"Report {' and '.join(wholes)} in `variables`."


# Characters that look like nothing although they count as letters or symbols.
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159\U00013441\U00013442")


def is_blank(text: str) -> bool:
    """Whether a person would see nothing: only spaces, control characters, zero-width characters, fillers and lone accents."""
    # Looking at the first character decides nearly always: without it the outputs of a manifest cost 3 percent of a call.
    if (first := text[:1]).isascii() and first.isalnum():
        return False
    return all(unicodedata.category(sign)[0] in "CZM" or sign in _FILLERS for sign in text)


def find_missing_required(workflow: Workflow, variables: Mapping[str, Any]) -> list[str]:
    """The required variables that have neither a value nor a default. A text in which nothing can be seen is no value."""
    values = add_defaults(workflow, variables)
    required = (variable.name for variable in workflow.variables if variable.required)
    found = ((name, look_up(name, values)) for name in required)
    return [name for name, value in found if value in (MISSING, None) or (isinstance(value, str) and is_blank(value))]


def check_required_variables(workflow: Workflow, record: Record) -> list[Problem]:
    """The required variables that are not set before the first activity. The start has warned of them, so this is a doubt."""
    names = find_missing_required(workflow, record.variables) if not record.visits else []
    if not names:
        return []
    sentence = phrases.required_variables(workflow.id, names)
    return [Problem("required-variables", sentence, suggest_report(workflow, names), doubt=True)]


def check_variables(workflow: Workflow, reported: Mapping[str, Any]) -> list[Problem]:
    """Find undeclared names and values that do not have the declared type."""
    if not reported:
        return []
    declared = {variable.name: variable.type for variable in workflow.variables}
    unknown = [name for name in reported if name not in declared]
    problems = [Problem("undeclared", phrases.undeclared_variables(unknown))] if unknown else []
    for name, value in reported.items():
        if name in declared and value is not None and name_type(value) != declared[name]:
            problems.append(Problem("wrong-type", phrases.wrong_type(name, declared[name], name_type(value))))
    return problems


def check_report(workflow: Workflow, record: Record, reported: Mapping[str, Any], *, person: bool = False) -> list[Problem]:
    """The problems of reported variables: wrong names and types, and contradictions to answers.

    `person`: the server demands people for all answers.
    """
    return [*check_variables(workflow, reported), *find_contradictions(workflow, record, reported, person=person)]


def find_contradictions(
    workflow: Workflow, record: Record, reported: Mapping[str, Any], *, person: bool = False
) -> list[Problem]:
    """The variables that an answer has set to another value."""
    return [
        Problem(
            "answered-variable", phrases.contradicts_answer(name, checkpoint), "Leave it out, or open the checkpoint again."
        )
        for name, value in reported.items()
        if (checkpoint := _find_contradicting_checkpoint(workflow, record, name, value, person=person))
    ]


def draft_report(
    workflow: Workflow, record: Record, reported: Mapping[str, Any], author: str, *, person: bool = False
) -> list[EventDraft]:
    """The event that records what `author` reports, if anything. Values that an answer has settled are not changed."""
    if not reported:
        return []
    body: dict[str, Any] = {"variables": {}, "by": author}
    for name, value in reported.items():
        part = "not_taken" if _find_contradicting_checkpoint(workflow, record, name, value, person=person) else "variables"
        body.setdefault(part, {})[name] = value
    return [EventDraft(VARIABLES_SET, {**body, **_keep_replaced_lists(workflow, record, body["variables"])})]


def _keep_replaced_lists(
    workflow: Workflow, record: Record, changed: Mapping[str, Any], *, step: str = ""
) -> dict[str, dict[str, list[Any]]]:
    """The lists that loops of the current activity were to go over and that a report or their own `step` replaces."""
    activity, found = workflow.activity(record.activity), dict[str, list[Any]]()
    for loop in activity.loops if activity is not None else ():
        if step and step not in [inner.id for inner in loop.steps]:
            continue
        known = find_loop_items(loop, collect_values(workflow, record)) or ()
        after = find_loop_items(loop, add_defaults(workflow, {**record.variables, **changed}))
        if after != known and len(known) > len(record.here.loop_items.get(loop.id, ())):
            found[loop.id] = list(known)
    return {"loop_items": found} if found else {}


def _find_contradicting_checkpoint(workflow: Workflow, record: Record, name: str, value: Any, *, person: bool) -> str:
    """The checkpoint whose answer has set the variable to another value; empty if there is none."""
    checkpoint = find_settling_checkpoint(workflow, record, name, person=person)
    return "" if not checkpoint or is_equal(look_up(name, record.variables), value) else checkpoint


def find_settling_checkpoint(workflow: Workflow | None, record: Record, name: str, *, person: bool = False) -> str:
    """The checkpoint whose answer has settled the variable, or the object that contains it; empty if there is none.

    An answer that only a person may give settles its variables permanently: otherwise a model could change the person's answer.
    Any other answer settles them for the visit in which it was given. Later work may change the value, for example when a
    defect is repaired; and a model that may relay answers could have relayed another one.
    """
    while name and name not in record.set_by:
        name = name.rpartition(".")[0]
    author = record.set_by.get(name, "")
    if not author.startswith(BY_ANSWER):
        return ""
    activity_id, _, rest = author.removeprefix(BY_ANSWER).partition("/")
    checkpoint = rest.rpartition("/")[0]
    here = activity_id == record.activity and record.find_answer(checkpoint) is not None
    demanded = person or record.person or _was_person_demanded(workflow, activity_id, checkpoint)
    return checkpoint if here or demanded else ""


def _was_person_demanded(workflow: Workflow | None, activity_id: str, checkpoint: str) -> bool:
    """Whether the checkpoint demanded a person; assumed if the definition no longer contains it."""
    activity = workflow.activity(activity_id) if workflow is not None else None
    found = find_checkpoint(activity, checkpoint) if activity is not None else None
    return workflow is None or found is None or demands_person(workflow, found)


def was_settled_before(number: int, condition: Condition, record: Record, activity: Activity) -> bool:
    """Whether all variables of the condition had their current value already when the step was due."""
    names = {name.partition(".")[0] for name in list_variables(condition)}
    recent = [name for name in record.here.changed if name in names or name.partition(".")[0] in names]
    return all(was_set_before(number, record.set_by.get(name, ""), activity) for name in recent)


def was_set_before(number: int, author: str, activity: Activity) -> bool:
    if author == f"entry:{activity.id}":
        return True
    prefix = f"{BY_ANSWER}{activity.id}/"
    if not author.startswith(prefix):
        return False
    checkpoint = author.removeprefix(prefix).rpartition("/")[0]
    return any(step.checkpoint == checkpoint for step in activity.steps[: number + 1])


def check_size(known: Mapping[str, Any], reported: Mapping[str, Any]) -> Refusal | None:
    """Refuse a report that exceeds the limits of a record, at every level."""
    if len({*known, *reported}) > MAX_VARIABLES:
        return Refusal("variables.too-many", f"A session holds at most {MAX_VARIABLES} variables.")
    for name, value in reported.items():
        if not name or len(name) > MAX_NAME_LENGTH:
            return Refusal("variables.bad-name", f"The name of a variable has 1 to {MAX_NAME_LENGTH} characters.")
        if len(json.dumps(value)) > MAX_VALUE_LENGTH:
            sentence = f"Variable '{name}' is larger than {MAX_VALUE_LENGTH} characters."
            return Refusal("variables.too-large", sentence, "Keep it in a file and report where it is.")
    if reported and len(json.dumps({**known, **reported})) > MAX_VARIABLES_LENGTH:
        sentence = f"The variables of a session together have at most {MAX_VARIABLES_LENGTH} characters."
        return Refusal("variables.too-large", sentence, "Keep large values in files and report where they are.")
    return None


def draft_step_variables(workflow: Workflow, record: Record, step: Step, *, exclude: Collection[str] = ()) -> list[EventDraft]:
    """The event that records the `set` actions of a completed step, without the variables in `exclude`."""
    found = evaluate_set_actions(step.actions, collect_values(workflow, record)) if step.actions else {}
    changed = {name: value for name, value in found.items() if name not in exclude}
    body = {"variables": changed, "by": f"step:{record.activity}/{step.id}"}
    replaced = _keep_replaced_lists(workflow, record, changed, step=step.id) if changed else {}
    return [EventDraft(VARIABLES_SET, {**body, **replaced})] if changed else []


def evaluate_set_actions(actions: Iterable[Action], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the `set` actions set, in order: a later condition sees the values of earlier actions."""
    result: dict[str, Any] = {}
    for action in actions:
        has_value = action.action == "set" and action.value is not None
        if has_value and action.target and holds(action.condition, {**values, **result}):
            result[action.target] = action.value
    return result
