"""Validate plain data with a model, and report each error at its line.

The model knows the error and its path, the document the position of the path. The sentences are written for authors of
workflows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.models.base import Definition
from fidelio.definitions.models.condition import SHORT_CONDITION
from fidelio.definitions.reading.document import ParsedDocument
from fidelio.definitions.reading.positions import Path
from fidelio.errors import UnreadableDefinition

Model = TypeVar("Model", bound=Definition)

_KINDS = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_SENTENCES = {
    "missing": ("is missing.", "Add `{key}:`."),
    "literal_error": ("cannot be {value!r}.", "It is one of {expected}."),
    "union_tag_not_found": ("has no `type`.", "Give the condition one of the types simple, and, or, not."),
    "union_tag_invalid": ("has the unknown type {tag!r}.", "It is one of {expected_tags}."),
    "too_short": ("has too few entries.", "At least {min_length} are needed."),
    "string_too_short": ("is empty.", "Write at least one character."),
    "greater_than": ("has to be greater than {gt}, but is {value}.", "Write a larger number, or leave it out."),
}
# How near a key has to be to the missing one, so that it is not another key of its own.
_SIMILARITY = 0.75


def validate(model: type[Model], document: ParsedDocument, data: object = None, under: Path = ()) -> Model:
    """The model, or `UnreadableDefinition` with a finding for each error. `data` is the part of the document at `under`."""
    data = document.data if data is None else data
    if not isinstance(data, dict):
        what = "The file is empty." if data in (None, "") else f"The file holds {name_kind(data)} where a mapping is expected."
        raise UnreadableDefinition([error(document.name, "schema", what, "Begin with `id:`.", at=document.at(under))])
    if not data and not under:
        raise UnreadableDefinition([error(document.name, "schema", "The file is empty.", "Begin with `id:`.")])
    try:
        return model.model_validate(data)
    except ValidationError as problem:
        if keys := find_newer_keys(document.data):
            sentence = describe_newer_generation(keys)
            at = document.at(tuple(keys[:1]))
            raise UnreadableDefinition(
                [error(document.name, "newer-generation", sentence, NEWER_GENERATION_REMEDY, at=at)]
            ) from None
        raise UnreadableDefinition(_list_findings(problem, document, data, under)) from None


# Keys by which a file of a newer generation of the format is known, with what they hold there.
_STEP_KINDS = frozenset({"step", "action", "checkpoint", "loop", "decision", "trigger"})
NEWER_GENERATION_REMEDY = (
    "Use a version of the workflow from before that change, or convert it: rules as a list, skills instead of techniques and "
    "fragments, and checkpoints, decisions and loops in lists of their own beside the steps."
)


def find_newer_keys(data: object) -> list[str]:
    """The keys that only files of a newer generation of the format have, in the file itself or in the activities in it."""
    if not isinstance(data, dict):
        return []
    activities = data.get("activities")
    inner = (key for each in activities for key in find_newer_keys(each)) if isinstance(activities, list) else ()
    return list(dict.fromkeys([*_find_own_newer_keys(data), *inner]))


def _find_own_newer_keys(data: Mapping[str, Any]) -> list[str]:
    keys = [key for key in ("techniques", "fragments") if isinstance(data.get(key), (dict, list))]
    steps = data.get("steps")
    if isinstance(steps, list) and any(isinstance(step, dict) and step.get("kind") in _STEP_KINDS for step in steps):
        keys.append("steps")
    # A skill has had rules as a mapping from the beginning.
    if isinstance(data.get("rules"), dict) and (keys or data.keys() & {"initialActivity", "activities", "variables", "steps"}):
        keys.append("rules")
    return keys


def describe_newer_generation(keys: Sequence[str]) -> str:
    words = {"steps": "steps with `kind`", "rules": "`rules` as a mapping"}
    said = " and ".join(words.get(key, f"`{key}`") for key in keys)
    return f"This file is of a newer generation of the workflow-server format than Fidelio reads: it has {said}."


def _list_findings(problem: ValidationError, document: ParsedDocument, data: Any, under: Path) -> list[Finding]:
    errors = [
        (_find_path(data, details["loc"]), details) for details in problem.errors(include_url=False, include_context=True)
    ]
    paths = [path for path, _ in errors]
    # A value of a union type causes an error for each member; the deepest error is the useful one.
    reported = {path: details for path, details in reversed(errors) if not any(_is_inside(other, path) for other in paths)}
    return sorted(_make_finding(document, (*under, *path), details) for path, details in reported.items())


def _is_inside(longer: Path, path: Path) -> bool:
    return len(longer) > len(path) and longer[: len(path)] == path


def _find_path(data: Any, location: tuple[str | int, ...]) -> Path:
    """The path of the error in the data, without the names of union members that pydantic inserts."""
    path: list[str | int] = []
    for index, step in enumerate(location):
        inside = (isinstance(data, dict) and step in data) or (isinstance(data, list) and isinstance(step, int))
        if inside:
            data = data[step]
        if inside or (index == len(location) - 1 and isinstance(data, dict) and "[" not in str(step)):
            path.append(step)
    return tuple(path)


def _make_finding(document: ParsedDocument, path: Path, details: ErrorDetails) -> Finding:
    where = ".".join(str(step + 1) if isinstance(step, int) else step for step in path)
    if details["type"] == SHORT_CONDITION:
        context = details["ctx"]
        at = find_in_value(document, path, details["input"], context["offset"])
        return error(document.name, "schema", f"`{where}` cannot be read: {context['sentence']}", context["remedy"], at=at)
    if details["type"] == "missing" and (key := _find_misspelt(path[-1], details["input"])):
        remedy = f"Did you mean {path[-1]}? Rename the key."
        at = document.at((*path[:-1], key))
        return error(document.name, "schema", f"`{where}` is missing, but there is `{key}`.", remedy, at=at)
    sentence, remedy = _describe_error(document, path, details)
    return error(document.name, "schema", f"`{where}` {sentence}", remedy, at=document.at(path))


def _find_misspelt(missing: str | int, mapping: object) -> str:
    """The key of a mapping that is nearly the missing key; empty if there is none."""
    near = get_close_matches(str(missing), map(str, mapping), n=1, cutoff=_SIMILARITY) if isinstance(mapping, dict) else []
    return near[0] if near else ""


def find_in_value(document: ParsedDocument, path: Path, value: str, offset: int) -> tuple[int, int]:
    """The position of a character of a text at `path`, or of its key if the text is not on a line as it is."""
    line, column = document.at(path)
    found = document.text.splitlines()[line - 1].find(value, column - 1)
    return (line, found + 1 + offset) if found >= 0 else (line, column)


def _describe_error(document: ParsedDocument, path: Path, details: ErrorDetails) -> tuple[str, str]:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind in _EXPECTED:
        return f"has to be {_EXPECTED[kind]}, but is {name_kind(value)}.", _suggest_remedy(document, kind, value)
    if kind == "string_pattern_mismatch":
        return f"cannot be {value!r}.", _suggest_pattern(path)
    sentence, remedy = _SENTENCES.get(kind, ("is not valid: {msg}.", ""))
    words = {"key": path[-1] if path else "", "value": value, "msg": details["msg"], "min_length": 1, **context}
    return sentence.format_map(words), remedy.format_map(words)


def _suggest_remedy(document: ParsedDocument, kind: str, value: object) -> str:
    if kind != "string_type":
        return "See the reference of the definition files."
    if document.format == "toon" and isinstance(value, dict) and len(value) == 1:
        return "Put the line in quotes: a bare item with a colon is read as a key and its value."
    return "Put it in quotes." if isinstance(value, (bool, int, float)) else "Write it as text."


def _suggest_pattern(path: Path) -> str:
    return "Write three numbers, such as 1.0.0." if path[-1] == "version" else "Write a duration such as 10m, 1-2h or 3 days."


def name_kind(value: object) -> str:
    return "nothing" if value is None else _KINDS.get(type(value), "something else")
