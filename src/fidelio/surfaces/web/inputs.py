"""The form that is made from the variables of a workflow, and reading what a person has typed into it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.conductor.plan import parse_inputs
from fidelio.definitions.models import Variable, Workflow
from fidelio.engine.variables import check_variables, find_missing_required
from fidelio.errors import UsageProblem

# The names of the fields of variables begin so.
PREFIX = "input-"
_HINTS = {"array": 'A list in JSON, such as ["one", "two"].', "object": 'An object in JSON, such as {"name": "value"}.'}


class InputField(msgspec.Struct, frozen=True):
    """A field of the form. `choices` are all values that it may have; empty if it may have any."""

    variable: Variable
    value: str
    default: str
    problem: str
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.variable.name}"

    @property
    def is_required(self) -> bool:
        return self.variable.required and not self.default

    @property
    def hint(self) -> str:
        return _HINTS.get(self.variable.type, "")


def make_field(variable: Variable, typed: Mapping[str, str], problems: Mapping[str, str]) -> InputField:
    """The field of a variable, after a problem with what was typed."""
    default = variable.default_value
    return InputField(
        variable,
        typed.get(f"{PREFIX}{variable.name}", ""),
        "" if default is None else _show_value(default),
        problems.get(variable.name, ""),
        ("true", "false") if variable.type == "boolean" else (),
    )


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
                continue
            for found in check_variables(workflow, {variable.name: inputs[variable.name]}):
                problems[variable.name] = found.sentence
    missing = (name for name in find_missing_required(workflow, inputs) if name not in problems)
    return inputs, {**problems, **dict.fromkeys(missing, "The workflow cannot begin without it.")}
