"""Where a workflow goes on: the first way that holds, as the definition writes them."""

from __future__ import annotations

import msgspec

from fidelio.definitions.models import Workflow
from fidelio.engine.record import Record
from fidelio.engine.transitions import open_ways
from fidelio.engine.variables import variables_in, without_value


class Onward(msgspec.Struct, frozen=True):
    """The way to take, and the condition that it is taken for."""

    to: str
    claim: str | None


class Undecided(msgspec.Struct, frozen=True):
    """What nobody has said yet, and what decides."""

    variables: tuple[str, ...]


class NoWay(msgspec.Struct, frozen=True):
    """The definition leads nowhere from here."""


def choose(workflow: Workflow, record: Record) -> Onward | Undecided | NoWay:
    candidates = open_ways(workflow, record)
    certain = next((way for way in candidates if way.holds is True), None)
    if certain is not None:
        return Onward(certain.to, certain.condition or None)
    conditions = [way.when for way in candidates if way.when is not None]
    if conditions:
        unsaid = without_value(conditions, workflow, record)
        return Undecided(tuple(unsaid or dict.fromkeys(name for one in conditions for name in variables_in(one))))
    return Onward(candidates[0].to, candidates[0].condition or None) if candidates else NoWay()
