"""Models of conditions: four types, distinguished by `type`.

Conditions are data, not expressions, so they can be checked statically, drawn, explained, and compared with an agent's claims.
`definitions.conditions` evaluates them.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from fidelio.definitions.models.base import Definition, Text

Operator = Literal["==", "!=", ">", "<", ">=", "<=", "exists", "notExists"]
Scalar = StrictBool | StrictInt | StrictFloat | StrictStr | None


class Simple(Definition):
    """Compares one variable with one value."""

    type: Literal["simple"]
    variable: Text = Field(description="The variable to look at; dots lead into objects and lists.")
    operator: Operator = Field(description="How to compare. `exists` and `notExists` ignore the value.")
    value: Scalar = Field(default=None, description="What to compare with: text, a number, true, false or null.")


class And(Definition):
    """Holds when every part holds."""

    type: Literal["and"]
    conditions: tuple["Condition", ...] = Field(min_length=2, description="At least two conditions.")


class Or(Definition):
    """Holds when at least one part holds."""

    type: Literal["or"]
    conditions: tuple["Condition", ...] = Field(min_length=2, description="At least two conditions.")


class Not(Definition):
    """Holds when its part does not."""

    type: Literal["not"]
    condition: "Condition" = Field(description="Exactly one condition.")


Condition = Annotated[Simple | And | Or | Not, Field(discriminator="type")]


def variables_in(condition: Condition) -> Iterator[str]:
    """Every variable that the condition looks at, in reading order, repeated where it is repeated."""
    match condition:
        case Simple():
            yield condition.variable
        case Not():
            yield from variables_in(condition.condition)
        case And() | Or():
            for part in condition.conditions:
                yield from variables_in(part)
