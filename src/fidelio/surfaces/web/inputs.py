"""The form that is made from the variables of a workflow, and reading what a person has typed into it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from fidelio.app.acting import find_input_problems
from fidelio.conductor.plan import parse_inputs
from fidelio.definitions.lint.expressions import list_comparisons_in
from fidelio.definitions.models import Variable, Workflow
from fidelio.errors import UsageProblem

# The names of the fields of variables begin so.
PREFIX = "input-"
_HINTS = {"array": 'A list in JSON, such as ["one", "two"].', "object": 'An object in JSON, such as {"name": "value"}.'}


class InputField(msgspec.Struct, frozen=True):
    """A field of the form. `choices` are all values that it may have; empty if it may have any.

    `known` are values that the workflow itself uses, offered where a person may also write another.
    """

    variable: Variable
    value: str
    default: str
    problem: str
    choices: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.variable.name}"

    @property
    def is_required(self) -> bool:
        return self.variable.required and not self.default

    @property
    def hint(self) -> str:
        return _HINTS.get(self.variable.type, "")


def make_fields(workflow: Workflow, typed: Mapping[str, str], problems: Mapping[str, str]) -> list[InputField]:
    """A field for each variable, after a problem with what was typed; those that must be filled in come first."""
    known = find_known_values(workflow)
    fields = [
        InputField(
            variable,
            typed.get(f"{PREFIX}{variable.name}", ""),
            "" if variable.default_value is None else _show_value(variable.default_value),
            problems.get(variable.name, ""),
            ("true", "false") if variable.type == "boolean" else (),
            tuple(known[variable.name]) if variable.type == "string" else (),
        )
        for variable in workflow.variables
    ]
    return sorted(fields, key=lambda field: not field.is_required)


def find_known_values(workflow: Workflow) -> Mapping[str, Collection[str]]:
    """The texts that variables are compared with, and that answers set them to, in the order of the definition."""
    known = defaultdict[str, dict[str, None]](dict)
    for activity in workflow.activities:
        pairs = [(comparison.variable, comparison.value) for comparison, *_ in list_comparisons_in(activity)]
        for option in (option for checkpoint in activity.checkpoints for option in checkpoint.options):
            pairs += (option.effect.set_variable if option.effect else {}).items()
        for variable, value in pairs:
            if isinstance(value, str):
                known[variable][value] = None
    return known


def _show_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def read_inputs(workflow: Workflow, fields: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the variables that were filled in, and what is wrong, by the names of variables."""
    inputs, problems = dict[str, Any](), dict[str, str]()
    for variable in workflow.variables:
        if text := fields.get(f"{PREFIX}{variable.name}", "").strip():
            try:
                inputs |= parse_inputs([f"{variable.name}={text}"], workflow)
            except UsageProblem as problem:
                problems[variable.name] = str(problem)
    return inputs, {**find_input_problems(workflow, inputs), **problems}
