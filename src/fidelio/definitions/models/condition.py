"""Models of conditions: four types, distinguished by `type`.

Conditions are data, not expressions, so they can be checked statically, drawn, explained, and compared with an agent's claims.
`definitions.conditions` evaluates them.
"""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from fidelio.definitions.models.base import Definition, Text

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


Condition = Annotated[Simple | And | Or | Not, Field(discriminator="type")]
