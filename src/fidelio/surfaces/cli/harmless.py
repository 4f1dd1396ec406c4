"""Definitions before they are shown: files bring names and texts, and none of them may forge a line or steer the terminal.

Done to the model and not to the finished text, which has line breaks and colours of our own in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from fidelio.definitions.findings import Finding
from fidelio.definitions.models import Definition
from fidelio.surfaces.cli.context import printable

T = TypeVar("T")


def harmless(part: T) -> T:
    """The same with every text in it printable."""
    cleaned: Any = _cleaned(part)
    assert isinstance(cleaned, type(part))
    return cleaned


def _cleaned(part: Any) -> Any:
    match part:
        case str():
            return printable(part)
        case Definition():
            fields = {name: _cleaned(getattr(part, name)) for name in type(part).model_fields}
            return type(part).model_construct(_fields_set=part.model_fields_set, **fields)
        case Finding():
            return replace(part, file=printable(part.file), sentence=printable(part.sentence), remedy=printable(part.remedy))
        case tuple() | list():
            return type(part)(_cleaned(one) for one in part)
        case dict():
            return {_cleaned(name): _cleaned(value) for name, value in part.items()}
        case _:
            return part
