"""Tries what others wrote: JSON Schemas and regular expressions, a few words of which can keep a machine busy for years.

Also a program. Run by its path it reads one question, prints one answer, and is ended by the system when it has used up its
time, even if nobody waits for it any more. It imports nothing of ours, so that it starts quickly.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

SECONDS = 2
MOST_BYTES = 1 << 30
MOST_FAULTS = 5
LONGEST_VALUE = 120

Schema = Mapping[str, Any]


def schema_fault(schema: Schema) -> str:
    """What is wrong with the schema itself; an empty text when it can be used."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415  # slow to import

    try:
        if outside := next(_references_outside(schema), None):
            return f"It refers to {outside!r:.80}, and nothing outside of it is read."
        Draft202012Validator.check_schema(schema)
    except SchemaError as problem:
        return _sentence(problem)
    except RecursionError:
        return "It is nested too deeply."
    return ""


def misfit(schema: Schema, value: Any) -> tuple[str, str]:
    """Why the schema cannot be used, and how the value does not fit it: both empty when all is well."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  # most blueprints have no schema, and it is slow to import
    from referencing import Registry  # noqa: PLC0415  # as above
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  # as above

    # The registry is empty on purpose: left out, references to addresses would be fetched.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        found = sorted((_place(problem), _sentence(problem)) for problem in validator.iter_errors(value))
    except (Unresolvable, RecursionError) as problem:
        return f"It refers to what is not there, or to itself: {problem!s:.200}.", ""
    except OverflowError:
        return "", "A number is too large to be checked."
    said = [sentence for _, sentence in found[:MOST_FAULTS]]
    return "", " ".join(said) + (f" ({len(found) - MOST_FAULTS} more.)" if len(found) > MOST_FAULTS else "")


def patterns_fault(patterns: Iterable[str]) -> str:
    """What is wrong with the first regular expression that is wrong; an empty text when all can be used."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            return f"{pattern!r:.80} is no regular expression: {problem}."
    return ""


def first_match(pattern: str, text: str) -> list[str | None]:
    """The first group of the first place that matches, or all of it; nothing where there is no such place."""
    match = re.search(pattern, text)
    return [] if match is None else [match[1] if match.re.groups else match[0]]


QUESTIONS: Mapping[str, Callable[..., Any]] = {
    "schema": schema_fault,
    "misfit": misfit,
    "patterns": patterns_fault,
    "first-match": first_match,
}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    # Not every system can limit this; the time is limited on all of them.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    question, *about = json.load(sys.stdin.buffer)
    json.dump(QUESTIONS[question](*about), sys.stdout)


def _place(problem: Any) -> list[str]:
    return [str(step) for step in problem.absolute_path]


def _sentence(problem: Any) -> str:
    """One sentence. The validator repeats the whole value, which may be a megabyte."""
    where = ".".join(_place(problem))
    said = problem.message if len(problem.message) <= LONGEST_VALUE else f"{problem.message[:LONGEST_VALUE]}…"
    return f"`{where}`: {said}." if where else f"{said}."


def _references_outside(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key in ("$ref", "$dynamicRef"):
            if isinstance(part.get(key), str) and not part[key].startswith("#"):
                yield part[key]
    values = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    for value in values:
        yield from _references_outside(value)


if __name__ == "__main__":
    main()
