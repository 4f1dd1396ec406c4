"""Base of all definition models: frozen, and unknown keys are kept.

The modules of models do not use `from __future__ import annotations`: it would turn every type into a string that pydantic has
to compile again when the first session starts.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, StringConstraints

Path = tuple[str | int, ...]

# `False` is not 0 and "yes" is not true: a definition that mixes them up means something else than its author thinks.
Flag = StrictBool
Text = Annotated[str, StringConstraints(min_length=1)]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$")]
# Spelt out letter by letter, because editors check the same pattern and know no flags.
_MINUTES, _HOURS, _DAYS = (
    "[mM]([iI][nN]([sS]|[uU][tT][eE][sS]?)?)?",
    "[hH]([rR][sS]?|[oO][uU][rR][sS]?)?",
    "[dD]([aA][yY][sS]?)?",
)
Duration = Annotated[str, StringConstraints(pattern=rf"^[0-9]+(-[0-9]+)? *({_MINUTES}|{_HOURS}|{_DAYS})?$")]


def _index_as_text(value: object) -> object:
    # YAML reads a bare 02 as the number 2; as a resource index both mean the same file.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Reference = Annotated[str, BeforeValidator(_index_as_text, json_schema_input_type=str | int), StringConstraints(min_length=1)]


class Definition(BaseModel):
    """Base of every model. Keys that the model does not know stay in `model_extra`."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True, serialize_by_alias=True)

    # Keys without a field of their own that are known nevertheless; None where any key is welcome.
    further_keys: ClassVar[frozenset[str] | None] = frozenset()


def unknown_keys(model: Definition, path: Path = ()) -> Iterator[Path]:
    """The place of every key that no model knows, in reading order."""
    if model.further_keys is not None:
        yield from ((*path, key) for key in model.model_extra or () if key not in model.further_keys)
    for name, field in type(model).model_fields.items():
        yield from _unknown_in(getattr(model, name), (*path, field.alias or name))


def _unknown_in(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, Definition):
        yield from unknown_keys(value, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _unknown_in(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown_in(item, (*path, key))
