"""Base of all definition models: frozen, with unknown keys preserved.

The modules of models do not use `from __future__ import annotations`: it would turn every type into a string that pydantic has
to compile again when the first session starts.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, StringConstraints

Path = tuple[str | int, ...]

# Strict: if 0 or "yes" were accepted as booleans, a definition could have another meaning than its author intends.
Flag = StrictBool
Text = Annotated[str, StringConstraints(min_length=1)]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$")]
# Each letter in both cases, because editors use the same pattern and do not support flags.
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

    # Known keys without a field; None if all keys are accepted.
    further_keys: ClassVar[frozenset[str] | None] = frozenset()


def list_unknown_keys(model: Definition, path: Path = ()) -> Iterator[Path]:
    """The path of every key that no model knows, in order."""
    if model.further_keys is not None:
        yield from ((*path, key) for key in model.model_extra or () if key not in model.further_keys)
    for name, field in type(model).model_fields.items():
        yield from _list_unknown_in(getattr(model, name), (*path, field.alias or name))


def list_known_keys(model: Definition, path: Path) -> list[str]:
    """The keys that the model at `path`, which is the path of a key in it, knows; none for a mapping of any keys."""
    found: object = model
    for step in path[:-1]:
        found = _get_part(found, step)
    if not isinstance(found, Definition):
        return []
    return [*(field.alias or name for name, field in type(found).model_fields.items()), *(found.further_keys or ())]


def _get_part(value: object, step: str | int) -> object:
    if isinstance(value, Definition):
        names = (name for name, field in type(value).model_fields.items() if step in (name, field.alias))
        return getattr(value, next(names, ""), None)
    if isinstance(value, tuple) and isinstance(step, int):
        return value[step]
    return value.get(step) if isinstance(value, dict) else None


def _list_unknown_in(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, Definition):
        yield from list_unknown_keys(value, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _list_unknown_in(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _list_unknown_in(item, (*path, key))
