"""Models of conditions: four types, distinguished by `type`.

Conditions are data, not expressions, so they can be checked statically, drawn, explained, and compared with an agent's claims.
A file may have a line of text instead, which is parsed to the same data. `definitions.conditions` evaluates them.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

from fidelio.definitions.models.base import Definition, Text
from fidelio.definitions.short_conditions import ShortConditionError, parse_short_condition

Operator = Literal["==", "!=", ">", "<", ">=", "<=", "exists", "notExists"]
Scalar = StrictBool | StrictInt | StrictFloat | StrictStr | None


class Simple(Definition):
    """Compares a variable with a value."""

    type: Literal["simple"]
    variable: Text = Field(description="The variable to compare; dots refer to members of objects and lists.")
    operator: Operator = Field(description="How to compare. `exists` and `notExists` ignore the value.")
    value: Scalar = Field(default=None, description="What to compare with: text, a number, true, false or null.")


class And(Definition):
    """Holds if all its conditions hold."""

    type: Literal["and"]
    conditions: tuple["Condition", ...] = Field(min_length=2, description="At least two conditions.")


class Or(Definition):
    """Holds if any of its conditions holds."""

    type: Literal["or"]
    conditions: tuple["Condition", ...] = Field(min_length=2, description="At least two conditions.")


class Not(Definition):
    """Holds if its condition does not."""

    type: Literal["not"]
    condition: "Condition" = Field(description="Exactly one condition.")


SHORT_CONDITION = "short_condition"
_EXAMPLE = 'count > 3 and not done or name == "core"'


def _parse_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_short_condition(value)
    except ShortConditionError as error:
        remedy = f"{error.remedy} For example: `{_EXAMPLE}`."
        context: dict[str, Any] = {"offset": error.offset, "sentence": error.sentence, "remedy": remedy}
        raise PydanticCustomError(SHORT_CONDITION, "{sentence}", context) from error


_Structured = Annotated[Simple | And | Or | Not, Field(discriminator="type")]
# The input type is wider than the validated type; the schema for editors describes the input.
Condition = Annotated[_Structured, BeforeValidator(_parse_text, json_schema_input_type=_Structured | str)]
