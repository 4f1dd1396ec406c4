"""Settings written as TOML, which the standard library only reads. One line for each key, tables within the line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def to_toml(settings: Mapping[str, Any]) -> str:
    return "".join(f"{_text(key)} = {_value(value)}\n" for key, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return json.dumps(value, allow_nan=False)


def _text(text: str) -> str:
    # JSON and TOML quote alike, except for one control character and for pairs of surrogates, which JSON need not use.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def is_settings(value: Any) -> bool:
    """Whether it can be written: texts, numbers, truths, lists and tables of such."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_settings(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(is_settings(inner) for inner in value)
    return isinstance(value, str | int | float)
